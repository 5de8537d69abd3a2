"""Tokens per second of every method against ar on the same machine, methods interleaved prompt by prompt.

On a shared CPU only the ratios mean anything: each prompt's ratio is taken against ar's run just before it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from dominotree.bench import eval_prompts
from dominotree.checkpoints import Pair
from dominotree.decode import Settings, generate
from dominotree.errors import SettingsError
from dominotree.methods import METHODS


def run(
    pair: Pair, prompts: int, tokens: int, methods: list[str] | None, say: Callable[[str], None],
    engine: dict[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Median ratio to ar with its range, pooled τ and mean stage times per round."""
    chosen = [m for m in (methods or METHODS) if m != "ar"]
    texts = eval_prompts()
    picked = texts[:: max(1, len(texts) // prompts)][:prompts]
    common: dict[str, Any] = engine or {}
    for method in ["ar", *chosen]:  # warm-up, not counted; captures the graphs on a GPU
        generate(pair, picked[0]["prompt"], Settings(method=method, max_new_tokens=16, **common))
    ratios: dict[str, list[float]] = {m: [] for m in chosen}
    stages: dict[str, dict[str, float]] = {}
    totals = {m: [0, 0] for m in chosen}
    for number, entry in enumerate(picked):
        say(f"\rprompt {number + 1} of {len(picked)}   ")
        for method in chosen:
            base = generate(
                pair, entry["prompt"], Settings(method="ar", max_new_tokens=tokens, **common)
            ).summary
            trace = generate(pair, entry["prompt"], Settings(method=method, max_new_tokens=tokens, **common))
            if not trace.rounds:
                raise SettingsError(f"prompt {number + 1} ends with its first token, so it has no speed.")
            ratios[method].append(trace.summary["tokens_per_second"] / base["tokens_per_second"])
            totals[method][0] += trace.summary["committed"]
            totals[method][1] += trace.summary["rounds"]
            mean = stages.setdefault(method, dict.fromkeys(("draft", "build", "verify", "commit"), 0.0))
            for stage in mean:
                mean[stage] += sum(r.times_ms[stage] for r in trace.rounds) / len(trace.rounds) / len(picked)
    say("\n")
    rows = []
    print(
        f"{'method':<12}{'× ar':>7}{'min':>7}{'max':>7}{'τ':>7}   draft / build / verify / commit, share of a round"
    )
    for m in chosen:
        tau = totals[m][0] / totals[m][1]
        whole = sum(stages[m].values())
        share = {k: v / whole for k, v in stages[m].items()}
        rows.append({"method": m, "ratio": statistics.median(ratios[m]), "low": min(ratios[m]), "high": max(ratios[m]),
                     "tau": tau, "stage_share": share})  # fmt: skip
        print(f"{m:<12}{rows[-1]['ratio']:>7.2f}{min(ratios[m]):>7.2f}{max(ratios[m]):>7.2f}{tau:>7.2f}   "
              + " / ".join(f"{100 * v:.0f} %" for v in share.values()))  # fmt: skip
    return {"prompts": len(picked), "tokens": tokens, "rows": rows}
