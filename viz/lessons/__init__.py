"""The lessons: short steps through what the method does, each with a claim, a recorded round and a question.

Nothing here is fixed by hand but the words. Which round a lesson shows follows from a rule over the recorded runs,
every number in its text is computed from the trace or the published table that it shows, and each lesson states
what must hold for its words to be true (``runs.claim``): a lesson whose claim fails is left out, never shown.
The result is plain JSON; ``player/lessons.js`` shows it beside the player.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from viz.benchmarks import PUBLISHED
from viz.lessons.adaptive import adaptive
from viz.lessons.building import budget, graph, top_m
from viz.lessons.drafting import correction, head_only, marginals, one_round
from viz.lessons.reading import anchors, limits, lossless
from viz.lessons.runs import ClaimFails, Lesson, Missing, Runs
from viz.lessons.text import Fields, spans
from viz.library import Library

log = logging.getLogger(__name__)

STYLES = ("lessons.css",)
SCRIPTS = ("lessons.js",)

#: In teaching order: identifier (for links and progress) -> what makes the lesson.
LESSONS: dict[str, Callable[[Runs], Lesson]] = {
    "round": one_round,
    "marginals": marginals,
    "correction": correction,
    "head": head_only,
    "budget": budget,
    "top-m": top_m,
    "graph": graph,
    "adaptive": adaptive,
    "lossless": lossless,
    "anchors": anchors,
    "limits": limits,
}


def finished(name: str, lesson: Lesson) -> Fields:
    """A lesson as the browser gets it: templates filled, numbers apart."""
    fields = lesson["fields"]
    out: Fields = {"id": name, "title": lesson["title"]}
    for part in ("claim", "try", "question"):
        out[part] = spans(lesson[part], fields)
    for part in ("body", "answer"):
        out[part] = [spans(text, fields) for text in lesson[part]]
    for part in ("picture", "actions", "table", "bars", "source"):
        if part in lesson:
            out[part] = lesson[part]
    out["numbers"] = {k: v for k, v in fields.items() if isinstance(v, int | float)}
    return out


def build(library: Library, published: Path = PUBLISHED, strict: bool = False) -> Fields:
    """All lessons that the recordings support: ``{"lessons": [...], "runs": [ids that they show]}``.

    Reads most of the library's traces. With ``strict`` the first lesson that cannot be made raises Missing or
    ClaimFails; else it is left out and the reason logged.
    """
    lessons = []
    try:
        runs = Runs(library, published)
    except Missing:
        if strict:
            raise
        return {"lessons": [], "runs": []}
    for name, make in LESSONS.items():
        try:
            lessons.append(finished(name, make(runs)))
        except (Missing, ClaimFails) as reason:
            if strict:
                raise
            log.warning("the lesson %r is left out: %s", name, reason)
    shown_runs = [x["picture"]["run"] for x in lessons]
    shown_runs += [a["beside"] for x in lessons for a in x["actions"] if "beside" in a]
    return {"lessons": lessons, "runs": list(dict.fromkeys(shown_runs))}


def served_json(library: Library) -> str:
    """The lessons as strict JSON, as ``player/lessons.js`` takes them."""
    return json.dumps(build(library), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def rounds_shown(library: Library) -> dict[str, list[int]]:
    """File name -> rounds that lessons show: those worth recording with every pop."""
    files: dict[str, set[int]] = {}
    for lesson in build(library)["lessons"]:
        run = library.find(lesson["picture"]["run"])
        if run is not None:
            files.setdefault(run.file, set()).add(lesson["picture"]["round"])
    return {file: sorted(rounds) for file, rounds in files.items()}
