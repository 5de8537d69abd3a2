"""How fast the player draws: from a real key press to the second animation frame after it.

    python -m viz.player.bench RUN.json.gz … [--steps 40] [--out docs/performance/page.json]

Chromium at 1440×900 with everything visible and nothing folded: all labels that fit, panel, verify walk, strip
and text. Two animation frames last 33 ms at 60 Hz whatever is drawn, so that is the floor of these figures; the
time that drawing itself takes (``draw``) is listed beside them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from dominotree import trace as tr
from viz.layout import served
from viz.player import standalone

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


def measure(traces: list[tr.Trace], steps: int = 40, pause_ms: int = 120) -> list[dict[str, Any]]:
    """Step through each trace with real key presses.

    Args:
        traces: runs of at least two rounds; short ones are walked to and fro.
        steps: key presses that are counted; three before them are not.
        pause_ms: wait after each, so that every step is measured alone.

    Returns:
        rows with ``what`` ("step", "toggle", "load"), ``nodes`` (largest verified tree), ``union`` (largest
        union of trees), ``p50_ms``, ``p95_ms`` and, for steps and toggles, the same of the drawing alone.
    """
    from playwright.sync_api import sync_playwright

    rows: list[dict[str, Any]] = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        for number, trace in enumerate(traces):
            data = json.loads(tr.to_json(served(trace)))
            path = Path(folder) / f"{number}.html"
            path.write_text(standalone(data), encoding="utf-8")
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(path.as_uri())
            page.wait_for_timeout(500)
            page.evaluate(_WATCH)
            size = {
                "nodes": max(r.verified_nodes for r in trace.rounds),
                "union": max(len(r.nodes) for r in trace.rounds),
                "rounds": len(trace.rounds),
            }
            there_and_back = ["ArrowRight"] * (len(trace.rounds) - 1) + ["ArrowLeft"] * (
                len(trace.rounds) - 1
            )
            for what, keys in (("step", there_and_back), ("toggle", ["s"])):
                for k in range(steps + 3):
                    if k == 3:
                        page.evaluate("() => { paints.length = draws.length = 0; }")
                    page.keyboard.press(keys[k % len(keys)])
                    page.wait_for_timeout(pause_ms)
                rows.append({"what": what, **size, **_figures(page.evaluate("() => [paints, draws]"))})
            loads = page.evaluate(
                """async (text) => {
                  const times = [];
                  for (let k = 0; k < 5; k++) {
                    const start = performance.now();
                    p.load(JSON.parse(text));
                    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                    times.push(performance.now() - start);
                  }
                  return times;
                }""",
                json.dumps(data),
            )
            rows.append(
                {
                    "what": "load",
                    **size,
                    "p50_ms": round(quantile(loads, 0.5), 1),
                    "p95_ms": round(max(loads), 1),
                }
            )
            page.close()
        browser.close()
    return rows


def _figures(times: list[list[float]]) -> dict[str, float]:
    paints, draws = times
    named = (
        ("p50_ms", paints, 0.5),
        ("p95_ms", paints, 0.95),
        ("draw_p50_ms", draws, 0.5),
        ("draw_p95_ms", draws, 0.95),
    )
    return {name: round(quantile(values, share), 1) for name, values, share in named}


def main() -> None:
    """Command line; prints a table and writes the rows."""
    parser = argparse.ArgumentParser(
        prog="python -m viz.player.bench", description="step-to-paint of the player"
    )
    parser.add_argument("runs", nargs="+", type=Path, help="recorded runs (.json or .json.gz)")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--out", type=Path, help="write the rows as JSON")
    args = parser.parse_args()
    rows = measure([tr.load(path) for path in args.runs], args.steps)
    print(f"{'what':<8}{'nodes':>6}{'union':>7}{'p50 ms':>9}{'p95 ms':>9}{'drawing p50':>13}{'p95':>7}")
    for row in rows:
        drawing = f"{row.get('draw_p50_ms', '–'):>13}{row.get('draw_p95_ms', '–'):>7}"
        print(
            f"{row['what']:<8}{row['nodes']:>6}{row['union']:>7}{row['p50_ms']:>9}{row['p95_ms']:>9}{drawing}"
        )
    if args.out:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        result = {"bench": "page", "date": date, "cpus": os.cpu_count(), "load_average": load, "rows": rows}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
