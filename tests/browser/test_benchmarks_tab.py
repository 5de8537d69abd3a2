"""The Benchmarks tab in a real Chromium: it draws, filters change charts, phones do not scroll sideways."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_tools import ScriptedEngine, serving, write_library
from playwright.sync_api import Browser, Page

from viz import benchmarks

pytestmark = pytest.mark.browser

CHARTS = ["cells", "methods", "intervals", "ladder", "own", "speed", "width", "stages"]
DRAWN = ".dp-benchmarks[aria-busy=false]"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    page = folder / "benchmarks.html"
    page.write_text(
        benchmarks.standalone(benchmarks.data(write_library(folder / "traces"), evaluation=folder)),
        encoding="utf-8",
    )
    return page


Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def visit(chromium: Browser, file: Path) -> Iterator[Visit]:
    """Open the plain file; any request beyond it, or any script error, fails the last test."""
    contexts, wrong = [], []

    def open_page(size: tuple[int, int] = (1440, 900), **more: Any) -> Page:
        context = chromium.new_context(viewport={"width": size[0], "height": size[1]}, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda request: wrong.append(request.url) if request.url != file.as_uri() else None
        )
        page.goto(file.as_uri())
        page.wait_for_selector(DRAWN)
        assert wrong == []
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def desk(visit: Visit) -> Page:
    """One page for the tests that only look, and open tables."""
    return visit()


def plotted(page: Page, chart: str) -> Any:
    """What Plotly has of a chart: x, y and hover text of every trace."""
    return page.evaluate(
        """(name) => document.querySelector(`[data-chart=${name}] .dp-bench-plot`).data
            .map((t) => ({name: t.name, x: [...t.x], y: [...t.y], said: t.customdata, symbol: t.marker.symbol}))""",
        chart,
    )


def sentence(page: Page, chart: str) -> str:
    return page.inner_text(f"[data-chart={chart}] .dp-takeaway")


def test_opens_with_every_chart_sentence_and_source(desk: Page) -> None:
    page = desk
    assert page.eval_on_selector_all("[data-chart]", "list => list.map((e) => e.dataset.chart)") == CHARTS
    for chart in CHARTS:
        assert sentence(page, chart)
        source = page.inner_text(f"[data-chart={chart}] .dp-source")
        assert ("Our run" in source) if chart in ("own", "speed") else ("arXiv:2607.08642" in source)
        assert plotted(page, chart)
    assert "19 of 48" in sentence(page, "cells")
    assert page.locator(".dp-stats").inner_text().count("19 of 48") == 1
    assert page.locator(".modebar").count() == 0
    cells = plotted(page, "cells")[0]
    outlined = page.evaluate(
        "() => document.querySelector('[data-chart=cells] .dp-bench-plot').layout.shapes.filter((s) => s.type === 'rect' && s.line.width).length"
    )
    assert len(cells["x"]) == 48 and outlined == 19


def test_axis_titles_have_units(desk: Page) -> None:
    page = desk
    titles = page.eval_on_selector_all(
        ".dp-bench-plot",
        "list => list.flatMap((p) => ['xaxis', 'yaxis'].map((a) => p.layout[a].title.text)).filter(Boolean)",
    )
    for unit in ("(×)", "(tokens per round, bonus included)", "(%)", "(ms)", "% from full vocabulary"):
        assert any(unit in title for title in titles), unit


def test_filters_change_the_charts_by_keyboard(visit: Visit) -> None:
    page = visit()
    before = {c: (plotted(page, c), sentence(page, c)) for c in CHARTS}
    page.focus(".dp-bench-filters button[data-value='Qwen3-4B']")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("() => benchmarks.state().filters.target") == "Qwen3-8B"
    after = {c: (plotted(page, c), sentence(page, c)) for c in CHARTS}
    changed = [c for c in CHARTS if before[c] != after[c]]
    assert changed == ["methods", "intervals"]
    assert "Qwen3-8B" in page.inner_text(".dp-sr[role=status]")
    for group, chart in (
        ("[data-value='1'] >> nth=0", "methods"),
        ("[data-value='tau'] >> nth=0", "cells"),
        ("[data-chart=cells] [data-value='Domino']", "cells"),
        ("[data-chart=intervals] [data-value='CaDDTree']", "intervals"),
        ("[data-chart=ladder] [data-value='best_builder']", None),
        ("[data-chart=ladder] [data-value='build_ms']", "ladder"),
        ("[data-chart=width] [data-value='tau']", "width"),
        ("[data-chart=stages] [data-value='chain']", "stages"),
    ):
        was = (plotted(page, chart), sentence(page, chart)) if chart else None
        page.locator(group).press("Space")
        assert page.locator(group).get_attribute("aria-pressed") == "true"
        if chart:
            now = (plotted(page, chart), sentence(page, chart))
            assert now[0] != was[0] and now[1] != was[1], group  # type: ignore[index]


def test_points_are_the_published_numbers(desk: Page) -> None:
    page = desk
    rows = [
        r
        for r in benchmarks.read(benchmarks.PUBLISHED / "speedup_tau.csv")
        if (r["target"], r["temperature"]) == ("Qwen3-4B", 0.0)
    ]
    for trace in plotted(page, "methods"):
        assert sorted(trace["x"]) == sorted(
            r["speedup_over_ar"] for r in rows if r["method"] == trace["name"]
        )
    rows = [
        r
        for r in benchmarks.read(benchmarks.PUBLISHED / "intervals.csv")
        if (r["target"], r["temperature"]) == ("Qwen3-4B", 0.0)
    ]
    assert sum(len(trace["x"]) for trace in plotted(page, "intervals")) == len(rows) == 48


def test_a_click_on_a_cell_selects_its_column_and_hover_tells_more(visit: Visit) -> None:
    page = visit()
    box = page.locator("[data-chart=cells] .nsewdrag").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.94, box["y"] + box["height"] * 0.2)
    page.wait_for_selector("[data-chart=cells] .hoverlayer .hovertext")
    told = page.text_content("[data-chart=cells] .hoverlayer .hovertext")
    assert told and "Qwen3-8B, MATH-500, temperature 1" in told and "−6.5 %" in told
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("() => benchmarks.state().filters.target === 'Qwen3-8B'")
    assert page.evaluate("() => benchmarks.state().filters.temperature") == 1
    assert sentence(page, "methods").startswith("Qwen3-8B at temperature 1:")


def test_tables_hold_what_the_charts_show(desk: Page) -> None:
    page = desk
    counts = {}
    for chart in CHARTS:
        page.locator(f"[data-chart={chart}] summary").press("Enter")
        page.wait_for_selector(f"[data-chart={chart}] tbody tr")
        counts[chart] = page.locator(f"[data-chart={chart}] tbody tr").count()
    assert counts == {
        "cells": 48,
        "methods": 48,
        "intervals": 48,
        "ladder": 32,
        "own": 21,
        "speed": len(json.loads(benchmarks.GPU_SPEED.read_text(encoding="utf-8"))["rows"]),
        "width": 17,
        "stages": 32,
    }
    row = page.locator("[data-chart=stages] tbody tr", has_text="AR (plain decoding)").first.inner_text()
    assert "0.00" not in row, "plain decoding has no stages: they are missing, not zero"


def test_own_runs_have_marks_of_their_own(desk: Page) -> None:
    page = desk
    ours = {trace["symbol"] for chart in ("own", "speed") for trace in plotted(page, chart)}
    theirs = {
        t["symbol"] for c in CHARTS if c not in ("own", "speed", "stages", "cells") for t in plotted(page, c)
    }
    assert ours and not ours & theirs
    assert page.locator(".dp-own .dp-tag").all_inner_texts() == ["our run"] * 2


def test_speeds_on_a_gpu_are_those_of_the_file(desk: Page) -> None:
    page = desk
    kept = json.loads(benchmarks.GPU_SPEED.read_text(encoding="utf-8"))
    drawn = [x for trace in plotted(page, "speed") for x in trace["x"]]
    assert sorted(drawn) == pytest.approx(sorted(r["ratio"] for r in kept["rows"]), abs=1e-4)
    source = page.inner_text("[data-chart=speed] .dp-source")
    size = f"{kept['prompts']} prompts × {kept['tokens']} tokens"
    assert all(word in source for word in (kept["machine"], kept["pair"]["dtype"], kept["date"], size))
    assert page.locator("[data-chart=speed] .errorbar").count() == len(kept["rows"])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phone_has_no_sideways_scroll(visit: Visit, theme: str) -> None:
    page = visit((390, 844), color_scheme=theme)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    page.evaluate("() => benchmarks.setState({filters: {rival: 'all', metric: 'tokens_per_second'}})")
    page.evaluate("() => document.querySelectorAll('details').forEach((d) => (d.open = true))")
    page.wait_for_timeout(300)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert page.get_attribute(".dp", "data-theme") == theme


def test_tab_of_the_page_loads_when_it_is_first_opened(chromium: Browser, tmp_path: Path) -> None:
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    asked: list[str] = []
    try:
        with serving(write_library(tmp_path / "traces"), ScriptedEngine()) as (address, _):
            page = context.new_page()
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto(address)
            page.wait_for_selector("#explore-player .dp:not(.dp-is-empty)")
            assert not [url for url in asked if "benchmarks" in url], "Explore starts without the charts"
            page.get_by_role("tab", name="Benchmarks").click()
            page.wait_for_selector(DRAWN)
            page.click(".dt-theme")
            page.wait_for_function(
                "() => document.querySelector('.dp-benchmarks').dataset.theme === (document.body.classList.contains('dark') ? 'dark' : 'light')"
            )
            assert all(url.startswith((address, "data:", "blob:")) for url in asked)
            assert errors == []
    finally:
        context.close()


def test_own_intervals_stand_below_each_other(chromium: Browser, tmp_path: Path) -> None:
    lines = [
        f"default,own,{m},16,,0.0,math,9,{t},{t - 0.3},{t + 0.3},"
        for m, t in (("marginal", 2.0), ("static", 2.1), ("dominotree", 2.05))
    ]
    header = "pair,drafter,method,budget,top_m,temperature,set,prompts,tau,tau_low,tau_high,tokens_per_second"
    (tmp_path / "tau.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    file = tmp_path / "own.html"
    file.write_text(benchmarks.standalone(benchmarks.data(evaluation=tmp_path)), encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.goto(file.as_uri())
        page.wait_for_selector(DRAWN)
        drawn = plotted(page, "own")
        assert len({trace["y"][0] for trace in drawn}) == 3, "one line each"
        assert "highest on 0 of 1" in sentence(page, "own")
        assert page.locator("[data-chart=own] .errorbar").count() == 3
        page.evaluate(
            "() => benchmarks.load({...benchmarks.data, charts: {...JSON.parse(document.getElementById('data').textContent).charts, own: {columns: [], rows: [], takeaways: {}}}})"
        )
        page.wait_for_selector(DRAWN)
        assert "No runs of our own" in page.inner_text("[data-chart=own] .dp-bench-empty")
    finally:
        context.close()
