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

    def table(self) -> dict[str, dict[str, float]]:
        kinds = sorted(set(self.kinds))
        return {m: {k: round(self.tau(m, k), 4) for k in kinds} | {"all": round(self.tau(m), 4)} for m in self.accepted}


def walk(accepted: np.ndarray) -> list[int]:
    """Committed tokens per round for accepted drafts [n] at anchors 0 … n − 1 (n = tokens after the first)."""
    position, rounds = 0, []
    while position < len(accepted):
        rounds.append(min(int(accepted[position]) + 1, len(accepted) - position))
        position += int(accepted[position]) + 1
    return rounds


def tree_from_lists(scores: Tensor, on_path: Tensor, budgets: Sequence[int]) -> dict[int, Tensor]:
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
    """What the conditional tree needs per block: candidate ids and base logits [n, D, M], W1·z [n, D, e], s_0 [n, g]."""

    ids: Tensor
    logits: Tensor
    level_part: Tensor
    state: Tensor


def conditional_tree(model: TrainDrafter, block: BlockScores, path: Tensor, embedding: Tensor, budgets: Sequence[int], children: int) -> dict[int, Tensor]:
    """Accepted drafts [n] of best-first trees on conditional scores; path [n, D] are the true tokens (−1 past the end)."""
    n, levels, _ = block.ids.shape
    device = block.ids.device
    hidden = embedding.shape[1]
    w1_s = model.embed_proj[0].weight[:, hidden:]
    w2 = model.embed_proj[2].weight
    rows = torch.arange(n, device=device)
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
        ids = block.ids[rows, depth]
        h = F.silu(block.level_part[rows, depth] + F.linear(state, w1_s))
        delta = torch.einsum("nme,ne->nm", w2[ids], h)
        logits = logits + torch.where((depth >= model.shape.prefix_len)[:, None], delta, 0.0)
        values, place = logits.log_softmax(-1).topk(children, dim=-1)
        return values.double(), ids.gather(1, place)

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
        state = torch.gru_cell(embedding[chosen], states[rows, parent[rows, best]], model.prefix_gru.weight_ih_l0, model.prefix_gru.weight_hh_l0)
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


@torch.no_grad()
def evaluate(
    model: TrainDrafter, target: BatchedTarget, texts: Sequence[Text], budgets: Sequence[int] = (16, 64), top_m: int = 64, children: int = 8,
    list_children: int = 64, limit: int = 128, texts_per_batch: int = 4, trees: bool = True,
) -> Result:  # fmt: skip
    """τ of chain and trees along ``texts``, the first ``limit`` response tokens. Runs in float32 on the model's device.

    Methods: ``dflash`` (chain, base logits), ``marginal@B``; with a correction head also ``domino``, ``static@B``, ``dominotree@B``.
    """
    s = model.shape
    device = target.device
    embedding = target.embedding.float()
    result = Result([t.kind for t in texts])
    covered, seen = torch.zeros(s.levels, device=device), torch.zeros(s.levels, device=device)
    right = torch.zeros(2, s.levels, device=device)
    for start in range(0, len(texts), texts_per_batch):
        part = texts[start : start + texts_per_batch]
        full = [list(t.prompt) + list(t.response)[:limit] for t in part]
        length = max(map(len, full))
        ids = torch.zeros(len(part), length, dtype=torch.long)
        for row, text in enumerate(full):
            ids[row, : len(text)] = torch.tensor(text)
        ids = ids.to(device)
        counts = [len(f) - len(t.prompt) - 1 for f, t in zip(full, part, strict=True)]
        most = max(counts)
        anchor = torch.stack([len(t.prompt) + torch.arange(most).clamp_max(max(c - 1, 0)) for t, c in zip(part, counts, strict=True)]).to(device)
        ends = torch.tensor([len(f) for f in full], device=device)
        context = model.context(target.features(ids, s.target_layers).float())
        attend = dense_attention(block_mask(anchor, length, s.block_size))
        z = model.backbone(context, anchor, embedding[ids.gather(1, anchor)], embedding[s.mask_token_id], attend)
        steps = torch.arange(s.levels, device=device)
        place = anchor[..., None] + 1 + steps
        inside = place < ends[:, None, None]
        gathered = ids[:, None, :].expand(-1, most, -1)
        path = torch.where(inside, gathered.gather(2, place.clamp_max(length - 1)), -1)
        read = gathered.gather(2, (anchor[..., None] + steps).clamp_max(length - 1))
        valid = torch.arange(most, device=device)[None, :] < torch.tensor(counts, device=device)[:, None]
        z, path, read = z[valid], path[valid], read[valid]
        for name, value in _score_blocks(model, z, path, read, embedding, budgets, top_m, children, list_children, trees, (covered, seen, right)).items():
            result.accepted.setdefault(name, []).extend(np.split(value.cpu().numpy(), np.cumsum(counts)[:-1]))
    result.coverage = (covered / seen.clamp_min(1)).tolist()
    result.hits = {name: (right[i] / seen.clamp_min(1)).tolist() for i, name in enumerate(("base", "corrected")) if i == 0 or s.domino}
    return result


def _score_blocks(
    model: TrainDrafter, z: Tensor, path: Tensor, read: Tensor, embedding: Tensor, budgets: Sequence[int], top_m: int, children: int, list_children: int,
    trees: bool, tallies: tuple[Tensor, Tensor, Tensor],
) -> dict[str, Tensor]:  # fmt: skip
    s = model.shape
    n, levels, _ = z.shape
    covered, seen, right = tallies
    base = F.linear(z, embedding)
    real = path >= 0
    out = {"dflash": _leading(base.argmax(-1) == path)}
    values, ids = base.topk(top_m, dim=-1)
    covered += ((ids == path[..., None]).any(-1) & real).sum(0)
    right[0] += ((base.argmax(-1) == path) & real).sum(0)
    seen += real.sum(0)
    if trees:
        scores = (values - base.logsumexp(-1, keepdim=True))[..., :list_children]
        match = ids[..., :list_children] == path[..., None]
        rank = torch.where(match.any(-1), match.long().argmax(-1), -1)
        out |= {f"marginal@{b}": a for b, a in tree_from_lists(scores, rank, budgets).items()}
    if not s.domino:
        return out
    states = model.gru_states(embedding[read])
    corrected = base + F.linear(model.head_hidden(z, states), model.embed_proj[2].weight)
    hit = corrected.argmax(-1) == path
    out["domino"] = _leading(hit)
    right[1] += (hit & real).sum(0)
    del corrected
    if not trees:
        return out
    level_part = F.linear(z, model.embed_proj[0].weight[:, : s.hidden])
    w1_s, w2 = model.embed_proj[0].weight[:, s.hidden :], model.embed_proj[2].weight
    # static: one correction per level along the greedy corrected chain
    state = states[:, 0]
    lists = []
    for level in range(levels):
        logits = base[:, level]
        if level >= s.prefix_len:
            logits = logits + F.linear(F.silu(level_part[:, level] + F.linear(state, w1_s)), w2)
        lists.append(logits.gather(1, ids[:, level]))
        token = logits.argmax(-1)
        state = torch.gru_cell(embedding[token], state, model.prefix_gru.weight_ih_l0, model.prefix_gru.weight_hh_l0)
    scores, order = torch.stack(lists, 1).log_softmax(-1).sort(dim=-1, descending=True, stable=True)
    match = ids.gather(2, order) == path[..., None]
    match = match[..., :list_children]
    rank = torch.where(match.any(-1), match.long().argmax(-1), -1)
    out |= {f"static@{b}": a for b, a in tree_from_lists(scores[..., :list_children].contiguous(), rank, budgets).items()}
    del base
    block = BlockScores(ids, values, level_part, states[:, 0])
    out |= {f"dominotree@{b}": a for b, a in conditional_tree(model, block, path, embedding, budgets, children).items()}
    return out
