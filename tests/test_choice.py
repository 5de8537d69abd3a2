"""Device choice and walk in torch operations against the host's rule, bit for bit; rows N02, N10, N15, N16, E38."""

from __future__ import annotations

import random

import pytest
import torch
from round_cases import random_tree

from dominotree.gpu.choice import best_two, choose_rows, noise_at, walk_rows
from dominotree.gpu.device_tree import DeviceTree
from dominotree.gpu.round_record import pack, unpack
from dominotree.sampling import NEAR_TIE, Chooser, gumbel_noise
from dominotree.tree import walk


@pytest.mark.parametrize("seed", [0, 9, 2**40 + 3, 2**63 - 1])
def test_N10_noise_is_the_choosers_bit_for_bit(seed: int) -> None:
    positions = torch.tensor([3, 700, 2**33])
    noise = noise_at(torch.tensor([seed]), positions, 321)
    for row, position in zip(noise, positions.tolist(), strict=True):
        assert torch.equal(row, gumbel_noise(seed, position, 321))


def test_N02_N15_best_two_takes_the_lower_id() -> None:
    rows = torch.tensor([[3.0, 2, 3, 2, 1, 1], [0, 0, 0, 0, 0, 0], [-float("inf")] * 4 + [1, 0]])
    found = best_two(rows)
    assert found.token.tolist() == [0, 0, 4] and found.runner_up.tolist() == [2, 1, 5]
    assert found.gap.tolist() == [0.0, 0.0, 1.0]
    assert best_two(torch.tensor([[1.0, float("nan"), 2.0]])).token.tolist() == [3], "NaN chooses no token"
    half = torch.tensor([[1.0, 11.06, 11.0, -3.0]], dtype=torch.float16).float()
    one, depth = torch.tensor([4]), torch.zeros(1, dtype=torch.long)
    for temperature in (1e-8, 1e-5):
        t = torch.tensor([temperature], dtype=torch.float64)
        assert choose_rows(half, depth, 0, one, one, t).token.tolist() == [1]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(("vocab", "nodes", "room"), [(64, 7, 9), (321, 16, 16), (65, 40, 40)])
def test_choices_and_walk_are_the_hosts(temperature: float, vocab: int, nodes: int, room: int) -> None:
    rng, generator = random.Random(vocab + nodes), torch.Generator().manual_seed(nodes)
    levels, deep = 8, 0
    longest = min(levels, room) + 1
    tree = DeviceTree(room + 1, torch.device("cpu"))
    for trial in range(24):
        seed, position = rng.randrange(2**62), rng.choice([5, 700, 2**33])
        built = random_tree(nodes, levels, vocab, rng)
        stops = [-1] if trial % 3 else [built.token[0], 1]
        logits = torch.randn(room + 1, vocab, generator=generator) * 2
        for node, (token, parent) in enumerate(zip(built.token, built.parent, strict=True)):
            if node % 3 == 0 and trial % 2:
                logits[parent + 1, token] += 12  # long paths
        if trial == 5:
            logits = (logits * 4).round() / 4  # many exact ties
        chooser = Chooser(temperature, seed)
        walked = walk(
            built,
            lambda row, depth, c=chooser, x=logits, p=position: c.choose(x[row], p + depth + 1),
            frozenset(stops),
        )
        length, anchor = torch.tensor([position]), torch.tensor([3])
        tree.load(built)
        tree.assemble(anchor, length)
        assert tree.positions.tolist() == built.positions(position) + [position] * (room - nodes)
        choices = choose_rows(
            logits, tree.row_depth, levels, length, torch.tensor([seed]),
            torch.tensor([temperature], dtype=torch.float64) if temperature else None,
        )  # fmt: skip
        found = walk_rows(
            choices.token, tree.ids, tree.parent, tree.row_depth, tree.mask, tree.nodes, torch.tensor(stops), longest
        )  # fmt: skip
        assert found.rows.tolist() == walked.rows + [0] * (longest - len(walked.rows))
        assert (int(found.count), int(found.bonus)) == (len(walked.rows), walked.bonus)
        zero = torch.zeros(1, dtype=torch.int32)
        deepest = tree.row_depth.amax(0, keepdim=True)
        record = unpack(pack(length, anchor, tree.nodes, deepest, zero, found, choices))
        assert record.rows == walked.rows and record.chosen == [t for _, t in walked.chosen]
        assert (record.position, record.anchor, record.nodes) == (position, 3, nodes)
        assert record.deepest == max(built.depth)
        near = [
            (position + i + 1, t, o, g)
            for i, (t, o, g) in enumerate(zip(record.chosen, record.runner_up, record.gap, strict=True))
            if g < NEAR_TIE
        ]
        assert near == [(t.position, t.token, t.runner_up, t.gap) for t in chooser.near_ties]
        deep += len(walked.path)
        again = tree.read()
        assert (again.token, again.parent, again.depth) == (built.token, built.parent, built.depth)
    assert deep > 10
