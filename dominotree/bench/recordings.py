"""The recorded runs that the page replays (assets/traces): one math, one code, one chat prompt under every method.

    dominotree record [--only NAME …]
    dominotree record --pops $(python -m viz.lessons)       # the build pop by pop of the rounds that lessons show

Each file's header names machine, date, versions and settings; ``ar_tokens_per_second`` is that prompt's own AR run on
the same machine, in the same mode, just before. Those that ship come from ``dominotree bench pair --device cuda``
(float32, captured rounds); their pops were added on a CPU, and the files compressed again with zopfli, which gzip reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dominotree.checkpoints import Pair
from dominotree.decode import Run, Settings, generate
from dominotree.errors import SettingsError
from dominotree.methods import METHODS
from dominotree.trace import save

PROMPTS = {
    "math": "A bakery sells 24 muffins in the morning and 18 in the afternoon. Each muffin costs 3 dollars. "
    "How much money does the bakery make in one day?",
    "code": "Write a Python function that returns the sum of the squares of the even numbers in a list.",
    "chat": "Give me three tips for staying focused while I study for an exam.",
}
TOKENS = 128


@dataclass(frozen=True)
class Recording:
    """One run to record: its file name, prompt set and settings."""

    name: str
    kind: str
    settings: Settings

    @property
    def title(self) -> str:
        s = self.settings
        budget = f" @{s.budget}" if s.spec.kind == "tree" else ""
        if s.spec.adaptive:
            budget = f", at most {s.budget} nodes"
        heat = f", temperature {s.temperature:g}" if s.temperature else ""
        return f"{self.kind.capitalize()} · {s.spec.title}{budget}{heat}"


def recordings() -> list[Recording]:
    """Every run that ships, ar first for each prompt and temperature."""
    out: list[Recording] = []

    def add(kind: str, suffix: str = "", **settings: Any) -> None:
        s = Settings(max_new_tokens=TOKENS, **settings)
        out.append(Recording(f"{kind}-{s.method}{suffix}", kind, s))

    for kind in PROMPTS:
        for method in METHODS:
            if not METHODS[method].adaptive:
                add(kind, method=method)
        add(kind, "-64", method="dominotree", budget=64)
    for method in ("condadaptive", "condadaptive-calibrated"):
        add("math", method=method)
    for method in ("dominotree", "ddtree"):
        add("chat", "-t1", method=method, temperature=1.0, seed=7)
    return out


def record_all(pair: Pair, out: Path, only: list[str] | None, say: Callable[[str], None]) -> None:
    """Record the runs (or ``only`` some) into ``out``. Raises SettingsError for an unknown name."""
    chosen = recordings()
    unknown = sorted(set(only or ()) - {r.name for r in chosen})
    if unknown:
        raise SettingsError(
            f"no recording is named {', '.join(unknown)}; known are {', '.join(r.name for r in chosen)}."
        )
    out.mkdir(parents=True, exist_ok=True)
    generate(pair, PROMPTS["code"], Settings(max_new_tokens=16))  # warm-up
    # ar is measured while recording, like the runs that are compared with it: the recorder's own work between rounds
    # leaves the processor's caches colder
    rates: dict[tuple[str, float], float | None] = {}
    for number, one in enumerate(r for r in chosen if only is None or r.name in only):
        key = (one.kind, one.settings.temperature)
        if key not in rates:
            ar = Settings(
                method="ar",
                temperature=one.settings.temperature,
                seed=one.settings.seed,
                max_new_tokens=TOKENS,
            )
            rates[key] = generate(pair, PROMPTS[one.kind], ar, record=True).summary["tokens_per_second"]
        pair.ar_tokens_per_second = rates[key]
        run = Run(pair, PROMPTS[one.kind], one.settings, title=one.title, kind=one.kind, pops=False)
        for rnd in run:
            say(f"\r{number + 1}: {one.name}, round {rnd.index}    ")
        path = out / f"{one.name}.json.gz"
        save(run.trace, path)
        say("\n")
        summary = run.trace.summary
        print(
            f"{path.name}: {summary['rounds']} rounds, τ {summary['tau']:.2f}, {path.stat().st_size / 1024:.0f} KB"
        )
