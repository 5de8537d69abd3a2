"""The choice rule: exact law, keyed noise, ties, extreme temperatures; rows E20–E24, N02, N10, N15, N16, S11."""

from __future__ import annotations

import math

import pytest
import torch
from tiny import VOCAB

from dominotree.errors import SettingsError
from dominotree.sampling import Chooser, gumbel_noise, philox
from dominotree.scorers import argmax_low, top_ids
from dominotree.tree import DraftTree, walk

DRAWS = 200_000


def words(*values: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor([v]) for v in values)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the known-answer vectors of the generator's authors
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)  # fmt: skip
def test_philox_known_answers(counter, key, expected) -> None:
    assert tuple(int(w) for w in philox(words(*counter), key)) == expected


def draws(p: list[float], temperature: float = 1.0, seed: int = 3, n: int = DRAWS) -> torch.Tensor:
    """n draws of the choice rule from law p, one position each, vectorised with the same noise words."""
    logits = torch.tensor(p, dtype=torch.float64).log()
    position = torch.arange(n)
    zero = torch.zeros_like(position)
    noise = philox((zero, position, zero, zero), (seed, 0))
    uniform = (torch.stack(noise[: len(p)], dim=-1).double() + 0.5) / 2.0**32
    return (logits + temperature * -torch.log(-torch.log(uniform))).argmax(-1)


def assert_law(tokens: torch.Tensor, p: list[float]) -> None:
    for token, q in enumerate(p):
        got = (tokens == token).double().mean().item()
        assert abs(got - q) <= 4 * math.sqrt(q * (1 - q) / len(tokens)), (token, got, q)


def test_draws_use_the_noise_of_the_choice_rule() -> None:
    p = [0.4, 0.3, 0.2, 0.1]
    logits = torch.tensor(p).log()
    fast = draws(p, n=300).tolist()
    assert [Chooser(1.0, 3).choose(logits, position) for position in range(300)] == fast


@pytest.mark.parametrize("p", [[0.4, 0.3, 0.2, 0.1], [0.5, 0.3, 0.2], [0.5, 0.5], [0.6, 0.3, 0.1]])
def test_E20_E21_E22_E24_the_law_is_the_targets_whatever_is_drafted(p: list[float]) -> None:
    """No residual law anywhere: the token is drawn first and a draft is accepted if it equals it. So acceptance of a
    sibling set is the sum of its probabilities, a duplicate sibling changes nothing, and the law is p."""
    tokens = draws(p)
    assert_law(tokens, p)
    first_two = ((tokens == 0) | (tokens == 1)).double().mean().item()
    assert abs(first_two - (p[0] + p[1])) < 4 * math.sqrt(0.25 / DRAWS)


def test_E21_order_of_siblings_and_acceptance() -> None:
    """p = [.5, .3, .2], siblings [0, 1]: first accepted .5, second after the first's rejection .6, else token 2."""
    tokens = draws([0.5, 0.3, 0.2])
    rest = tokens[tokens != 0]
    assert abs((rest == 1).double().mean().item() - 0.6) < 4 * math.sqrt(0.24 / len(rest))
    assert set(rest[rest != 1].tolist()) == {2}


def test_E23_one_draw_per_node() -> None:
    """First token a or e (.5 each), then b, c, d after a and f after e: crowding a's branch does not favour a."""
    tree = DraftTree()
    for token, parent in ((0, -1), (1, 0), (2, 0), (3, 0)):
        tree.add(token, parent, 0.0)
    rows = {0: torch.tensor([0.5, 0, 0, 0, 0.5]).log(), 1: torch.tensor([0, 1 / 3, 1 / 3, 1 / 3, 0]).log()}
    first = []
    for start in range(0, 4000, 2):
        chooser = Chooser(1.0, 5)
        walked = walk(tree, lambda row, depth, c=chooser, s=start: c.choose(rows[min(row, 1)], s + depth))
        first.append(walked.chosen[0][1])
    share = first.count(0) / len(first)
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / len(first))


def test_enumerated_law_of_a_two_token_text() -> None:
    """Joint law over two positions equals the product of the conditionals, by enumeration of all outcomes."""
    p1 = torch.tensor([0.6, 0.3, 0.1])
    p2 = torch.tensor([[0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
    n = 6000
    counts = torch.zeros(3, 3)
    for seed in range(n):
        chooser = Chooser(1.0, seed)
        a = chooser.choose(p1.log(), 10)
        counts[a, chooser.choose(p2[a].log(), 11)] += 1
    expected = p1[:, None] * p2
    assert ((counts / n - expected).abs() <= 4 * (expected * (1 - expected) / n).sqrt()).all()


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_U28_temperature_reshapes_the_law(temperature: float) -> None:
    p = torch.tensor([0.6, 0.3, 0.1]).double()
    wanted = p ** (1 / temperature) / (p ** (1 / temperature)).sum()
    assert_law(draws(p.tolist(), temperature), wanted.tolist())


def test_N02_ties_go_to_the_lower_id() -> None:
    scores = torch.tensor([3.0, 2, 3, 2, 1, 1])
    assert argmax_low(scores) == 0 and Chooser(0.0, 0).choose(scores, 0) == 0
    assert top_ids(scores[None], 2).tolist() == [[0, 2]]
    assert top_ids(scores.repeat(3, 1), 3).tolist() == [[0, 2, 1]] * 3
    assert top_ids(scores[None], 4).tolist() == [[0, 2, 1, 3]]


def test_N03_top_ids_of_nan_rows_are_valid() -> None:
    row = torch.full((1, VOCAB), float("nan"))
    row[0, 7] = 1.0
    ids = top_ids(row, 5)[0]
    assert ids[0] == 7 and ids.min() >= 0 and ids.max() < VOCAB and len(set(ids.tolist())) == 5


@pytest.mark.parametrize("temperature", [0.0, 1e-8, 1e-5])
def test_N15_tiny_temperatures_are_greedy(temperature: float) -> None:
    logits = torch.tensor([1.0, 11.06, 11.0, -3.0], dtype=torch.float16)
    assert {Chooser(temperature, s).choose(logits, 4) for s in range(50)} == {1}


@pytest.mark.parametrize("temperature", [-1.0, float("nan"), float("inf")])
def test_N15_impossible_temperatures(temperature: float) -> None:
    with pytest.raises(ValueError, match=str(temperature)):
        Chooser(temperature, 0)
    with pytest.raises(SettingsError):
        Chooser(temperature, 0)


def test_N16_tokens_of_probability_zero_never_come() -> None:
    logits = torch.full((152_000,), float("-inf"))
    logits[[5, 151_000]] = 0.0
    seen = {Chooser(1.0, seed).choose(logits, 0) for seed in range(60)}
    assert seen == {5, 151_000}
    extreme = torch.tensor([0, 0xFFFFFFFF])
    uniform = (extreme.double() + 0.5) / 2.0**32
    assert torch.isfinite(-torch.log(-torch.log(uniform))).all()


def test_N10_S11_noise_depends_on_seed_and_position_only() -> None:
    same = [gumbel_noise(9, 100, 64) for _ in range(2)]
    assert torch.equal(*same)
    assert not torch.equal(gumbel_noise(9, 101, 64), same[0])
    assert not torch.equal(gumbel_noise(10, 100, 64), same[0])
    assert not torch.equal(gumbel_noise(9 + 2**32, 100, 64), same[0])
    assert torch.isfinite(gumbel_noise(2**63 - 1, 2**40, 1000)).all()
    flat = torch.zeros(8)
    assert len({Chooser(1.0, 4).choose(flat, p) for p in range(16)}) > 1


def test_near_ties_are_listed() -> None:
    chooser = Chooser(0.0, 0)
    assert chooser.choose(torch.tensor([1.0, 1.0 + 5e-5, 0.0]), 12) == 1
    tie = chooser.near_ties[0]
    assert (tie.position, tie.token, tie.runner_up) == (12, 1, 0) and 0 < tie.gap < 1e-4
    chooser.choose(torch.tensor([1.0, 2.0]), 13)
    assert len(chooser.near_ties) == 1
