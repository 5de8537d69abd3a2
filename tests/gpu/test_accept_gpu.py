"""Choice and walk kernels against the host's rule: the same noise, scores, tokens, gaps and paths, bit for bit."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from round_cases import random_tree

from dominotree.gpu.accept import Accept
from dominotree.gpu.choice import choose_rows, walk_rows
from dominotree.gpu.device_tree import DeviceTree
from dominotree.gpu.round_record import HEAD, unpack
from dominotree.sampling import NEAR_TIE, Chooser, gumbel_noise
from dominotree.tree import walk

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(
    ("vocab", "nodes", "room"), [(64, 7, 9), (321, 16, 16), (151936, 16, 16), (5000, 64, 64)]
)
def test_N02_N10_kernels_walk_as_the_host_does(temperature: float, vocab: int, nodes: int, room: int) -> None:
    rng, generator = random.Random(vocab + nodes), torch.Generator("cuda").manual_seed(nodes)
    levels, device = 8, torch.device("cuda")
    longest = min(levels, room) + 1
    accept = Accept(room + 1, vocab, longest, temperature > 0, device)
    tree = DeviceTree(room + 1, device)
    landing = torch.zeros(len(HEAD) + 4 * longest, dtype=torch.long).pin_memory()
    deep = 0
    for trial in range(12):
        seed, position, anchor = rng.randrange(2**62), rng.choice([5, 700, 2**33]), 3
        built = random_tree(nodes, levels, vocab, rng)
        stops = [-1] if trial % 3 else [built.token[0], 1]
        engine = SimpleNamespace(
            seed=torch.tensor([seed], device=device), length=torch.tensor([position], device=device),
            temperature=torch.tensor([temperature], dtype=torch.float64, device=device),
            anchor=torch.tensor([anchor], device=device), stop_ids=torch.tensor(stops, device=device),
        )  # fmt: skip
        tree.load(built)
        tree.assemble(engine.anchor, engine.length)
        logits = torch.randn(room + 1, vocab, device=device, generator=generator) * 2
        for node, (token, parent) in enumerate(zip(built.token, built.parent, strict=True)):
            if node % 3 == 0 and trial % 2:
                logits[parent + 1, token] += 12  # long paths
        if trial == 5:
            logits = logits.half().float()  # many exact ties
        if trial == 7:
            logits[:, 1:] = float("-inf")
        chooser = Chooser(temperature, seed)
        walked = walk(
            built,
            lambda row, depth, c=chooser, x=logits, p=position: c.choose(x[row], p + depth + 1),
            frozenset(stops),
        )
        no = torch.zeros(1, dtype=torch.int32, device=device)
        rows = accept.walk(logits, tree, engine, no, landing)
        torch.cuda.synchronize()
        record = unpack(landing)
        assert record.rows == walked.rows and record.chosen == [t for _, t in walked.chosen]
        assert rows.tolist() == walked.rows + [0] * (longest - len(walked.rows))
        assert (record.position, record.anchor, record.nodes) == (position, anchor, nodes)
        assert record.deepest == max(built.depth) and not record.repaired
        near = [
            (position + i + 1, t, o, g)
            for i, (t, o, g) in enumerate(zip(record.chosen, record.runner_up, record.gap, strict=True))
            if g < NEAR_TIE
        ]
        assert near == [(t.position, t.token, t.runner_up, t.gap) for t in chooser.near_ties]
        choices = choose_rows(
            logits, tree.row_depth, levels, engine.length, engine.seed, engine.temperature if temperature else None
        )  # fmt: skip
        again = walk_rows(
            choices.token, tree.ids, tree.parent, tree.row_depth, tree.mask, tree.nodes, engine.stop_ids, longest
        )  # fmt: skip
        assert again.rows.tolist() == rows.tolist() and int(again.bonus) == int(accept.bonus) == walked.bonus
        gaps = choices.gap[record.rows].tolist()
        assert all(a == b or a != a for a, b in zip(gaps, record.gap, strict=True))
        before = position + len(walked.rows)
        accept.advance(engine)
        assert (int(engine.length), int(engine.anchor)) == (before, walked.bonus)
        deep += len(walked.path)
    assert deep > 3


def test_noise_of_the_kernel_is_the_choosers_bit_for_bit() -> None:
    """Over a flat row the chosen score is T · noise itself: gaps are differences of the same float64 numbers."""
    device, vocab = torch.device("cuda"), 151_936
    accept = Accept(1, vocab, 1, True, device)
    tree = DeviceTree(1, device)
    landing = torch.zeros(len(HEAD) + 4, dtype=torch.long).pin_memory()
    for position in range(100, 140):
        engine = SimpleNamespace(
            seed=torch.tensor([9], device=device), length=torch.tensor([position], device=device),
            temperature=torch.tensor([1.7], dtype=torch.float64, device=device),
            anchor=torch.zeros(1, dtype=torch.long, device=device), stop_ids=torch.tensor([-1], device=device),
        )  # fmt: skip
        tree.assemble(engine.anchor, engine.length)
        accept.walk(
            torch.zeros(1, vocab, device=device), tree, engine, torch.zeros(1, dtype=torch.int32, device=device), landing
        )  # fmt: skip
        torch.cuda.synchronize()
        scores = 1.7 * gumbel_noise(9, position + 1, vocab, device)
        values, ids = scores.topk(2)
        record = unpack(landing)
        assert (record.chosen, record.runner_up) == ([int(ids[0])], [int(ids[1])])
        assert record.gap == [float(values[0]) - float(values[1])]


def test_nan_rows_choose_no_token() -> None:
    device = torch.device("cuda")
    accept, tree = Accept(1, 100, 1, False, device), DeviceTree(1, device)
    landing = torch.zeros(len(HEAD) + 4, dtype=torch.long).pin_memory()
    logits = torch.zeros(1, 100, device=device)
    logits[0, 41] = float("nan")
    one = torch.zeros(1, dtype=torch.long, device=device)
    engine = SimpleNamespace(length=one, anchor=one, stop_ids=one - 1)
    accept.walk(logits, tree, engine, torch.zeros(1, dtype=torch.int32, device=device), landing)
    torch.cuda.synchronize()
    assert unpack(landing).chosen == [100]
