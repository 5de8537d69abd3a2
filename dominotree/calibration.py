"""Calibrated path probabilities: a monotone map from a tree's cumulative score to how often such a path is accepted.

Fitted by isotonic regression (scipy) on nodes of trees along known texts, in equal-sized bins of the score; stored with
its knots as JSON under ``assets/calibration``, one file a drafter, and used by the control of CondAdaptive only
(engine.md §6). The map keeps the order of scores, so the same nodes are popped in the same order; only the estimate of
what they are worth changes.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dominotree.errors import FileError, PairError
from dominotree.jsonfile import numbers, read_as, write_object

SCHEMA = "dominotree.calibration"
VERSION = 1
FOLDER = Path(__file__).resolve().parents[1] / "assets" / "calibration"


@dataclass(frozen=True)
class Calibration:
    """The map g of builders/adaptive.py: knots ``x`` (scores, strictly ascending) and ``y`` (log-probabilities).

    ``about``: target, drafter, scorer and the settings, texts, nodes and date of the fit.
    """

    about: Mapping[str, Any]
    x: tuple[float, ...]
    y: tuple[float, ...]

    def __call__(self, score: float) -> float:
        """Calibrated log-probability of a path; slope 1 below the first knot, constant above the last."""
        if score < self.x[0]:
            return self.y[0] + (score - self.x[0])
        i = bisect_right(self.x, score) - 1
        if i >= len(self.x) - 1:
            return self.y[-1]
        return self.y[i] + (score - self.x[i]) * ((self.y[i + 1] - self.y[i]) / (self.x[i + 1] - self.x[i]))

    def summary(self) -> dict[str, Any]:
        """For a trace's header, and the whole of the file."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "about": dict(self.about),
            "x": list(self.x),
            "y": list(self.y),
        }

    def save(self, path: Path) -> None:
        write_object(path, self.summary())

    @classmethod
    def load(cls, path: Path) -> Calibration:
        return read_as(path, SCHEMA, VERSION, "calibration", cls.from_dict)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Calibration:
        """From a file or a trace's header. Raises FileError."""
        x, y = numbers(value.get("x"), "x", -1e6, 0.0), numbers(value.get("y"), "y", -1e6, 0.0)
        if not x or len(x) != len(y):
            raise FileError("x and y are not lists of one length")
        if any(a >= b for a, b in itertools.pairwise(x)) or any(a > b for a, b in itertools.pairwise(y)):
            raise FileError("the map is not monotone")
        about = value.get("about")
        if not isinstance(about, dict):
            raise FileError("about is missing")
        return cls(about, x, y)


def fit(
    about: Mapping[str, Any], scores: Sequence[float], accepted: Sequence[bool], bins: int = 48
) -> Calibration:
    """Isotonic regression of acceptance on score over ``bins`` bins of equal size (the top ones finer).

    ``scores``: cumulative log-probabilities of tree nodes; ``accepted``: whether the text followed that path.
    """
    from scipy.optimize import isotonic_regression

    s, hit = np.asarray(scores, dtype=np.float64), np.asarray(accepted, dtype=np.float64)
    order = np.argsort(s, kind="stable")
    s, hit = s[order], hit[order]
    means, rates, counts = [], [], []
    # Accepted nodes are rare: edges by equal numbers of accepted ones, so every bin knows its rate equally well.
    edges = np.unique(np.searchsorted(np.cumsum(hit), np.linspace(0.0, hit.sum(), bins + 1)[1:-1]))
    for part, ok in zip(np.split(s, edges), np.split(hit, edges), strict=True):
        if len(part):
            means.append(float(part.mean()))
            rates.append((float(ok.sum()) + 0.5) / (len(ok) + 1.0))
            counts.append(float(len(part)))
    smooth = isotonic_regression(rates, weights=counts).x
    x: list[float] = []
    y: list[float] = []
    for mean, rate in zip(means, smooth, strict=True):  # 6 digits, as a trace's header keeps them
        mean, log_rate = float(f"{mean:.6g}"), float(f"{math.log(float(rate)):.6g}")
        if not x or mean > x[-1]:
            x.append(min(mean, 0.0))
            y.append(min(log_rate, 0.0))
    return Calibration(dict(about), tuple(x), tuple(y))


def find(target: str | None, drafter: str | None, folder: Path = FOLDER) -> Calibration:
    """The stored calibration of a pair. Raises PairError where there is none, FileError for a damaged one."""
    path = folder / f"{drafter}.json"
    if drafter and "/" not in drafter and path.is_file():
        found = Calibration.load(path)
        if (found.about.get("target"), found.about.get("drafter")) == (target, drafter):
            return found
    raise PairError(
        f"there is no calibration of path probabilities for {drafter or 'this pair'} on {target or 'its target'}; "
        "make one with 'dominotree bench adaptive --fit' from a checkout of the project."
    )


def reliability(
    predicted: Sequence[float], accepted: Sequence[bool], edges: Sequence[float]
) -> list[dict[str, float]]:
    """Rows of a reliability diagram: bins of predicted probability with counts, means and 95 % Wilson intervals."""
    p, hit = np.asarray(predicted, dtype=np.float64), np.asarray(accepted, dtype=bool)
    place = np.clip(np.searchsorted(np.asarray(edges), p, side="right") - 1, 0, len(edges) - 2)
    rows = []
    for i in range(len(edges) - 1):
        inside = place == i
        n = int(inside.sum())
        if not n:
            continue
        k = int(hit[inside].sum())
        low, high = wilson(k, n)
        rows.append({"low_edge": edges[i], "high_edge": edges[i + 1], "nodes": n, "predicted": float(p[inside].mean()),
                     "accepted": k, "observed": k / n, "low": low, "high": high})  # fmt: skip
    return rows


def wilson(accepted: int, nodes: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """95 % Wilson score interval of a share."""
    share, square = accepted / nodes, z * z
    middle = (share + square / (2 * nodes)) / (1 + square / nodes)
    half = z * math.sqrt(share * (1 - share) / nodes + square / (4 * nodes * nodes)) / (1 + square / nodes)
    return max(0.0, middle - half), min(1.0, middle + half)
