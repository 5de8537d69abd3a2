"""A training log as a picture: losses, accuracy by depth and τ on the dev set over the run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path


def read_log(path: Path) -> tuple[list[dict], list[dict]]:
    """(training entries, evaluation entries) of a ``log.jsonl``, gzipped or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as log:
        entries = [json.loads(line) for line in log if line.strip()]
    return [e for e in entries if "base_loss" in e], [e for e in entries if "evaluation" in e]


def write_plot(logs: Sequence[Path], out: Path) -> None:
    """One HTML page (Plotly, self-contained): a row of three charts for each log."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = [
        f"{log.stem}: {what}" for log in logs for what in ("loss", "accuracy by depth", "τ on the dev set")
    ]
    figure = make_subplots(rows=len(logs), cols=3, subplot_titles=titles)
    for row, log in enumerate(logs, 1):
        steps, evaluations = read_log(log)
        x = [e["step"] for e in steps]
        for key, name in (("base_loss", "base"), ("final_loss", "corrected")):
            figure.add_trace(go.Scatter(x=x, y=[e[key] for e in steps], name=f"{name} loss"), row=row, col=1)
        for depth in (0, 1, 3, 7, len(steps[0]["final_accuracy"]) - 1):
            y = [e["final_accuracy"][depth] for e in steps]
            figure.add_trace(go.Scatter(x=x, y=y, name=f"depth {depth + 1}"), row=row, col=2)
        for method in evaluations[0]["evaluation"] if evaluations else ():
            y = [e["evaluation"][method]["all"] for e in evaluations]
            at = [e["step"] for e in evaluations]
            figure.add_trace(go.Scatter(x=at, y=y, name=method, mode="lines+markers"), row=row, col=3)
    figure.update_layout(height=380 * len(logs), template="plotly_white")
    figure.update_yaxes(type="log", col=1)
    figure.write_html(out, include_plotlyjs=True)
