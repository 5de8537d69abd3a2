"""How fast the player draws: from a real key press to the second animation frame after it.

Chromium at 1440×900 with everything visible and nothing folded: all labels that fit, panel, verify walk, strip
and text. Two animation frames last 33 ms at 60 Hz whatever is drawn, so that is the floor of these figures; the
time that drawing itself takes (``draw``) is listed beside them. ``dominotree bench page`` is the command.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dominotree import trace as tr
from viz.layout import served
from viz.player import standalone

WIDTH, HEIGHT = 1440, 900
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_WATCH = """() => {
  window.paints = []; window.draws = [];
  document.addEventListener("keydown", (event) => {
    const pressed = event.timeStamp;
    requestAnimationFrame(() => requestAnimationFrame(() => paints.push(performance.now() - pressed)));
  }, true);
  const flush = p.flush.bind(p);
  p.flush = () => { const start = performance.now(); flush(); draws.push(performance.now() - start); };
}"""
#: Everything that the protocol wants on the screen; the message names what is not.
_MISSING = """() => {
  const seen = (what) => [...document.querySelectorAll(what)].some((e) => e.getClientRects().length);
  const wanted = {tree: ".dp-plot .textpoint text", panel: ".dp-node", walk: ".dp-walk-card", strip: ".dp-bars", text: ".dp-output"};
  const gone = Object.keys(wanted).filter((name) => !seen(wanted[name]));
  if (p.panes[0].tree.current.g.folded) gone.push("folded nodes");
  return gone.join(", ");
}"""
_LOAD = """async (text) => {
  const start = performance.now();
  p.load(JSON.parse(text));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - start;
}"""
LOADS = 5  # times that a run is loaded


def chromium_path() -> str:
    """Path of the browser: ``$CHROMIUM``, else one found on PATH. Raises FileNotFoundError."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        raise FileNotFoundError("no Chromium: set CHROMIUM to its path")
    return path


def quantile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def lengthened(data: dict[str, Any], rounds: int) -> dict[str, Any]:
    """A served run made longer by repeating its rounds: what loading a run of ``rounds`` rounds takes."""
    order = list(itertools.islice(itertools.cycle(range(len(data["rounds"]))), rounds))
    again = [{**data["rounds"][k], "index": i} for i, k in enumerate(order, 1)]
    summary = {**data["summary"], "rounds": rounds}
    return {**data, "rounds": again, "layout": [data["layout"][k] for k in order], "summary": summary}


def measure(
    traces: list[tr.Trace],
    steps: int = 40,
    pause_ms: int = 120,
    long: int = 200,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[list[dict[str, Any]], str]:
    """Step through each trace with real key presses.

    Args:
        traces: runs of at least two rounds; short ones are walked to and fro.
        steps: key presses that are counted; three before them are not.
        pause_ms: wait after each, so that every step is measured alone.
        long: rounds of the run that is loaded last: the first trace, repeated.

    Returns:
        rows with ``what`` ("step", "toggle", "load"), ``nodes`` (largest verified tree), ``union`` (largest
        union of trees), ``rounds``, ``p50_ms``, ``p95_ms`` and, for steps and toggles, the same of the drawing
        alone; and the browser's version. Raises RuntimeError if something is not on the screen.
    """
    from playwright.sync_api import sync_playwright

    rows: list[dict[str, Any]] = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        for number, trace in enumerate(traces):
            data = json.loads(tr.to_json(served(trace)))
            path = Path(folder) / f"{number}.html"
            path.write_text(standalone(data), encoding="utf-8")
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(path.as_uri())
            page.wait_for_selector(".dp:not(.dp-is-empty) .dp-plot .textpoint text")
            page.evaluate("() => { p.panes[0].tree.fold(false); }")
            page.wait_for_timeout(500)
            gone = page.evaluate(_MISSING)
            if gone:
                raise RuntimeError(f"not on the screen, or not as the protocol wants it: {gone}")
            page.evaluate(_WATCH)
            size = {
                "nodes": max(r.verified_nodes for r in trace.rounds),
                "union": max(len(r.nodes) for r in trace.rounds),
                "rounds": len(trace.rounds),
            }
            ways = len(trace.rounds) - 1
            there_and_back = ["ArrowRight"] * ways + ["ArrowLeft"] * ways
            for what, keys in (("step", there_and_back), ("toggle", ["s"])):
                for k in range(steps + 3):
                    say(f"\r{size['nodes']} nodes, {what} {k + 1} of {steps + 3}   ")
                    if k == 3:
                        page.evaluate("() => { paints.length = draws.length = 0; }")
                    page.keyboard.press(keys[k % len(keys)])
                    page.wait_for_timeout(pause_ms)
                rows.append({"what": what, **size, **_figures(page.evaluate("() => [paints, draws]"))})
            loads = [(size, data)]
            if number == 0:
                loads.append(({**size, "rounds": long}, lengthened(data, long)))
            for about, run in loads:
                text = json.dumps(run)
                times = [page.evaluate(_LOAD, text) for _ in range(LOADS)]
                figures = {"p50_ms": round(quantile(times, 0.5), 1), "p95_ms": round(max(times), 1)}
                rows.append({"what": "load", **about, **figures})
            page.close()
        version = browser.version
        browser.close()
    say("\n")
    return rows, version


def _figures(times: list[list[float]]) -> dict[str, float]:
    paints, draws = times
    named = (
        ("p50_ms", paints, 0.5),
        ("p95_ms", paints, 0.95),
        ("draw_p50_ms", draws, 0.5),
        ("draw_p95_ms", draws, 0.95),
    )
    return {name: round(quantile(values, share), 1) for name, values, share in named}
