"""The three scorers of the ladder (engine.md §5): marginal, static-corrected, conditional.

A scorer answers one question for the builder: which children does this prefix have, and how likely is each? States
are opaque to the builder. Scores are float32 log-probabilities at temperature 1, whatever the sampling temperature.

Candidates of a level are the top-M base logits, ordered by (value, then lower token id): bf16 logits repeat, and
``torch.topk`` promises no order among equals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock

NAMES = ("marginal", "static", "conditional")


def top_ids(values: Tensor, count: int) -> Tensor:
    """Ids of the ``count`` largest entries of each row [n, V], by (value, then lower id): int64 [n, count].

    NaN counts as -inf, so ids are always valid (fault N03).
    """
    values = torch.nan_to_num(values, nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
    count = min(count, values.shape[-1])
    bound = values.topk(count, dim=-1).values[:, -1:]
    rows = []
    for row, limit in zip(values, bound, strict=True):
        above = (row > limit).nonzero().flatten()
        equal = (row == limit).nonzero().flatten()[: count - len(above)]
        ids = torch.cat((above, equal)).sort().values
        rows.append(ids[row[ids].sort(descending=True, stable=True).indices])
    return torch.stack(rows)


def argmax_low(values: Tensor) -> int:
    """Index of the largest entry of a vector, the lowest among equals (fault N02)."""
    return int((values == values.max()).nonzero()[0])


class Scorer(Protocol):
    """What a builder asks of a scorer."""

    name: str

    def root(self) -> Any:
        """State of the anchor."""

    def step(self, state: Any, token: int) -> Any:
        """State after one more token."""

    def children(self, state: Any, level: int, count: int) -> tuple[list[int], list[float]]:
        """The best ``count`` children of a prefix whose next level is ``level``: ids and log-probs, best first."""


@dataclass
class Candidates:
    """Top-M candidates of every level of one block, shared by the scorers.

    ``ids`` int64 [D, M] ascending by id; ``base`` their base logits; ``logz_m``, ``logz_v`` float32 [D].
    """

    block: DraftBlock
    ids: Tensor
    base: Tensor
    logz_m: Tensor
    logz_v: Tensor

    @classmethod
    @torch.inference_mode()
    def of(cls, block: DraftBlock, top_m: int | None) -> Candidates:
        """``top_m`` None means the full vocabulary."""
        logits = block.base_logits
        vocab = logits.shape[-1]
        if top_m is None or top_m >= vocab:
            ids = torch.arange(vocab, device=logits.device).expand(len(logits), -1)
        else:
            ids = top_ids(logits, top_m).sort(dim=-1).values
        base = logits.gather(-1, ids)
        return cls(block, ids, base, base.logsumexp(-1), logits.logsumexp(-1))


def best(ids: Tensor, scores: Tensor, count: int) -> tuple[list[int], list[float]]:
    """The ``count`` best of one row; ids are ascending, so a stable sort breaks ties by the lower id."""
    order = scores.sort(descending=True, stable=True).indices[:count]
    return ids[order].tolist(), scores[order].tolist()


class PathBlindScorer:
    """A scorer whose children depend on the level only: it has no state to keep."""

    def root(self) -> None:
        return None

    def step(self, state: None, token: int) -> None:
        return None


class MarginalScorer(PathBlindScorer):
    """log-softmax(L_i) over the whole vocabulary, blind to the path (DDTree)."""

    name = "marginal"

    def __init__(self, block: DraftBlock, children: int) -> None:
        self.found = Candidates.of(block, children)

    @torch.inference_mode()
    def children(self, state: None, level: int, count: int) -> tuple[list[int], list[float]]:
        found = self.found
        return best(found.ids[level], found.base[level] - found.logz_v[level], count)


class StaticScorer(PathBlindScorer):
    """The correction once per level along the greedy corrected chain, shared by all nodes of the level.

    The chain is Domino's own: its token at each level is the best of the whole vocabulary, which may lie outside the
    level's top-M candidates.
    """

    name = "static"

    @torch.inference_mode()
    def __init__(
        self,
        found: Candidates,
        head: CorrectionHead,
        embed: Any,
        full_row: bool = False,
        root: Tensor | None = None,
    ) -> None:
        conditional = ConditionalScorer(found, head, embed, full_row, root)
        state = conditional.root()
        self.ids = found.ids
        self.rows: list[Tensor] = []  # scores of a level's candidates, as the builder ranks them
        self.over_m: list[Tensor] = []  # the same rows normalised over the M candidates
        self.corrected: list[
            Tensor | None
        ] = []  # L + ΔL of the candidates; None where a level has no correction
        for level in range(found.block.levels):
            self.rows.append(conditional.log_probs(state, level))
            corrected = conditional.corrected(state, level)
            self.over_m.append(corrected.log_softmax(-1))
            self.corrected.append(corrected if level >= head.prefix_len else None)
            state = conditional.step(state, argmax_low(conditional.whole_row(state, level)))

    @torch.inference_mode()
    def children(self, state: None, level: int, count: int) -> tuple[list[int], list[float]]:
        return best(self.ids[level], self.rows[level], count)


class ConditionalScorer:
    """log-softmax(L_i + ΔL_i(path)) over the top-M candidates, recomputed for the node's own path (DominoTree).

    Levels below the head's ``prefix_len`` have no correction and are normalised over the whole vocabulary; corrected
    levels over the M candidates only, as in the paper, or over the whole row with ``full_row``.
    """

    name = "conditional"

    def __init__(
        self,
        found: Candidates,
        head: CorrectionHead,
        embed: Any,
        full_row: bool = False,
        root: Tensor | None = None,
    ) -> None:
        self.found, self.head, self.embed, self.full_row = found, head, embed, full_row
        self._root = root if root is not None else head.advance(None, embed([found.block.anchor]))
        self.level_part = head.level_part(found.block.z)
        self._w2: dict[int, Tensor] = {}

    def root(self) -> Tensor:
        return self._root

    def step(self, state: Tensor, token: int) -> Tensor:
        return self.head.advance(state, self.embed([token]))

    def w2(self, level: int) -> Tensor:
        if level not in self._w2:
            self._w2[level] = self.head.output_rows(self.found.ids[level])
        return self._w2[level]

    def corrected(self, state: Tensor, level: int) -> Tensor:
        """L_i + ΔL_i over the candidates of the level, [M]."""
        base = self.found.base[level]
        if level < self.head.prefix_len:
            return base
        return base + self.head.delta(self.level_part[level], state, self.w2(level))[0]

    def whole_row(self, state: Tensor, level: int) -> Tensor:
        """L_i + ΔL_i over the whole vocabulary, [V]."""
        base = self.found.block.base_logits[level]
        if level < self.head.prefix_len:
            return base
        return base + self.head.delta(self.level_part[level], state, self.head.output_rows())[0]

    def log_probs(self, state: Tensor, level: int) -> Tensor:
        """Scores of the level's candidates, [M], aligned with ``found.ids[level]``."""
        row = self.corrected(state, level)
        if level < self.head.prefix_len:
            return row - self.found.logz_v[level]
        if self.full_row:
            return row - self.whole_row(state, level).logsumexp(-1)
        return row - row.logsumexp(-1)

    @torch.inference_mode()
    def children(self, state: Tensor, level: int, count: int) -> tuple[list[int], list[float]]:
        return best(self.found.ids[level], self.log_probs(state, level), count)
