"""Accepted length of a drafter by method, simulated along fixed texts (no target decoding).

At temperature 0 the text does not depend on the drafter, so for *every* position of a text the length that a method would
get accepted there is the longest prefix of the coming text inside its tree. All positions are drafted in one batch; rounds
are then walked: position → position + accepted + 1. Differs from the engine in nothing but speed (see tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.train.drafter import TrainDrafter, block_mask, dense_attention
from dominotree.train.llama import BatchedTarget


@dataclass
class Text:
    """A prompt and its fixed response; ``kind`` names the set."""

    kind: str
    prompt: list[int]
    response: list[int]


@dataclass
class Result:
    """Per method: accepted drafts at every anchor of every text; and the walked rounds."""

    kinds: list[str]
    accepted: dict[str, list[np.ndarray]] = field(default_factory=dict)
    coverage: list[float] = field(default_factory=list)
    calibration: dict[str, list[list[float]]] = field(default_factory=dict)
    hits: dict[str, list[float]] = field(default_factory=dict)

    def rounds(self, method: str) -> list[list[int]]:
        """Committed tokens per round of each text, bonus included; the last round is cut where the text ends."""
        return [walk(a) for a in self.accepted[method]]

    def tau(self, method: str, kind: str | None = None) -> float:
        """Pooled: committed tokens / rounds, of one set, or the mean of the sets."""
        if kind is None:
            return float(np.mean([self.tau(method, k) for k in sorted(set(self.kinds))]))
        rounds = [r for r, k in zip(self.rounds(method), self.kinds, strict=True) if k == kind]
        return sum(map(sum, rounds)) / sum(map(len, rounds))

    def interval(self, method: str, kind: str, draws: int = 1000, seed: int = 0) -> tuple[float, float]:
        """95 % bootstrap interval of the pooled τ over prompts."""
        rounds = [r for r, k in zip(self.rounds(method), self.kinds, strict=True) if k == kind]
        sums, counts = np.array([sum(r) for r in rounds]), np.array([len(r) for r in rounds])
        pick = np.random.default_rng(seed).integers(0, len(rounds), (draws, len(rounds)))
        low, high = np.quantile(sums[pick].sum(1) / counts[pick].sum(1), [0.025, 0.975])
        return float(low), float(high)

    def depths(self, method: str, kind: str | None = None) -> list[float]:
        """Share of rounds that accept at least d drafts, d = 1, 2, …, over the walked rounds."""
        counts = np.zeros(64)
        total = 0
        for accepted, k in zip(self.accepted[method], self.kinds, strict=True):
            if kind is not None and k != kind:
                continue
            position = 0
            while position < len(accepted):
                counts[: int(accepted[position])] += 1
                total += 1
                position += int(accepted[position]) + 1
        shares = counts / max(total, 1)
        return [round(float(x), 4) for x in shares[shares > 0]]

    def table(self) -> dict[str, dict[str, float]]:
        kinds = sorted(set(self.kinds))
        return {
            m: {k: round(self.tau(m, k), 4) for k in kinds} | {"all": round(self.tau(m), 4)}
            for m in self.accepted
        }


def walk(accepted: np.ndarray) -> list[int]:
    """Committed tokens per round for accepted drafts [n] at anchors 0 … n − 1 (n = tokens after the first)."""
    position, rounds = 0, []
    while position < len(accepted):
        rounds.append(min(int(accepted[position]) + 1, len(accepted) - position))
        position += int(accepted[position]) + 1
    return rounds


class Calibration:
    """Nodes of the trees in 20 bins of their path probability: number, mean probability, share on the true path."""

    BINS = 20

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(self.BINS, 3, dtype=torch.float64, device=device)

    def add(self, log_p: Tensor, good: Tensor, seen: Tensor) -> None:
        """Nodes [n]: log path probability, whether it lies on the true path, whether the text reaches its depth."""
        p = torch.where(seen, log_p.exp(), 0.0)
        place = (p * self.BINS).long().clamp_max(self.BINS - 1)
        one = seen.double()
        self.sums.index_add_(0, place, torch.stack([one, p * one, good.double() * one], -1))

    def rows(self) -> list[list[float]]:
        """[nodes, mean predicted, observed] of the bins that hold nodes."""
        return [[n, p / n, g / n] for n, p, g in self.sums.tolist() if n > 0]


def tree_from_lists(
    scores: Tensor,
    on_path: Tensor,
    budgets: Sequence[int],
    real: Tensor | None = None,
    calibration: Calibration | None = None,
) -> dict[int, Tensor]:
    """Accepted drafts [n] of best-first trees whose level lists do not depend on the path.

    scores [n, D, K] log-probabilities, descending; on_path [n, D] the rank of the true token in its list, or −1.
    """
    n, levels, width = scores.shape
    device = scores.device
    accepted = torch.zeros(n, dtype=torch.long, device=device)
    out = {}
    top = max(budgets)
    heap = torch.full((n, width * (top + 1)), float("-inf"), device=device, dtype=torch.float64)
    level = torch.zeros(n, width * (top + 1), dtype=torch.long, device=device)
    true = torch.zeros(n, width * (top + 1), dtype=torch.bool, device=device)
    rows = torch.arange(n, device=device)
    ranks = torch.arange(width, device=device)
    heap[:, :width] = scores[:, 0]
    true[:, :width] = ranks == on_path[:, 0, None]
    for popped in range(1, top + 1):
        used = width * popped
        best = heap[:, :used].argmax(1)
        value, depth, good = heap[rows, best], level[rows, best] + 1, true[rows, best]
        heap[rows, best] = float("-inf")
        live = value > float("-inf")
        accepted = torch.where(good & live, torch.maximum(accepted, depth), accepted)
        if calibration is not None:
            seen = live if real is None else live & (depth <= real)
            calibration.add(value, good, seen)
        inner = depth.clamp_max(levels - 1)
        grows = (depth < levels) & live
        slot = slice(used, used + width)
        heap[:, slot] = torch.where(grows[:, None], value[:, None] + scores[rows, inner], float("-inf"))
        level[:, slot] = inner[:, None]
        true[:, slot] = good[:, None] & (ranks == on_path[rows, inner, None])
        if popped in budgets:
            out[popped] = accepted.clone()
    return out


@dataclass
class BlockScores:
    """What the conditional tree needs per block: candidate ids (None: the whole vocabulary) and base logits [n, D, M],
    W1·z [n, D, e], s_0 [n, g]."""

    ids: Tensor | None
    logits: Tensor
    level_part: Tensor
    state: Tensor


def conditional_tree(
    model: TrainDrafter,
    block: BlockScores,
    path: Tensor,
    embedding: Tensor,
    budgets: Sequence[int],
    children: int,
    calibration: Calibration | None = None,
) -> dict[int, Tensor]:
    """Accepted drafts [n] of best-first trees on conditional scores; path [n, D] are the true tokens (−1 past the end)."""
    n, levels, _ = block.logits.shape
    device = block.logits.device
    hidden = embedding.shape[1]
    w1_s, w2 = model.w1[:, hidden:], model.w2
    rows = torch.arange(n, device=device)
    real = (path >= 0).sum(-1)
    top = max(budgets)
    heap = torch.full((n, children * (top + 1)), float("-inf"), device=device, dtype=torch.float64)
    token = torch.zeros(n, children * (top + 1), dtype=torch.long, device=device)
    level = torch.zeros_like(token)
    parent = torch.zeros_like(token)
    true = torch.zeros(n, children * (top + 1), dtype=torch.bool, device=device)
    states = torch.zeros(n, top + 1, block.state.shape[1], device=device)
    states[:, 0] = block.state

    def offspring(depth: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        logits = block.logits[rows, depth]
        h = F.silu(block.level_part[rows, depth] + F.linear(state, w1_s))
        ids = None if block.ids is None else block.ids[rows, depth]
        delta = F.linear(h, w2) if ids is None else torch.einsum("nme,ne->nm", w2[ids], h)
        logits = logits + torch.where((depth >= model.shape.prefix_len)[:, None], delta, 0.0)
        values, place = logits.log_softmax(-1).topk(children, dim=-1)
        return values.double(), place if ids is None else ids.gather(1, place)

    accepted = torch.zeros(n, dtype=torch.long, device=device)
    out = {}
    zero = torch.zeros(n, dtype=torch.long, device=device)
    values, ids = offspring(zero, block.state)
    heap[:, :children], token[:, :children], true[:, :children] = values, ids, ids == path[:, 0, None]
    for popped in range(1, top + 1):
        used = children * popped
        best = heap[:, :used].argmax(1)
        value, depth, good = heap[rows, best], level[rows, best] + 1, true[rows, best]
        chosen = token[rows, best]
        heap[rows, best] = float("-inf")
        live = value > float("-inf")
        accepted = torch.where(good & live, torch.maximum(accepted, depth), accepted)
        if calibration is not None:
            seen = live if real is None else live & (depth <= real)
            calibration.add(value, good, seen)
        state = torch.gru_cell(
            embedding[chosen],
            states[rows, parent[rows, best]],
            *model.gru_weights,
        )
        states[:, popped] = state
        inner = depth.clamp_max(levels - 1)
        values, ids = offspring(inner, state)
        grows = (depth < levels) & live
        slot = slice(used, used + children)
        heap[:, slot] = torch.where(grows[:, None], value[:, None] + values, float("-inf"))
        token[:, slot], level[:, slot], parent[:, slot] = ids, inner[:, None], popped
        true[:, slot] = good[:, None] & (ids == path[rows, inner, None])
        if popped in budgets:
            out[popped] = accepted.clone()
    return out


def _leading(hits: Tensor) -> Tensor:
    """Length of the run of True at the start of each row."""
    return hits.long().cumprod(-1).sum(-1)


@dataclass(frozen=True)
class Options:
    """What to simulate. ``top_m`` ≥ the vocabulary scores every token; marginal and static offer ``list_children``."""

    budgets: tuple[int, ...] = (16, 64)
    top_m: int = 64
    children: int = 8
    list_children: int = 64
    limit: int = 128
    trees: bool = True
    calibrate: bool = False


class _Tallies:
    """Running sums over all drafted positions, by level."""

    def __init__(self, levels: int, device: torch.device, calibrate: bool) -> None:
        self.covered, self.seen = torch.zeros(levels, device=device), torch.zeros(levels, device=device)
        self.right = torch.zeros(2, levels, device=device)
        self.calibrations: dict[str, Calibration] = {}
        self.device, self.calibrate = device, calibrate

    def calibration(self, name: str) -> Calibration | None:
        return self.calibrations.setdefault(name, Calibration(self.device)) if self.calibrate else None


@torch.no_grad()
def evaluate(
    model: TrainDrafter,
    target: BatchedTarget,
    texts: Sequence[Text],
    options: Options | None = None,
    texts_per_batch: int = 4,
) -> Result:
    """τ of chain and trees along ``texts``, the first ``limit`` response tokens. Runs in float32 on the model's device.

    Methods: ``dflash`` (chain, base logits), ``marginal@B``; with a correction head also ``domino``, ``static@B``,
    ``dominotree@B``.
    """
    options = options or Options()
    s = model.shape
    device = target.device
    embedding = target.embedding.float()
    result = Result([t.kind for t in texts])
    tallies = _Tallies(s.levels, device, options.calibrate)
    for start in range(0, len(texts), texts_per_batch):
        part = texts[start : start + texts_per_batch]
        full = [list(t.prompt) + list(t.response)[: options.limit] for t in part]
        length = max(map(len, full))
        ids = torch.zeros(len(part), length, dtype=torch.long)
        for row, text in enumerate(full):
            ids[row, : len(text)] = torch.tensor(text)
        ids = ids.to(device)
        counts = [len(f) - len(t.prompt) - 1 for f, t in zip(full, part, strict=True)]
        most = max(counts)
        first = torch.tensor([len(t.prompt) for t in part], device=device)
        number = torch.tensor(counts, device=device)
        anchor = first[:, None] + torch.minimum(
            torch.arange(most, device=device), (number[:, None] - 1).clamp_min(0)
        )
        ends = torch.tensor([len(f) for f in full], device=device)
        context = model.context(target.features(ids, s.target_layers).float())
        attend = dense_attention(block_mask(anchor, length, s.block_size))
        z = model.backbone(
            context, anchor, embedding[ids.gather(1, anchor)], embedding[s.mask_token_id], attend
        )
        steps = torch.arange(s.levels, device=device)
        place = anchor[..., None] + 1 + steps
        spread = ids[:, None, :].expand(-1, most, -1)
        path = torch.where(place < ends[:, None, None], spread.gather(2, place.clamp_max(length - 1)), -1)
        read = spread.gather(2, (place - 1).clamp_max(length - 1))
        valid = torch.arange(most, device=device)[None, :] < number[:, None]
        found = _score_blocks(model, z[valid], path[valid], read[valid], embedding, options, tallies)
        for name, value in found.items():
            pieces = np.split(value.cpu().numpy(), np.cumsum(counts)[:-1])
            result.accepted.setdefault(name, []).extend(pieces)
    seen = tallies.seen.clamp_min(1)
    result.coverage = (tallies.covered / seen).tolist()
    result.hits = {"base": (tallies.right[0] / seen).tolist()}
    if s.domino:
        result.hits["corrected"] = (tallies.right[1] / seen).tolist()
    result.calibration = {name: c.rows() for name, c in tallies.calibrations.items()}
    return result


def _rank(ids: Tensor, path: Tensor) -> Tensor:
    """Rank of the true tokens path [n, D] in lists ids [n, D, K], or −1."""
    match = ids == path[..., None]
    return torch.where(match.any(-1), match.long().argmax(-1), -1)


def _score_blocks(
    model: TrainDrafter,
    z: Tensor,
    path: Tensor,
    read: Tensor,
    embedding: Tensor,
    options: Options,
    tallies: _Tallies,
) -> dict[str, Tensor]:
    """Accepted drafts [n] by method for blocks z [n, D, h], true tokens path [n, D] (−1 past the end)."""
    s, budgets = model.shape, options.budgets
    width = options.list_children
    whole = options.top_m >= s.vocab
    base = F.linear(z, embedding)
    real = path >= 0
    reach = real.sum(-1)
    best = base.argmax(-1)
    out = {"dflash": _leading(best == path)}
    values, ids = base.topk(max(width, 0 if whole else options.top_m), dim=-1)
    top_m = values.shape[-1] if whole else options.top_m
    tallies.covered += ((ids[..., :top_m] == path[..., None]).any(-1) & real).sum(0)
    tallies.right[0] += ((best == path) & real).sum(0)
    tallies.seen += real.sum(0)
    if options.trees:
        scores = (values - base.logsumexp(-1, keepdim=True))[..., :width]
        found = tree_from_lists(
            scores, _rank(ids[..., :width], path), budgets, reach, tallies.calibration("marginal")
        )
        out |= {f"marginal@{b}": a for b, a in found.items()}
    if not s.domino:
        return out
    states = model.gru_states(embedding[read])
    corrected = base + F.linear(model.head_hidden(z, states), model.w2)
    hit = corrected.argmax(-1) == path
    out["domino"] = _leading(hit)
    tallies.right[1] += (hit & real).sum(0)
    del corrected
    if not options.trees:
        return out
    level_part = F.linear(z, model.w1[:, : s.hidden])
    # static: one correction per level along the greedy corrected chain
    state = states[:, 0]
    kept, kept_ids = [], []
    for level in range(s.levels):
        logits = base[:, level]
        if level >= s.prefix_len:
            hidden = F.silu(level_part[:, level] + F.linear(state, model.w1[:, s.hidden :]))
            logits = logits + F.linear(hidden, model.w2)
        if whole:
            scores, order = logits.log_softmax(-1).topk(width, dim=-1)
            kept_ids.append(order)
        else:
            candidates = ids[:, level, :top_m]
            scores, order = (
                logits.gather(1, candidates).log_softmax(-1).sort(dim=-1, descending=True, stable=True)
            )
            scores, order = scores[:, :width], order[:, :width]
            kept_ids.append(candidates.gather(1, order))
        kept.append(scores)
        token = logits.argmax(-1)
        state = torch.gru_cell(embedding[token], state, *model.gru_weights)
    found = tree_from_lists(
        torch.stack(kept, 1),
        _rank(torch.stack(kept_ids, 1), path),
        budgets,
        reach,
        tallies.calibration("static"),
    )
    out |= {f"static@{b}": a for b, a in found.items()}
    block = (
        BlockScores(None, base, level_part, states[:, 0])
        if whole
        else BlockScores(ids[..., :top_m], values[..., :top_m], level_part, states[:, 0])
    )
    found = conditional_tree(
        model, block, path, embedding, budgets, options.children, tallies.calibration("conditional")
    )
    return out | {f"dominotree@{b}": a for b, a in found.items()}
