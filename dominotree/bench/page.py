"""``dominotree bench page``: how fast the page draws, in Chromium, on recorded runs of 64, 256 and 1024 nodes.

The runs are real ones of the default pair. The first time they are recorded (minutes: a round of 1024 nodes with
the trees of all scorers takes several seconds on a CPU) and kept in a folder; later calls read them there. The
measuring itself is in ``viz.player.bench``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dominotree.errors import DominoTreeError
from dominotree.trace import Trace, load, save

NODES = (64, 256, 1024)
ROUNDS = 44  # 3 steps to warm up, 40 that are counted, and the round to start from
PROMPT = "Tell me a long story about a lighthouse keeper and her cat who find a strange bottle on the beach."
FOLDER = Path("runs/page")
OUT = Path("docs/performance/page.json")
#: p95 that is aimed at, in ms: (what, nodes, rounds or None for any) -> ms (issue 5, item 10).
AIMS = {("step", 256): 50.0, ("step", 1024): 120.0}
LONG, LONG_MS = 200, 1000.0


def recorded(folder: Path, sizes: Sequence[int], rounds: int, say: Callable[[str], None]) -> list[Trace]:
    """The run of each size from ``folder``, recorded with the default pair where it is missing."""
    found: list[Trace] = []
    pair: Any = None
    for nodes in sizes:
        path = folder / f"{nodes}-nodes.json.gz"
        if not path.is_file():
            from dominotree.checkpoints import load_pair
            from dominotree.decode import Run, Settings

            pair = pair or load_pair("default")
            enough = threading.Event()
            asked = Settings(method="dominotree", budget=nodes, max_new_tokens=40 * rounds)
            run = Run(pair, PROMPT, asked, record=True, cancel=enough, title=f"{nodes} nodes")
            for rnd in run:
                say(f"\rrecording {nodes} nodes, round {rnd.index} of {rounds}   ")
                if rnd.index == rounds:
                    enough.set()
            say("\n")
            folder.mkdir(parents=True, exist_ok=True)
            save(run.trace, path)
        found.append(load(path))
    return found


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each aim: what was measured, and whether that meets it."""
    said = []
    for row in rows:
        aim = AIMS.get((row["what"], row["nodes"]))
        if row["what"] == "load" and row["rounds"] == LONG:
            aim = LONG_MS
        if aim is None:
            continue
        of = f"{row['rounds']} rounds" if row["what"] == "load" else f"{row['nodes']} nodes"
        met = "met" if row["p95_ms"] < aim else "MISSED"
        said.append(f"{row['what']} at {of}: p95 {row['p95_ms']:.0f} ms, aim below {aim:.0f} ms: {met}")
    return said


def machine() -> str:
    import torch

    from dominotree.decode import machine_name

    return machine_name(torch.device("cpu"))


def main(argv: Sequence[str]) -> int:
    """Measure, print a table, write the rows; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="dominotree bench page", description="key press to paint in Chromium at 64, 256 and 1024 nodes"
    )
    parser.add_argument(
        "runs", nargs="*", type=Path, help="runs to step through (default: those of --folder)"
    )
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="recorded runs, made if missing (default %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=40, help="steps that are counted (default %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="where the rows go (default %(default)s)")
    args = parser.parse_args(argv)
    try:
        from viz.player import bench
    except ImportError as error:
        raise DominoTreeError(f"the page cannot be measured: {error}.") from error

    def say(text: str) -> None:
        import sys

        print(text, end="", file=sys.stderr, flush=True)

    traces = [load(path) for path in args.runs] or recorded(args.folder, NODES, ROUNDS, say)
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    try:
        rows, version = bench.measure(traces, args.steps, long=LONG, say=say)
    except (RuntimeError, FileNotFoundError, ModuleNotFoundError) as error:
        raise DominoTreeError(f"the page cannot be measured: {error}.") from error
    print(
        f"{'what':<8}{'nodes':>6}{'union':>7}{'rounds':>8}{'p50 ms':>9}{'p95 ms':>9}{'drawing p50':>13}{'p95':>7}"
    )
    for row in rows:
        drawing = f"{row.get('draw_p50_ms', '–'):>13}{row.get('draw_p95_ms', '–'):>7}"
        print(
            f"{row['what']:<8}{row['nodes']:>6}{row['union']:>7}{row['rounds']:>8}"
            f"{row['p50_ms']:>9}{row['p95_ms']:>9}{drawing}"
        )
    print("\n".join(verdicts(rows)))
    result = {
        "bench": "page",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
        "chromium": version,
        "window": f"{bench.WIDTH}×{bench.HEIGHT}",
        "steps": args.steps,
        "load_average": busy,  # before it began: 0 on an idle machine
        "rows": rows,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0
