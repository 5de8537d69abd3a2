"""What a round costs on this machine: C_draft and C_verify(nodes, context), fitted from a profile and kept as JSON.

C_verify counts nodes besides the anchor, so C_verify(0) is one row. For each measured context it is the monotone and
convex piecewise-linear function that is nearest to the medians in relative terms: non-negative least squares on a
constant, a line and one hinge (n − k)₊ per measured count. Between contexts it is interpolated, outside the measured
ones it stays; beyond the largest count it goes on with the last slope. All times in milliseconds.

It is kept as C_verify(0) and a slope for each stretch between two counts, with 6 significant digits, as a trace stores
numbers: so a trace's header holds exactly what the run used, and slopes that never fall stay so.

The fit knows no torch; ``dominotree.profile`` measures.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dominotree.errors import FileError
from dominotree.jsonfile import numbers, read_as, write_object

SCHEMA = "dominotree.cost"
VERSION = 1
#: What tells one profile from another: a profile of another machine, pair, precision or engine is never taken.
IDENTITY = ("machine", "target", "domino", "dflash", "dtype", "engine")


@dataclass(frozen=True)
class RoundCost:
    """Times of one round in ms: ``draft``, and ``verify[n]`` for n = 0 … cap nodes besides the anchor."""

    draft: float
    verify: Sequence[float]


@dataclass(frozen=True)
class CostModel:
    """A fitted profile.

    ``about``: machine, target, domino, dflash (names), dtype, engine, kind ("full", "quick"), created, versions.
    ``contexts`` [c] and ``nodes`` [k] ascending, nodes[0] = 0; ``base_ms`` [c] is C_verify(0), ``slope_ms`` [c][k − 1]
    ms per node from each count to the next; ``draft_ms`` by drafter kind, [c]; ``raw``: every sample.
    """

    about: Mapping[str, Any]
    contexts: tuple[int, ...]
    nodes: tuple[int, ...]
    base_ms: tuple[float, ...]
    slope_ms: tuple[tuple[float, ...], ...]
    draft_ms: Mapping[str, tuple[float, ...]]
    raw: Sequence[Mapping[str, Any]] = field(default=(), repr=False)

    def verify_table(self, cap: int, context: int) -> list[float]:
        """C_verify(n, context) for n = 0 … cap, float64."""
        lower, upper, share = self._between(context)
        table = (1.0 - share) * self._curve(lower, cap)
        if share:
            table = table + share * self._curve(upper, cap)
        return table.tolist()

    @property
    def verify_ms(self) -> list[list[float]]:
        """C_verify at ``nodes`` for every context, [c][k]."""
        return [self._curve(i, self.nodes[-1])[list(self.nodes)].tolist() for i in range(len(self.contexts))]

    def _curve(self, i: int, cap: int) -> np.ndarray:
        """C_verify(0 … cap) at the i-th context; the last slope goes on beyond the largest count."""
        out = np.full(max(cap, self.nodes[-1]) + 1, self.base_ms[i])
        for low, slope in zip(self.nodes, self.slope_ms[i], strict=False):
            out[low + 1 :] = out[low] + slope * np.arange(1, len(out) - low)
        return out[: cap + 1]

    def draft(self, kind: str, context: int) -> float:
        """C_draft of the pair's drafter of that kind. Raises FileError where it was not measured."""
        if kind not in self.draft_ms:
            raise FileError(
                f"this cost profile holds no times of a {kind} drafter, only {', '.join(self.draft_ms) or 'none'}; "
                "run 'dominotree profile' for this pair."
            )
        lower, upper, share = self._between(context)
        row = self.draft_ms[kind]
        return (1.0 - share) * row[lower] + share * row[upper]

    def round(self, kind: str, cap: int, context: int) -> RoundCost:
        """Both times of one round, as the builder takes them."""
        return RoundCost(self.draft(kind, context), self.verify_table(cap, context))

    def _between(self, context: int) -> tuple[int, int, float]:
        """The two measured contexts around ``context`` and the share of the upper one."""
        above = next((i for i, c in enumerate(self.contexts) if c >= context), len(self.contexts) - 1)
        below = max(0, above - 1) if self.contexts[above] > context else above
        low, high = self.contexts[below], self.contexts[above]
        return (below, above, 0.0) if low == high else (below, above, (context - low) / (high - low))

    @property
    def hash(self) -> str:
        """The first twelve hex digits of the sha256 of the fitted numbers and what they belong to."""
        text = json.dumps(self._fitted(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def _fitted(self) -> dict[str, Any]:
        return {
            "about": dict(self.about),
            "contexts": list(self.contexts),
            "nodes": list(self.nodes),
            "base_ms": list(self.base_ms),
            "slope_ms": [list(row) for row in self.slope_ms],
            "draft_ms": {kind: list(row) for kind, row in self.draft_ms.items()},
        }

    def summary(self) -> dict[str, Any]:
        """For a trace's header: enough to tell it and to build the same trees again (``from_dict``)."""
        return {"schema": SCHEMA, "version": VERSION, "hash": self.hash, **self._fitted()}

    def save(self, path: Path) -> None:
        write_object(path, {**self.summary(), "raw": [dict(row) for row in self.raw]})

    @classmethod
    def load(cls, path: Path) -> CostModel:
        """Read a profile; raises FileError unless it is one, monotone and convex, with the hash that it names."""
        return read_as(path, SCHEMA, VERSION, "cost profile", cls.from_dict)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> CostModel:
        """From a stored profile or a trace's header. Raises FileError."""
        about = value.get("about")
        if not isinstance(about, dict) or not all(isinstance(about.get(k), str | None) for k in IDENTITY):
            raise FileError("about does not name machine, target, drafters, dtype and engine")
        contexts = _ascending(value.get("contexts"), "contexts")
        nodes = _ascending(value.get("nodes"), "nodes")
        if nodes[0] != 0:
            raise FileError("nodes do not begin with 0")
        base, slopes, draft = (
            numbers(value.get("base_ms"), "base_ms", 1e-9),
            value.get("slope_ms"),
            value.get("draft_ms"),
        )
        if not isinstance(slopes, list) or not len(slopes) == len(base) == len(contexts):
            raise FileError("base_ms and slope_ms are not one entry per context")
        rows = tuple(numbers(row, "slope_ms", 0.0) for row in slopes)
        for row in rows:
            if len(row) != len(nodes) - 1:
                raise FileError("slope_ms is not one number per stretch between node counts")
            if any(a > b for a, b in itertools.pairwise(row)):
                raise FileError("slope_ms falls, so C_verify is not convex in nodes")
        if not isinstance(draft, dict) or not draft:
            raise FileError("draft_ms is not an object by drafter kind")
        drafts = {str(kind): numbers(row, "draft_ms", 0.0) for kind, row in draft.items()}
        if any(len(row) != len(contexts) for row in drafts.values()):
            raise FileError("draft_ms is not one number per context")
        raw = value.get("raw", [])
        if not isinstance(raw, list) or not all(isinstance(row, dict) for row in raw):
            raise FileError("raw is not a list of measurements")
        model = cls(about, contexts, nodes, base, rows, drafts, tuple(raw))
        if value.get("hash", model.hash) != model.hash:
            raise FileError("its numbers were changed after they were fitted (the hash differs)")
        return model


def _ascending(value: Any, what: str) -> tuple[int, ...]:
    found = numbers(value, what, 0, 1e9)
    if not found or any(x != int(x) for x in found) or any(a >= b for a, b in itertools.pairwise(found)):
        raise FileError(f"{what} are not ascending whole numbers")
    return tuple(int(x) for x in found)


def is_monotone_convex(nodes: Sequence[int], values: Sequence[float], slack: float = 1e-9) -> bool:
    """Whether slopes are non-negative and never fall, up to rounding (``slack`` times the largest value)."""
    x, y = np.asarray(nodes, dtype=np.float64), np.asarray(values, dtype=np.float64)
    slopes = np.diff(y) / np.diff(x)
    bound = -slack * float(y.max())
    return bool(np.all(slopes >= bound) and np.all(np.diff(slopes) >= bound))


def digits(x: float) -> float:
    """A number as a trace stores it: 6 significant digits."""
    return float(f"{x:.6g}")


def fit_convex(nodes: Sequence[int], ms: Sequence[float]) -> tuple[float, tuple[float, ...]]:
    """The monotone convex function that is nearest to the points in relative squares: value at nodes[0], slopes.

    ``nodes`` ascending, ``ms`` positive. Non-negative least squares (scipy) on 1, n and (n − k)₊; the weight of a hinge is
    what its slope adds, so slopes are running sums of weights and never fall.
    """
    from scipy.optimize import nnls

    x, y = np.asarray(nodes, dtype=np.float64), np.asarray(ms, dtype=np.float64)
    if len(x) < 2:
        return digits(float(y[0])), ()
    span = x[-1] - x[0]
    columns = [np.ones_like(x), (x - x[0]) / span, *(np.maximum(x - k, 0.0) / span for k in x[1:-1])]
    basis = np.stack(columns, axis=1)
    weights, _ = nnls(basis / y[:, None], np.ones_like(y))
    return digits(float(weights[0])), tuple(digits(s) for s in (weights[1:] / span).cumsum().tolist())


def fit(about: Mapping[str, Any], raw: Sequence[Mapping[str, Any]]) -> CostModel:
    """Fit raw measurements: rows {"what": "verify" | "draft", "context", "nodes" or "kind", "ms": [samples]}."""
    medians = [(row, float(np.median(row["ms"]))) for row in raw]
    verify = {(r["context"], r["nodes"]): ms for r, ms in medians if r["what"] == "verify"}
    draft = {(r["context"], r["kind"]): ms for r, ms in medians if r["what"] == "draft"}
    contexts = tuple(sorted({c for c, _ in verify}))
    nodes = tuple(sorted({n for _, n in verify}))
    kinds = dict.fromkeys(kind for _, kind in draft)
    fitted = [fit_convex(nodes, [verify[c, n] for n in nodes]) for c in contexts]
    return CostModel(
        dict(about),
        contexts,
        nodes,
        tuple(base for base, _ in fitted),
        tuple(slopes for _, slopes in fitted),
        {kind: tuple(digits(draft[c, kind]) for c in contexts) for kind in kinds},
        tuple(dict(row) for row in raw),
    )


def profile_path(identity: Mapping[str, Any]) -> Path:
    """Where the profile of this machine, pair, precision and engine lies in the cache."""
    from dominotree.folders import cache_folder

    key = json.dumps([identity.get(k) for k in IDENTITY])
    names = (identity.get("target"), identity.get("dtype"), identity.get("engine"), identity.get("machine"))
    slug = re.sub(r"[^A-Za-z0-9]+", "-", " ".join(str(n) for n in names if n)).strip("-")[:80]
    return cache_folder() / "profiles" / f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"


def stored(identity: Mapping[str, Any]) -> CostModel | None:
    """The profile in the cache, or None. Raises FileError for a damaged one."""
    path = profile_path(identity)
    return CostModel.load(path) if path.is_file() else None
