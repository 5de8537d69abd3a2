"""Responses of the target to a prompt set: greedy and sampled, loops cut, with the target's top-k as soft labels.

A corpus is a folder of ``.npy`` files: ``ids`` uint16 [n] (prompt + response of all sequences behind each other),
``offsets`` int64 [S + 1], ``prompt_len`` int32 [S], ``soft_ids`` uint16 [n, K] and ``soft_p`` uint8 [n, K] (255 = 1;
the target's distribution for the token *at* this place, sharpened, over its K best; zero in the prompt), ``kind`` uint8
[S], ``greedy`` bool [S], and ``report.json``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from dominotree.train.data import PromptSet
from dominotree.train.llama import BatchedTarget, GraphDecoder


@dataclass
class GenerationSettings:
    """``max_new_tokens`` holds for most prompts; ``long_share`` of the batches run to ``long_tokens``."""

    max_new_tokens: int = 152
    long_tokens: int = 288
    long_share: float = 0.06
    sampled_share: float = 0.25
    temperatures: tuple[float, ...] = (0.6, 0.9)
    batch: int = 8192
    min_group: int = 3000
    max_total: int = 384
    soft_k: int = 4
    soft_temperature: float = 0.5
    min_response: int = 12
    loop_period: int = 48
    loop_keep: int = 40
    compact_every: int = 16
    graph: bool = True
    seed: int = 0
    limit_s: float | None = None
    shard: int = 0
    shards: int = 1


def groups_by_length(lengths: np.ndarray, order: np.ndarray, batch: int, min_group: int) -> list[np.ndarray]:
    """Split prompt numbers into batches of equal length where there are enough, of near lengths where there are not."""
    ranked = order[np.argsort(lengths[order], kind="stable")]
    groups: list[np.ndarray] = []
    pending: list[np.ndarray] = []
    for length in np.unique(lengths[order]):
        same = ranked[lengths[ranked] == length]
        if len(same) >= min_group and not pending:
            groups += np.array_split(same, -(-len(same) // batch))
            continue
        pending.append(same)
        if sum(map(len, pending)) >= min_group:
            merged = np.concatenate(pending)
            groups += np.array_split(merged, -(-len(merged) // batch))
            pending = []
    if pending:
        groups.append(np.concatenate(pending))
    return groups


def top_k(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and ids [n, k] of the k largest of logits [n, V], found through the maxima of chunks of 128."""
    rows, size = logits.shape
    if size % 128 or size // 128 < k:
        return torch.topk(logits, k)
    chunked = logits.view(rows, -1, 128)
    chunk = chunked.amax(-1).topk(k).indices
    inside = chunked.gather(1, chunk[..., None].expand(-1, -1, 128)).flatten(1)
    values, place = inside.topk(k)
    return values, chunk.gather(1, place // 128) * 128 + place % 128


def loop_cut(responses: Tensor, lengths: Tensor, period: int, keep: int) -> Tensor:
    """Lengths [n] after cutting a trailing loop: of a run with a period of at most ``period`` only ``keep`` tokens stay.

    ``responses`` [n, L] are left-aligned. A run counts when it holds at least two periods and more than ``keep`` tokens.
    """
    _n, width = responses.shape
    places = torch.arange(width, device=responses.device)
    right = (places[None, :] - (width - lengths[:, None])).clamp_min(0)
    aligned = responses.gather(1, right)
    real = places[None, :] >= (width - lengths[:, None])
    new = lengths.clone()
    for p in range(1, min(period, width - 1) + 1):
        same = (aligned[:, p:] == aligned[:, :-p]) & real[:, :-p]
        run = same.flip(1).long().cumprod(1).sum(1)  # trailing tokens that repeat what came p before
        loops = run >= max(2 * p, keep)
        new = torch.where(loops, torch.minimum(new, lengths - run + keep), new)
    return new


class Sampler:
    """Greedy where the temperature is 0, Gumbel-max elsewhere: rows [n] of temperatures, sampled rows last."""

    def __init__(self, temperature: Tensor, generator: torch.Generator) -> None:
        self.temperature, self.generator = temperature, generator

    def __call__(self, logits: Tensor) -> Tensor:
        chosen = logits.argmax(-1)
        first = int((self.temperature == 0).sum())
        if first < len(logits):
            noise = torch.empty_like(logits[first:]).exponential_(generator=self.generator).log_()
            chosen[first:] = (logits[first:] / self.temperature[first:, None] - noise).argmax(-1)
        return chosen


def generate_batch(
    target: BatchedTarget,
    prompts: Sequence[np.ndarray],
    temperature: Tensor,
    new_tokens: int,
    stop_ids: Tensor,
    settings: GenerationSettings,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Responses int32 [n, L], their lengths [n], soft ids int32 [n, L, K] and probabilities uint8 [n, L, K].

    Rows keep the order of ``prompts``; temperatures must be sorted (greedy rows first).
    """
    device = target.device
    longest = max(map(len, prompts))
    pad = torch.tensor([longest - len(p) for p in prompts], device=device)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.from_numpy(prompt.astype(np.int64))
    n, k = len(prompts), settings.soft_k
    out = torch.zeros(n, new_tokens, dtype=torch.int32, device=device)
    soft_ids = torch.zeros(n, new_tokens, k, dtype=torch.int32, device=device)
    soft_p = torch.zeros(n, new_tokens, k, dtype=torch.uint8, device=device)
    lengths = torch.full((n,), new_tokens, device=device)
    rows = torch.arange(n, device=device)
    alive = torch.ones(n, dtype=torch.bool, device=device)
    sampler = Sampler(temperature.to(device), generator)
    state, logits = target.start(ids.to(device), pad, new_tokens)
    decoder = GraphDecoder(target, state) if settings.graph and device.type == "cuda" else None
    for t in range(new_tokens):
        token = sampler(logits)
        values, best = top_k(logits, k)
        p = torch.softmax(values / settings.soft_temperature, -1)
        out[rows, t] = token.int()
        soft_ids[rows, t] = best.int()
        soft_p[rows, t] = (p * 255).round().to(torch.uint8)
        ended = torch.isin(token, stop_ids) & alive
        lengths[rows] = torch.where(ended, t + 1, lengths[rows])
        alive &= ~ended
        if t + 1 == new_tokens:
            break
        if decoder is not None:
            if (t + 1) % settings.compact_every == 0 and not bool(alive.any()):
                break
            logits = decoder(token)
            continue
        if (t + 1) % settings.compact_every == 0:
            kept = alive.nonzero()[:, 0]
            if len(kept) == 0:
                break
            if len(kept) < 0.88 * len(rows):
                state.keep(kept)
                rows, token, alive = rows[kept], token[kept], alive[kept]
                sampler.temperature = sampler.temperature[kept]
        logits = target.step(state, token)
    return out, lengths, soft_ids, soft_p


def generate_corpus(
    target: BatchedTarget,
    prompts: PromptSet,
    stop_ids: Sequence[int],
    folder: Path,
    settings: GenerationSettings,
    split: int = 0,
) -> dict:
    """Answer all prompts of a split (those of this shard) and write the corpus; stops early after ``limit_s``."""
    r = np.random.default_rng(settings.seed)
    mine = np.flatnonzero(prompts.split == split)
    mine = r.permutation(mine)[settings.shard :: settings.shards]
    lengths = np.diff(prompts.offsets)
    groups = groups_by_length(lengths, mine, settings.batch, settings.min_group)
    groups = [groups[i] for i in r.permutation(len(groups))]
    generator = torch.Generator(device=target.device).manual_seed(settings.seed + 1000 * settings.shard)
    stops = torch.tensor(list(stop_ids), device=target.device)
    began = time.monotonic()
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in ("ids", "soft_ids", "soft_p", "len", "prompt_len", "kind", "greedy")
    }
    made = looped = short = used = 0
    bar = tqdm(total=len(mine), unit=" prompts", desc=f"Answers, shard {settings.shard}", mininterval=5)
    for number, group in enumerate(groups):
        if settings.limit_s is not None and time.monotonic() - began > settings.limit_s:
            break
        rows = r.permutation(group)
        sampled = round(settings.sampled_share * len(rows))
        temperature = np.zeros(len(rows), np.float32)
        if sampled:
            temperature[-sampled:] = r.choice(settings.temperatures, sampled)
        longest = int(lengths[rows].max())
        # Spread the long batches evenly over the groups.
        long = int((number + 1) * settings.long_share) > int(number * settings.long_share)
        room = min(settings.long_tokens if long else settings.max_new_tokens, settings.max_total - longest)
        texts = [prompts.prompt(i) for i in rows]
        out, size, soft_ids, soft_p = generate_batch(
            target, texts, torch.from_numpy(temperature), room, stops, settings, generator
        )
        made += int(size.sum())
        cut = loop_cut(out, size, settings.loop_period, settings.loop_keep)
        looped += int((cut < size).sum())
        kept = np.flatnonzero((cut >= settings.min_response).cpu().numpy())
        short += len(rows) - len(kept)
        used += len(rows)
        cut_n = cut.cpu().numpy()[kept]
        inside = (torch.arange(room, device=out.device)[None, :] < cut[:, None])[
            torch.from_numpy(kept).to(out.device)
        ]
        keep_rows = torch.from_numpy(kept).to(out.device)
        answer = out[keep_rows][inside].cpu().numpy().astype(np.uint16)
        soft_i = soft_ids[keep_rows][inside].cpu().numpy().astype(np.uint16)
        soft_q = soft_p[keep_rows][inside].cpu().numpy()
        plen = lengths[rows[kept]].astype(np.int64)
        total = plen + cut_n
        offsets = np.concatenate([[0], np.cumsum(total)])
        flat = np.zeros(offsets[-1], np.uint16)
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], total)
        in_answer = place >= np.repeat(plen, total)
        flat[in_answer] = answer
        flat[~in_answer] = np.concatenate([texts[i] for i in kept]) if len(kept) else 0
        si, sp = (
            np.zeros((len(flat), settings.soft_k), np.uint16),
            np.zeros((len(flat), settings.soft_k), np.uint8),
        )
        si[in_answer], sp[in_answer] = soft_i, soft_q
        for name, value in (("ids", flat), ("soft_ids", si), ("soft_p", sp), ("len", total), ("prompt_len", plen.astype(np.int32)),
                            ("kind", prompts.kind[rows[kept]]), ("greedy", temperature[kept] == 0)):  # fmt: skip
            parts[name].append(value)
        bar.update(len(rows))
        bar.set_postfix_str(f"{made / (time.monotonic() - began):.0f} tokens/s", refresh=False)
    bar.close()
    seconds = time.monotonic() - began
    report = {
        "settings": asdict(settings), "prompts": used, "sequences": int(sum(map(len, parts["len"]))), "generated_tokens": made,
        "kept_tokens": int(sum(map(len, parts["soft_ids"]))) - int(sum(p.sum() for p in parts["prompt_len"])), "looped": looped, "too_short": short,
        "seconds": round(seconds, 1), "tokens_per_second": round(made / seconds), "prompts_sha256": prompts.report.get("sha256"),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in parts.items():
        joined = np.concatenate(values)
        if name == "len":
            name, joined = "offsets", np.concatenate([[0], np.cumsum(joined)]).astype(np.int64)
        np.save(folder / f"{name}.npy", joined)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report
