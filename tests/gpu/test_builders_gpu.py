"""The GPU builders against the reference on the same device; rows E34, N02, N03, N04, N08.

Every test prints how many trees were identical and how far scores were apart: ``pytest -s``.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.builders.adaptive import RoundCost
from dominotree.builders.adaptive import grow as adaptive_reference
from dominotree.builders.reference import best_first, chain
from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, Scorer, StaticScorer, top_ids
from dominotree.tree import DraftTree

pytestmark = pytest.mark.gpu
DEVICE = "cuda"


@dataclass(frozen=True)
class Shape:
    """A drafter's sizes: levels, vocabulary, hidden, GRU, correction embedding, prefix."""

    levels: int = 8
    vocab: int = 4099
    hidden: int = 128
    gru: int = 128
    emb: int = 64
    prefix: int = 1


SMALL = Shape()
QWEN = Shape(16, 151936, 2560, 1024, 256, 1)


class Model:
    """A head and a table with random weights, and blocks to draft from."""

    def __init__(self, shape: Shape, dtype: torch.dtype, seed: int = 0) -> None:
        self.shape, self.dtype = shape, dtype
        self.random = torch.Generator(device=DEVICE).manual_seed(seed)
        h, g, e, v = shape.hidden, shape.gru, shape.emb, shape.vocab
        self.table = self.normal(v, h).to(dtype)
        self.head = CorrectionHead(
            self.normal(3 * g, h, scale=h**-0.5).to(dtype), self.normal(3 * g, g, scale=g**-0.5).to(dtype),
            self.normal(e, h + g, scale=2 * (h + g) ** -0.5).to(dtype), self.normal(v, e, scale=2 * e**-0.5).to(dtype),
            shape.prefix,
        )  # fmt: skip

    def normal(self, *size: int, scale: float = 1.0) -> Tensor:
        return torch.randn(size, generator=self.random, device=DEVICE) * scale

    def block(self, kind: str = "") -> DraftBlock:
        """Base logits of deviation 8. kind "ties": bfloat16 values; "equal": coarse steps, many ties; "nan": some NaN."""
        s = self.shape
        logits = self.normal(s.levels, s.vocab, scale=8.0)
        if kind:
            logits = logits.bfloat16().float()
        if kind == "equal":
            logits = (logits / 8).round() * 8
        if kind == "nan":
            logits[0, 3] = logits[2, 5:9] = float("nan")
            logits[1] = float("nan")
        anchor = int(torch.randint(s.vocab, (1,), generator=self.random, device=DEVICE))
        return DraftBlock(self.normal(s.levels, s.hidden).to(self.dtype), logits, anchor)

    def embed(self, ids: list[int]) -> Tensor:
        return F.embedding(torch.tensor(ids, device=DEVICE), self.table)

    def scorer(
        self, name: str, block: DraftBlock, top_m: int | None, children: int, full_row: bool = False
    ) -> Scorer:
        if name == "marginal":
            return MarginalScorer(block, children)
        found = Candidates.of(block, top_m)
        made = StaticScorer if name == "static" else ConditionalScorer
        return made(found, self.head, self.embed, full_row)


@functools.cache
def model(shape: Shape, dtype: torch.dtype) -> Model:
    return Model(shape, dtype)


def paths(tree: DraftTree) -> dict[tuple[int, ...], float]:
    """Root-to-node tokens -> score, in pop order."""
    known: list[tuple[int, ...]] = []
    for token, parent in zip(tree.token, tree.parent, strict=True):
        known.append((*(known[parent] if parent >= 0 else ()), token))
    return dict(zip(known, tree.score, strict=True))


@dataclass
class Report:
    """How a set of trees compares with the reference's."""

    trees: int = 0
    identical: int = 0
    apart: float = 0.0  # largest score difference of a shared node
    swaps: float = (
        0.0  # largest score distance of two nodes that come in the other order, or of a swapped node
    )
    nodes: int = 0
    other: int = 0  # nodes that only one of the two trees has

    def add(self, got: DraftTree, want: DraftTree) -> None:
        got.validate()
        assert len(got) == len(want)
        self.trees += 1
        self.nodes += len(want)
        self.identical += (got.token, got.parent) == (want.token, want.parent)
        mine, theirs = paths(got), paths(want)
        shared = [p for p in theirs if p in mine]
        # -inf of both is no distance
        gaps = [abs(mine[p] - theirs[p]) for p in shared if mine[p] != theirs[p]]
        self.apart = max([self.apart, *gaps])
        self.other += len(theirs) - len(shared)
        swaps = [theirs[p] - want.score[-1] for p in theirs if p not in mine]
        swaps += [mine[p] - got.score[-1] for p in mine if p not in theirs]
        place = {p: i for i, p in enumerate(mine)}
        for a, b in itertools.combinations(shared, 2):  # a before b in the reference
            if place[a] > place[b]:
                swaps.append(theirs[a] - theirs[b])
        self.swaps = max([self.swaps, *swaps])

    def __str__(self) -> str:
        return (
            f"{self.identical} of {self.trees} trees identical, {self.other} of {self.nodes} nodes differ, scores apart "
            f"{self.apart:.1e}, swapped nodes apart {self.swaps:.1e}"
        )


def fused(m: Model, **options: Any) -> Any:
    from dominotree.gpu.fused import FusedBuilder

    s = m.shape
    return FusedBuilder(
        levels=s.levels,
        vocab=s.vocab,
        head=m.head,
        embedding=m.table,
        z_dtype=m.dtype,
        device=DEVICE,
        **options,
    )


def built(builder: Any, block: DraftBlock, position: int = 1000) -> DraftTree:
    """Build, check the verify's rows against the tree, return the tree as the host sees it."""
    anchor = torch.tensor([block.anchor], device=DEVICE)
    if builder.scorer != "marginal":
        builder.read_anchor(anchor)
    found = builder.build(block.z, block.base_logits, anchor, torch.tensor([position], device=DEVICE))
    n, rows = int(found.count), builder.budget + 1
    lists = [x[:n].tolist() for x in (found.token, found.parent, found.depth, found.score)]
    tree = DraftTree(*lists)
    pad = rows - 1 - n
    assert found.ids.tolist() == tree.rows(block.anchor) + [block.anchor] * pad
    assert found.positions.tolist() == tree.positions(position) + [position] * pad
    mask = torch.eye(rows, dtype=torch.bool)
    mask[: n + 1, : n + 1] = tree.mask()
    assert torch.equal(found.mask.cpu(), mask)
    assert found.parent[n:].tolist() == [-1] * pad and found.token[n:].tolist() == [block.anchor] * pad
    return tree


# -- graph builder --------------------------------------------------------------------------------------------------

GRAPH_CASES = [
    (Shape(prefix=prefix), dtype, top_m, budget)
    for prefix, dtype, (top_m, budget) in itertools.product(
        (0, 1, 2), (torch.bfloat16, torch.float32), ((16, 12), (64, 40), (None, 16))
    )
] + [(Shape(16, 49152, 576, 384, 192), torch.bfloat16, 64, 16), (QWEN, torch.bfloat16, 64, 16)]


@pytest.mark.parametrize(("shape", "dtype", "top_m", "budget"), GRAPH_CASES)
def test_E34_graph_builder_has_the_reference_bits(
    shape: Shape, dtype: torch.dtype, top_m: int | None, budget: int
) -> None:
    """12 inputs each, 240 in all: tokens, parents, order and the scores' bits."""
    from dominotree.gpu.graph_builder import GraphBuilder

    m = model(shape, dtype)
    builder = GraphBuilder(m.head, m.table, shape.levels, budget, 8, top_m)
    for kind in ("", "ties", "equal", "nan") * 3:
        block = m.block(kind)
        assert block.repair() == (kind == "nan")
        want = best_first(m.scorer("conditional", block, top_m, 8), shape.levels, budget, 8)
        got = builder.build(block, m.head.advance(None, m.embed([block.anchor])))
        assert (got.token, got.parent, got.depth) == (want.token, want.parent, want.depth)
        assert got.score == want.score  # bit for bit


def test_graph_builder_whole_row_scores_and_smaller_trees() -> None:
    from dominotree.gpu.graph_builder import GraphBuilder

    m = model(SMALL, torch.bfloat16)
    builder = GraphBuilder(m.head, m.table, 8, 24, 8, 64, full_row=True)
    for levels, budget in ((8, 24), (3, 24), (1, 24), (8, 1), (8, 0), (5, 7)):
        block = m.block("ties")
        want = best_first(m.scorer("conditional", block, 64, 8, full_row=True), levels, budget, 8)
        got = builder.build(block, m.head.advance(None, m.embed([block.anchor])), levels, budget)
        assert (got.token, got.parent, got.score) == (want.token, want.parent, want.score)


def test_N08_trees_of_earlier_rounds_do_not_change() -> None:
    """N08: what round 1 returned is the same after round 5."""
    from dominotree.gpu.graph_builder import GraphBuilder

    m = model(SMALL, torch.bfloat16)
    builder = GraphBuilder(m.head, m.table, 8, 24, 8, 64)
    trees, copies = [], []
    for _ in range(5):
        block = m.block()
        trees.append(builder.build(block, m.head.advance(None, m.embed([block.anchor]))))
        copies.append((list(trees[-1].token), list(trees[-1].parent), list(trees[-1].score)))
    assert [(t.token, t.parent, t.score) for t in trees] == copies
    assert len({tuple(t.token) for t in trees}) == 5


# -- top-M ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 16, 64, 200, 1024])
def test_N02_N03_top_rows_pick_by_value_then_lower_id(count: int) -> None:
    """N02, N03: ties by lower id, NaN never; also where every value is equal, and by the graph builder's operations."""
    from dominotree.gpu.graph_builder import static_top_ids

    for vocab in (151936, 4099, 1024):
        builder = _marginal(vocab, count)
        random = torch.Generator(device=DEVICE).manual_seed(vocab)
        rows = torch.randn(6, vocab, generator=random, device=DEVICE) * 8
        rows[1] = rows[1].bfloat16().float()
        rows[2] = rows[2].sign()
        rows[3] = -2.5
        rows[4, ::3] = float("nan")
        rows[5, 7:] = float("-inf")
        want = top_ids(rows, count)
        logz = rows.nan_to_num(nan=float("-inf"), neginf=float("-inf")).logsumexp(-1)
        zero = torch.zeros(1, dtype=torch.int64, device=DEVICE)
        builder.build(None, rows.clone(), zero, zero)
        scores = rows.gather(-1, want).nan_to_num(nan=float("-inf"), neginf=float("-inf")) - logz[:, None]
        assert torch.equal(builder._list_token.long()[:4], want[:4])
        assert torch.allclose(builder._list_score, scores, atol=1e-5)
        assert torch.equal(static_top_ids(rows, count), want.sort(-1).values)


@functools.cache
def _marginal(vocab: int, count: int) -> Any:
    from dominotree.gpu.fused import FusedBuilder

    return FusedBuilder(scorer="marginal", levels=6, vocab=vocab, budget=16, children=count, device=DEVICE)


# -- fused builder ------------------------------------------------------------------------------------------------------

FUSED_CASES = [
    (Shape(prefix=0), torch.float32, 16, 12, 8),
    (Shape(prefix=1), torch.bfloat16, 64, 40, 8),
    (Shape(prefix=2), torch.bfloat16, 16, 128, 4),
    (Shape(7, 5003, 100, 72, 40, 1), torch.float32, 100, 17, 8),
    (Shape(16, 49152, 576, 384, 192, 1), torch.bfloat16, 64, 16, 8),
    (QWEN, torch.bfloat16, 64, 16, 8),
    (QWEN, torch.bfloat16, 64, 128, 8),
    (QWEN, torch.bfloat16, 64, 256, 8),
]


#: How far scores may be apart, and apart where nodes are swapped; cumulative scores reach -30 and more, where a float32
#: step is 2e-6 a level.
NEAR = {"float32": (3e-5, 1e-5), "half": (5e-3, 5e-3)}


def repaired_copy(block: DraftBlock) -> DraftBlock:
    """What the reference builds from: the builders on the device mend NaN in place."""
    copy = DraftBlock(block.z, block.base_logits.clone(), block.anchor)
    copy.repair()
    return copy


@pytest.mark.parametrize("precision", ["float32", "half"])
@pytest.mark.parametrize(("shape", "dtype", "top_m", "budget", "children"), FUSED_CASES)
def test_fused_trees(
    shape: Shape, dtype: torch.dtype, top_m: int, budget: int, children: int, precision: str
) -> None:
    """28 inputs each, 224 in all: the reference's tree, but for nodes whose scores are that close."""
    m = model(shape, dtype)
    builder = fused(
        m, scorer="conditional", budget=budget, children=children, top_m=top_m, precision=precision
    )
    report = Report()
    for kind in ("", "ties", "equal", "nan") * 7:
        block = m.block(kind)
        repaired = repaired_copy(block)
        want = best_first(m.scorer("conditional", repaired, top_m, children), shape.levels, budget, children)
        report.add(built(builder, block), want)
        assert bool(builder.tree.nan) == (kind == "nan")
        assert torch.equal(block.base_logits, repaired.base_logits)  # mended in place
    print(f"\n{precision} {shape} M {top_m} budget {budget}: {report}")
    apart, swaps = NEAR[precision]
    assert report.apart <= apart and report.swaps <= swaps


@pytest.mark.parametrize(("scorer", "kind"), [("marginal", "tree"), ("static", "tree"), ("marginal", "chain"), ("conditional", "chain")])  # fmt: skip
@pytest.mark.parametrize("precision", ["float32", "half"])
@pytest.mark.parametrize("shape", [Shape(prefix=0), SMALL, QWEN])
def test_fused_path_blind_trees_and_chains(shape: Shape, scorer: str, kind: str, precision: str) -> None:
    """Marginal and static trees, DFlash's and Domino's chains; a chain's next token is decided by gaps above 1e-3 only."""
    m = model(shape, torch.bfloat16)
    builder = fused(m, scorer=scorer, kind=kind, budget=40, children=40, top_m=64, precision=precision)
    report = Report()
    for tie in ("", "ties", "nan") if scorer == "marginal" else ("", "nan"):
        block = m.block(tie)
        repaired = repaired_copy(block)
        if kind == "chain":
            want = chain(repaired, shape.levels, m.head if scorer == "conditional" else None, m.embed)
        else:
            want = best_first(m.scorer(scorer, repaired, 64, 40), shape.levels, 40, 40)
        report.add(built(builder, block), want)
    print(f"\n{scorer} {kind} {precision} {shape}: {report}")
    near = 1e-5 if precision == "float32" or scorer == "marginal" else 5e-3
    assert report.apart <= near * (10 if kind == "chain" else 1) and report.swaps <= 2 * near


@pytest.mark.parametrize("scorer", ["conditional", "marginal"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_fused_adaptive_stop(scorer: str, calibrated: bool) -> None:
    """CondAdaptive and CaDDTree: the host rule's count, with flat, steep and kinked costs."""
    m = model(SMALL, torch.float32)
    builder = fused(m, scorer=scorer, budget=96, children=8, top_m=64, precision="float32", adaptive=True)
    knots = torch.tensor([[-6.0, -2.0, -0.5, 0.0], [-5.0, -1.5, -0.6, -0.1]], dtype=torch.float64)
    calibrate = None
    if calibrated:
        builder.calibration = knots.to(DEVICE)

        def calibrate(score: float) -> float:
            x, y = knots.tolist()
            if score < x[0]:
                return y[0] + (score - x[0])
            if score >= x[-1]:
                return y[-1]
            i = max(i for i in range(len(x)) if x[i] <= score)
            return y[i] + (score - x[i]) * ((y[i + 1] - y[i]) / (x[i + 1] - x[i]))

    counts = set()
    for slope, knee in itertools.product((1e-6, 0.003, 0.03, 0.3), (5, 40, 1000)):
        cost = RoundCost(0.5, [2.0 + slope * n + 0.05 * max(0, n - knee) for n in range(97)])
        builder.costs.copy_(torch.tensor([cost.draft, *cost.verify], dtype=torch.float64))
        block = m.block("ties")
        want = adaptive_reference(m.scorer(scorer, block, 64, 8), 8, 96, 8, cost, calibrate)
        got = built(builder, block)
        assert (got.token, got.parent) == (want.token, want.parent)
        counts.add(len(got))
    assert len(counts) > 3


def test_fused_replays_and_limits() -> None:
    """A captured build gives what a launched one gives; `limits` makes smaller trees, as near the end of a context."""
    m = model(SMALL, torch.bfloat16)
    builder = fused(m, scorer="conditional", budget=24, children=8, top_m=64)
    blocks = [m.block("ties") for _ in range(5)]
    z, logits = blocks[0].z.clone(), blocks[0].base_logits.clone()
    anchor, position = (torch.zeros(1, dtype=torch.int64, device=DEVICE) for _ in range(2))

    def work() -> None:
        builder.read_anchor(anchor)
        builder.build(z, logits, anchor, position)

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    for (levels, budget), block in zip(((8, 24), (3, 24), (8, 5), (8, 0), (1, 24)), blocks, strict=True):
        builder.limits.copy_(torch.tensor([levels, budget], dtype=torch.int32))
        z.copy_(block.z), logits.copy_(block.base_logits), anchor.fill_(block.anchor)
        graph.replay()
        n = int(builder.tree.count)
        replayed = (builder.tree.token[:n].tolist(), builder.tree.score[:n].tolist())
        launched = built(builder, block)
        assert replayed == (launched.token, launched.score)
        want = best_first(m.scorer("conditional", block, 64, 8), levels, budget, 8)
        assert (len(want), max([0, *want.depth])) == (n, max([0, *launched.depth]))


def test_fused_says_what_it_cannot_do() -> None:
    from dominotree.errors import SettingsError

    m = model(SMALL, torch.bfloat16)
    for options, reason in (
        ({"budget": 257}, "257"),
        ({"top_m": 300}, "300"),
        ({"precision": "int8"}, "int8"),
    ):
        with pytest.raises(SettingsError, match=reason):
            fused(m, **{"scorer": "conditional", "budget": 16, "children": 8, "top_m": 64, **options})


# -- frontier builder ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "half"])
@pytest.mark.parametrize(("shape", "dtype", "top_m", "budget", "children"), FUSED_CASES)
def test_frontier_captured_is_eager_is_the_reference(
    shape: Shape, dtype: torch.dtype, top_m: int, budget: int, children: int, precision: str
) -> None:
    """8 inputs each, 64 in all: one graph's replay and an eager build alike, as near the reference as the fused builder."""
    from dominotree.bench.frontier import FrontierBuilder

    m = model(shape, dtype)
    sizes = {"levels": shape.levels, "budget": budget, "children": children, "top_m": top_m}
    builder = FrontierBuilder(m.head, m.table, precision=precision, **sizes)
    block = m.block()
    z, logits = block.z.clone(), block.base_logits.clone()
    anchor, position = (torch.full((1,), n, device=DEVICE) for n in (block.anchor, 1000))

    def work() -> None:
        builder.read_anchor(anchor)
        builder.build(z, logits, anchor, position)

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    report = Report()
    for kind in ("", "ties", "equal", "nan") * 2:
        block = m.block(kind)
        repaired = repaired_copy(block)
        z.copy_(block.z), logits.copy_(block.base_logits), anchor.fill_(block.anchor)
        graph.replay()
        replayed = [x.clone() for x in builder.tree.fields]
        want = best_first(m.scorer("conditional", repaired, top_m, children), shape.levels, budget, children)
        report.add(built(builder, block), want)
        assert all(map(torch.equal, replayed, builder.tree.fields))
        assert bool(builder.tree.nan) == (kind == "nan")
        assert torch.equal(logits, repaired.base_logits) and torch.equal(block.base_logits, logits)
    print(f"\nfrontier {precision} {shape} M {top_m} budget {budget}: {report}")
    apart, swaps = NEAR[precision]
    assert report.apart <= apart and report.swaps <= swaps
