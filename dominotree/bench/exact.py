"""Round by round against an independent implementation (assets/eval/exact_check.json): float32, CPU, temperature 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dominotree.bench import eval_file
from dominotree.checkpoints import Pair
from dominotree.decode import Run, Settings

#: name in the file -> settings of ours
ROWS: dict[str, dict[str, Any]] = {
    "chain_base": {"method": "dflash"},
    "chain_corrected": {"method": "domino"},
    **{f"marginal_{b}": {"method": "marginal", "budget": b} for b in (16, 64)},
    **{f"static_{b}": {"method": "static", "budget": b} for b in (16, 64)},
    **{f"conditional_{b}": {"method": "dominotree", "budget": b} for b in (16, 64)},
}
ENOUGH = 48  # rounds are listed until this many tokens are committed
TIE = 1e-3  # two cumulative scores closer than this may be ordered differently by another summation order


def committed_per_round(
    pair: Pair, prompt_ids: list[int], text: list[int], settings: dict[str, Any]
) -> tuple[list[int], Run]:
    """Tokens committed by each round along ``text`` until ENOUGH, the last one cut where the text ends."""
    run = Run(
        pair, prompt_ids=prompt_ids, settings=Settings(**settings, max_new_tokens=len(text) + 1), record=False
    )
    counts: list[int] = []
    for rnd in run:
        counts.append(min(len(rnd.committed), len(text) - 1 - sum(counts)))
        if sum(counts) >= ENOUGH or sum(counts) == len(text) - 1:
            break
    return counts, run


def near_tie(pair: Pair, prompt_ids: list[int], settings: dict[str, Any], index: int) -> float | None:
    """Smallest gap between the worst kept and the best left-out cumulative score of round ``index`` (0-based).

    A round may differ from the other implementation only where this gap, or that of two children at the edge of the
    tree, is a near tie.
    """
    wider = {**settings, "budget": settings.get("budget", 16) + 1}
    run = Run(pair, prompt_ids=prompt_ids, settings=Settings(**wider, max_new_tokens=200))
    run_narrow = Run(pair, prompt_ids=prompt_ids, settings=Settings(**settings, max_new_tokens=200))
    rounds = []
    for rnd in run_narrow:
        rounds.append(rnd)
        if len(rounds) > index:
            break
    start = rounds[index].position
    for rnd in run:
        if rnd.position == start:
            cum = getattr(rnd.nodes, f"cum_{run.method.scorer}")
            inside = [c for c, o in zip(cum, rnd.nodes.order, strict=True) if o is not None]
            return inside[-2] - inside[-1] if len(inside) > 1 else None
        if rnd.position > start:
            return None
    return None


def run(pair: Pair, texts: int | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Compare every row of every text; prints a table and lists each differing round with its gap."""
    data = json.loads(eval_file("exact_check.json").read_text(encoding="utf-8"))["texts"][:texts]
    table: dict[str, dict[str, int]] = {
        name: {"tokens": 0, "rounds": 0, "theirs_tokens": 0, "theirs_rounds": 0, "equal_texts": 0}
        for name in ROWS
    }
    differing: list[dict[str, Any]] = []
    for number, entry in enumerate(data):
        for name, settings in ROWS.items():
            say(f"\rtext {number + 1} of {len(data)}: {name:<20}")
            counts, one = committed_per_round(pair, entry["prompt_ids"], entry["response_ids"], settings)
            wanted = entry["rounds"][name]
            row = table[name]
            row["tokens"] += sum(counts)
            row["rounds"] += len(counts)
            row["theirs_tokens"] += sum(wanted)
            row["theirs_rounds"] += len(wanted)
            row["equal_texts"] += counts == wanted
            same_text = one.output[: sum(counts) + 1] == entry["response_ids"][: sum(counts) + 1]
            if counts != wanted or not same_text:
                first = next(
                    (i for i, (a, b) in enumerate(zip(counts, wanted, strict=False)) if a != b),
                    min(len(counts), len(wanted)),
                )
                gap = near_tie(pair, entry["prompt_ids"], settings, first) if "budget" in settings else None
                differing.append({"text": entry["prompt_number"], "row": name, "round": first + 1, "ours": counts,
                                  "theirs": wanted, "same_text": same_text, "gap": gap})  # fmt: skip
    say("\n")
    print(f"{'row':<18}{'ours τ':>9}{'theirs τ':>10}{'equal texts':>13}")
    for name, row in table.items():
        ours, theirs = row["tokens"] / row["rounds"], row["theirs_tokens"] / row["theirs_rounds"]
        print(f"{name:<18}{ours:>9.3f}{theirs:>10.3f}{row['equal_texts']:>8} / {len(data)}")
    for d in differing:
        print(
            f"differs: text {d['text']}, {d['row']}, round {d['round']}, gap {d['gap']}, same text {d['same_text']}"
        )
        print(f"  ours   {d['ours']}\n  theirs {d['theirs']}")
    if not differing:
        print(f"all {len(ROWS) * len(data)} round lists are identical")
    return {"rows": table, "texts": len(data), "differing": differing}
