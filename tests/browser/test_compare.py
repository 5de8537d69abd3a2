"""Compare in a real Chromium: two runs in step, where they differ, what the table says, the race."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import PLAIN, Open, assert_nothing_meets, js, show, state, visitors
from page_tools import ScriptedEngine, serving
from playwright.sync_api import Browser, Page
from trace_factory import make_trace

from dominotree import trace as tr
from viz.library import Library
from viz.page import COMPARED, compared_group, variants

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def recorded() -> dict[tuple[str, str], tr.Trace]:
    """(kind, variant) -> recorded run at temperature 0."""
    library = Library()
    return {
        (group["key"].split("|")[0], run["variant"]): library.trace(run["id"])
        for group in library.menu()
        if group["key"].split("|")[1] == "0"
        for run in group["runs"]
    }


def starts(trace: tr.Trace) -> list[int]:
    """Tokens of the output before each round."""
    found, done = [], int(trace.first_token is not None)
    for this in trace.rounds:
        found.append(done)
        done += this.kept
    return found


def rounds_now(page: Page) -> list[int]:
    return js(page, "p.panes.map((pane) => pane.k)")


# ---- in step ----------------------------------------------------------------------------------------------


def test_deep_trees_are_not_clipped_at_1440(visit_player: Open, recorded: Any) -> None:
    page = visit_player()
    for kind in ("math", "code", "chat"):
        a, b = recorded[kind, "dominotree"], recorded[kind, "ddtree"]
        show(page, a, b)
        page.evaluate("() => p.resized()")
        for k in range(0, len(b.rounds), 4):
            js(page, f"p.goto({k + 1})")
            for i in (0, 1):
                across = js(page, f"(({{scroller: s}}) => [s.scrollWidth, s.clientWidth])(p.panes[{i}].tree)")
                assert across[0] <= across[1], (kind, k)
            assert_nothing_meets(js(page, f"probe.measure(p.panes[{k // 4 % 2}].tree)"))
    assert js(page, "document.documentElement.scrollWidth") <= 1440


def test_both_trees_stand_in_one_window_at_1440x900(visit_player: Open, recorded: Any) -> None:
    page = visit_player(recorded["math", "dominotree"], recorded["math", "ddtree"])
    boxes = [page.locator(".dp-tree").nth(i).bounding_box() for i in (0, 1)]
    assert boxes[0] and boxes[1]
    assert boxes[0]["width"] == boxes[1]["width"] > 900
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"] and boxes[1]["y"] + boxes[1]["height"] <= 900


def test_by_text_position_the_other_pane_covers_the_same_token(visit_player: Open, recorded: Any) -> None:
    a, b = recorded["code", "dominotree"], recorded["code", "ddtree"]
    page = visit_player(a, b)
    page.click("[data-by=position]")
    at = [starts(a), starts(b)]
    for position in sorted({*at[0], *at[1]}):
        said, panes = js(
            page,
            """[document.querySelector('.dp-slider-text').textContent, p.panes.map(({k, offset, tree}) => ({
              k, offset: offset.textContent,
              axis: tree.plot.data.filter((d) => d.text).flatMap((d) => d.text.filter((_, j) => d.customdata[j] === 'ticks')),
              guides: tree.plot.layout.shapes.filter((s) => s.name === 'guide').length }))]""",
        )
        assert said == f"token {position + 1}"
        ks = [pane["k"] for pane in panes]
        assert ks == [max(k for k, start in enumerate(run) if start <= position) for run in at]
        apart = at[0][ks[0]] != at[1][ks[1]]
        for trace, run, pane in zip((a, b), at, panes, strict=True):
            start, kept = run[pane["k"]], trace.rounds[pane["k"]].kept
            last = f"token {start + 1}" if kept == 1 else f"tokens {start + 1}–{start + kept}"
            mark = f", dotted line: token {position + 1}" if apart else ""
            assert pane["offset"] == f"after token {start}, writes {last}{mark}"
            assert pane["axis"][:2] == [str(start), str(start + 1)]
            assert pane["guides"] == int(apart)
        page.keyboard.press("ArrowRight")
    page.click("[data-by=round]")
    assert js(page, "p.panes[0].tree.origin") is None
    assert "dotted" not in page.inner_text(".dp-offset >> nth=0")


# ---- table and positions ----------------------------------------------------------------------------------


def table(page: Page) -> dict[str, list[str]]:
    rows = js(
        page,
        "[...document.querySelectorAll('.dp-summary tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))",
    )
    return {row[0]: row[1:] for row in rows}


def test_summary_table_has_units_and_dashes(visit_player: Open, recorded: Any) -> None:
    a, b = recorded["code", "dominotree"], recorded["code", "ar"]
    page = visit_player(a, b)
    rows = table(page)
    build = [r.times_ms["build"] for r in a.rounds]
    assert rows == {
        "τ tokens/round": [f"{a.summary['tau']:.2f}", "1.00"],
        "rounds": [str(len(a.rounds)), str(len(b.rounds))],
        "tokens": ["128", "128"],
        "accepted drafts": [str(sum(r.accepted for r in a.rounds)), "0"],
        "speed tokens/s": [f"{t.summary['tokens_per_second']:.1f}" for t in (a, b)],
        "over AR": [
            f"{t.summary['tokens_per_second'] / t.header['ar_tokens_per_second']:.2f}×" for t in (a, b)
        ],
        "decoding s": [f"{t.summary['decode_ms'] / 1000:.3f}" for t in (a, b)],
        "build, mean ms/round": [f"{sum(build) / len(build):.2f}", "–"],
    }
    assert page.locator(".dp-summary .dp-best").all_inner_texts() == [
        f"{a.summary['tau']:.2f}",
        f"{a.summary['tokens_per_second']:.1f}",
    ]
    said = page.inner_text(".dp-summary .dp-hint")
    assert said.startswith("Both runs emit the same text. Both on ") and a.header["machine"] in said
    assert f"{a.header['machine']}, {a.header['pair']['dtype']}." in said, (
        "a GPU's speed depends on the precision"
    )


def test_different_machines_and_missing_figures_are_said(visit_player: Open, recorded: Any) -> None:
    a, b = recorded["code", "dominotree"], copy.deepcopy(recorded["code", "dominotree@64"])
    b.header["machine"] = "another machine"
    b.header["ar_tokens_per_second"] = None
    b.summary["tokens_per_second"] = b.summary["decode_ms"] = None
    for this in b.rounds:
        this.times_ms = {}
    page = visit_player(a, b)
    rows = table(page)
    assert rows["over AR"][1] == rows["speed tokens/s"][1] == rows["decoding s"][1] == "–"
    assert rows["build, mean ms/round"][1] == "–"
    assert "NaN" not in page.inner_text(".dp-summary")
    said = page.inner_text(".dp-summary .dp-hint")
    assert (
        f"Different machines: DominoTree, 16 on {a.header['machine']}, DominoTree, 64 on another machine"
        in said
    )
    assert page.locator(".dp-summary .dp-best").count() == 1, "τ may be compared, speeds may not"
    assert page.is_disabled("[data-by=race]")


@pytest.mark.parametrize(
    ("kind", "left", "right"), [("code", "dominotree", "ddtree"), ("chat", "static", "dflash")]
)
def test_instructive_positions_are_jump_links(
    visit_player: Open, recorded: Any, kind: str, left: str, right: str
) -> None:
    a, b = recorded[kind, left], recorded[kind, right]
    page = visit_player(a, b)
    at = [{start: k for k, start in enumerate(starts(trace))} for trace in (a, b)]
    both = sorted(at[0].keys() & at[1].keys())
    gaps = {s: [t.rounds[at[i][s]].accepted for i, t in enumerate((a, b))] for s in both}
    ranked = sorted(
        (s for s in both if gaps[s][0] != gaps[s][1]), key=lambda s: (-abs(gaps[s][0] - gaps[s][1]), s)
    )
    much = [s for s in ranked if abs(gaps[s][0] - gaps[s][1]) >= 4]
    wanted = (much if len(much) >= 3 else ranked[:5])[:7]
    assert wanted
    rows = js(
        page,
        "[...document.querySelectorAll('.dp-jumps tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))",
    )
    assert [[int(row[0]) - 1, *map(int, row[2:])] for row in rows] == [[s, *gaps[s]] for s in wanted]
    hint = page.inner_text(".dp-jumps .dp-hint")
    assert (
        f"{len(both)} anchor" in hint
        and f"at {len([s for s in wanted if s in much]) or 'none'} of them" in hint
    )
    for row, position in enumerate(wanted[:3]):
        link = page.locator(".dp-jumps button").nth(row)
        assert f"Token {position + 1}:" in (link.get_attribute("aria-label") or "")
        link.click()
        assert rounds_now(page) == [at[0][position], at[1][position]]
        assert state(page)["by"] == "position"
        assert page.locator(".dp-jumps tr[aria-current]").count() == 1
        text = a.summary["text"]
        shown = link.inner_text().replace("⏎", " ").strip("… ")
        assert shown.split()[-1] in text


def test_runs_without_a_common_anchor_say_so(visit_player: Open) -> None:
    a = make_trace(5, 16, 6, skill=0.95, vocabulary=PLAIN)
    b = make_trace(5, 16, 7, "ddtree", skill=0.6, vocabulary=PLAIN)
    page = visit_player(a, b)
    assert "different texts" in page.inner_text(".dp-summary .dp-hint")
    assert page.is_visible(".dp-jumps .dp-hint")
    show(page, a, a)
    names = js(page, "[...document.querySelectorAll('.dp-summary thead th')].map((c) => c.textContent)")
    assert names == ["DominoTree, 16 (1)", "DominoTree, 16 (2)"]
    assert "both accepted as many drafts" in page.inner_text(".dp-jumps")


def test_the_heading_names_the_machine_and_a_gpus_precision(visit_player: Open, recorded: Any) -> None:
    a, here = recorded["math", "dominotree"], make_trace(5, 16, 6, vocabulary=PLAIN)
    assert a.header["pair"]["device"].startswith("cuda") and here.header["pair"]["device"] == "cpu"
    page = visit_player(a)
    title = page.inner_text(".dp-title")
    assert f" · {a.header['machine']}, {a.header['pair']['dtype']} · recorded " in title
    assert page.locator(".dp-stats dd").all_inner_texts()[1] == f"{a.summary['tokens_per_second']:.0f}"
    show(page, here)
    assert f" · {here.header['machine']} · recorded " in page.inner_text(".dp-title")
    phone = visit_player(a, size=(390, 844))
    right = phone.evaluate(
        "(name) => { const range = document.createRange(), text = [...document.querySelector('.dp-title').childNodes]"
        ".find((n) => n.textContent.includes(name)); range.selectNodeContents(text); return range.getBoundingClientRect().right; }",
        a.header["machine"],
    )
    assert right <= 390, "a phone cuts the heading before the machine"


# ---- race -------------------------------------------------------------------------------------------------


def ends(trace: tr.Trace) -> list[float]:
    found, spent = [], 0.0
    for this in trace.rounds:
        spent += sum(this.times_ms.values())
        found.append(spent)
    return found


def text_at(trace: tr.Trace, t: float) -> str:
    """What a reader has after `t` ms of decoding: the prefill's token and every committed round."""
    tokens = [] if trace.first_token is None else [trace.first_token]
    for this, end in zip(trace.rounds, ends(trace), strict=True):
        if end <= t:
            tokens += this.committed[: this.kept]
    return b"".join(bytes.fromhex(trace.tokens[token]) for token in tokens).decode("utf-8", "ignore")


def written(page: Page) -> list[str]:
    return js(
        page,
        "[...document.querySelectorAll('.dp-race-text')].map((e) => [...e.querySelectorAll('.dp-r:not(.dp-coming)')]"
        ".map((s) => s.textContent).join(''))",
    )


def test_race_fills_in_both_texts_at_the_recorded_times(visit_player: Open, recorded: Any) -> None:
    a, b = recorded["math", "dominotree"], recorded["math", "ddtree"]
    page = visit_player(a, b)
    page.click("[data-by=race]")
    assert page.is_visible(".dp-race") and not page.is_visible(".dp-tree")
    assert page.locator(".dp-race-machine").all_inner_texts() == [
        f"{x.header['machine']}, {x.header['pair']['dtype']}" for x in (a, b)
    ]
    most = max(ends(a)[-1], ends(b)[-1])
    assert most < 1000 and page.get_attribute(".dp-race-seek input", "step") == "1"
    for t in (0.0, 20.0, 61.7, ends(a)[-1] + 0.01, most + 0.01):  # beyond the end is the end
        js(page, f"p.comparison.race.seek({t})")
        assert written(page) == [text_at(a, t + 0.01), text_at(b, t + 0.01)]
    figures = page.locator(".dp-race-figures").all_inner_texts()
    for trace, said in zip((a, b), figures, strict=True):
        done, speed = ends(trace)[-1] / 1000, trace.summary["tokens_per_second"]
        assert said == f"128 of 128 tokens · {speed:.1f} tokens/s · done at {done:.3f} s"
    fast, slow = sorted(ends(t)[-1] for t in (a, b))
    assert page.inner_text(".dp-race-result") == (
        f"DominoTree finishes first: {fast / 1000:.3f} s against {slow / 1000:.3f} s for 128 tokens, {slow / fast:.2f}× as fast."
    )
    assert "prefill" in page.inner_text(".dp-race > .dp-hint")
    page.keyboard.press("Home")
    events = sorted({*ends(a), *ends(b)})
    for k in range(3):
        page.keyboard.press("ArrowRight")
        assert js(page, "p.comparison.race.t") == pytest.approx(events[k], abs=0.01)
    page.keyboard.press("ArrowLeft")
    assert js(page, "p.comparison.race.t") == pytest.approx(events[1], abs=0.01)
    page.click("[data-by=round]")
    assert page.is_visible(".dp-tree") and not page.is_visible(".dp-race")
    assert rounds_now(page)[0] == sum(end <= events[1] + 0.01 for end in ends(a))


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_race_plays_at_its_pace_and_stops_at_the_end(visit_player: Open, recorded: Any, motion: str) -> None:
    a, b = recorded["code", "dominotree"], copy.deepcopy(recorded["code", "ddtree"])
    b.header["machine"] = "a faster machine"
    page = visit_player(a, b, reduced_motion=motion)
    page.click("[data-by=race]")
    assert page.locator(".dp-race-pace option:checked").inner_text() == "100× slower"
    page.select_option(".dp-race-pace", "25")
    page.keyboard.press("Space")
    assert js(page, "p.isPlaying") is True
    assert page.is_visible(".dp-icon[aria-label^=Pause]")
    page.wait_for_function(
        "() => p.comparison.race.t > 0 && p.comparison.race.t < p.comparison.race.most", timeout=5000
    )
    page.wait_for_function("() => !p.isPlaying", timeout=10000)
    assert written(page) == [a.summary["text"], b.summary["text"]]
    said = page.inner_text(".dp-race-result")
    assert "They ran on different machines, so this does not compare the methods." in said
    page.keyboard.press("Space")
    page.wait_for_function("() => p.comparison.race.t < p.comparison.race.most / 2", timeout=5000)
    page.keyboard.press("c")
    assert js(page, "p.comparison.racing") is False and js(page, "p.panes.length") == 1


def test_race_of_texts_of_different_length(visit_player: Open) -> None:
    a, b = (make_trace(n, 16, 6, m, vocabulary=PLAIN) for n, m in ((4, "dominotree"), (9, "ddtree")))
    page = visit_player(a, b)
    page.click("[data-by=race]")
    page.keyboard.press("End")
    lengths = [len(t.summary["token_ids"]) for t in (tr.finish(a), tr.finish(b))]
    first = 0 if ends(a)[-1] <= ends(b)[-1] else 1
    said = page.inner_text(".dp-race-result")
    assert f"for {lengths[first]} and {lengths[1 - first]} tokens." in said and "as fast" not in said


@pytest.mark.parametrize("size", [(1280, 800), (1440, 900), (390, 844)])
def test_long_names_of_runs_leave_the_tables_in_the_page(
    visit_player: Open, recorded: Any, size: tuple[int, int]
) -> None:
    page = visit_player(size=size)
    for names in (("condadaptive", "condadaptive-calibrated"), ("condadaptive", "dominotree@64")):
        show(page, *(recorded["math", name] for name in names))
        js(page, "p.flush()")
        right = js(
            page, "[...document.querySelectorAll('.dp-compare')].map((t) => t.getBoundingClientRect().right)"
        )
        assert right and max(right) <= size[0], names


def test_compare_never_scrolls_sideways_on_a_phone(visit_player: Open, recorded: Any) -> None:
    page = visit_player(
        recorded["code", "dominotree"], recorded["code", "ddtree"], size=(390, 844), has_touch=True
    )
    for mode in ("position", "race", "round"):
        page.click(f"[data-by={mode}]")
        js(page, "p.flush()")
        assert js(page, "document.documentElement.scrollWidth") <= 390, mode
    for scheme in ("light", "dark"):
        js(page, f"p.theme('{scheme}')")
        page.click("[data-by=race]")
        low = js(page, "probe.contrast()")
        assert [found for found in low if len(found) == 3] == []  # the trees, of two fields, are out of sight
        page.click("[data-by=round]")
        assert js(page, "probe.contrast()") == []


# ---- the page ---------------------------------------------------------------------------------------------


def test_compare_opens_with_gpu_recordings_where_there_are_some(tmp_path: Path) -> None:
    """By the header's device; a group without both methods is passed over."""
    for n, (machine, device, methods) in enumerate(
        [
            ("a laptop", "cpu", COMPARED),
            ("a server", "cuda", ("dominotree", "static")),
            ("a second server", "cuda:0", (*COMPARED, "dominotree")),
        ]
    ):
        for m, method in enumerate(methods):
            trace = make_trace(3, 64 if m == 2 else 16, m, method)
            trace.header["machine"], trace.header["pair"]["device"] = machine, device
            trace.prompt = {**trace.prompt, "kind": "math"}
            tr.save(trace, tmp_path / f"{n}-{m}-{method}.json.gz")
    groups = Library(tmp_path).menu()
    found = compared_group(groups)
    assert found and found["device"] == "cuda:0"
    assert [run["variant"] for run in found["runs"]] == ["dominotree", "dominotree@64", "ddtree"]
    assert variants(groups)["dominotree@64"] == "DominoTree, 64 nodes"
    only = compared_group([g for g in groups if g["device"] == "cpu"])
    assert only and only["device"] == "cpu"
    assert compared_group([]) is None


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[str, ScriptedEngine]]:
    engine = ScriptedEngine(0.01, rounds=3)
    with serving(Library(), engine) as (address, _):
        yield address, engine


def test_a_second_budget_of_a_method_can_be_compared_and_run(chromium: Browser, site: Any) -> None:
    address, engine = site
    with visitors(chromium, console=False) as new_page:
        page = new_page()
        page.goto(address)
        page.get_by_role("tab", name="Compare", exact=True).click()
        page.wait_for_selector("#compare-player .dp:not(.dp-is-empty)")
        page.click("#compare-right input")
        page.get_by_role("option", name="DominoTree, 64 nodes", exact=True).click()
        page.wait_for_function(
            "() => /DominoTree, 64/.test(document.querySelector('#compare-player .dp-summary').innerText)"
        )
        assert "DominoTree, 16" in page.inner_text("#compare-player .dp-summary")
        asked: list[tuple[str, int]] = []
        run = engine.run

        def noted(prompt: str, settings: dict[str, Any], cancel: Any) -> Any:
            asked.append((settings["method"], settings["budget"]))
            return run(prompt, settings, cancel)

        engine.run = noted  # type: ignore[method-assign]
        page.click("#compare-run")
        page.wait_for_function("() => DominoPage.state('compare').live?.over", timeout=20000)
        assert asked == [("dominotree", 16), ("dominotree", 64)]
        assert re.search(r"3 rounds", page.inner_text(".dt-status >> visible=true"))
