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
        parts = head.level_part(z) if head is not None else None
        score = torch.zeros(1, dtype=torch.float64, device=base_logits.device)
        for level in range(self.levels):
            row = base_logits[level]
            if head is not None and parts is not None and state is not None and level >= head.prefix_len:
                row = row + head.delta(parts[level], state, head.output_rows())[0]
            token = argmax_low(row)
            score = score + (row.index_select(0, token) - row.logsumexp(-1)).double()
            tree.token[level : level + 1].copy_(token)
            tree.score[level : level + 1].copy_(score)
            if head is not None and level + 1 < self.levels:
                state = head.advance(state, F.embedding(token, self.embedding))


def argmax_low(row: Tensor) -> Tensor:
    """Index int64 [1] of the largest entry of a vector, the lowest among equals (fault N02)."""
    ids = torch.arange(len(row), device=row.device)
    return torch.where(row == row.amax(), ids, len(row) - 1).amin(0, keepdim=True)
