"""Lessons: every claim holds for the recordings it shows, every number is computed, what cannot be shown is left out."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from math import exp
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from dominotree import trace as tr
from viz import lessons
from viz.lessons.runs import ClaimFails, Missing, Runs, claim
from viz.lessons.text import Token, probability, shown, spans
from viz.library import TRACES, Library

PUBLISHED = lessons.PUBLISHED
#: What a lesson's words may contain of digits: names and definitions.
DEFINITIONS = ("+ 1 bonus", "temperature 0", "depth 1", "below 1", "Qwen3-4B")
PARTS = ("claim", "try", "question")


@pytest.fixture(scope="module")
def library() -> Library:
    return Library()


@pytest.fixture(scope="module")
def built(library: Library) -> dict[str, Any]:
    return lessons.build(library, strict=True)


@pytest.fixture(scope="module")
def made(library: Library) -> dict[str, Any]:
    """The lessons before their templates are filled."""
    runs = Runs(library)
    return {name: make(runs) for name, make in lessons.LESSONS.items()}


@pytest.fixture(scope="module")
def traces(library: Library) -> dict[str, tr.Trace]:
    """The runs of the pair and machine that the lessons show, by file name without ending."""
    return {run.file.removesuffix(".json.gz"): library.trace(run.run_id) for run in Runs(library).runs}


Pick = Any


@pytest.fixture
def lesson(built: dict[str, Any], library: Library) -> Pick:
    """One lesson: its numbers, its trace and its round."""

    def pick(name: str) -> tuple[dict[str, float], tr.Trace, tr.Round]:
        found = next(x for x in built["lessons"] if x["id"] == name)
        trace = library.trace(found["picture"]["run"])
        return found["numbers"], trace, trace.rounds[found["picture"]["round"] - 1]

    return pick


def rows(name: str, **where: str) -> list[dict[str, str]]:
    with (PUBLISHED / name).open(encoding="utf-8", newline="") as file:
        return [r for r in csv.DictReader(file) if all(r[k] == v for k, v in where.items())]


def column(found: list[dict[str, str]], name: str) -> float:
    return fmean(float(r[name]) for r in found)


def words(parts: Any) -> str:
    return "".join(span[1] for span in parts)


# ---- the list as a whole


def test_all_lessons_are_there(built: dict[str, Any]) -> None:
    assert [x["id"] for x in built["lessons"]] == list(lessons.LESSONS)
    assert 8 <= len(built["lessons"]) <= 11


def test_no_number_is_typed_by_hand(made: dict[str, Any]) -> None:
    for name, lesson in made.items():
        texts = [lesson[part] for part in PARTS] + lesson["body"] + lesson["answer"] + [lesson["title"]]
        for text in texts:
            bare = re.sub(r"\{[^{}]*\}", "", text)
            for allowed in DEFINITIONS:
                bare = bare.replace(allowed, "")
            assert not re.search(r"\d", bare), f"lesson {name!r} has a number typed by hand: {text}"


def test_every_field_of_a_template_is_filled_and_used_fields_are_finite(built: dict[str, Any]) -> None:
    for x in built["lessons"]:
        text = json.dumps(x, ensure_ascii=False, allow_nan=False)
        assert not re.search(r"\{\w+(:[^{}\"]*)?\}", words(x["claim"])), x["id"]
        assert "nan" not in text.lower().split(), x["id"]
        assert all(len(words(p)) < 700 for p in (*x["body"], *x["answer"])), f"{x['id']}: too long to teach"


def test_pictures_and_buttons_point_at_what_exists(built: dict[str, Any], library: Library) -> None:
    for x in built["lessons"]:
        trace = library.trace(x["picture"]["run"])
        for state in (x["picture"], *x["actions"]):
            this = trace.rounds[state["round"] - 1]
            assert this.index == state["round"], x["id"]
            for node in (state.get("node"), *state.get("cycle", ())):
                assert node is None or -2 <= node < len(this.nodes), (x["id"], node)
            assert "beside" not in state or library.find(state["beside"]) is not None
            assert 0 <= state.get("inside", 0) <= this.verified_nodes + len(this.visits), x["id"]
            assert "inside" not in state or this.pops, (
                f"{x['id']}: the pops of round {this.index} are not recorded"
            )
        asked = {x["picture"]["run"], *(a["beside"] for a in x["actions"] if "beside" in a)}
        assert asked <= set(built["runs"])


def test_terms_are_in_the_players_glossary(built: dict[str, Any]) -> None:
    glossary = (Path(lessons.__file__).parents[1] / "player" / "glossary.js").read_text(encoding="utf-8")
    terms = {
        span[2]
        for x in built["lessons"]
        for part in (x["claim"], x["try"], x["question"], *x["body"], *x["answer"])
        for span in part
        if span[0] == "term"
    }
    assert len(terms) > 5
    for term in terms:
        assert re.search(rf"^    {term}: ", glossary, re.M), term


def test_the_json_is_small_and_strict(
    library: Library, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lessons, "build", lambda _: built)
    text = lessons.served_json(library)
    assert len(text) < 64_000 and json.loads(text)["lessons"]


def test_needs_no_torch() -> None:
    code = "import sys; from viz import lessons, library; lessons.build(library.Library()); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1], timeout=60)


def test_rounds_shown_name_files(
    library: Library, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lessons, "build", lambda _: built)
    shown_rounds = lessons.rounds_shown(library)
    assert shown_rounds and all((TRACES / name).is_file() and rounds for name, rounds in shown_rounds.items())


# ---- what each lesson claims, from its own trace


def test_claim_one_round_commits_drafts_and_a_bonus(lesson: Pick) -> None:
    n, trace, this = lesson("round")
    assert n["accepted"] == len(this.path) == len(this.committed) - 1, (
        "a round commits its drafts and one bonus"
    )
    assert n["accepted"] > n["weak_accepted"] == min(len(r.path) for r in trace.rounds)
    assert n["tau"] == pytest.approx(sum(len(r.committed) for r in trace.rounds) / len(trace.rounds))
    assert all(r.committed for r in trace.rounds), "τ can fall below 1: a round committed nothing"


def test_claim_the_conditional_tree_holds_more(lesson: Pick, traces: dict[str, tr.Trace]) -> None:
    n, trace, this = lesson("marginals")
    held = {s: this.counterfactual[s].accepted for s in ("marginal", "conditional")}
    assert held == {"marginal": n["marginal"], "conditional": n["conditional"]}
    assert n["conditional"] > n["marginal"], "the marginal tree now holds as much as the conditional one"
    assert n["conditional"] - n["marginal"] == max(
        r.counterfactual["conditional"].accepted - r.counterfactual["marginal"].accepted
        for kind in ("math", "code", "chat")
        for r in traces[f"{kind}-dominotree"].rounds
    ), "another anchor shows it better"
    text = trace.text_after(this.index)[: n["marginal"] + 1]
    nodes, at, logs = this.nodes, -1, {"marginal": 0.0, "conditional": 0.0}
    for token in text:
        at = next(k for k in range(len(nodes)) if nodes.parent[k] == at and nodes.token[k] == token)
        for name in logs:
            logs[name] += getattr(nodes, name)[at]
    assert n["p_marginal"] == pytest.approx(exp(logs["marginal"]))
    assert n["p_conditional"] == pytest.approx(exp(logs["conditional"]))
    assert n["p_marginal"] < n["p_conditional"], "the marginals rate the path that came out higher"
    assert not nodes.trees[at] & tr.TREE_BITS["marginal"], "the missed token is in the marginal tree"
    inside = [nodes.cum_marginal[k] or 0 for k in range(len(nodes)) if nodes.trees[k] & 1]
    assert (nodes.cum_marginal[at] or -99) <= min(inside), (
        "the missed token scores higher than a node that got in"
    )
    assert n["sum_conditional"] > n["sum_marginal"], "over the run the marginal trees hold as much"


def test_claim_the_correction_reorders(lesson: Pick) -> None:
    n, _, this = lesson("correction")
    assert n["rival_L"] > n["L"], "the base logits already prefer the token"
    assert n["L"] + n["delta"] > n["rival_L"] + n["rival_delta"], "the correction does not change the order"
    assert n["p_after"] > n["p_before"], "the correction makes the token less likely"
    node = next(
        k for k in this.path if this.nodes.base_logit[k] == n["L"] and this.nodes.delta[k] == n["delta"]
    )
    same = [k for k in range(len(this.nodes)) if this.nodes.parent[k] == this.nodes.parent[node]]
    assert n["before"] == 1 + sum(this.nodes.base_logit[k] > n["L"] for k in same) > 1
    assert n["candidates"] == len(same)
    assert all(x is None for x, d in zip(this.nodes.delta, this.nodes.depth, strict=True) if d < n["first"])


def test_claim_base_logits_are_shared_and_corrections_are_not(lesson: Pick) -> None:
    n, trace, this = lesson("head")
    by_place: dict[tuple[int, int], set[float]] = {}
    for r in trace.rounds:
        for token, depth, logit in zip(r.nodes.token, r.nodes.depth, r.nodes.base_logit, strict=True):
            by_place.setdefault((r.index, depth, token), set()).add(logit)
    assert all(len(logits) == 1 for logits in by_place.values()), "a base logit depends on the path"
    assert n["low"] != n["high"] and n["p_low"] < n["p_high"], "the correction is the same on both paths"
    here = [k for k in range(len(this.nodes)) if this.nodes.delta[k] in (n["low"], n["high"])]
    assert len({this.nodes.token[k] for k in here}) == 1 and len({this.nodes.depth[k] for k in here}) == 1
    graph = rows("stage_times_4b.csv", setting="gpu_native", method="dominotree@16", temperature="0.0")
    assert n["again_ms"] == pytest.approx(16 * column(graph, "draft_ms"))
    assert n["again_ms"] > column(graph, "verify_ms"), (
        "a backbone pass per node would cost less than the verify"
    )
    ladder = [
        column(rows("conditioning_ladder.csv", setting="matched_builder", method=f"{m}@16"), "tau")
        for m in ("marg", "condstatic", "dominotree")
    ]
    assert [n["tau_marginal"], n["tau_static"], n["tau_conditional"]] == pytest.approx(ladder)
    assert ladder == sorted(ladder), "the published ladder does not rise"


def test_claim_the_budget_pays_less_and_less(lesson: Pick) -> None:
    n, trace, this = lesson("budget")
    few = whole = 0
    for r in trace.rounds:
        order = [r.nodes.order[k] for k in r.path]
        few += sum(o < n["small"] for o in order)
        whole += len(order)
        first = {k for k, o in enumerate(r.nodes.order) if o is not None and o < n["small"]}
        assert all(r.nodes.parent[k] in (*first, -1) for k in first), "the first nodes are not a tree"
    assert (n["few"], n["all"]) == (few, whole)
    assert few < whole < n["times"] * few, "more nodes bring nothing, or as much as they cost"
    popped = sorted(
        (o, s) for o, s in zip(this.nodes.order, this.nodes.cum_conditional, strict=True) if o is not None
    )
    assert len(popped) == n["big"]
    assert all(a[1] >= b[1] - 1e-4 for a, b in itertools.pairwise(popped)), "not best first"
    assert n["tau_small"] < n["tau_big"] < n["times"] * n["tau_small"], (
        "τ does not rise, or rises as the budget"
    )
    # The heap: every pushed child that is no node of the tree stays on it.
    tree = {
        (p, t)
        for p, t, o in zip(this.nodes.parent, this.nodes.token, this.nodes.order, strict=True)
        if o is not None
    }
    levels = len(this.level_logz_m)
    expanded = sum(
        o is not None and o < n["big"] - 1 and d < levels
        for o, d in zip(this.nodes.order, this.nodes.depth, strict=True)
    )
    assert len(this.pops) == 1 + expanded, "the pops of this round are not all recorded"
    left = [
        (0.0 if pop.node < 0 else this.nodes.cum_conditional[pop.node] or 0.0) + pop.score[k]
        for pop in this.pops
        for k in pop.offered
        if (pop.node, pop.token[k]) not in tree
    ]
    assert n["left"] == len(left) == sum(len(pop.offered) for pop in this.pops) - n["big"]
    assert n["p_left"] == pytest.approx(exp(max(left))) and n["p_last"] == pytest.approx(exp(popped[-1][1]))
    assert n["p_left"] <= 1.001 * n["p_last"], "a likelier path stays on the heap"


def test_claim_candidates_cover_less_in_the_deep(lesson: Pick, traces: dict[str, tr.Trace]) -> None:
    n, trace, this = lesson("top-m")
    shares = [
        fmean(exp(r.level_logz_m[level] - r.level_logz_v[level]) for r in trace.rounds)
        for level in (0, n["deepest"] - 1)
    ]
    assert [n["first"], n["last"]] == pytest.approx(shares)
    assert n["first"] > 0.5, "the candidates do not carry most of the base probability at depth 1"
    assert n["first"] > n["last"], "they carry more in the deep"
    level = len(this.path)
    assert n["here"] == pytest.approx(exp(this.level_logz_m[level] - this.level_logz_v[level]))
    for dataset in {r["dataset"] for r in rows("candidate_width.csv")}:
        full, some = (rows("candidate_width.csv", dataset=dataset, top_m=m)[0] for m in ("full", str(n["m"])))
        change = float(full["tau"]) / float(some["tau"]) - 1
        assert n["low"] - 1e-9 <= change <= n["high"] + 1e-9 and abs(change) < 0.05
        assert float(full["build_ms"]) / float(some["build_ms"]) - 1 >= n["slower"] - 1e-9 > 0


def test_claim_the_graph_builds_the_same_tree_faster(lesson: Pick, built: dict[str, Any]) -> None:
    n, trace, this = lesson("graph")
    native, python = (
        rows("stage_times_4b.csv", setting=s, method="dominotree@16", temperature="0.0")
        for s in ("gpu_native", "python_builder")
    )
    assert n["graph"] == pytest.approx(column(native, "build_ms")) and n["python"] == pytest.approx(
        column(python, "build_ms")
    )
    assert n["graph"] < n["python"], "the CUDA graph is slower"
    taus = {r["dataset"]: float(r["tau"]) for r in python}
    assert {r["dataset"]: float(r["tau"]) for r in native} == pytest.approx(taus, abs=5e-4), "τ differs"
    assert 0 < n["gain"] < n["faster"], "the round gains as much as the build"
    order = sorted((o, k) for k, o in enumerate(this.nodes.order) if o is not None)
    jumps = sum(this.nodes.parent[b[1]] != a[1] for a, b in itertools.pairwise(order))
    assert n["jumps"] == jumps and 0 < jumps < n["steps"]
    shown_ms = fmean(r.times_ms["build"] for r in trace.rounds)
    source = next(x["source"] for x in built["lessons"] if x["id"] == "graph")
    assert source.endswith(f"on {trace.header['machine']}: {shown_ms:.2f} ms a round.")
    assert ("by one kernel" in source) == (trace.header["settings"]["builder"] == "fused")


def verify_ms(profile: dict[str, Any], nodes: int, position: int) -> float:
    """C_verify by hand: up the slopes, one node at a time, between the two contexts around the position."""
    curves = []
    for base, slopes in zip(profile["base_ms"], profile["slope_ms"], strict=True):
        for n in range(nodes):
            stretch = max(k for k, low in enumerate(profile["nodes"][:-1]) if low <= n)
            base += slopes[stretch]
        curves.append(base)
    contexts = profile["contexts"]
    k = next((k for k, c in enumerate(contexts) if c >= position), len(contexts) - 1)
    if k == 0 or contexts[k] <= position:
        return curves[k]
    share = (position - contexts[k - 1]) / (contexts[k] - contexts[k - 1])
    return (1 - share) * curves[k - 1] + share * curves[k]


def test_claim_the_adaptive_budget(lesson: Pick, built: dict[str, Any], traces: dict[str, tr.Trace]) -> None:
    """Budgets, promise and verdict of the lesson, worked out again from the traces and their headers alone."""
    n, trace, this = lesson("adaptive")
    control = next(
        t
        for t in traces.values()
        if t.header["settings"]["method"] == "condadaptive-calibrated" and t.prompt == trace.prompt
    )
    profile, cap = trace.header["cost_profile"], trace.header["settings"]["budget"]
    assert control.header["cost_profile"] == profile and control.header["settings"]["budget"] == cap
    assert control.summary["token_ids"] == trace.summary["token_ids"]
    sizes, other = ([r.verified_nodes for r in t.rounds] for t in (trace, control))
    assert (n["low"], n["high"], n["at_cap"], n["cap"]) == (min(sizes), max(sizes), sizes.count(cap), cap)
    assert (n["c_low"], n["c_high"], n["c_at_cap"]) == (min(other), max(other), other.count(cap))
    start = trace.rounds[0].position
    assert n["steep"] == pytest.approx(verify_ms(profile, cap, start) / verify_ms(profile, 0, start))
    promised = []
    for r in trace.rounds:
        order = sorted((o, k) for k, o in enumerate(r.nodes.order) if o is not None)
        promised.append(sum(exp(r.nodes.cum_conditional[k]) for _, k in order))
        last, before = exp(r.nodes.cum_conditional[order[-1][1]]), promised[-1]
        rates = [
            (1 + phi) / (profile["draft_ms"]["domino"][0] + verify_ms(profile, size, r.position))
            for phi, size in ((before - last, len(order) - 1), (before, len(order)))
        ]
        if len(set(profile["draft_ms"]["domino"])) == 1 or r.position <= profile["contexts"][0]:
            assert rates[0] < rates[1], "the last node did not pay"
        if r is this:
            assert n["p_last"] == pytest.approx(last) and n["p_last"] > n["p_needed"] > 0
    accepted = [len(r.path) for r in trace.rounds]
    assert n["expected"] == pytest.approx(fmean(promised)) and n["accepted"] == pytest.approx(fmean(accepted))
    fixed = [
        t
        for t in traces.values()
        if t.header["settings"]["method"] == "dominotree"
        and t.prompt == trace.prompt
        and not t.header["settings"]["temperature"]
    ]
    best = max(fixed, key=lambda t: t.summary["tokens_per_second"])
    assert len(fixed) > 1 and n["fixed"] == best.header["settings"]["budget"]
    assert n["fixed_rate"] == best.summary["tokens_per_second"]
    for name, run in (("", trace), ("fixed_", best)):
        spent = sum(sum(r.times_ms.values()) for r in run.rounds)
        assert n[f"{name}rate"] == pytest.approx(
            1e3 * sum(len(r.committed) for r in run.rounds) / spent, rel=1e-3
        )
        assert n[f"{name}build"] == pytest.approx(fmean(r.times_ms["build"] for r in run.rounds))
        assert n[f"{name}verify"] == pytest.approx(fmean(r.times_ms["verify"] for r in run.rounds))
    said = next(x for x in built["lessons"] if x["id"] == "adaptive")
    text = " ".join(words(p) for p in (said["claim"], *said["body"]))
    full, c_full = (s.count(cap) >= 0.9 * len(s) for s in (sizes, other))
    steps = re.findall(r"(\d+) – (\d+): (\d+) and (\d+)", text)
    assert [sum(int(step[k]) for step in steps) for k in (2, 3)] == [len(sizes), len(other)]
    for low, high, ours, theirs in steps:
        inside = range(int(low), int(high) + 1)
        assert [sum(n in inside for n in s) for s in (sizes, other)] == [int(ours), int(theirs)]
    assert ("ran to its cap of" in text) == full and said["title"].startswith("Why" if full else "A budget")
    assert ("the host reads how many nodes" in text) == (trace.header["settings"]["builder"] == "fused")
    assert ("it is the flat cost" in text) == (full and c_full)
    assert ("what decides here is the cost" in text) == (not full and not c_full)
    gaps = [p - a for p, a in zip(promised, accepted, strict=True)]
    beyond = abs(fmean(gaps)) > 2 * stdev(gaps) / len(gaps) ** 0.5
    assert ("the scores promise too much" in text) == (beyond and fmean(gaps) > 0)
    assert ("the scores promise too little" in text) == (beyond and fmean(gaps) < 0)
    counts = [int(words(row[1])) for row in said["table"]["rows"]]
    assert sum(counts) == sum(sizes), "the table leaves nodes out"


def test_claim_every_method_writes_the_tokens_of_ar(lesson: Pick, traces: dict[str, tr.Trace]) -> None:
    n, hot, this = lesson("lossless")
    rounds, tokens = [], 0
    for kind in ("math", "code", "chat"):
        ar = traces[f"{kind}-ar"].summary["token_ids"]
        tokens += len(ar)
        others = [
            t for t in traces.values() if t.prompt["kind"] == kind and not t.header["settings"]["temperature"]
        ]
        for other in others:
            assert other.summary["token_ids"] == ar, f"{other.header['title']} differs from ar"
            if other.header["settings"]["method"] != "ar":
                rounds.append(len(other.rounds))
        assert len({t.header["settings"]["method"] for t in others}) > n["methods"]
    assert n["tokens"] == tokens and (n["least"], n["most"]) == (min(rounds), max(rounds))
    assert n["most"] < n["plain"], "a method needs as many rounds as plain decoding"
    again = [
        t
        for t in traces.values()
        if t.prompt["kind"] == hot.prompt["kind"] and t.header["settings"]["temperature"] == n["temperature"]
    ]
    assert len({t.header["settings"]["method"] for t in again}) > 1
    assert {t.header["settings"]["seed"] for t in again} == {n["seed"]}
    assert all(t.summary["token_ids"] == hot.summary["token_ids"] for t in again), "same seed, other text"
    away = [v for r in hot.rounds for v in r.visits if v.chosen != v.top[0][0]]
    assert n["surprises"] == len(away) > 0 and n["choices"] == sum(len(r.visits) for r in hot.rounds)
    assert n["p_chosen"] < n["p_favourite"] and this.index == n["round"]


def test_claim_a_tally_is_not_a_run(lesson: Pick, traces: dict[str, tr.Trace]) -> None:
    n, trace, this = lesson("anchors")
    kind = trace.prompt["kind"]
    assert n["marginal"] == sum(r.counterfactual["marginal"].accepted for r in trace.rounds)
    assert n["guess"] == pytest.approx(n["marginal"] / len(trace.rounds) + 1)
    real = traces[f"{kind}-marginal"]
    assert n["real"] == pytest.approx(len([t for r in real.rounds for t in r.committed]) / len(real.rounds))
    assert f"{n['guess']:.2f}" != f"{n['real']:.2f}", "the tally gives the run's τ after all"
    shared = {r.position for r in trace.rounds} & {r.position for r in real.rounds}
    assert n["shared"] == len(shared) < len(real.rounds)
    assert n["own"] == len(this.path)


def test_claim_where_it_does_not_win(
    lesson: Pick, built: dict[str, Any], traces: dict[str, tr.Trace]
) -> None:
    n, trace, _ = lesson("limits")
    cells: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for r in rows("speedup_tau.csv"):
        cells.setdefault((r["target"], r["temperature"], r["dataset"]), {})[r["method"]] = r

    def lead(by: dict[str, dict[str, str]], name: str) -> float:
        return float(by["DominoTree@16"][name]) - max(float(by[m][name]) for m in ("DDTree@16", "CaDDTree"))

    lost = {at: by for at, by in cells.items() if lead(by, "speedup_over_ar") < 0}
    assert (n["lost"], n["cells"]) == (len(lost), len(cells)) == (19, 48)
    code = sum(at[2] in ("humaneval", "mbpp", "livecodebench") for at in lost)
    assert n["code"] == code > len(lost) / 2, "most of the lost cells are no longer code"
    assert n["longer"] == sum(lead(by, "tau") > 0 for by in lost.values()) > 0
    leads = [
        r.counterfactual["conditional"].accepted - r.counterfactual["marginal"].accepted for r in trace.rounds
    ]
    assert [n["more"], n["same"], n["fewer"]] == [
        sum(x > 0 for x in leads),
        leads.count(0),
        sum(x < 0 for x in leads),
    ]
    assert n["more"] < len(leads), "the conditional tree holds more at every anchor"
    kind = trace.prompt["kind"]
    taus = {m: traces[f"{kind}-{m}"].counts.tau or 0 for m in ("dominotree", "static", "marginal")}
    assert [n["tau"], n["static"], n["marginal"]] == pytest.approx(list(taus.values()))
    said = words(next(x for x in built["lessons"] if x["id"] == "limits")["claim"])
    best = max(taus["static"], taus["marginal"])
    side = (
        "level"
        if f"{taus['dominotree']:.2f}" == f"{best:.2f}"
        else "above"
        if taus["dominotree"] > best
        else "below"
    )
    assert side in said, f"the text says {said!r}, the runs say {side}"
    assert n["build_conditional"] > n["build_marginal"], "the conditional build is not the slower one"


# ---- what is not true or not there is not shown


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Library]:
    for name in ("math-dominotree", "math-ar"):
        shutil.copy(TRACES / f"{name}.json.gz", tmp_path)
    yield Library(tmp_path)


def test_lessons_without_their_runs_are_left_out(few: Library, caplog: pytest.LogCaptureFixture) -> None:
    names = {x["id"] for x in lessons.build(few)["lessons"]}
    assert {"round", "marginals"} <= names and not names & {"budget", "anchors", "lossless"}
    assert "anchors" in caplog.text
    with pytest.raises(Missing):
        lessons.build(few, strict=True)


def test_no_runs_no_lessons(tmp_path: Path) -> None:
    assert lessons.build(Library(tmp_path)) == {"lessons": [], "runs": []}
    with pytest.raises(Missing):
        lessons.build(Library(tmp_path), strict=True)


def test_a_lesson_whose_claim_fails_is_left_out(few: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(self: Runs, run: Any) -> tr.Trace:
        trace = few.trace(run.run_id)
        for this in trace.rounds:
            for found in this.counterfactual.values():
                found.accepted = len(this.path)
            for k in range(len(this.nodes)):
                this.nodes.trees[k] |= 7
        return trace

    monkeypatch.setattr(Runs, "trace", turned)
    assert "marginals" not in {x["id"] for x in lessons.build(few)["lessons"]}
    with pytest.raises(ClaimFails, match="holds more of the coming tokens"):
        lessons.build(few, strict=True)


def test_missing_published_tables_leave_out_only_what_needs_them(library: Library, tmp_path: Path) -> None:
    names = {x["id"] for x in lessons.build(library, published=tmp_path)["lessons"]}
    assert names == set(lessons.LESSONS) - {"head", "top-m", "graph", "limits"}


def test_claim_raises_with_the_sentence() -> None:
    claim(True, "x")
    with pytest.raises(ClaimFails, match="it rains"):
        claim(False, "it rains")


# ---- sentences


def test_spans_of_a_template() -> None:
    fields = {"n": 1, "many": 3, "p": 0.004, "d": -2.5, "t": Token("␣a{b}"), "up": 0.25, "ms": 2.0}
    assert spans("{n:#draft}, {many:#draft}", fields) == [["text", "1 draft, 3 drafts"]]
    assert spans("p = {p:p} [τ](tau)", fields) == [["text", "p = 0.40\u00a0% "], ["term", "τ", "tau"]]
    assert spans("{t} {d:.1f}", fields) == [["token", "␣a{b}"], ["text", " −2.5"]]
    assert spans("{up:+%} {up:.1%} {ms:.1f} ms", fields) == [["text", "+25\u00a0% 25.0\u00a0% 2.0\u00a0ms"]]
    with pytest.raises(KeyError):
        spans("{nothing}", fields)


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0, "0 %"), (1e-6, "< 0.01 %"), (0.0012, "0.12 %"), (0.034, "3.4 %"), (0.5, "50 %"), (1.0, "100 %")],
)
def test_probabilities_read_as_in_the_player(p: float, text: str) -> None:
    assert probability(p).replace("\u00a0", " ") == text
    assert shown(p, "p") == probability(p)
