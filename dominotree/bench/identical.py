"""Every method's tokens against ar's: same prompts, same seeds, several temperatures; differences are listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dominotree.bench import eval_prompts
from dominotree.checkpoints import Pair
from dominotree.decode import Settings, generate
from dominotree.methods import METHODS
from dominotree.trace import Trace


def run(
    pair: Pair, start: int, prompts: int, tokens: int, temperatures: list[float], methods: list[str] | None,
    say: Callable[[str], None], engine: dict[str, str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Count identical outputs by method and temperature; each difference comes with ar's top-2 gap where they part."""
    chosen = [m for m in (methods or METHODS) if m != "ar"]
    texts = eval_prompts()
    step = max(1, len(texts) // prompts) if start == 0 and prompts <= len(texts) else 1
    picked = texts[start::step][:prompts]
    counts = {(t, m): 0 for t in temperatures for m in ["ar", *chosen]}
    differing: list[dict[str, Any]] = []
    expected: dict[tuple[float, int], Trace] = {}
    for method in ["ar", *chosen]:  # one method after the other: its graphs are captured once
        for temperature in temperatures:
            for number, entry in enumerate(picked):
                settings = Settings(
                    method=method, temperature=temperature, seed=1000 + number, max_new_tokens=tokens,
                    **(engine or {}),  # type: ignore[arg-type]
                )  # fmt: skip
                say(f"\r{method}, temperature {temperature}, prompt {number + 1} of {len(picked)}      ")
                trace = generate(pair, entry["prompt"], settings)
                reference = expected.setdefault((temperature, number), trace)
                got, wanted = trace.summary["token_ids"], reference.summary["token_ids"]
                if got == wanted:
                    counts[temperature, method] += 1
                    continue
                at = next(i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b)
                position = len(reference.prompt["token_ids"]) + at
                tie = next((t for t in reference.summary["near_ties"] if t["position"] == position), None)
                differing.append({"prompt": entry["prompt"], "temperature": temperature, "method": method,
                                  "position": at, "ours": got[at], "ar": wanted[at], "near_tie": tie})  # fmt: skip
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
