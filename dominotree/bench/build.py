"""How long a build takes on a GPU: reference, graph, fused and frontier builders at the released shapes, random weights.

A build is everything from base logits to a tree that is ready for the verify: top-M, correction, ids, positions, mask.
The root's GRU state belongs to the draft. Base logits have standard deviation 8 and bfloat16 values (about half of a
level's top-64 repeat another); correction logits have a deviation of about one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.bench.shapes import LOGIT_STD, TARGETS, drafter_config
from dominotree.builders.reference import best_first
from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock
from dominotree.scorers import Candidates, ConditionalScorer
from dominotree.tree import DraftTree

BUDGETS = (16, 32, 64, 128)
BUILDERS = ("reference", "graph", "fused", "fused-float32", "frontier", "frontier-float32")
TOP_M, CHILDREN = 64, 8
FLUSH = 256 * 2**20  # bytes written before a cold build; more than any L2


class Drafts:
    """A random correction head, table and blocks at a released shape ("qwen3-4b", "qwen3-8b")."""

    def __init__(self, name: str, device: torch.device | str = "cuda", seed: int = 0) -> None:
        self.config = drafter_config(TARGETS[name])
        self.device = torch.device(device)
        self.random = torch.Generator(device=self.device).manual_seed(seed)
        c = self.config
        self.hidden, self.vocab = c.model.hidden_size, c.model.vocab_size
        h, g, e, v = self.hidden, c.gru_hidden_dim, c.emb_dim, self.vocab
        self.table = self._normal(v, h).bfloat16()
        self.head = CorrectionHead(
            self._normal(3 * g, h, scale=h**-0.5).bfloat16(), self._normal(3 * g, g, scale=g**-0.5).bfloat16(),
            self._normal(e, h + g, scale=2 * (h + g) ** -0.5).bfloat16(),
            self._normal(v, e, scale=2 * e**-0.5).bfloat16(), c.pure_draft_prefix_len,
        )  # fmt: skip

    def _normal(self, *size: int, scale: float = 1.0) -> Tensor:
        return torch.randn(size, generator=self.random, device=self.device) * scale

    def block(self) -> DraftBlock:
        logits = self._normal(self.config.levels, self.vocab, scale=LOGIT_STD).bfloat16().float()
        anchor = int(torch.randint(self.vocab, (1,), generator=self.random, device=self.device))
        return DraftBlock(self._normal(self.config.levels, self.hidden).bfloat16(), logits, anchor)

    def embed(self, ids: Sequence[int]) -> Tensor:
        return F.embedding(torch.tensor(ids, device=self.device), self.table)

    def root(self, block: DraftBlock) -> Tensor:
        return self.head.advance(None, self.embed([block.anchor]))


def build_times(
    name: str, budgets: Sequence[int] = BUDGETS, inputs: int = 12, builders: Sequence[str] = BUILDERS,
    repeats: int = 5,
) -> list[dict[str, Any]]:  # fmt: skip
    """Rows with model, what ("build-fused" …), budget, ms (median), mean_depth (of the trees), and often ms_warm.

    Fused and frontier builds are captured as one CUDA graph each. Their ``ms`` is with a cold L2 except for the base
    logits, which the LM head has just written, as in a round; ``ms_warm`` is replayed back to back. Host builders are
    timed until ids, positions and mask are on the GPU.
    """
    drafts = Drafts(name)
    blocks = [drafts.block() for _ in range(inputs)]
    rows: list[dict[str, Any]] = []

    def note(what: str, budget: int, times: Sequence[float], depths: Sequence[int], **more: float) -> None:
        rows.append({
            "model": name, "what": what, "budget": budget, "ms": statistics.median(times),
            "mean_depth": statistics.mean(depths), **more,
        })  # fmt: skip

    for budget in budgets:
        if "reference" in builders:

            def by_reference(block: DraftBlock, root: Tensor, budget: int = budget) -> DraftTree:
                found = Candidates.of(block, TOP_M)
                scorer = ConditionalScorer(found, drafts.head, drafts.embed, root=root)
                return best_first(scorer, drafts.config.levels, budget, CHILDREN)

            note("build-reference", budget, *_host_times(drafts, blocks[: max(2, inputs // 4)], by_reference))
        if "graph" in builders:
            from dominotree.gpu.graph_builder import GraphBuilder

            graph = GraphBuilder(drafts.head, drafts.table, drafts.config.levels, budget, CHILDREN, TOP_M)
            note("build-graph", budget, *_host_times(drafts, blocks[: max(2, inputs // 2)], graph.build))
        for what in ("fused", "fused-float32", "frontier", "frontier-float32"):
            if what in builders:
                builder = _device_builder(drafts, what, budget)
                cold, warm, depths = _device_times(drafts, blocks, builder, repeats)
                note(f"build-{what}", budget, cold, depths, ms_warm=statistics.median(warm))
    return rows


def _host_times(
    drafts: Drafts, blocks: Sequence[DraftBlock], build: Callable[[DraftBlock, Tensor], DraftTree]
) -> tuple[list[float], list[int]]:
    times, depths = [], []
    for block in [blocks[0], *blocks]:  # the first warms up
        root = drafts.root(block)
        torch.cuda.synchronize()
        started = time.perf_counter()
        tree = build(block, root)
        ready = [torch.tensor(tree.rows(block.anchor)), torch.tensor(tree.positions(1000)), tree.mask()]
        ready = [x.to(drafts.device) for x in ready]
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1e3)
        depths.append(max(tree.depth))
    return times[1:], depths[1:]


def _device_builder(drafts: Drafts, what: str, budget: int) -> Any:
    """The builder of a row without a host in the loop: "fused" or "frontier", "-float32" or else half products."""
    from dominotree.bench.frontier import FrontierBuilder
    from dominotree.gpu.fused import FusedBuilder

    common: dict[str, Any] = {
        "head": drafts.head, "embedding": drafts.table, "levels": drafts.config.levels, "budget": budget,
        "children": CHILDREN, "top_m": TOP_M, "precision": "float32" if what.endswith("-float32") else "half",
    }  # fmt: skip
    if what.startswith("frontier"):
        return FrontierBuilder(**common)
    return FusedBuilder(scorer="conditional", vocab=drafts.vocab, **common)


def _device_times(
    drafts: Drafts, blocks: Sequence[DraftBlock], builder: Any, repeats: int
) -> tuple[list[float], list[float], list[int]]:
    z, logits = blocks[0].z.clone(), blocks[0].base_logits.clone()
    anchor = torch.zeros(1, dtype=torch.int64, device=drafts.device)
    position = torch.full_like(anchor, 1000)
    builder.build(z, logits, anchor, position)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        builder.build(z, logits, anchor, position)
    flush = torch.empty(FLUSH, dtype=torch.uint8, device=drafts.device)
    times: tuple[list[float], list[float]] = ([], [])
    depths = []
    for block in blocks:
        z.copy_(block.z)
        anchor.fill_(block.anchor)
        builder.read_anchor(anchor)
        for turn in range(repeats):
            for kind, into in enumerate(times):
                if kind == 0:
                    flush.fill_(turn)
                    logits.copy_(block.base_logits)
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                torch.cuda.synchronize()
                into.append(begin.elapsed_time(end))
        depths.append(int(builder.tree.depth.max()))
    return *times, depths
