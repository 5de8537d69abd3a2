"""The fused builder's kernels on the CPU, one fiber a CUDA thread, against the reference at small shapes.

No GPU is needed, so an error in their logic (indices, ties, barriers, padding) shows everywhere; speed, rounding of the
tensor cores and races between blocks only show on a GPU (tests/gpu/test_builders_gpu.py).
"""

from __future__ import annotations

import emulation
import pytest
import torch
import torch.nn.functional as F

from dominotree.builders.adaptive import RoundCost, grow
from dominotree.builders.reference import best_first, chain
from dominotree.calibration import Calibration
from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock
from dominotree.gpu import fused
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, StaticScorer
from dominotree.tree import DraftTree

pytestmark = pytest.mark.skipif(emulation.why_not() is not None, reason=str(emulation.why_not()))

LEVELS, VOCAB, HIDDEN, GRU, EMB = 5, 301, 12, 40, 10
ANCHOR, POSITION = 7, 100


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "Kernel", emulation.Kernel)


class Case:
    """Random weights and one block. kind: "" plain, "ties" coarse logits, "equal" all alike, "nan" some NaN."""

    def __init__(self, seed: int, kind: str = "", prefix: int = 1) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*size: int, scale: float = 1.0) -> torch.Tensor:
            return torch.randn(size, generator=random) * scale

        self.table = normal(VOCAB, HIDDEN)
        self.head = CorrectionHead(
            normal(3 * GRU, HIDDEN, scale=HIDDEN**-0.5), normal(3 * GRU, GRU, scale=1.5 * GRU**-0.5),
            normal(EMB, HIDDEN + GRU, scale=2 * (HIDDEN + GRU) ** -0.5), normal(VOCAB, EMB, scale=1.5 * EMB**-0.5), prefix,
        )  # fmt: skip
        self.logits = normal(LEVELS, VOCAB, scale=3.0)
        if kind in ("ties", "equal"):
            self.logits = self.logits.round()
        if kind == "equal":
            self.logits.zero_()
            self.head.w2.zero_()
        if kind == "nan":
            self.logits[1, 5] = float("nan")
            self.logits[2] = float("nan")
        self.block = DraftBlock(normal(LEVELS, HIDDEN), self.logits.clone(), ANCHOR)
        self.nan = self.block.repair()

    def embed(self, ids: list[int]) -> torch.Tensor:
        return F.embedding(torch.tensor(ids), self.table)

    def build(self, builder: fused.FusedBuilder) -> DraftTree:
        """Build, check what the verify reads, return the tree."""
        anchor, logits = torch.tensor([ANCHOR]), self.logits.clone()
        if builder.scorer != "marginal":
            builder.read_anchor(anchor)
        found = builder.build(self.block.z, logits, anchor, torch.tensor([POSITION]))
        n, pad = int(found.count), builder.budget - int(found.count)
        lists = [x[:n].tolist() for x in (found.token, found.parent, found.depth, found.score)]
        tree = DraftTree(*lists)
        assert found.ids.tolist() == tree.rows(ANCHOR) + [ANCHOR] * pad
        assert found.positions.tolist() == tree.positions(POSITION) + [POSITION] * pad
        mask = torch.eye(builder.budget + 1, dtype=torch.bool)
        mask[: n + 1, : n + 1] = tree.mask()
        assert torch.equal(found.mask, mask)
        assert torch.equal(logits, self.block.base_logits) and bool(found.nan) == self.nan
        return tree


def make(case: Case, **options) -> fused.FusedBuilder:
    common = {"levels": LEVELS, "vocab": VOCAB, "top_m": 16, "children": 4, "budget": 20}
    return fused.FusedBuilder(
        head=case.head, embedding=case.table, z_dtype=torch.float32, device="cpu", **{**common, **options}
    )


def same(got: DraftTree, want: DraftTree, near: float) -> None:
    assert (got.token, got.parent, got.depth) == (want.token, want.parent, want.depth)
    assert got.score == pytest.approx(want.score, abs=near)


@pytest.mark.parametrize("kind", ["", "ties", "equal", "nan"])
def test_conditional_trees(kind: str) -> None:
    """N02, N03, N04: ties by push order, NaN repaired, padding sees itself only. Also smaller trees by `limits`."""
    for seed, precision in ((1, "float32"), (2, "half")):
        case = Case(seed, kind)
        builder = make(case, scorer="conditional", precision=precision)
        scorer = ConditionalScorer(Candidates.of(case.block, 16), case.head, case.embed)
        near = 1e-5 if precision == "float32" else 5e-3
        same(case.build(builder), best_first(scorer, LEVELS, 20, 4), near)
        builder.limits.copy_(torch.tensor([2, 9]))
        same(case.build(builder), best_first(scorer, 2, 9, 4), near)


def test_path_blind_trees_and_chains() -> None:
    for kind in ("ties", "equal", "nan"):
        case = Case(3, kind)
        want = best_first(MarginalScorer(case.block, 40), LEVELS, 40, 40)
        same(case.build(make(case, scorer="marginal", children=40, budget=40)), want, 1e-5)
    for seed in (4, 5):
        case = Case(seed)
        static = StaticScorer(Candidates.of(case.block, 16), case.head, case.embed)
        builder = make(case, scorer="static", children=16, budget=30)
        same(case.build(builder), best_first(static, LEVELS, 30, 16), 5e-3)
        builder = make(case, scorer="conditional", kind="chain")
        same(case.build(builder), chain(case.block, LEVELS, case.head, case.embed), 5e-3)


@pytest.mark.parametrize("seed", [2, 3])
def test_adaptive_stop(seed: int) -> None:
    """The host rule's tree, with costs from flat to steep, straight, kinked and (no cut on the way then) not convex."""
    case = Case(seed, "ties" if seed % 2 == 0 else "")
    builder = make(case, scorer="conditional", precision="float32", adaptive=True)
    scorer = ConditionalScorer(Candidates.of(case.block, 16), case.head, case.embed)
    if seed == 3:
        builder.calibration = torch.tensor(
            [[-9.0, -4.0, -1.0, -0.1], [-12.0, -5.0, -1.0, -0.2]], dtype=torch.float64
        )
        calibrate = Calibration({}, (-9.0, -4.0, -1.0, -0.1), (-12.0, -5.0, -1.0, -0.2))
    else:
        calibrate = None
    shapes = [
        lambda n, slope: slope * n * (1 + n / 20),
        lambda n, slope: slope * n,
        lambda n, slope: slope * (n + 4 * max(0, n - 6)),
        lambda n, slope: slope * 3 * n**0.5,
    ]
    counts = set()
    for shape in shapes:
        for slope in (1e-6, 0.01, 0.1, 1.0):
            cost = RoundCost(0.5, [2.0 + shape(n, slope) for n in range(21)])
            assert builder.costs is not None
            builder.costs.copy_(torch.tensor([cost.draft, *cost.verify], dtype=torch.float64))
            want = grow(scorer, LEVELS, 20, 4, cost, calibrate)
            same(case.build(builder), want, 1e-5)
            counts.add(len(want))
    assert len(counts) > 3
