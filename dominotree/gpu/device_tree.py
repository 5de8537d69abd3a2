"""A draft tree in arrays of fixed size on the device: what a builder fills in and a captured verify reads.

Row 0 of a verify is the anchor, node j is row j + 1. Rows behind the last node are padding: they repeat the anchor,
attend to themselves and to the prefix, and can never be accepted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dominotree.tree import DraftTree


class DeviceTree:
    """Room for ``rows`` − 1 nodes in pop order.

    token int64 [B], parent int32 [B] (node indices, −1 = anchor), depth int64 [B], score float64 [B], nodes int32 [1];
    for the verify: ids int64 [n], row_depth int64 [n], positions int64 [n], mask bool [n, n].
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.rows = rows
        size = rows - 1
        self.token = torch.zeros(size, dtype=torch.long, device=device)
        self.parent = torch.full((size,), -1, dtype=torch.int32, device=device)
        self.depth = torch.zeros(size, dtype=torch.long, device=device)
        self.score = torch.zeros(size, dtype=torch.float64, device=device)
        self.nodes = torch.zeros(1, dtype=torch.int32, device=device)
        self.ids = torch.zeros(rows, dtype=torch.long, device=device)
        self.row_depth = torch.zeros(rows, dtype=torch.long, device=device)
        self.positions = torch.zeros(rows, dtype=torch.long, device=device)
        self.mask = torch.eye(rows, dtype=torch.bool, device=device)
        self._index = torch.arange(size, device=device)
        self._followed = False

    def follow(self, built: Any) -> None:
        """Take the arrays of a device builder's tree (``gpu/fused.py``) for these: it fills them all by itself."""
        self.token, self.parent, self.depth = built.token, built.parent, built.depth
        self.score, self.nodes = built.score, built.count
        self.ids, self.positions, self.mask = built.ids, built.positions, built.mask
        self._followed = True

    def follow_anchor(self, anchor: Tensor, length: Tensor) -> None:
        """For a verify of the anchor alone: its token and position are the engine's own tensors."""
        self.ids, self.positions = anchor, length
        self._followed = True

    def take(self, built: Any) -> None:
        """Copy the first rows of a device builder's larger tree, whose nodes all fit here."""
        size = self.rows - 1
        self.token.copy_(built.token[:size])
        self.parent.copy_(built.parent[:size])
        self.depth.copy_(built.depth[:size])
        self.score.copy_(built.score[:size])
        self.nodes.copy_(built.count)
        self.ids.copy_(built.ids[: self.rows])
        self.positions.copy_(built.positions[: self.rows])
        self.mask.copy_(built.mask[: self.rows, : self.rows])
        self.row_depth[1:].copy_(self.depth)

    def assemble(self, anchor: Tensor, length: Tensor) -> None:
        """ids, row_depth and positions from token and depth; positions are anchor position + depth (fault E09)."""
        if self._followed:
            self.row_depth[1:].copy_(self.depth)
            return
        real = self._index < self.nodes
        self.ids[:1].copy_(anchor)
        self.ids[1:].copy_(torch.where(real, self.token, anchor))
        self.row_depth[1:].copy_(torch.where(real, self.depth, 0))
        torch.add(self.row_depth, length, out=self.positions)

    def load(self, tree: DraftTree) -> None:
        """Fill token, parent, depth, score, nodes and mask from a tree that was built on the host, in place (N20)."""
        count, size = len(tree), self.rows - 1
        if count > size:
            raise ValueError(f"a tree of {count} nodes does not fit {self.rows} verify rows")
        pad = size - count
        columns = [[*tree.token, *[0] * pad], [*tree.parent, *[-1] * pad], [*tree.depth, *[0] * pad]]
        packed = torch.tensor(columns, dtype=torch.long).to(self.token.device)
        self.token.copy_(packed[0])
        self.parent.copy_(packed[1])
        self.depth.copy_(packed[2])
        self.score.copy_(torch.tensor([*tree.score, *[0.0] * pad], dtype=torch.float64))
        self.nodes.fill_(count)
        mask = torch.eye(self.rows, dtype=torch.bool)
        mask[: count + 1, : count + 1] = tree.mask()
        self.mask.copy_(mask)

    def read(self) -> DraftTree:
        """The tree as the host sees it: plain lists, copied (fault N08). Waits for the device."""
        count = int(self.nodes)
        return DraftTree(
            *(column[:count].tolist() for column in (self.token, self.parent, self.depth, self.score))
        )
