"""The Benchmarks tab's data: nothing published is lost, and every sentence says what the tables say.

The figures are recomputed here with pandas, straight from the CSV files, without the module's own helpers.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from page_tools import RECORDED, write_library

from viz import benchmarks

PUBLISHED = Path(__file__).parents[1] / "assets" / "published"
FILES = {
    "methods": "speedup_tau",
    "intervals": "intervals",
    "ladder": "conditioning_ladder",
    "width": "candidate_width",
    "stages": "stage_times_4b",
}
NAMES = {"gsm8k": "GSM8K", "math500": "MATH-500", "aime25": "AIME25", "humaneval": "HumanEval", "mbpp": "MBPP",
         "livecodebench": "LiveCodeBench", "mt-bench": "MT-Bench", "alpaca": "Alpaca"}  # fmt: skip
TARGETS, HEATS = ("Qwen3-4B", "Qwen3-8B"), (0.0, 0.5, 1.0)


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / f"{FILES[name]}.csv", dtype={"top_m": str})


def numbers(text: str) -> list[float]:
    """Every number of a sentence, but for those in names such as DominoTree@16 or GSM8K."""
    text = re.sub(r"\w+@16|Qwen3-\dB|" + "|".join(NAMES.values()), "", text.replace("−", "-"))
    return [float(n) for n in re.findall(r"[+-]?\d+(?:\.\d+)?", text)]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return benchmarks.data()


@pytest.fixture(scope="module")
def said(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {name: chart["takeaways"] for name, chart in found["charts"].items()}


def test_every_published_row_is_in_exactly_one_chart(found: dict[str, Any]) -> None:
    files = {path.stem for path in PUBLISHED.glob("*.csv")}
    assert files == set(FILES.values())
    for name in FILES:
        chart = found["charts"][name]
        got = pd.DataFrame(chart["rows"], columns=chart["columns"])
        if "top_m" in got:
            got["top_m"] = [m if isinstance(m, str) else f"{m:g}" for m in got["top_m"]]
        pd.testing.assert_frame_equal(got, table(name), check_dtype=False)
    drawn = sum(len(found["charts"][name]["rows"]) for name in FILES)
    assert drawn == sum(len(table(name)) for name in FILES) == 801


@pytest.mark.parametrize("metric", ["speedup_over_ar", "tau", "tokens_per_second"])
@pytest.mark.parametrize(
    "against, rivals", [("trees", ["DDTree@16", "CaDDTree"]), ("Domino", ["Domino"]), ("DFlash", ["DFlash"])]
)
def test_cells_behind_are_counted_from_the_table(
    found: dict[str, Any], metric: str, against: str, rivals: list[str]
) -> None:
    wide = table("methods").pivot(index=["target", "temperature", "dataset"], columns="method", values=metric)
    best = wide[rivals].max(axis=1)
    delta = 100 * (wide["DominoTree@16"] / best - 1)
    behind = delta < 0
    text = found["charts"]["cells"]["takeaways"][f"{metric}|{against}"]
    four, eight = (int(behind[target].sum()) for target in TARGETS)
    low, high = delta.idxmin(), delta.idxmax()
    assert numbers(text) == [
        behind.sum(), 48, four, 24, eight, 24,
        round(delta.min(), 1), low[1], round(delta.max(), 1), high[1],
    ]  # fmt: skip
    assert NAMES[low[2]] in text and NAMES[high[2]] in text
    chart = found["charts"]["cells"]
    cells = pd.DataFrame(chart["rows"], columns=chart["columns"]).query(
        "metric == @metric and against == @against"
    )
    assert len(cells) == 48
    drawn = cells.set_index(["target", "temperature", "dataset"])["delta_percent"]
    assert (drawn - delta).abs().max() <= 0.0051
    assert ((drawn < 0) == behind.reindex(drawn.index)).all(), "rounding must not hide a lost cell"


def test_the_readme_of_the_published_tables_counts_the_same(said: dict[str, Any]) -> None:
    readme = (PUBLISHED / "README.md").read_text(encoding="utf-8")
    assert "on 19 of 48 cells" in readme
    assert "in 19 of 48 cells" in said["cells"]["speedup_over_ar|trees"]


def test_methods_sentences(said: dict[str, Any]) -> None:
    rows = table("methods")
    for target in TARGETS:
        for heat in HEATS:
            here = rows[(rows.target == target) & (rows.temperature == heat)]
            for metric, digits in (("speedup_over_ar", 2), ("tau", 2), ("tokens_per_second", 0)):
                text = said["methods"][f"{target}|{heat:g}|{metric}"]
                wide = here.pivot(index="dataset", columns="method", values=metric)
                leader = wide.idxmax(axis=1)
                won = wide.loc[leader == "DominoTree@16", "DominoTree@16"]
                assert numbers(text) == [heat, len(won), 8, round(won.max(), digits)]
                told = text.partition("ahead of it: ")[2].rstrip(".")
                for dataset in wide.index[wide.idxmax(axis=1) != "DominoTree@16"]:
                    leaders = wide.columns[wide.loc[dataset] == wide.loc[dataset].max()]
                    parts = [p.partition(" on ") for p in told.split("; ")]
                    who = [m for m, _, where in parts if NAMES[dataset] in re.split(", | and ", where)]
                    assert len(who) == 1 and set(who[0].split(" and ")) == set(leaders)


def test_intervals_sentences(said: dict[str, Any]) -> None:
    rows = table("intervals")
    rows["rival"] = rows.ratio.str.split(" / ").str[1]
    sets = ~rows.scope.isin(["Math", "Code", "Chat", "Overall"])
    for target in TARGETS:
        for heat in HEATS:
            for rival in ("all", "Domino", "DDTree@16", "CaDDTree", "DFlash"):
                here = rows[(rows.target == target) & (rows.temperature == heat)]
                here = here if rival == "all" else here[here.rival == rival]
                overall = here[here.scope == "Overall"]
                inside = here[sets.reindex(here.index)]
                above, below = (inside.low_95 > 0).sum(), (inside.high_95 < 0).sum()
                expected = [heat, 95.0][:1]
                for _, row in overall.iterrows():
                    expected += [float(f"{row[c]:.1f}") for c in ("delta_percent", "low_95", "high_95")]
                expected += [len(inside), above, below, len(inside) - above - below]
                assert numbers(said["intervals"][f"{target}|{heat:g}|{rival}"]) == expected


def test_ladder_sentences(said: dict[str, Any]) -> None:
    rows = table("ladder")
    for setting in ("matched_builder", "best_builder"):
        for metric, digits in (("tau", 2), ("tokens_per_second", 0), ("build_ms", 2)):
            wide = rows[rows.setting == setting].pivot(index="dataset", columns="method", values=metric)
            wide = wide[["marg@16", "condstatic@16", "dominotree@16"]]
            expected = [8, *(float(f"{v:.{digits}f}") for v in wide.mean())]
            text = said["ladder"][f"{setting}|{metric}"]
            if metric != "build_ms":
                expected += [(wide.idxmax(axis=1) == "dominotree@16").sum(), 8]
                for dataset, fell in (wide["condstatic@16"] < wide["marg@16"]).items():
                    assert (NAMES[str(dataset)] in text) == fell
            assert numbers(text) == expected


def test_width_sentences(said: dict[str, Any]) -> None:
    rows = table("width")
    for metric in ("tau", "tokens_per_second", "build_ms"):
        wide = rows.pivot(index="dataset", columns="top_m", values=metric)
        change = 100 * (wide["64"] / wide["full"] - 1)
        best = wide.idxmin(axis=1) if metric == "build_ms" else wide.idxmax(axis=1)
        text = said["width"][metric]
        assert numbers(text.partition(";")[0]) == [64, *(float(f"{c:.1f}") for c in change)]
        tail = text.partition(";")[2]
        if best.nunique() == 1:
            assert f"at {best.iloc[0]} on all 3" in tail
        else:
            assert all(f"{m} ({NAMES[str(d)]})" in tail for d, m in best.items())


def test_stages_sentences(said: dict[str, Any]) -> None:
    rows = table("stages")
    parts = ["draft_ms", "build_ms", "verify_ms", "commit_ms"]
    for heat in HEATS:
        here = rows[rows.temperature == heat].set_index(["setting", "method"])
        tree = {
            s: here.loc[(s, "dominotree@16")].set_index("dataset") for s in ("gpu_native", "python_builder")
        }
        share = {s: 100 * (t.build_ms / t[parts].sum(axis=1)).mean() for s, t in tree.items()}
        text = said["stages"][f"dominotree@16|{heat:g}"]
        expected = [float(f"{t.build_ms.mean():.2f}") for t in tree.values()]
        expected += [float(f"{v:.0f}") for v in share.values()] + [8, heat]
        slow = tree["python_builder"].verify_ms / tree["gpu_native"].verify_ms > 1.1
        assert numbers(text) == expected + ([10.0] if slow.any() else [])
        assert all((NAMES[str(d)] in text) == odd for d, odd in slow.items())
        chain = here.loc[("gpu_native", "chain")]
        verify = 100 * (chain.verify_ms / chain[parts].sum(axis=1)).mean()
        assert numbers(said["stages"][f"chain|{heat:g}"]) == [
            float(f"{chain.build_ms.mean():.2f}"), float(f"{verify:.0f}"), 8, heat,
        ]  # fmt: skip
        # the published Python chain rows hold the draft stage only: a chart must not draw the rest as measured
        assert (here.loc[("python_builder", "chain")][parts[1:]] == 0).all(axis=None)
        plain = rows[(rows.temperature == heat) & (rows.method == "ar")].tokens_per_second
        assert numbers(said["stages"][f"ar|{heat:g}"]) == [
            float(f"{plain.min():.1f}"),
            float(f"{plain.max():.1f}"),
            heat,
        ]


def test_own_runs_are_kept_apart_and_named(tmp_path: Path) -> None:
    library = write_library(tmp_path / "traces")
    (tmp_path / "tau.csv").write_text(
        "pair,drafter,method,budget,top_m,temperature,set,prompts,tau,tau_low,tau_high,tokens_per_second\n"
        "default,own,marginal,16,,0.0,math,20,2.0,1.8,2.2,30\n"
        "default,own,static,16,64,0.0,math,20,2.5,2.3,2.7,29\n"
        "default,own,dominotree,16,64,0.0,math,20,2.4,2.2,2.6,\n"
        "default,own,dominotree,16,64,0.0,code,20,3.4,3.2,3.6,\n"
        "default,own,static,16,64,0.0,code,20,3.3,3.2,3.6,\n"
        "default,own,marginal,16,,0.0,code,20,3.0,2.9,3.1,\n"
        "default,own,dominotree,16,64,0.0,all,40,9.9,,,\n"
        "default,own,dominotree,16,full,0.0,math,20,2.45,2.2,2.6,\n"
        "default,own,domino,,,0.0,math,20,2.25,2.0,2.5,28\n"
        "default,plain,ddtree,16,,0.0,code,20,3.9,3.2,4.1,\n",
        encoding="utf-8",
    )
    found = benchmarks.data(library, evaluation=tmp_path)
    chart = found["charts"]["own"]
    rows = [dict(zip(chart["columns"], row, strict=True)) for row in chart["rows"]]
    measured = {(r["method"], r["set"], r["top_m"]): r for r in rows if r["runs"] == "evaluation sets"}
    assert len(measured) == 10
    row = measured["static", "Math prompts", 64]
    assert (row["budget"], row["tau"], row["tau_low"], row["tokens_per_second"]) == (16, 2.5, 2.3, 29)
    assert measured["dominotree", "Math prompts", 64]["tokens_per_second"] is None
    assert measured["domino", "Math prompts", None]["budget"] is None
    assert measured["ddtree", "Code prompts", None]["view"] is None, (
        "a drafter without conditional trees stands beside"
    )
    text = chart["takeaways"]["evaluation sets|default|own|0|64|16"]
    assert "τ 2.50 → 2.90 → 2.90 for" in text and "(mean of 2)" in text, (
        "the row of means is no set of its own"
    )
    assert "highest on 0 of 2" in text
    assert "on Math prompts Static-corrected tree is ahead (2.50 against 2.40)" in text
    assert "on Code prompts DDTree on its own drafter is ahead (3.90 against 3.40)" in text.replace(
        "DDTree@16", "DDTree"
    )
    assert (
        "2.00 → 2.45 for marginal → conditional"
        in chart["takeaways"]["evaluation sets|default|own|0|full|16"]
    )
    ours = [r for r in rows if r["runs"] == "recorded prompts"]
    assert len(ours) == 3 * len(RECORDED)
    for row in ours:
        run = next(
            r
            for r in library.runs
            if (r.kind.capitalize() + " prompt", r.method) == (row["set"], row["method"])
        )
        assert row["tau"] == library.trace(run.run_id).summary["tau"]
        assert row["machine"] and row["date"] and row["tokens_per_second"] is None
    without = benchmarks.data()["charts"]
    assert all(found["charts"][name] == without[name] for name in FILES), (
        "published charts hold no run of ours"
    )


def test_sentences_of_our_own_evaluation(said: dict[str, Any]) -> None:
    path = benchmarks.EVALUATION / "tau.csv"
    if not path.is_file():
        assert not said["own"]
        return
    rows = pd.read_csv(path, dtype={"top_m": str})
    rows = rows[rows.set != "all"]
    domino = set(rows[rows.method == "dominotree"].drafter)
    for key, text in said["own"].items():
        _, pair, drafter, heat, top_m, budget = key.split("|")
        here = rows[(rows.pair == pair) & (rows.temperature == float(heat))]
        here = here[(here.drafter == drafter) | ~here.drafter.isin(domino)]
        here = here[here.budget.isna() | (here.budget == float(budget))]
        here = here[here.top_m.isna() | (here.top_m.astype(str) == top_m)]
        wide = here.assign(name=here.method + here.drafter.isin(domino).map({True: "", False: "*"})).pivot(
            index="set", columns="name", values="tau"
        )
        told = numbers(text.partition(":")[2].partition(";")[0].partition(" for ")[0])
        steps = [m for m in ("marginal", "static", "dominotree") if m in wide]
        assert told == [float(f"{v:.2f}") for v in wide[steps].mean()]
        most = (wide.idxmax(axis=1) == "dominotree").sum()
        assert f"highest on {most} of {len(wide)}" in text
        for kind in wide.index[wide.idxmax(axis=1) != "dominotree"]:
            assert f"({wide.loc[kind].max():.2f} against {wide.loc[kind, 'dominotree']:.2f})" in text


def test_the_sentence_of_our_speeds_on_a_gpu(said: dict[str, Any], tmp_path: Path) -> None:
    kept = json.loads(benchmarks.GPU_SPEED.read_text(encoding="utf-8"))
    at = {r["method"]: r for r in kept["rows"]}
    ours, rule = at["dominotree"], at["condadaptive"]
    adaptive = {"caddtree", "condadaptive", "condadaptive-calibrated"}
    best = max((r for m, r in at.items() if m not in adaptive), key=lambda r: r["ratio"])
    text = said["speed"][""]
    told = [ours["ratio"], ours["low"], ours["high"]]
    if best is not ours:
        told += [best["ratio"], best["tau"], ours["tau"]]
    assert all(f"{v:.2f}" in text for v in told) and ("has the higher median" in text) == (best is not ours)
    assert f"of {kept['prompts']} prompts" in text
    share = round(100 * rule["stage_share"]["build"])
    assert (
        f"makes {rule['ratio']:.2f}×: {share} % of its rounds is the build, which its rule does not count."
        in text
    )
    # another file, another sentence; no file, no rows
    ours["ratio"], rule["ratio"], rule["stage_share"] = 9.0, 10.0, at["ddtree"]["stage_share"]
    (tmp_path / "speed.json").write_text(json.dumps(kept), encoding="utf-8")
    text = benchmarks.gpu_speed(tmp_path / "speed.json")["takeaways"][""]
    share = round(100 * at["ddtree"]["stage_share"]["build"])
    assert (
        "no method has a higher median" in text
        and f"makes 10.00×: {share} % of its rounds is the build" in text
    )
    kept["rows"] = [r for r in kept["rows"] if r["method"] not in adaptive]
    (tmp_path / "speed.json").write_text(json.dumps(kept), encoding="utf-8")
    text = benchmarks.gpu_speed(tmp_path / "speed.json")["takeaways"][""]
    assert text.endswith("no method has a higher median.")
    assert benchmarks.gpu_speed(tmp_path / "none.json")["rows"] == []


def test_a_table_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "tau.csv").write_text("pair,method\ndefault,ar\n", encoding="utf-8")
    with pytest.raises(ValueError, match="tau.csv lacks the column drafter"):
        benchmarks.data(evaluation=tmp_path)


def test_the_json_is_small_and_strict(found: dict[str, Any]) -> None:
    text = benchmarks.to_json(found)
    assert len(gzip.compress(text.encode())) < 60_000, "a first visit has 2 MB, most of them Plotly"
    again = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert again["charts"]["methods"]["rows"] == found["charts"]["methods"]["rows"]


def test_the_standalone_page_holds_its_data_as_data(found: dict[str, Any]) -> None:
    hostile = {**found, "names": {**found["names"], "gsm8k": "</script><img src=x onerror=alert(1)>"}}
    page = benchmarks.standalone(hostile)
    assert "<img src=x" not in page
    assert "arxiv.org/abs/2607.08642" in page and not re.search(r"<script[^>]+src=", page)
    markup = re.sub(
        r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL
    )  # scripts may spell a tag in a string
    assert not re.search(r'<(?:link|img)[^>]+(?:src|href)="', markup)
