"""The fused builder: a whole draft tree made on the GPU, no host in the loop.

``topm.cu`` finds the top-M of every level and the log-sum-exp. Then, under the conditional scorer, ``grow.cu`` makes the
tree in waves over its depth, in one resident grid. Under the path-blind scorers the children of every level are known
beforehand (``marginal_levels``, or ``chain`` for the static scorer and Domino's chain), and ``pathblind.cu`` pops a
frontier with one warp. Everything lies at fixed addresses, so the launches may be captured in a CUDA graph.

Two precisions. ``"float32"``: the reference's arithmetic; the reference's tree, except where two scores differ by less
than float32's rounding. ``"half"``: products of float16 weights and states with float32 sums (a bfloat16 weight above
6e-5 is a float16 exactly), and W_ih·emb from a float16 table for the whole vocabulary (3 g V numbers: 0.93 GB for
Qwen3-4B and 8B).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.correction import CorrectionHead
from dominotree.errors import SettingsError
from dominotree.gpu.head_weights import HeadWeights
from dominotree.gpu.nvrtc import Kernel

SPLITS = 8  # blocks per row of logits in topm.cu
THREADS = 256
LARGEST_TOP_M, LARGEST_BUDGET = 256, 256  # of the conditional scorer
LARGEST_LIST = 1024  # children and budget of the marginal scorer
SHARED_LIMIT = 220 * 1024  # bytes of shared memory a block may have, with some room


def why_not(
    scorer: str, *, hidden: int, vocab: int, budget: int, children: int, top_m: int | None, full_row: bool = False,
    gru: int = 0,
) -> str | None:  # fmt: skip
    """None where the fused builder can make such trees on this machine, else the reason in one sentence."""
    if full_row:
        return "the fused builder normalises over the top-M candidates only; whole-row scores need another builder"
    if scorer not in ("marginal", "static", "conditional"):
        return f"the fused builder has no {scorer} scorer"
    if scorer != "conditional" and budget >= LARGEST_LIST:
        return f"the fused builder makes {scorer} trees of up to {LARGEST_LIST - 1} nodes, not {budget}"
    if scorer == "marginal":
        return None if min(children, vocab) <= LARGEST_LIST else f"at most {LARGEST_LIST} children a node"
    if top_m is None or top_m > LARGEST_TOP_M:
        return f"the fused builder takes up to {LARGEST_TOP_M} candidates a level, not {top_m or 'the whole vocabulary'}"
    if scorer == "conditional" and budget > LARGEST_BUDGET:
        return f"the fused builder makes conditional trees of up to {LARGEST_BUDGET} nodes, not {budget}"
    if hidden % 4:
        return f"the fused builder wants a hidden size that is a multiple of 4, not {hidden}"
    blocks, processors = -(-gru // 32) * 4, _multiprocessors()
    if blocks > processors:  # its blocks wait for each other, so all must be resident
        return f"the fused builder needs {blocks} multiprocessors for a GRU of {gru}, and this GPU has {processors}"
    return None


def _multiprocessors() -> int:
    """Of the current CUDA device; plenty where there is none and the kernels are emulated."""
    if not torch.cuda.is_available():
        return 1 << 30
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)


class Tree:
    """What a build writes, on the device: nodes in pop order, padding behind ``count`` of them.

    Padding rows have the anchor's token, parent -1, depth 0, score -inf and see only themselves.
    """

    def __init__(self, budget: int, device: torch.device) -> None:
        def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.token = zeros(budget, dtype=torch.int64)
        self.parent = zeros(budget, dtype=torch.int32)  # -1: the anchor
        self.depth = zeros(budget, dtype=torch.int32)
        self.score = zeros(budget, dtype=torch.float64)  # cumulative log-probability
        self.count = zeros(1, dtype=torch.int32)
        self.ids = zeros(budget + 1, dtype=torch.int64)
        self.positions = zeros(budget + 1, dtype=torch.int64)
        self.mask = zeros(budget + 1, budget + 1, dtype=torch.bool)
        self.nan = zeros(1, dtype=torch.int32)  # 1: the base logits held NaN (fault N03)

    @property
    def fields(self) -> list[Tensor]:
        return [
            self.token,
            self.parent,
            self.depth,
            self.score,
            self.count,
            self.ids,
            self.positions,
            self.mask,
            self.nan,
        ]


class FusedBuilder:
    """Builds trees of one setting. Make one per (pair, settings) and keep it.

    Args:
        scorer: "conditional", "static" or "marginal".
        kind: "tree", or "chain": DFlash's (marginal) or Domino's (conditional), one node a level.
        levels, budget, children, top_m: as the reference builder takes them; ``top_m`` for the corrected scorers.
            A chain has ``levels`` nodes whatever the budget.
        head, embedding: the correction head and the target's table [V, h] (corrected scorers).
        precision: "half" or "float32".
        table: keep W_ih·emb for the whole vocabulary; None: for "half" only.
        adaptive: stop by ``self.costs`` (builders/adaptive.py); else every tree is filled to the budget.
        z_dtype: bfloat16 or float32.

    Raises SettingsError where ``why_not`` has a reason.
    """

    name = "fused"

    @torch.no_grad()
    def __init__(
        self, *, scorer: str, levels: int, vocab: int, budget: int, children: int, top_m: int | None = 64,
        kind: str = "tree", head: CorrectionHead | None = None, embedding: Tensor | None = None,
        precision: str = "half", table: bool | None = None, adaptive: bool = False,
        z_dtype: torch.dtype = torch.bfloat16, device: torch.device | str = "cuda",
    ) -> None:  # fmt: skip
        if kind == "chain":
            budget, children, top_m = levels, 1, 1
        hidden = embedding.shape[1] if embedding is not None else 4
        top_m = vocab if top_m is None else min(top_m, vocab)
        children = min(children, vocab if scorer == "marginal" else top_m)
        reason = why_not(
            scorer, hidden=hidden, vocab=vocab, budget=budget, children=children, top_m=top_m,
            gru=head.w_hh.shape[1] if head is not None else 0,
        )  # fmt: skip
        if reason:
            raise SettingsError(reason + ".")
        self.scorer, self.kind, self.precision = scorer, kind, precision
        self.levels, self.budget, self.children = levels, budget, children
        self.device = torch.device(device)
        m = children if scorer == "marginal" else top_m
        self.tree = Tree(budget, self.device)
        self.limits = self._zeros(2, dtype=torch.int32)
        self.limits.copy_(torch.tensor([levels, budget], dtype=torch.int32))
        #: C_draft and then C_verify of 0 … budget nodes, ms; filled by the caller before a build
        self.costs = self._zeros(budget + 2, dtype=torch.float64) if adaptive else None
        #: knots of a calibration: float64 [2, k], log-probabilities and what they become
        self.calibration: Tensor | None = None
        self._lists = self._zeros(levels, SPLITS, m, dtype=torch.int64)
        self._sums = self._zeros(levels, SPLITS, 2)
        self._flags = self._zeros(levels, SPLITS, dtype=torch.int32)
        self._counters = self._zeros(32 + 512, dtype=torch.int32)  # barriers, then a profile's clocks
        common = {
            "LEVELS": levels,
            "VOCAB": vocab,
            "M": m,
            "CHILDREN": children,
            "BUDGET": budget,
            "SPLITS": SPLITS,
        }
        self._top = Kernel("topm.cu", "top_rows", {"VOCAB": vocab, "M": m, "SPLITS": SPLITS})
        self._pathblind = scorer != "conditional" or kind == "chain"
        if self._pathblind:
            self._list_score = self._zeros(levels, children)
            self._list_token = self._zeros(levels, children, dtype=torch.int32)
            self._levels = Kernel("pathblind.cu", "marginal_levels", common)
            self._pops = Kernel("pathblind.cu", "pop_levels", common)
            self._pops_smem = self._shared_bytes("pathblind.cu", common)
        if scorer != "marginal":
            assert head is not None and embedding is not None
            self._head, self._embedding = head, embedding
            if self._pathblind:
                common = {**common, "BUDGET": levels, "CHAIN": 1}
            self._prepare(head, embedding, precision, table, z_dtype, common)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def _shared_bytes(self, source: str, defines: dict[str, Any]) -> int:
        out = self._zeros(1, dtype=torch.int32)
        Kernel(source, "shared_bytes", defines).launch(1, 1, out)
        return int(out)

    def _prepare(
        self, head: CorrectionHead, embedding: Tensor, precision: str, table: bool | None,
        z_dtype: torch.dtype, common: dict[str, int],
    ) -> None:  # fmt: skip
        """Weights, scratch and kernel for grow.cu."""
        if precision not in ("half", "float32"):
            raise SettingsError(f"the fused builder computes in half or float32, not {precision!r}.")
        half = precision == "half"
        table = half if table is None else table
        self._weights = w = HeadWeights.of(head, embedding, half, table)
        m, budget, levels = common["M"], common["BUDGET"], common["LEVELS"]
        self._scratch = [
            self._counters,
            self._zeros(levels, m, dtype=torch.int32),
            self._zeros(levels, m),
            self._zeros(levels),
            self._zeros(budget, w.gru, dtype=torch.float16 if half else torch.float32),
            self._zeros(budget, w.width),
            self._zeros(budget, self.children, dtype=torch.float64),
            self._list_token if self._pathblind else self._zeros(budget, self.children, dtype=torch.int32),
        ]
        self.root = self._zeros(w.gru)
        defines: dict[str, Any] = {
            **common, "HIDDEN": embedding.shape[1], "GRU": w.gru, "EMB": w.width, "PREFIX": head.prefix_len,
            "HALF": int(half), "TABLE": (1 if half else 2) if table else 0, "Z_BF16": int(z_dtype == torch.bfloat16),
            "EMBED_BF16": int(embedding.dtype == torch.bfloat16), "BLOCKS": w.blocks, "WEIGHTS_SHARED": 0,
        }  # fmt: skip
        self._smem = self._shared_bytes("grow.cu", defines)
        if not half and self._smem + 4 * w.gru * (24 + w.columns) < SHARED_LIMIT:
            defines["WEIGHTS_SHARED"] = 1
            self._smem = self._shared_bytes("grow.cu", defines)
        self._grow = Kernel("grow.cu", "chain" if self._pathblind else "grow", defines)
        if self._pathblind:
            self._best = self._zeros(levels, dtype=torch.int64)
            self._parts = self._zeros(levels, w.blocks, 2)
        self._root = Kernel("grow.cu", "root_state", defines) if table else None

    # -- per round ------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def read_anchor(self, anchor: Tensor) -> None:
        """The anchor's GRU state into ``self.root`` (part of the draft stage); ``anchor`` int64 [1]."""
        if self._root is not None:
            w = self._weights
            self._root.launch(-(-w.gru // THREADS), THREADS, anchor, w.inputs, self.root)
        else:
            state = self._head.advance(None, F.embedding(anchor, self._embedding))
            self.root[: self._weights.own].copy_(state[0])

    @torch.inference_mode()
    def build(self, z: Tensor | None, base_logits: Tensor, anchor: Tensor, position: Tensor) -> Tree:
        """Launch a build; nothing waits. Conditional: ``read_anchor`` comes first.

        Args:
            z: [D, h] of ``z_dtype`` (conditional).
            base_logits: float32 [D, V]; NaN becomes -inf in place.
            anchor, position: int64 [1] on the device: the anchor's token and position.
        """
        self._top.launch(
            (SPLITS, self.levels), 1024, base_logits, self._lists, self._sums, self._flags, self._counters,
            32, smem=20 * 1024,
        )  # fmt: skip
        slices = (self._lists, self._sums, self._flags, base_logits)
        knots = self.calibration.shape[1] if self.calibration is not None else 0
        where = (anchor, position, self.limits)
        ending = (self.costs, self.calibration, knots, *self.tree.fields)
        if self.scorer == "marginal":
            self._levels.launch(
                self.levels, THREADS, *slices, self._list_score, self._list_token, smem=self._pops_smem
            )
        else:
            assert z is not None
            w = self._weights
            weights = (w.gru_w1, w.w1_z, w.w2, w.inputs, self._embedding, *self._scratch)
            if self._pathblind:
                self._grow.launch(
                    w.blocks, THREADS, *slices, z, self.root, *weights, self._best, self._parts,
                    self._list_score, int(self.kind == "chain"), smem=self._smem,
                )  # fmt: skip
            else:
                self._grow.launch(
                    w.blocks, THREADS, *slices, z, self.root, *where, *weights, *ending, smem=self._smem
                )
        if self._pathblind:
            self._pops.launch(
                1,
                THREADS,
                self._list_score,
                self._list_token,
                self._flags,
                *where,
                *ending,
                smem=self._pops_smem,
            )
        return self.tree
