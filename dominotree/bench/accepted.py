"""Tokens per round on fixed texts (assets/eval/eval_texts.json), by method and prompt set.

The target's text is given, so no target forward is needed after one pass for the features: at each anchor a method
drafts its tree, and the longest path that matches the text is what it would have got accepted (engine.md §7). Scores
of different engines and precisions stay comparable, because the texts do not move.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from dominotree.bench import eval_file, eval_prompts
from dominotree.bench.exact import ROWS
from dominotree.builders.reference import best_first, chain
from dominotree.checkpoints import Pair
from dominotree.decode import Settings
from dominotree.drafter import Drafter
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, Scorer, StaticScorer
from dominotree.tree import DraftTree

TOKENS = 128  # response tokens that count
SETS = ("math", "code", "chat")


@torch.inference_mode()
def tree_for(pair: Pair, drafter: Drafter, settings: Settings, anchor: int, context: Any) -> DraftTree:
    """The tree (or chain) that a method drafts from one anchor behind ``context``."""

    def embed(ids: list[int]) -> torch.Tensor:
        return pair.target.embed(torch.tensor(ids, device=pair.target.device))

    block = drafter.draft(context, anchor)
    method, head = settings.spec, drafter.head
    if method.kind == "chain":
        return chain(block, block.levels, head if method.scorer == "conditional" else None, embed)
    scorer: Scorer
    if method.scorer == "marginal" or head is None:
        scorer = MarginalScorer(block, settings.children_per_node)
    else:
        found = Candidates.of(block, settings.top_m)
        scorer = (StaticScorer if method.scorer == "static" else ConditionalScorer)(
            found, head, embed, settings.full_row
        )
    return best_first(scorer, block.levels, settings.budget, settings.children_per_node)


@torch.inference_mode()
def rounds_along(pair: Pair, prompt_ids: list[int], text: list[int], settings: Settings) -> list[int]:
    """Committed tokens of every round along ``text``, bonus included, the last one cut where the text ends."""
    drafter, _ = pair.drafter_for(settings.spec)
    assert drafter is not None
    whole = torch.tensor(prompt_ids + text, device=pair.target.device)
    seen = pair.target.prefill(whole, pair.target.new_cache(len(whole)))
    assert seen is not None
    context = drafter.new_context(len(whole))
    drafter.extend(context, seen.features)
    counts, at = [], 0
    while at < len(text) - 1:
        position = len(prompt_ids) + at
        kept = context.snapshot(position, min(position + drafter.config.block_size, len(whole)))
        context.length = position
        tree = tree_for(pair, drafter, settings, text[at], context)
        context.restore(position, kept)
        step = min(len(tree.longest_match(text[at + 1 :])) + 1, len(text) - 1 - at)
        counts.append(step)
        at += step
    return counts


def run(pair: Pair, texts: int | None, only: list[str] | None, say: Callable[[str], None]) -> dict[str, Any]:
    """τ by method and set: pooled within a set, then the mean of the three sets."""
    kinds = [p["kind"] for p in eval_prompts()]
    entries = json.loads(eval_file("eval_texts.json").read_text(encoding="utf-8"))
    picked = [e for s in SETS for e in [x for x in entries if kinds[x["prompt_number"]] == s][:texts]]
    rows: list[dict[str, Any]] = []
    print(f"{'method':<18}" + "".join(f"{s:>8}" for s in SETS) + f"{'all':>8}   τ on {len(picked)} texts")
    for name, values in ROWS.items():
        if only is not None and name not in only:
            continue
        total = {s: [0, 0] for s in SETS}
        for number, entry in enumerate(picked):
            say(f"\r{name:<18} text {number + 1} of {len(picked)}   ")
            counts = rounds_along(
                pair, entry["prompt_ids"], entry["response_ids"][:TOKENS], Settings(**values)
            )
            total[kinds[entry["prompt_number"]]][0] += sum(counts)
            total[kinds[entry["prompt_number"]]][1] += len(counts)
        tau = {s: total[s][0] / total[s][1] for s in SETS}
        rows.append({"row": name, **tau, "all": sum(tau.values()) / len(SETS)})
        say("\r" + " " * 60 + "\r")
        print(f"{name:<18}" + "".join(f"{tau[s]:>8.3f}" for s in SETS) + f"{rows[-1]['all']:>8.3f}")
    return {"texts": len(picked), "tokens": TOKENS, "rows": rows}
