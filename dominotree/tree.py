"""A draft tree as flat arrays: tokens, parents, depths, scores; its mask, positions and accepted path.

Knows nothing of models or caches. Row 0 of a verify is the anchor (root); node j is row j + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dominotree.errors import TreeError


@dataclass
class DraftTree:
    """Nodes in pop order. ``parent`` is a node index or -1 for the anchor; depth of the anchor's children is 1."""

    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    score: list[float] = field(default_factory=list)  # cumulative log-probability, float64

    def __len__(self) -> int:
        return len(self.token)

    def add(self, token: int, parent: int, score: float) -> int:
        """Append a node and return its index."""
        self.token.append(token)
        self.parent.append(parent)
        self.depth.append(1 if parent < 0 else self.depth[parent] + 1)
        self.score.append(score)
        return len(self.token) - 1

    def validate(self) -> None:
        """Raise TreeError unless every parent comes before its child and siblings carry distinct tokens (E22, E34)."""
        seen: set[tuple[int, int]] = set()
        for node, (token, parent, depth) in enumerate(zip(self.token, self.parent, self.depth, strict=True)):
            if not -1 <= parent < node:
                raise TreeError(f"node {node} names parent {parent}, which is not in the tree before it")
            if depth != (1 if parent < 0 else self.depth[parent] + 1):
                raise TreeError(f"node {node} has depth {depth}, which its parent {parent} does not give")
            if (parent, token) in seen:
                raise TreeError(f"node {node} repeats token {token} of a sibling under parent {parent}")
            seen.add((parent, token))

    def rows(self, anchor: int) -> list[int]:
        """Token ids of the verify rows: anchor, then nodes."""
        return [anchor, *self.token]

    def positions(self, anchor_position: int) -> list[int]:
        """Positions of the verify rows: anchor position + depth, never the slot number (fault E09)."""
        return [anchor_position] + [anchor_position + d for d in self.depth]

    def mask(self) -> Tensor:
        """bool [n + 1, n + 1]: each row sees the anchor, its ancestors and itself."""
        n = len(self) + 1
        mask = torch.eye(n, dtype=torch.bool)
        mask[:, 0] = True
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                mask[node + 1] |= mask[parent + 1]
        return mask

    def children(self) -> list[dict[int, int]]:
        """For each row (0 = anchor): child token -> child node."""
        table: list[dict[int, int]] = [{} for _ in range(len(self) + 1)]
        for node, (token, parent) in enumerate(zip(self.token, self.parent, strict=True)):
            table[parent + 1][token] = node
        return table

    def longest_match(self, text: Sequence[int]) -> list[int]:
        """Nodes of the longest root path whose tokens are a prefix of ``text``."""
        table, path, row = self.children(), [], 0
        for token in text:
            node = table[row].get(token)
            if node is None:
                break
            path.append(node)
            row = node + 1
        return path


@dataclass
class Walk:
    """The verify walk: accepted nodes in order, the bonus token, and the target's choice at each visited row."""

    path: list[int]
    bonus: int
    chosen: list[tuple[int, int]]  # (row, token chosen there), in walking order; the last one is the bonus

    @property
    def rows(self) -> list[int]:
        """Verify rows to keep in the caches: the anchor and the accepted nodes."""
        return [0, *(node + 1 for node in self.path)]


def walk(tree: DraftTree, choose: Callable[[int, int], int], stop_ids: frozenset[int] = frozenset()) -> Walk:
    """Follow the target's choices from the anchor while a child carries them (engine.md §7).

    ``choose(row, depth)`` gives the target's token at a verify row of that depth (one draw per visited row, E23).
    Nothing below a stop token is accepted (E38); the row of an accepted stop token still gives a bonus, which the
    output cut removes.
    """
    table = tree.children()
    path: list[int] = []
    chosen: list[tuple[int, int]] = []
    row = 0
    while True:
        token = choose(row, len(path))
        chosen.append((row, token))
        node = table[row].get(token)
        ended = bool(path) and tree.token[path[-1]] in stop_ids
        if node is None or ended:
            return Walk(path, token, chosen)
        path.append(node)
        row = node + 1
