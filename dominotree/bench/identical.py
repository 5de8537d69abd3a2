"""Every method's tokens against ar's: same prompts, same seeds, several temperatures; differences are listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dominotree.bench import eval_prompts
from dominotree.checkpoints import Pair
from dominotree.decode import Settings, generate
from dominotree.methods import METHODS


def run(
    pair: Pair, start: int, prompts: int, tokens: int, temperatures: list[float], methods: list[str] | None,
    say: Callable[[str], None], engine: dict[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Count identical outputs by method and temperature; each difference comes with ar's top-2 gap where they part."""
    chosen = [m for m in (methods or METHODS) if m != "ar"]
    texts = eval_prompts()
    step = max(1, len(texts) // prompts) if start == 0 and prompts <= len(texts) else 1
    picked = texts[start::step][:prompts]
    counts = {(t, m): 0 for t in temperatures for m in chosen}
    differing: list[dict[str, Any]] = []
    for number, entry in enumerate(picked):
        for temperature in temperatures:
            common: dict[str, Any] = {
                "temperature": temperature,
                "seed": 1000 + number,
                "max_new_tokens": tokens,
                **(engine or {}),
            }
            say(f"\rprompt {number + 1} of {len(picked)}, temperature {temperature}   ")
            reference = generate(pair, entry["prompt"], Settings(method="ar", **common))
            expected = reference.summary["token_ids"]
            for method in chosen:
                got = generate(pair, entry["prompt"], Settings(method=method, **common)).summary["token_ids"]
                if got == expected:
                    counts[temperature, method] += 1
                    continue
                at = next(i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b)
                position = len(reference.prompt["token_ids"]) + at
                tie = next((t for t in reference.summary["near_ties"] if t["position"] == position), None)
                differing.append({"prompt": entry["prompt"], "temperature": temperature, "method": method,
                                  "position": at, "ours": got[at], "ar": expected[at], "near_tie": tie})  # fmt: skip
    say("\n")
    print(
        f"{'method':<12}"
        + "".join(f"T={t:<8}" for t in temperatures)
        + f" identical to ar, of {len(picked)} prompts × {tokens} tokens"
    )
    for method in chosen:
        print(f"{method:<12}" + "".join(f"{counts[t, method]:<10}" for t in temperatures))
    for d in differing:
        print(f"differs: {d}")
    return {
        "prompts": len(picked), "tokens": tokens, "temperatures": temperatures, "differing": differing,
        "identical": {m: {str(t): counts[t, m] for t in temperatures} for m in chosen},
    }  # fmt: skip
