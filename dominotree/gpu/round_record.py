"""The one thing that the host reads per round: a small vector of whole numbers in pinned memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.gpu.choice import Choices, Walked

HEAD = ("position", "anchor", "count", "nodes", "deepest", "repaired")


@dataclass
class RoundRecord:
    """A round in plain numbers. ``rows``: visited verify rows, anchor first; ``chosen``: the target's token at each.

    ``chosen`` is what the round commits: the accepted drafts and, last, the bonus. ``gap``: top-2 score differences.
    """

    position: int
    anchor: int
    nodes: int
    deepest: int
    repaired: bool
    rows: list[int]
    chosen: list[int]
    runner_up: list[int]
    gap: list[float]


def pack(
    position: Tensor, anchor: Tensor, nodes: Tensor, deepest: Tensor, repaired: Tensor, walked: Walked, choices: Choices
) -> Tensor:  # fmt: skip
    """int64 [6 + 4 R] on the device; the gaps keep their bits."""
    rows = walked.rows
    return torch.cat(
        (
            position, anchor, walked.count, nodes.long(), deepest.long(), repaired.long(), rows,
            choices.token.index_select(0, rows), choices.runner_up.index_select(0, rows),
            choices.gap.index_select(0, rows).view(torch.int64),
        )
    )  # fmt: skip


def unpack(packed: Tensor) -> RoundRecord:
    """The record out of a host tensor, copied (fault N08)."""
    head = dict(zip(HEAD, packed[: len(HEAD)].tolist(), strict=True))
    table = packed[len(HEAD) :].view(4, -1)[:, : head["count"]]
    rows, chosen, runner_up = table[:3].tolist()
    return RoundRecord(
        position=head["position"], anchor=head["anchor"], nodes=head["nodes"], deepest=head["deepest"],
        repaired=bool(head["repaired"]), rows=rows, chosen=chosen, runner_up=runner_up,
        gap=table[3].contiguous().view(torch.float64).tolist(),
    )  # fmt: skip
