"""The greedy chains without a host: DFlash's on base logits, Domino's with the correction, as one captured piece.

The arithmetic is that of ``builders.reference.chain``: whole vocabulary, lower id among equals, float32 rows, float64
cumulative scores.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.correction import CorrectionHead
from dominotree.gpu.device_tree import DeviceTree


class ChainBuilder:
    """Fills a DeviceTree of ``levels`` + 1 rows. ``head`` None: base logits only. ``embedding``: the target's table."""

    name = "chain"

    def __init__(self, tree: DeviceTree, levels: int, head: CorrectionHead | None, embedding: Tensor) -> None:
        self.tree, self.levels, self.head, self.embedding = tree, levels, head, embedding
        steps = torch.arange(levels, device=embedding.device)
        tree.parent.copy_(steps - 1)
        tree.depth.copy_(steps + 1)
        tree.nodes.fill_(levels)
        tree.mask.copy_(torch.ones_like(tree.mask).tril())

    def build(self, z: Tensor, base_logits: Tensor, root: Tensor | None) -> None:
        """z [D, h], base_logits float32 [D, V], root GRU state [1, g] -> tokens and scores of the chain."""
        head, state, tree = self.head, root, self.tree
        if head is None:  # nothing depends on the path: all levels at once
            token = argmax_rows(base_logits)
            step = base_logits.gather(-1, token[:, None])[:, 0] - base_logits.logsumexp(-1)
            tree.token.copy_(token)
            tree.score.copy_(step.double().cumsum(0))
            return
        assert state is not None
        parts = head.level_part(z)
        score = torch.zeros(1, dtype=torch.float64, device=base_logits.device)
        for level in range(self.levels):
            row = base_logits[level]
            if level >= head.prefix_len:
                row = row + head.delta(parts[level], state, head.output_rows())[0]
            token = argmax_rows(row[None])
            score = score + (row.index_select(0, token) - row.logsumexp(-1)).double()
            tree.token[level : level + 1].copy_(token)
            tree.score[level : level + 1].copy_(score)
            if level + 1 < self.levels:
                state = head.advance(state, F.embedding(token, self.embedding))


def argmax_rows(rows: Tensor) -> Tensor:
    """Index int64 [n] of the largest entry of each row [n, V], the lowest among equals (fault N02)."""
    ids = torch.arange(rows.shape[-1], device=rows.device)
    return torch.where(rows == rows.amax(-1, keepdim=True), ids, rows.shape[-1] - 1).amin(-1)
