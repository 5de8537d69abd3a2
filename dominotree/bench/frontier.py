"""The other design without a host: a depth-synchronous frontier in plain PyTorch operations of fixed shapes.

Every depth is one batched step for all nodes kept there: W_hh·s and W1_s·s in one product, ΔL over the level's candidates
in another, the best ``children`` of each node, then the best of all that the depth offers. Nothing waits for the host
and no shape depends on the data, so the whole build can be captured as one CUDA graph; on a CPU it runs eagerly.

Which nodes are kept. The reference's heap (engine.md §6; DominoTree, Algorithm 1) pops by score, then by push: parents
in pop order, siblings by rank. Scores never rise along a path and a child is pushed after its parent, so the tree is
the first ``budget`` nodes of that order over everything offered, and those of its nodes that have depth d are the first
of their depth. They are at most ``budget`` − d + 1, for each has an ancestor in the tree at every smaller depth, and
their parents are in the tree and so were kept: keeping the first ``budget`` − d + 1 of each depth loses none.

Ties. Within a depth equal scores go by the parent's place there, then by rank: a stable sort of the children laid out
in that order. Across depths see ``pop_order``.

Precisions as in the fused builder (``gpu/fused.py``): "float32" is the reference's arithmetic in batched products;
"half" takes float16 weights, states and activations with float32 sums, and W_ih·emb from the table it shares with it.

Measured and not chosen: on an H200 it takes 1.6 to 2.0 ms where the fused kernel takes 0.11 to 0.23 (docs/performance.md).
It stays here so that the comparison can be repeated.
"""

from __future__ import annotations

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.correction import CorrectionHead
from dominotree.errors import SettingsError
from dominotree.gpu.fused import Tree
from dominotree.gpu.head_weights import HeadWeights

INF = float("inf")


def candidates(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` <= V largest entries of each row [n, V] without NaN, by (value, then lower id).

    Returns ids int64 and values, both [n, count], ascending by id. The best ``count`` entries lie in the ``count``
    chunks whose maxima are best (ties: the earlier chunk), so only chunk maxima are ever sorted.
    """
    values = F.pad(logits, (0, -logits.shape[1] % 128), value=-INF)
    ids = torch.arange(values.shape[1], device=values.device).expand_as(values)
    for size in (128, 8, 1):
        chunks, names = values.unflatten(1, (-1, size)), ids.unflatten(1, (-1, size))
        order = chunks.amax(-1).sort(dim=-1, descending=True, stable=True).indices
        at = order[:, :count].sort(dim=-1).values[..., None].expand(-1, -1, size)
        values, ids = chunks.gather(1, at).flatten(1), names.gather(1, at).flatten(1)
    return ids, values


def pop_order(score: Tensor, parent: Tensor, levels: int) -> Tensor:
    """Places in the list, in the order in which the reference's heap pops them: int64 [n], the anchor first.

    ``score`` float64 [n] and ``parent`` int64 [n] list the anchor (score +inf, its own parent) and then the nodes depth
    by depth, each depth in its own order; ``levels`` is the largest depth. Equal scores pop as their parents do, so the
    order compares the scores on the way up to the anchor, and nodes whose ways are equal, hence of one depth, keep
    their places. The keys rank the first 1, 2, 4, … scores of every way by doubling.
    """
    key = _ranks(-score)
    for _ in range((levels - 1).bit_length()):
        key = _ranks(torch.add(key[parent], key, alpha=len(key)))
        parent = parent[parent]
    return key.sort(stable=True).indices


def _ranks(x: Tensor) -> Tensor:
    """How many entries are smaller: int64 [n]; equal entries share it."""
    return torch.searchsorted(x.sort().values, x)


class FrontierBuilder:
    """Conditional trees of one setting, as ``best_first(ConditionalScorer(...))`` makes them (paper: DominoTree).

    Args:
        head, embedding: the correction head and the target's table [V, h], on the device that builds.
        levels, budget, children, top_m: as the reference builder takes them. One build holds W_ih·emb of all
            candidates, levels · top_m · 3g numbers.
        precision: "half" or "float32".

    Raises SettingsError for another precision and for sizes below 1.
    """

    name, scorer = "frontier", "conditional"

    @torch.no_grad()
    def __init__(
        self, head: CorrectionHead, embedding: Tensor, *, levels: int, budget: int, children: int,
        top_m: int = 64, precision: str = "half",
    ) -> None:  # fmt: skip
        if precision not in ("half", "float32"):
            raise SettingsError(f"the frontier builder computes in half or float32, not {precision!r}.")
        if min(levels, budget, children, top_m) < 1:
            raise SettingsError(
                "the frontier builder wants levels, budget, children and top_m of at least 1."
            )
        self.head, self.embedding, self.half = head, embedding, precision == "half"
        self.budget, self.top_m = budget, min(top_m, len(embedding))
        self.children = min(children, self.top_m)
        self.gru = head.w_hh.shape[1]
        #: nodes kept at depth 1, 2, …
        self.widths: list[int] = []
        for deeper in range(min(levels, budget)):
            offered = (self.widths[-1] if self.widths else 1) * self.children
            self.widths.append(min(budget - deeper, offered))
        self.count = min(budget, sum(self.widths))

        weights, self.w2 = torch.cat((head.w_hh, head.w1_s)), head.w2
        if self.half:
            shared = HeadWeights.of(head, embedding, half=True, table=True)
            self.table, self.w2 = shared.inputs, shared.w2[:, : head.w2.shape[1]]
            weights = weights.half()
        self.weights = weights  # [3g + e, g]

        device = embedding.device
        self.tree = Tree(budget, device)
        self.tree.parent.fill_(-1)
        self.tree.score.fill_(-INF)
        self.tree.count.fill_(self.count)
        self.root = torch.zeros(1, self.gru, device=device)
        # the list of all kept nodes, anchor first: depth, where the level's candidates and the parent's depth begin
        sizes = torch.tensor([1, *self.widths])
        firsts = torch.tensor([0, *accumulate([0, 1, *self.widths[:-2]])][: len(sizes)])
        self._depth = torch.arange(len(sizes)).repeat_interleave(sizes).to(device)
        self._row = (self._depth - 1).clamp(min=0) * self.top_m
        self._above = firsts.repeat_interleave(sizes).to(device)
        self._none = torch.zeros(1, dtype=torch.int64, device=device)
        self._start = torch.zeros(1, dtype=torch.float64, device=device)
        self._numbers = torch.arange(max(len(self._depth), budget + 1), device=device)

    @torch.inference_mode()
    def read_anchor(self, anchor: Tensor) -> None:
        """The anchor's GRU state into ``self.root`` (part of the draft stage); ``anchor`` int64 [1]."""
        self.root.copy_(self.head.advance(None, F.embedding(anchor, self.embedding)))

    @torch.inference_mode()
    def build(self, z: Tensor, base_logits: Tensor, anchor: Tensor, position: Tensor) -> Tree:
        """Build a tree into ``self.tree``, which every build overwrites; ``read_anchor`` comes first.

        Args:
            z: [D, h], bfloat16 or float32.
            base_logits: float32 [D, V]; NaN becomes -inf in place, a row without a finite entry 0 (fault N03).
            anchor, position: int64 [1]: the anchor's token and position.
        """
        self._repair(base_logits)
        levels = len(self.widths)
        ids, base = candidates(base_logits[:levels], self.top_m)
        level_part = self.head.level_part(z[:levels])
        w2 = self.w2[ids]
        inputs = self._inputs(ids[: levels - 1])

        state, score = self.root, self._start
        scores, parents, columns = [self._start + INF], [self._none], [self._none]
        for level, width in enumerate(self.widths):
            product = self._times(state, self.weights)
            if level < self.head.prefix_len:
                row = (base[level] - base_logits[level].logsumexp(-1))[None]
            else:
                hidden = F.silu(level_part[level] + product[:, 3 * self.gru :])
                row = (base[level] + self._times(hidden, w2[level])).log_softmax(-1)
            child = row.sort(descending=True, stable=True)
            log_probs = child.values[:, : self.children]
            child_columns = child.indices[:, : self.children].expand(len(state), -1)

            offered = (score[:, None] + log_probs).flatten().sort(descending=True, stable=True)
            score, at = offered.values[:width], offered.indices[:width]
            parent, column = at // self.children, child_columns.flatten()[at]
            scores.append(score)
            parents.append(parent)
            columns.append(column)
            if level + 1 < levels:
                state = self._advance(inputs[level][column], product[parent], state[parent])

        tokens = ids.flatten()[torch.cat(columns) + self._row]
        self._write(tokens, torch.cat(parents) + self._above, torch.cat(scores), anchor, position)
        return self.tree

    def _repair(self, logits: Tensor) -> None:
        """``DraftBlock.repair`` without a look at the data, and the flag."""
        bad = logits.amax(-1).isnan()
        logits.nan_to_num_(nan=-INF, posinf=INF, neginf=-INF)
        logits.masked_fill_((bad & (logits.amax(-1) == -INF))[:, None], 0.0)
        self.tree.nan.copy_(bad.any())

    def _times(self, x: Tensor, weight: Tensor) -> Tensor:
        """x [n, k] · weight [m, k] transposed, float32; in half precision on the tensor cores, where there are any."""
        if not self.half:
            return F.linear(x, weight)
        if x.is_cuda:
            return torch.mm(x.half(), weight.t(), out_dtype=torch.float32)
        return F.linear(x.half().float(), weight.float())

    def _inputs(self, ids: Tensor) -> Tensor:
        """W_ih·emb of the candidates [D, M]: [D, M, 3g]."""
        if not self.half:
            return F.linear(F.embedding(ids, self.embedding).float(), self.head.w_ih)
        gates = self.table[ids].transpose(-3, -2).flatten(-2)  # the table holds [blocks, 3, 8] a token
        return gates[..., : self.gru].flatten(-2)

    def _advance(self, x: Tensor, product: Tensor, state: Tensor) -> Tensor:
        """GRU states [n, g] from W_ih·emb [n, 3g] of the own token, W_hh·s and s of the parent (gates r, z, n)."""
        g = self.gru
        r, z = (x[:, : 2 * g] + product[:, : 2 * g]).sigmoid_().chunk(2, dim=1)
        n = torch.addcmul(x[:, 2 * g :], r, product[:, 2 * g : 3 * g]).tanh_()
        return torch.lerp(n, state, z)

    def _write(self, token: Tensor, parent: Tensor, score: Tensor, anchor: Tensor, position: Tensor) -> None:
        """The first nodes of the list in pop order, and the verify's ids, positions and mask; rows as in ``Tree``."""
        tree, n, levels = self.tree, self.count, len(self.widths)
        order = pop_order(score, parent, levels)
        place = torch.empty_like(order).scatter_(0, order, self._numbers[: len(order)])
        kept = order[1 : n + 1]
        # the row above each one; the anchor and padding are their own
        up = self._numbers[: self.budget + 1].clone()
        up[1 : n + 1] = place[parent[kept]]
        tree.token.copy_(anchor.expand(self.budget))
        tree.token[:n] = token[kept]
        tree.parent[:n] = up[1 : n + 1] - 1
        tree.depth[:n] = self._depth[kept]
        tree.score[:n] = score[kept]
        tree.ids[:1] = anchor
        tree.ids[1:] = tree.token
        tree.positions[:1] = position
        torch.add(tree.depth, position, out=tree.positions[1:])
        mask = torch.eye(self.budget + 1, dtype=torch.bool, device=up.device)
        for _ in range(levels.bit_length()):  # rows that see 1, 2, 4, … of their way up
            mask, up = mask | mask[up], up[up]
        tree.mask.copy_(mask)
