"""The frontier builder, run eagerly on the CPU, against the reference: sizes, prefixes, ties, padding, fixed shapes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from dominotree.bench.frontier import FrontierBuilder, candidates, pop_order
from dominotree.builders.reference import best_first
from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock
from dominotree.errors import SettingsError
from dominotree.scorers import Candidates, ConditionalScorer, top_ids
from dominotree.tree import DraftTree

HIDDEN, GRU, EMB, ANCHOR, POSITION = 12, 20, 6, 7, 100


class Case:
    """Random weights and one block. ``kind``: "" plain, "coarse" rounded logits, "nan" some NaN, or "ties".

    "ties": no correction, one logit of 0 a level, a few of −32, −64 or −96, the rest −inf. Each is its own
    log-probability exactly, so scores repeat at one depth and across depths, also from parents to children.
    """

    def __init__(self, seed: int, kind: str = "", prefix: int = 1, levels: int = 5, vocab: int = 301) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*size: int, scale: float = 1.0) -> torch.Tensor:
            return torch.randn(size, generator=random) * scale

        w2 = normal(vocab, EMB, scale=0.0 if kind == "ties" else 0.6)
        self.table = normal(vocab, HIDDEN)
        self.head = CorrectionHead(
            normal(3 * GRU, HIDDEN, scale=0.3), normal(3 * GRU, GRU, scale=0.3), normal(EMB, HIDDEN + GRU, scale=0.4), w2, prefix
        )  # fmt: skip
        self.logits = normal(levels, vocab, scale=3.0)
        if kind == "coarse":
            self.logits = self.logits.round()
        if kind == "nan":
            self.logits[0, 5] = self.logits[-1] = float("nan")
        if kind == "ties":
            self.logits.fill_(float("-inf"))
            for row in self.logits:
                some = torch.randperm(vocab, generator=random)[:12]
                row[some] = -32.0 * torch.randint(1, 4, (12,), generator=random)
                row[some[0]] = 0.0
        self.levels = levels
        self.block = DraftBlock(normal(levels, HIDDEN), self.logits.clone(), ANCHOR)
        self.nan = self.block.repair()

    def builder(self, levels: int, budget: int, children: int, top_m: int, precision: str) -> FrontierBuilder:
        sizes = {"levels": levels, "budget": budget, "children": children, "top_m": top_m}
        return FrontierBuilder(self.head, self.table, precision=precision, **sizes)

    def reference(self, levels: int, budget: int, children: int, top_m: int) -> DraftTree:
        embed = lambda ids: F.embedding(torch.tensor(ids), self.table)  # noqa: E731
        scorer = ConditionalScorer(Candidates.of(self.block, top_m), self.head, embed)
        return best_first(scorer, levels, budget, children)

    def build(self, builder: FrontierBuilder) -> DraftTree:
        """Build twice, check what the verify reads, return the tree."""
        anchor, logits = torch.tensor([ANCHOR]), self.logits.clone()
        builder.read_anchor(anchor)
        for _ in range(2):
            logits.copy_(self.logits)
            found = builder.build(self.block.z, logits, anchor, torch.tensor([POSITION]))
        n, pad = int(found.count), builder.budget - int(found.count)
        lists = [x[:n].tolist() for x in (found.token, found.parent, found.depth, found.score)]
        tree = DraftTree(*lists)
        tree.validate()
        assert found.ids.tolist() == tree.rows(ANCHOR) + [ANCHOR] * pad
        assert found.positions.tolist() == tree.positions(POSITION) + [POSITION] * pad
        assert found.token[n:].tolist() == [ANCHOR] * pad and found.parent[n:].tolist() == [-1] * pad
        assert found.depth[n:].tolist() == [0] * pad and found.score[n:].tolist() == [float("-inf")] * pad
        mask = torch.eye(builder.budget + 1, dtype=torch.bool)
        mask[: n + 1, : n + 1] = tree.mask()
        assert torch.equal(found.mask, mask)
        assert torch.equal(logits, self.block.base_logits) and bool(found.nan) == self.nan
        return tree


def paths(tree: DraftTree) -> dict[tuple[int, ...], float]:
    """Root-to-node tokens -> score."""
    known: list[tuple[int, ...]] = []
    for token, parent in zip(tree.token, tree.parent, strict=True):
        known.append((*(known[parent] if parent >= 0 else ()), token))
    return dict(zip(known, tree.score, strict=True))


def assert_close(got: DraftTree, want: DraftTree, near: float) -> None:
    """The reference's scores to ``near``, in falling order; a node of one tree only is a tie with the other's last."""
    assert len(got) == len(want) and got.score == sorted(got.score, reverse=True)
    mine, theirs = paths(got), paths(want)
    for path in mine.keys() & theirs.keys():
        assert mine[path] == pytest.approx(theirs[path], abs=near)
    for path in theirs.keys() - mine.keys():
        assert theirs[path] == pytest.approx(want.score[-1], abs=2 * near)
    assert got.score == pytest.approx(want.score, abs=near)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["", "coarse", "nan", "ties"]), prefix=st.integers(0, 2),
       levels=st.integers(1, 6), budget=st.integers(1, 40), children=st.integers(1, 9), top_m=st.integers(1, 24),
       vocab=st.sampled_from([20, 128, 301]))  # fmt: skip
def test_trees_are_the_references(seed, kind, prefix, levels, budget, children, top_m, vocab) -> None:
    """N02, N03, N04: planted ties node for node and in order; else but for scores within 1e-5 of each other."""
    case = Case(seed, kind, prefix, levels, vocab)
    builder = case.builder(levels, budget, children, top_m, "float32")
    got, want = case.build(builder), case.reference(levels, budget, children, top_m)
    assert_close(got, want, 1e-5)
    if kind == "ties":
        assert (got.token, got.parent, got.depth) == (want.token, want.parent, want.depth)


@pytest.mark.parametrize("kind", ["", "coarse", "nan", "ties"])
@pytest.mark.parametrize("precision", ["float32", "half"])
def test_both_precisions_node_for_node(kind: str, precision: str) -> None:
    """Whole trees at fixed inputs, where float32 rounding decides nothing; half within 5e-3."""
    for seed, prefix, levels, budget, children in (
        (1, 0, 5, 1, 4),
        (2, 1, 5, 20, 4),
        (3, 2, 16, 64, 8),
        (4, 1, 2, 99, 3),
    ):
        case = Case(seed, kind, prefix, levels)
        builder = case.builder(levels, budget, children, 16, precision)
        got, want = case.build(builder), case.reference(levels, budget, children, 16)
        assert_close(got, want, 1e-5 if precision == "float32" else 5e-3)
        if precision == "float32" or kind == "ties":
            assert (got.token, got.parent) == (want.token, want.parent)


def test_ties_reach_across_depths() -> None:
    """The planted ties do plant: trees hold equal scores at different depths, and deeper nodes popped first."""
    across = earlier = 0
    for seed in range(20):
        tree = Case(seed, "ties", levels=6).reference(6, 40, 8, 16)
        for i, (depth, score) in enumerate(zip(tree.depth, tree.score, strict=True)):
            below = [
                d for d, s in zip(tree.depth[i + 1 :], tree.score[i + 1 :], strict=True) if s == score > -1e9
            ]
            across += any(d != depth for d in below)
            earlier += any(d < depth for d in below)
    assert across > 400 and earlier > 100


def test_pop_order_far_up() -> None:
    """Two chains of equal scores down to depth 15 and 16: only the deeper one's first steps scored higher."""
    scores = [[float("inf")]] + [[0.0, -1.0] if d < 3 else [-1.0, -1.0] for d in range(1, 16)] + [[-1.0]]
    flat = torch.tensor([x for depth in scores for x in depth], dtype=torch.float64)
    parent = torch.tensor([0, 0, 0, *range(1, 30)])
    # a chain's next node is pushed at its pop, so from then on they take turns, the deeper one two depths ahead
    turns = [node for depth in range(1, 15) for node in (2 * depth, 2 * depth + 3)]
    assert pop_order(flat, parent, 16).tolist() == [0, 1, 3, *turns, 30]


def test_candidates_are_the_reference_s() -> None:
    """N02: top-M by value, then lower id, also where all are equal or fewer than M are finite."""
    for vocab, count in ((5, 5), (128, 3), (1000, 64), (4099, 200), (300, 300)):
        rows = torch.randn(4, vocab, generator=torch.Generator().manual_seed(vocab))
        rows[1], rows[2], rows[3, 2:] = rows[1].round(), -2.5, float("-inf")
        ids, values = candidates(rows, count)
        assert torch.equal(ids, top_ids(rows, count).sort(-1).values)
        assert torch.equal(values, rows.gather(-1, ids))


def test_no_shape_and_no_branch_depends_on_the_data() -> None:
    """What a capture needs: a build runs on tensors without values; any look at one would raise."""
    for precision in ("float32", "half"):
        case = Case(0)
        builder = case.builder(5, 20, 4, 16, precision)
        with FakeTensorMode(allow_non_fake_inputs=True):
            one = torch.zeros(1, dtype=torch.int64)
            builder.build(torch.zeros(5, HIDDEN), torch.zeros(5, 301), one, one)


def test_what_it_refuses() -> None:
    case = Case(0)
    with pytest.raises(SettingsError, match="int8"):
        case.builder(5, 20, 4, 16, "int8")
    with pytest.raises(SettingsError, match="at least 1"):
        case.builder(5, 0, 4, 16, "half")
