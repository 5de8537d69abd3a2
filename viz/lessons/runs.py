"""What lessons find in recorded runs: rounds, paths, scores; and what must hold for their words to be true."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dominotree import trace as tr
from viz.benchmarks import PUBLISHED, read
from viz.lessons.text import Fields, Spans, Token
from viz.library import KINDS, Library, Recorded

DEFAULT_BUDGET = 16  # what a recorded tree has unless its name says otherwise
PAPER = "arXiv:2607.08642"

Lesson = dict[str, Any]


class Missing(Exception):
    """A run, a round or a figure that a lesson needs is not there."""


class ClaimFails(Exception):
    """What a lesson says does not hold for the recordings that it would show."""


def mean_ms(trace: tr.Trace, stage: str) -> float:
    """What a stage took in the mean of the run's rounds, ms."""
    return statistics.fmean(this.times_ms[stage] for this in trace.rounds)


def claim(holds: bool, sentence: str) -> None:
    """Raise ClaimFails unless ``holds``; ``sentence`` says what was claimed."""
    if not holds:
        raise ClaimFails(f"this does not hold for the recorded runs: {sentence}")


def found(values: Sequence[Any], what: str) -> None:
    if not values:
        raise Missing(what)


class Runs:
    """The recorded runs of one pair on one machine (the first of the library), and the published tables."""

    def __init__(self, library: Library, published: Path = PUBLISHED) -> None:
        found(library.runs, "recorded runs")
        self.library = library
        self.published = published
        first = library.runs[0]
        self.runs = [r for r in library.runs if (r.pair, r.machine) == (first.pair, first.machine)]
        self._traces: dict[str, tr.Trace] = {}

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(run.kind for run in self.runs))

    def find(self, kind: str, method: str, budget: int | None = None) -> Recorded:
        """The run of a method on one prompt at temperature 0; of trees, the one with this budget."""
        for run in self.runs:
            if (run.kind, run.method, run.temperature) == (kind, method, 0.0) and (
                run.budget is None or run.budget == (budget or DEFAULT_BUDGET)
            ):
                return run
        raise Missing(f"a recorded {method} run on the {kind} prompt")

    def all(self, method: str, budget: int | None = None) -> list[Recorded]:
        return [self.find(kind, method, budget) for kind in self.kinds]

    def trace(self, run: Recorded) -> tr.Trace:
        if run.run_id not in self._traces:
            self._traces[run.run_id] = self.library.trace(run.run_id)
        return self._traces[run.run_id]

    def table(self, name: str) -> list[dict[str, Any]]:
        path = self.published / name
        if not path.is_file():
            raise Missing(f"the published table {name}")
        return read(path)


def word(trace: tr.Trace, *tokens: int) -> Token:
    return Token("".join(tr.token_text(trace.token_bytes(t)) for t in tokens))


def kind_name(run: Recorded) -> str:
    return KINDS.get(run.kind, run.kind).lower()


def path_to(nodes: tr.Nodes, node: int) -> list[int]:
    """Nodes from depth 1 down to ``node``."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = nodes.parent[node]
    return path[::-1]


def spine(trace: tr.Trace, this: tr.Round, scorer: str) -> list[int]:
    """The path of a scorer's tree along the text that came out."""
    path, _ = tr.counterfactual_path(this, scorer, trace.text_after(this.index), trace.stopped)
    return path


def lead(this: tr.Round) -> int:
    """By how many coming tokens the conditional tree is ahead of the marginal one at this anchor."""
    return this.counterfactual["conditional"].accepted - this.counterfactual["marginal"].accepted


def held(trace: tr.Trace, scorer: str) -> int:
    """Coming tokens that a scorer's trees hold, over the run's anchors. Raises Missing where one is not recorded."""
    if any(scorer not in this.counterfactual for this in trace.rounds):
        raise Missing(f"the {scorer} tree of every round")
    return sum(this.counterfactual[scorer].accepted for this in trace.rounds)


def full(trace: tr.Trace) -> list[tr.Round]:
    """Rounds with the trees of all three scorers."""
    return [this for this in trace.rounds if set(this.counterfactual) == set(tr.SCORERS)]


def total(column: Sequence[float | None], path: Sequence[int]) -> float:
    """Sum of a column along a path. Raises Missing where the path cannot be scored."""
    values = [column[i] for i in path]
    if any(v is None for v in values):
        raise Missing("a score along the path")
    return sum(v for v in values if v is not None)


def picture(run: Recorded, this: tr.Round, scoring: str | None, node: int | None, *show: str) -> Fields:
    """What the player shows; ``show``: which of its parts besides tree and controls ("node", "walk", …)."""
    return {"run": run.run_id, "round": this.index, "scoring": scoring, "node": node, "show": list(show)}


def pop_step(this: tr.Round, node: int) -> int:
    """The step of the player's Inside view in which a node is popped (-1: the anchor is expanded)."""
    return 0 if node < 0 else 1 + (this.nodes.order[node] or 0)


def stop_step(this: tr.Round) -> int:
    """The step of the player's Inside view in which the verify walk stops."""
    return this.verified_nodes + len(this.visits)


def step(label: Spans, **state: Any) -> Fields:
    """A button of "Try it": a state to go to, ``cycle`` of nodes, ``beside`` (a second run), ``inside`` (a step)."""
    return {"label": label, **state}


def mean(rows: Sequence[dict[str, Any]], name: str) -> float:
    return statistics.fmean(row[name] for row in rows)


def is_graph(row: dict[str, Any], setting: str = "gpu_native") -> bool:
    return (row["setting"], row["method"], row["temperature"]) == (setting, "dominotree@16", 0.0)
