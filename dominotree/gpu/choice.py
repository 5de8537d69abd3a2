"""The choice rule and the acceptance walk on the device: what ``Chooser`` and ``tree.walk`` do, without a host.

Every row of a verify gets its choice at once, and the walk follows those of the rows it visits. The noise is that of
``sampling.py``, keyed by (seed, absolute position); seed and position are device tensors, so a replayed graph draws
anew each round and a new seed takes effect (fault N10).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.gpu.device_tree import DeviceTree
from dominotree.sampling import philox

_LOW = 0xFFFFFFFF
#: Rows scored at once when noise is added: bounds the float64 scratch to 32 · V · 8 bytes.
CHUNK = 32


@dataclass
class Choices:
    """The target's choice at each verify row: token int64 [n], runner_up int64 [n], gap float64 [n] (top-2 scores).

    ``token`` is V, which no tree carries, for a row whose scores hold NaN.
    """

    token: Tensor
    runner_up: Tensor
    gap: Tensor


@dataclass
class Walked:
    """The accepted path: verify rows int64 [R] (row 0 first, unused entries 0), how many int64 [1], bonus int64 [1]."""

    rows: Tensor
    count: Tensor
    bonus: Tensor


def noise_at(seed: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """Standard Gumbel noise float64 [P, vocab] at absolute positions int64 [P] for a seed int64 [1].

    Word for word ``sampling.gumbel_noise``, for several positions that only the device knows.
    """
    block = torch.arange((vocab + 3) // 4, device=positions.device)[None, :]
    position = positions[:, None]
    zero = torch.zeros_like(block)
    words = philox(
        (block, zero + (position & _LOW), zero + (position >> 32), zero),
        (seed & _LOW, seed >> 32),  # type: ignore[arg-type]
    )
    words = torch.broadcast_tensors(*words)
    uniform = (torch.stack(words, dim=-1).flatten(1)[:, :vocab].double() + 0.5) / 2.0**32
    return -torch.log(-torch.log(uniform))


def choose_rows(
    logits: Tensor, depth: Tensor, levels: int, position: Tensor, seed: Tensor, temperature: Tensor | None
) -> Choices:
    """Choices of all rows. logits float32 [n, V]; depth int64 [n]; ``position`` int64 [1] of the anchor's row.

    ``temperature`` None is greedy; otherwise float64 [1], and the scores are logits + T · noise in float64, the noise
    of a row being that of position + depth + 1. It is made once per depth: at most ``levels`` + 1 positions.
    """
    if temperature is None:
        return best_two(logits)
    steps = torch.arange(1, levels + 2, device=logits.device)
    noise = temperature * noise_at(seed, position + steps, logits.shape[-1])
    parts = [
        best_two(rows.double() + noise.index_select(0, at))
        for rows, at in zip(logits.split(CHUNK), depth.split(CHUNK), strict=True)
    ]
    return Choices(*(torch.cat([getattr(p, f) for p in parts]) for f in ("token", "runner_up", "gap")))


def best_two(scores: Tensor) -> Choices:
    """The two best ids of each row [n, V], the lower id among equals (fault N02)."""
    vocab = scores.shape[-1]
    ids = torch.arange(vocab, device=scores.device, dtype=torch.int32)
    none = torch.full((), vocab, device=scores.device, dtype=torch.int32)
    top = scores.amax(-1, keepdim=True)
    token = torch.where(scores == top, ids, none).amin(-1)
    others = scores.masked_fill(ids == token[:, None], float("-inf"))
    second = others.amax(-1, keepdim=True)
    runner_up = torch.where((others == second) & (ids != token[:, None]), ids, none).amin(-1)
    return Choices(token.long(), runner_up.long(), (top.double() - second.double())[:, 0])


def walk_rows(
    choice: Tensor, ids: Tensor, parent: Tensor, depth: Tensor, mask: Tensor, nodes: Tensor, stop_ids: Tensor,
    longest: int,
) -> Walked:  # fmt: skip
    """Follow the choices from the anchor while a child carries them (engine.md §7).

    choice, ids int64 [n]; parent int32 [n − 1] (node indices, −1 = anchor); depth int64 [n]; mask bool [n, n];
    ``nodes`` int [1] = nodes that are real; stop_ids int64 [S]. A node is accepted when it and all its ancestors carry
    the choice of the row above them, and no ancestor is a stop token (fault E38). ``longest``: entries of ``rows``.
    """
    n = len(ids)
    above = parent.long() + 1
    stops = (ids[:, None] == stop_ids[None, :]).any(-1)
    ended = stops.index_select(0, above) & (above > 0)
    real = torch.arange(n - 1, device=ids.device) < nodes
    match = (ids[1:] == choice.index_select(0, above)) & real & ~ended
    fits = torch.cat((torch.ones_like(match[:1]) if n > 1 else mask[0, :1], match))
    accepted = (fits[None, :] | ~mask).all(-1)
    place = torch.where(accepted, depth, longest)
    rows = torch.zeros(longest + 1, dtype=torch.long, device=ids.device)
    rows.scatter_(0, place, torch.arange(n, device=ids.device))
    count = accepted.sum(dim=0, keepdim=True)
    rows = rows[:longest]
    bonus = choice.index_select(0, rows.index_select(0, count - 1))
    return Walked(rows, count, bonus)


def force_path(choice: Tensor, tree: DeviceTree, drafts: int) -> None:
    """For measurements: make the target choose a path of up to ``drafts`` nodes of the tree, in place.

    The path leads to the deepest node within ``drafts`` levels (the earliest popped of them); at its end the choice is
    one that no child carries. Everything behind the choice is the real walk and commit.
    """
    n = len(choice)
    rows = torch.arange(n, device=choice.device)
    depth = torch.where((rows <= tree.nodes) & (tree.row_depth <= drafts), tree.row_depth, -1)
    goal = (depth * n + (n - 1 - rows)).argmax().view(1)
    on_path = tree.mask.index_select(0, goal)[0] & (rows > 0)
    above = torch.cat((torch.zeros_like(goal), tree.parent.long() + 1))
    target = torch.where(on_path, above, n)
    forced = torch.cat((choice, choice[:1])).scatter(0, target, tree.ids)[:n]
    free = torch.arange(n + 1, device=choice.device)
    unused = (~(free[:, None] == tree.ids[None, :]).any(-1)).long().argmax().view(1)
    own = choice.index_select(0, goal)
    own = torch.where((own == tree.ids).any(), unused, own)
    choice.copy_(forced.scatter(0, goal, own))
