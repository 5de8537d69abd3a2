"""The paper's builder: the heap on the host, the correction of one popped node as a CUDA graph, replayed per pop.

One graph reads the block (candidates, level parts of W1, rows of W2, the root's children), one reads a popped node:
GRU step, ΔL, log-softmax over the candidates, ordered top-k. Both run the reference's own torch operations on tensors
of the reference's shapes, so tokens, parents, order and the scores' bits are those of
``best_first(ConditionalScorer(...))`` on the same device. Inputs and results pass through pinned host buffers; the
loop over pops allocates no tensor. Trees are plain lists, never views of graph buffers (fault N08).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock
from dominotree.tree import DraftTree


def static_top_ids(values: Tensor, count: int) -> Tensor:
    """Ids of the ``count`` largest entries of each row [n, V], ascending by id: int64 [n, count].

    The set that ``scorers.top_ids`` picks (value, then lower id; NaN last), by operations whose shapes do not depend
    on the data, so that a graph can hold them.
    """
    values = torch.nan_to_num(values, nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
    bound = values.topk(count, dim=-1).values[:, -1:]
    above, equal = values > bound, values == bound
    room = count - above.sum(-1, keepdim=True)
    keep = above | (equal & (equal.cumsum(-1, dtype=torch.int32) <= room))
    place = torch.where(keep, keep.cumsum(-1, dtype=torch.int32) - 1, count).long()
    ids = torch.arange(values.shape[-1], device=values.device).expand_as(values)
    out = ids.new_zeros((len(values), count + 1))  # the last column takes everything that is not kept
    return out.scatter_(1, place, ids)[:, :count]


class GraphBuilder:
    """Best-first trees under the conditional scorer, one graph replay per expanded node.

    ``budget`` and ``levels`` are upper limits; ``top_m`` None means the full vocabulary. ``embedding`` [V, h] is the
    target's table. Make one per (pair, settings) and keep it: capturing takes about a second.
    """

    name = "graph"

    @torch.inference_mode()
    def __init__(
        self, head: CorrectionHead, embedding: Tensor, levels: int, budget: int, children: int,
        top_m: int | None = 64, full_row: bool = False, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        vocab, hidden = embedding.shape
        self.head, self.embedding = head, embedding
        self.levels, self.budget, self.full_row = levels, budget, full_row
        self.top_m = None if top_m is None or top_m >= vocab else top_m
        m = self.top_m or vocab
        self.children = min(children, m)
        device = embedding.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.z = empty(levels, hidden, dtype=dtype or embedding.dtype)
        self.logits = empty(levels, vocab)
        self.states = empty(budget + 1, head.w_hh.shape[1])  # row 0: the anchor; row j + 1: node j
        self.ids = empty(levels, m, dtype=torch.int64)
        self.base, self.logz_v = empty(levels, m), empty(levels)
        self.level_part = empty(levels, head.w1_s.shape[0])
        self.w2 = empty(levels, m, head.w2.shape[1]) if self.top_m else None
        # what passes between host and device: (parent's state row, own state row, token, level) in, k children out
        self._ask = torch.zeros(4, dtype=torch.int64).pin_memory()
        self._asked = empty(4, dtype=torch.int64)
        self._child_ids = empty(self.children, dtype=torch.int64)
        self._child_scores = empty(self.children)
        self._landed_ids = torch.zeros(self.children, dtype=torch.int64).pin_memory()
        self._landed_scores = torch.zeros(self.children).pin_memory()
        self._ask_view, self._ids_view = self._ask.numpy(), self._landed_ids.numpy()
        self._scores_view = self._landed_scores.numpy()
        self._done = torch.cuda.Event()
        self._block_graph = self._capture(self._read_block)
        self._node_graphs = {False: self._capture(lambda: self._read_node(corrected=False))}
        self._node_graphs[True] = self._capture(lambda: self._read_node(corrected=True))

    def _capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
            work()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph

    def _read_block(self) -> None:
        """Everything that depends on the block alone, and the root's children."""
        if self.top_m:
            self.ids.copy_(static_top_ids(self.logits, self.top_m))
            assert self.w2 is not None
            torch.index_select(self.head.w2, 0, self.ids.flatten(), out=self.w2.flatten(0, 1))
        else:
            self.ids.copy_(torch.arange(self.ids.shape[1], device=self.ids.device).expand_as(self.ids))
        self.base.copy_(self.logits.gather(-1, self.ids))
        self.logz_v.copy_(self.logits.logsumexp(-1))
        self.level_part.copy_(self.head.level_part(self.z))
        level = torch.zeros(1, dtype=torch.int64, device=self.z.device)
        self._offer(self.states[:1], level, corrected=self.head.prefix_len == 0)

    def _read_node(self, corrected: bool) -> None:
        """One popped node: its state from its parent's and its token, then its children."""
        self._asked.copy_(self._ask, non_blocking=True)
        parent, own, token, level = (self._asked[i : i + 1] for i in range(4))
        state = self.head.advance(self.states.index_select(0, parent), F.embedding(token, self.embedding))
        self.states.index_copy_(0, own, state)
        self._offer(state, level, corrected)

    def _offer(self, state: Tensor, level: Tensor, corrected: bool) -> None:
        """The children of a state [1, g] at a level [1]: what ``ConditionalScorer.children`` computes."""
        head = self.head
        ids, row = self.ids.index_select(0, level)[0], self.base.index_select(0, level)[0]
        if not corrected:
            scores = row - self.logz_v.index_select(0, level)[0]
        else:
            part = self.level_part.index_select(0, level)[0]
            rows = head.w2 if self.w2 is None else self.w2.index_select(0, level)[0]
            row = row + head.delta(part, state, rows)[0]
            whole = row
            if self.full_row:
                whole = self.logits.index_select(0, level)[0] + head.delta(part, state, head.w2)[0]
            scores = row - whole.logsumexp(-1)
        order = scores.sort(descending=True, stable=True).indices[: self.children]
        self._landed_ids.copy_(ids[order], non_blocking=True)
        self._landed_scores.copy_(scores[order], non_blocking=True)

    def _landed(self) -> tuple[list[int], list[float]]:
        """Wait for the last replay and copy its children out of the landing buffers."""
        self._done.record()
        self._done.synchronize()
        return self._ids_view.tolist(), self._scores_view.tolist()

    @torch.inference_mode()
    def build(
        self, block: DraftBlock, root: Tensor, levels: int | None = None, budget: int | None = None
    ) -> DraftTree:
        """The tree of one block, whose base logits are repaired; ``root`` [1, g] is the anchor's GRU state."""
        levels = min(self.levels if levels is None else levels, self.levels)
        budget = min(self.budget if budget is None else budget, self.budget)
        tree = DraftTree()
        if budget <= 0 or levels <= 0:
            return tree
        self.z.copy_(block.z)
        self.logits.copy_(block.base_logits)
        self.states[:1].copy_(root)
        self._block_graph.replay()
        heap: list[tuple[float, int, int, int]] = []  # (-score, push number, parent node, token)
        pushed = 0

        def push(parent: int, score: float) -> None:
            nonlocal pushed
            for token, log_prob in zip(*self._landed(), strict=True):
                heapq.heappush(heap, (-(score + log_prob), pushed, parent, token))
                pushed += 1

        push(-1, 0.0)
        while heap and len(tree) < budget:
            negative, _, parent, token = heapq.heappop(heap)
            node = tree.add(token, parent, -negative)
            level = tree.depth[node]
            if len(tree) == budget or level >= levels:
                continue  # the last node and nodes of the last level have no children
            self._ask_view[:] = (parent + 1, node + 1, token, level)
            self._node_graphs[level >= self.head.prefix_len].replay()
            push(node, -negative)
        return tree
