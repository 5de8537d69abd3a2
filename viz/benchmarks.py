"""The Benchmarks tab: published figures and our own runs as one small JSON, with what each chart says in a sentence.

The published tables are in ``assets/published`` (arXiv:2607.08642). Every sentence is computed here, from the rows
that its chart shows, one for each setting of the chart's filters; ``player/benchmarks.js`` only draws and looks up.
"""

from __future__ import annotations

import csv
import html
import itertools
import json
import logging
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dominotree.methods import METHODS
from dominotree.trace import TraceError
from viz import player
from viz.library import KINDS, ROOT, Library

log = logging.getLogger(__name__)

PUBLISHED = ROOT / "assets" / "published"
EVALUATION = ROOT / "assets" / "eval"
#: ``dominotree bench speed`` on a GPU, kept with docs/performance.md.
GPU_SPEED = ROOT / "docs" / "performance" / "speed-h200.json"
STYLES = ("benchmarks.css",)
SCRIPTS = ("benchmarks.js",)

OURS = "DominoTree@16"
TREES = ("DDTree@16", "CaDDTree")  # trees on the DFlash drafter
RIVALS = ("Domino", *TREES, "DFlash")
AGAINST: dict[str, tuple[str, ...]] = {"trees": TREES, "Domino": ("Domino",), "DFlash": ("DFlash",)}
#: Metrics of ``speedup_tau.csv``: column -> name in a sentence, digits, unit.
METRICS = {
    "speedup_over_ar": ("speed-up", 2, "×"),
    "tau": ("τ", 2, ""),
    "tokens_per_second": ("decoding speed", 0, " tokens/s"),
}
DATASETS = {
    "gsm8k": "GSM8K",
    "math500": "MATH-500",
    "aime25": "AIME25",
    "humaneval": "HumanEval",
    "mbpp": "MBPP",
    "livecodebench": "LiveCodeBench",
    "mt-bench": "MT-Bench",
    "alpaca": "Alpaca",
}
SHORT = {"LCB": "LiveCodeBench"}  # as intervals.csv has it
ROLLUPS = ("Math", "Code", "Chat", "Overall")
LADDER = {"marg@16": "marginal", "condstatic@16": "static-corrected", "dominotree@16": "conditional"}
STAGES = ("draft_ms", "build_ms", "verify_ms", "commit_ms")
#: Columns of ``assets/eval/tau.csv`` that are numbers; the other columns are text.
OWN_NUMBERS = ("budget", "top_m", "temperature", "prompts", "tau", "tau_low", "tau_high", "tokens_per_second")
OWN_COLUMNS = (
    "runs", "pair", "target", "drafter", "method", "budget", "top_m", "temperature", "set", "prompts",
    "tau", "tau_low", "tau_high", "tokens_per_second", "machine", "date",
)  # fmt: skip
RECORDED, EVALUATED = "recorded prompts", "evaluation sets"
MEAN = "Mean of the sets"

Row = dict[str, Any]
Key = Callable[[Row], Any]


def read(path: Path) -> list[Row]:
    """A CSV file's rows; cells that are finite numbers become floats (``full`` and names stay text)."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _cell(text) for name, text in row.items()} for row in csv.DictReader(file)]


def _cell(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


# ---- words


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign, the minus a real one: "+4.8", "−3.9"."""
    return f"{value:+.{digits}f}".replace("-", "−")


def listed(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _heat(temperature: float) -> str:
    return f"temperature {temperature:g}"


def _values(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


# ---- one chart each: rows and sentences


def _table(rows: list[Row], takeaways: dict[str, str], columns: Sequence[str] = ()) -> Row:
    names = list(columns or rows[0])
    return {"columns": names, "rows": [[row[n] for n in names] for row in rows], "takeaways": takeaways}


def _best(rows: list[Row], metric: str) -> tuple[str, float]:
    """The method with the highest value, or all of them if several have it, and that value."""
    value = max(row[metric] for row in rows)
    return listed([row["method"] for row in rows if row[metric] == value]), value


def methods(rows: list[Row]) -> Row:
    """Every method on every dataset. Key: target|temperature|metric."""
    said = {}
    for target, heat in itertools.product(_values(rows, "target"), _values(rows, "temperature")):
        here = [r for r in rows if (r["target"], r["temperature"]) == (target, heat)]
        for metric, (name, digits, unit) in METRICS.items():
            leaders: dict[str, list[str]] = {}
            for dataset in _values(here, "dataset"):
                leader, _ = _best([r for r in here if r["dataset"] == dataset], metric)
                leaders.setdefault(leader, []).append(dataset)
            first = leaders.pop(OURS, [])
            text = f"{target} at {_heat(heat)}: {OURS} has the highest {name} on {len(first)} of {len(DATASETS)} datasets"
            if first:
                top = max(
                    (r for r in here if r["method"] == OURS and r["dataset"] in first),
                    key=lambda r: r[metric],
                )
                text += f" (up to {top[metric]:.{digits}f}{unit} on {DATASETS[top['dataset']]})"
            if leaders:
                others = [f"{m} on {listed([DATASETS[d] for d in ds])}" for m, ds in leaders.items()]
                text += f"; ahead of it: {'; '.join(others)}"
            said[f"{target}|{heat:g}|{metric}"] = text + "."
    return _table(rows, said)


def cells(rows: list[Row]) -> Row:
    """DominoTree@16 against the best of some rivals in each of the 48 cells. Key: metric|against."""
    found, said = [], {}
    at = {(r["target"], r["temperature"], r["dataset"], r["method"]): r for r in rows}
    for metric, against in itertools.product(METRICS, AGAINST):
        here = []
        for (target, heat, dataset, method), row in at.items():
            if method != OURS:
                continue
            rivals = [at[target, heat, dataset, rival] for rival in AGAINST[against]]
            rival, value = _best(rivals, metric)
            here.append(
                {
                    "metric": metric,
                    "against": against,
                    "target": target,
                    "temperature": heat,
                    "dataset": dataset,
                    "rival": rival,
                    "value": row[metric],
                    "rival_value": value,
                    "delta_percent": round(100 * (row[metric] / value - 1), 6),
                }
            )
        behind = [r for r in here if r["value"] < r["rival_value"]]
        by_target = [
            f"{sum(r['target'] == t for r in behind)} of {sum(r['target'] == t for r in here)} with {t}"
            for t in _values(here, "target")
        ]
        worst, best = (pick(here, key=lambda r: r["delta_percent"]) for pick in (min, max))
        rivals_named = " or ".join(AGAINST[against])
        name = METRICS[metric][0]
        where = [
            f"{signed(r['delta_percent'])} % ({r['target']}, {DATASETS[r['dataset']]}, {_heat(r['temperature'])})"
            for r in (worst, best)
        ]
        said[f"{metric}|{against}"] = (
            f"{OURS}'s {name} is below that of {rivals_named} in {len(behind)} of {len(here)} cells "
            f"({listed(by_target)}); the difference runs from {where[0]} to {where[1]}."
        )
        found += here
    return _table(found, said)


def _side(row: Row) -> int:
    """1: the whole interval is above zero, -1: below, 0: it includes zero."""
    return 1 if row["low_95"] > 0 else -1 if row["high_95"] < 0 else 0


def intervals(rows: list[Row]) -> Row:
    """Differences with 95 % intervals. Key: target|temperature|rival, rival "all" for the four together."""
    said = {}
    for target, heat in itertools.product(_values(rows, "target"), _values(rows, "temperature")):
        here = [r for r in rows if (r["target"], r["temperature"]) == (target, heat)]
        for rival in ("all", *RIVALS):
            chosen = [r for r in here if rival in ("all", r["ratio"].split(" / ")[1])]
            overall = [
                f"{signed(r['delta_percent'])} % [{signed(r['low_95'])}, {signed(r['high_95'])}] against {r['ratio'].split(' / ')[1]}"
                for r in chosen
                if r["scope"] == "Overall"
            ]
            sets = [r for r in chosen if r["scope"] not in ROLLUPS]
            above, below, across = (sum(_side(r) == side for r in sets) for side in (1, -1, 0))
            said[f"{target}|{heat:g}|{rival}"] = (
                f"{target} at {_heat(heat)}, all prompts: {listed(overall)}; of {len(sets)} intervals by dataset, "
                f"{above} lie above zero, {below} below, {across} include it."
            )
    return _table(rows, said)


def ladder(rows: list[Row]) -> Row:
    """Marginal, static-corrected, conditional with the same drafter. Key: setting|metric."""
    said = {}
    units = {
        "tau": ("τ", 2, ""),
        "tokens_per_second": ("speed", 0, " tokens/s"),
        "build_ms": ("build time", 2, " ms a round"),
    }
    for setting, (metric, (name, digits, unit)) in itertools.product(_values(rows, "setting"), units.items()):
        here = {(r["dataset"], r["method"]): r[metric] for r in rows if r["setting"] == setting}
        means = [statistics.fmean(v for (_, m), v in here.items() if m == method) for method in LADDER]
        steps = " → ".join(f"{mean:.{digits}f}" for mean in means)
        text = f"Marginal → static-corrected → conditional, mean of {len(DATASETS)} datasets: {name} {steps}{unit}"
        if metric != "build_ms":
            most = [d for d in DATASETS if max(LADDER, key=lambda m: here[d, m]) == "dominotree@16"]
            fallen = [DATASETS[d] for d in DATASETS if here[d, "condstatic@16"] < here[d, "marg@16"]]
            text += f"; conditional is highest on {len(most)} of {len(DATASETS)}"
            if fallen:
                text += f", static-corrected falls below marginal on {listed(fallen)}"
        said[f"{setting}|{metric}"] = text + "."
    return _table(rows, said)


def width(rows: list[Row]) -> Row:
    """How many candidates a level keeps. Key: metric."""
    at = {(r["dataset"], r["top_m"]): r for r in rows}
    sets = _values(rows, "dataset")
    said = {}
    names = {"tau": "τ", "tokens_per_second": "tokens per second", "build_ms": "build time"}
    for metric, name in names.items():
        change = {d: 100 * (at[d, 64.0][metric] / at[d, "full"][metric] - 1) for d in sets}
        parts = [f"{signed(change[d])} % on {DATASETS[d]}" for d in sets]
        text = f"64 candidates a level instead of the full vocabulary change {name} by {listed(parts)}"
        pick = min if metric == "build_ms" else max
        best = [pick((r for r in rows if r["dataset"] == d), key=lambda r: r[metric])["top_m"] for d in sets]
        word = {"tau": "highest", "tokens_per_second": "fastest", "build_ms": "shortest"}[metric]
        widths = [
            f"{m if isinstance(m, str) else f'{m:g}'} ({DATASETS[d]})"
            for m, d in zip(best, sets, strict=True)
        ]
        same = f"{best[0] if isinstance(best[0], str) else f'{best[0]:g}'} on all {len(sets)}"
        said[metric] = f"{text}; {word} at {same if len(set(best)) == 1 else listed(widths)}."
    return _table(rows, said)


def stages(rows: list[Row]) -> Row:
    """Where a round's time goes, by builder. Key: method|temperature."""
    said = {}
    builders = {"gpu_native": "CUDA-graph", "python_builder": "Python"}
    for heat in _values(rows, "temperature"):
        at = {(r["setting"], r["method"], r["dataset"]): r for r in rows if r["temperature"] == heat}
        means, shares = {}, {}
        for setting in builders:
            here = [at[setting, "dominotree@16", d] for d in DATASETS]
            means[setting] = statistics.fmean(r["build_ms"] for r in here)
            shares[setting] = 100 * statistics.fmean(r["build_ms"] / sum(r[s] for s in STAGES) for r in here)
        odd = [
            DATASETS[d]
            for d in DATASETS
            if at["python_builder", "dominotree@16", d]["verify_ms"]
            > 1.1 * at["gpu_native", "dominotree@16", d]["verify_ms"]
        ]
        text = (
            f"Building the tree takes {means['gpu_native']:.2f} ms a round with the CUDA-graph builder and "
            f"{means['python_builder']:.2f} ms in Python, {shares['gpu_native']:.0f} % and "
            f"{shares['python_builder']:.0f} % of a round (means of {len(DATASETS)} datasets, {_heat(heat)})"
        )
        if odd:
            text += f"; the Python run on {listed(odd)} was over 10 % slower in verify too, which no builder touches"
        said[f"dominotree@16|{heat:g}"] = text + "."
        chain = [at["gpu_native", "chain", d] for d in DATASETS]
        share = 100 * statistics.fmean(r["verify_ms"] / sum(r[s] for s in STAGES) for r in chain)
        said[f"chain|{heat:g}"] = (
            f"The Domino chain spends {statistics.fmean(r['build_ms'] for r in chain):.2f} ms a round on its correction "
            f"with the CUDA graph, and {share:.0f} % of the round in verify (means of {len(DATASETS)} datasets, "
            f"{_heat(heat)}); of the Python runs only the draft stage is published."
        )
        plain = [at[s, "ar", d]["tokens_per_second"] for s in builders for d in DATASETS]
        said[f"ar|{heat:g}"] = (
            f"Plain decoding has no stages: {min(plain):.1f} to {max(plain):.1f} tokens per second at {_heat(heat)}."
        )
    return _table(rows, said)


# ---- our own runs


def recorded(library: Library) -> list[Row]:
    """τ of the recorded runs. Their speeds stay out: one prompt each, and Compare shows them beside each other."""
    rows = []
    for run in library.runs:
        try:
            trace = library.trace(run.run_id)
        except TraceError as error:
            log.error("recorded run %s is left out of the benchmarks: %s", run.file, error)
            continue
        pair, settings = trace.header.get("pair", {}), trace.header.get("settings", {})
        if trace.summary.get("tau") is None:
            continue  # stopped before its first round
        rows.append(
            {
                "runs": RECORDED,
                "pair": run.pair,
                "target": pair.get("target") or run.pair,
                "drafter": pair.get("drafter") or "",
                "method": run.method,
                "budget": run.budget,
                "top_m": settings.get("top_m"),
                "temperature": run.temperature,
                "set": f"{KINDS.get(run.kind, run.kind.capitalize())} prompt",
                "prompts": 1,
                "tau": trace.summary["tau"],
                "tau_low": None,
                "tau_high": None,
                "tokens_per_second": None,
                "machine": run.machine,
                "date": str(trace.header.get("created") or "")[:10],
            }
        )
    return rows


def evaluated(folder: Path = EVALUATION) -> list[Row]:
    """``tau.csv`` of our own evaluation, if it is there. Raises ValueError if a column that is needed is missing."""
    path = folder / "tau.csv"
    if not path.is_file():
        return []
    rows = []
    for row in read(path):
        missing = {"pair", "drafter", "method", "set", "tau"} - set(row)
        if missing:
            raise ValueError(f"{path.name} lacks the column {sorted(missing)[0]}.")
        full = {name: row.get(name, "") for name in OWN_COLUMNS}
        full |= {name: None for name in OWN_NUMBERS if full[name] == ""}
        kind = METHODS[full["method"]].kind if full["method"] in METHODS else "tree"
        full["budget"] = full["budget"] if kind == "tree" else None
        full |= {
            "runs": EVALUATED,
            "target": full["target"] or full["pair"],
            "temperature": full["temperature"] or 0.0,
            "set": MEAN if full["set"] == "all" else f"{KINDS.get(full['set'], full['set'])} prompts",
        }
        rows.append(full)
    return rows


def own(rows: list[Row]) -> Row:
    """Our own runs. Key: runs|pair|view|temperature|top_m|budget; what is None in a row stands with every value.

    ``view`` is the drafter, but None where it has no conditional tree (a DFlash drafter): its chain and its DDTree
    stand beside each Domino drafter of the pair.
    """
    kinds: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        kinds.setdefault((row["runs"], row["pair"]), set())
        if row["method"] == "dominotree":
            kinds[row["runs"], row["pair"]].add(row["drafter"])
    rows = [
        {**row, "view": row["drafter"] if row["drafter"] in found or not found else None}
        for row in rows
        for found in [kinds[row["runs"], row["pair"]]]
    ]
    views = ("runs", "pair", "view", "temperature", "top_m", "budget")
    said = {}
    for view in dict.fromkeys(tuple(row[n] for n in views) for row in rows if row["method"] == "dominotree"):
        chosen = [r for r in rows if all(r[n] in (None, value) for n, value in zip(views, view, strict=True))]
        key = "|".join(f"{v:g}" if isinstance(v, int | float) else v or "" for v in view)
        said[key] = _own_sentence(chosen, view)
    return _table(rows, said, (*OWN_COLUMNS, "view"))


def _own_sentence(rows: list[Row], view: tuple[Any, ...]) -> str:
    runs, heat, budget = view[0], view[3], view[5]
    at: dict[str, dict[str, float]] = {}  # set -> name of the method -> τ
    for row in rows:
        title = METHODS[row["method"]].title if row["method"] in METHODS else row["method"]
        name = row["method"] if row["view"] else f"{title} on its own drafter"
        if row["set"] != MEAN:
            at.setdefault(row["set"], {})[name] = row["tau"]
    at = {name: found for name, found in at.items() if "dominotree" in found}
    head = f"Our run, {_heat(heat)}" + (f", {budget:g} nodes" if budget else "")
    steps = {"marginal": "marginal", "static": "static-corrected", "dominotree": "conditional"}
    ladder = [m for m in steps if all(m in found for found in at.values())]
    means = [statistics.fmean(found[m] for found in at.values()) for m in ladder]
    text = f"{head}: τ {' → '.join(f'{m:.2f}' for m in means)} for {' → '.join(steps[m] for m in ladder)}"
    text += f" (mean of {len(at)})" if len(at) > 1 else f" on {next(iter(at))}"
    rivals = {name: {m: t for m, t in found.items() if m != "dominotree"} for name, found in at.items()}
    if any(rivals.values()):
        best = {name: max(found, key=lambda m: found[m]) for name, found in rivals.items() if found}
        ahead = {name: m for name, m in best.items() if rivals[name][m] > at[name]["dominotree"]}
        text += f"; conditional is highest on {len(best) - len(ahead)} of {len(best)}"
        for name, method in ahead.items():
            title = METHODS[method].title if method in METHODS else method
            text += f"; on {name} {title} is ahead ({rivals[name][method]:.2f} against {at[name]['dominotree']:.2f})"
    return f"{text}. One prompt each: an illustration, no measurement." if runs == RECORDED else f"{text}."


def gpu_speed(path: Path = GPU_SPEED) -> Row:
    """The pair that ships on a GPU, each method against plain decoding: rows and one sentence, none without the file."""
    columns = ("method", "kind", "ratio", "low", "high", "tau", *STAGES)
    if not path.is_file():
        return {"columns": list(columns), "rows": [], "takeaways": {}, "about": {}}
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = []
    for row in found["rows"]:
        method = METHODS[row["method"]]
        kind = "adaptive" if method.adaptive else "ours" if row["method"] == "dominotree" else "fixed"
        values = {name: round(row[name], 4) for name in ("ratio", "low", "high", "tau")}
        shares = {f"{name}_ms": round(share, 4) for name, share in row["stage_share"].items()}
        rows.append({"method": row["method"], "kind": kind, **values, **shares})
    pair = found["pair"]
    about = {name: pair[name] for name in ("name", "target", "drafter", "dflash", "dtype")}
    about |= {name: found[name] for name in ("machine", "date", "prompts", "tokens")}
    return {**_table(rows, {"": _speed_sentence(rows, found["prompts"])}, columns), "about": about}


def _speed_sentence(rows: list[Row], prompts: int) -> str:
    at = {row["method"]: row for row in rows}
    ours, rule = at["dominotree"], at.get("condadaptive")
    best = max((row for row in rows if row["kind"] != "adaptive"), key=lambda row: row["ratio"])
    text = (
        f"DominoTree with {METHODS['dominotree'].budget} nodes decodes {ours['ratio']:.2f}× as fast as plain decoding in the median "
        f"of {prompts} prompts ({ours['low']:.2f} to {ours['high']:.2f}); "
    )
    if best is ours:
        text += "no method has a higher median"
    else:
        text += f"{METHODS[best['method']].title} has the higher median, {best['ratio']:.2f}×, with τ {best['tau']:.2f} against {ours['tau']:.2f}"
    if rule is None:
        return f"{text}."
    return (
        f"{text}. {METHODS['condadaptive'].title} makes {rule['ratio']:.2f}×: {100 * rule['build_ms']:.0f} % of its rounds is the build, "
        "which its rule does not count."
    )


# ---- all of it


def data(library: Library | None = None, published: Path = PUBLISHED, evaluation: Path = EVALUATION) -> Row:
    """What the tab shows. Reads the recorded runs too (about a second), so call it off the event loop.

    Returns ``{"names", "charts": {name: {"columns", "rows", "takeaways": {filters: sentence}}}}``. The charts
    ``methods``, ``intervals``, ``ladder``, ``width`` and ``stages`` hold one published file each, row by row;
    ``cells`` is derived from ``methods``; ``own`` holds our runs, ``speed`` those on a GPU (its stages are shares of a
    round). Raises OSError if a published file is missing.
    """
    speeds = read(published / "speedup_tau.csv")
    ours = evaluated(evaluation) + (recorded(library) if library else [])
    return {
        "names": {**DATASETS, **SHORT},
        "methods": {name: method.title for name, method in METHODS.items()},
        "charts": {
            "cells": cells(speeds),
            "methods": methods(speeds),
            "intervals": intervals(read(published / "intervals.csv")),
            "ladder": ladder(read(published / "conditioning_ladder.csv")),
            "width": width(read(published / "candidate_width.csv")),
            "stages": stages(read(published / "stage_times_4b.csv")),
            "own": own(ours),
            "speed": gpu_speed(),
        },
    }


def to_json(found: Row) -> str:
    """Strict JSON, whole numbers without their ".0"."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        return [plain(part) for part in value] if isinstance(value, list) else value

    return json.dumps(plain(found), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def standalone(found: Row, theme: str = "auto", title: str = "DominoTree: benchmarks") -> str:
    """The tab as one HTML file that asks for nothing from outside."""

    def text(name: str) -> str:
        return (player.FOLDER / name).read_text(encoding="utf-8")

    def script(code: str) -> str:
        return "<script>\n" + code.replace("</script", "<\\/script") + "\n</script>"

    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8" />',
        '<meta name="viewport" content="width=device-width, initial-scale=1" />',
        f"<title>{html.escape(title)}</title>",
        *(f"<style>\n{text(name)}\n</style>" for name in (*player.STYLES, *STYLES)),
        "<style>body{margin:0}.dp{min-height:100vh}</style></head>",
        '<body><main id="benchmarks"></main>',
        *(script(text(name)) for name in (*player.SCRIPTS, *SCRIPTS)),
        f'<script type="application/json" id="data">{to_json(found).replace("<", chr(92) + "u003c")}</script>',
        script(
            "const benchmarks = DominoBenchmarks.mount(document.getElementById('benchmarks'), "
            f"{json.dumps({'theme': theme})});\n"
            "benchmarks.load(JSON.parse(document.getElementById('data').textContent));"
        ),
        "</body></html>",
    ]
    return "\n".join(parts)
