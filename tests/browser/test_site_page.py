"""The static site in a real Chromium, behind a plain web server below a path; and one HTML file of a run from disk.

The server is the only host: anything asked of another one fails the test (see ``helpers.visitors``).
"""

from __future__ import annotations

import copy
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import Open, files_of, visitors
from playwright.sync_api import Browser, Page
from trace_factory import ODD_TOKENS, make_trace

from dominotree import trace as tr
from viz import site
from viz.layout import served
from viz.library import TRACES, Library

pytestmark = pytest.mark.browser

SHOWN = "#panel-{0} .dp:not(.dp-is-empty)"
PATH = "some/place/site/"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A web server's folder with the site, of the runs that come with the project, below a path."""
    root = tmp_path_factory.mktemp("www")
    site.write(root / PATH)
    return root


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with files_of(folder) as root:
        yield root + PATH


@pytest.fixture
def visit(chromium: Browser, address: str) -> Iterator[Open]:
    """Open an address below the site as a new visitor; ``watch(page)`` is called before anything is asked for."""
    host = re.escape(address.split("/some/")[0])
    with visitors(chromium, allowed=rf"({host}/{PATH}|file:|data:|blob:)") as new_page:

        def open_page(
            where: str = "",
            tab: str = "explore",
            size: tuple[int, int] = (1440, 900),
            watch: Any = None,
            **more: Any,
        ) -> Page:
            page = new_page(size, **more)
            if watch:
                watch(page)
            page.goto(address + where)
            page.wait_for_selector(SHOWN.format(tab))
            return page

        yield open_page


def state(page: Page, tab: str = "explore") -> dict[str, Any]:
    told = "({shown: s.shown.map((run) => run.title), message: s.message[0], player: s.player})"
    return page.evaluate(f"(tab) => {{ const s = DominoPage.state(tab); return {told}; }}", tab)


def shows(page: Page, run: str, tab: str = "explore") -> None:
    page.wait_for_function("([tab, id]) => DominoPage.state(tab).player.run === id", arg=[tab, run])


def says(page: Page, text: str, tab: str = "explore") -> None:
    page.wait_for_function(
        "([tab, text]) => DominoPage.state(tab).message[0].includes(text)", arg=[tab, text]
    )


def saved(page: Page, button: str) -> tuple[str, bytes]:
    with page.expect_download() as waiting:
        page.click(button)
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], str]:
    """(kind, method) -> id of the first such run."""
    found: dict[tuple[str, str], str] = {}
    for run in Library().runs:
        found.setdefault((run.kind, run.method), run.run_id)
    return found


def test_the_first_visit_takes_less_than_2_MB_compressed(visit: Open, record_property: Any) -> None:
    asked: list[Any] = []
    page = visit(watch=lambda page: page.on("requestfinished", lambda request: asked.append(request)))
    page.wait_for_load_state("networkidle")
    bodies = {request.url: request.response().body() for request in asked}
    plain, packed = sum(map(len, bodies.values())), sum(len(gzip.compress(b, 6)) for b in bodies.values())
    record_property("first_visit", {"requests": len(bodies), "bytes": plain, "gzip": packed})
    assert any("recorded/" in url for url in bodies) and len(bodies) > 20
    assert packed <= 2e6, f"{packed / 1e6:.2f} MB gzipped, {plain / 1e6:.2f} MB as they are"


def test_all_tabs_open_below_a_path_and_ask_nobody_else(visit: Open, runs: Any) -> None:
    page = visit()
    assert page.title() == "DominoTree Live"
    assert state(page)["player"]["run"] == runs["math", "dominotree"]
    page.keyboard.press("ArrowRight")
    page.wait_for_function("DominoPage.state('explore').player.round === 2")
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(SHOWN.format("compare"))
    page.wait_for_function("document.querySelectorAll('#panel-compare .js-plotly-plot').length === 2")
    page.get_by_role("tab", name="Lessons").click()
    page.wait_for_selector("#panel-lessons .dl-claim:not(:empty)")
    page.wait_for_selector(SHOWN.format("lessons"))
    page.get_by_role("tab", name="Benchmarks").click()
    page.wait_for_selector("#panel-benchmarks .js-plotly-plot")
    panels = (
        "[...document.querySelectorAll('[role=tabpanel]')].filter((panel) => !panel.hidden).map((p) => p.id)"
    )
    assert page.evaluate(panels) == ["panel-benchmarks"]


def test_menus_choose_runs_and_keep_the_keys_that_they_need(visit: Open, runs: Any) -> None:
    page = visit()
    page.select_option("#explore-group", label="Code")
    shows(page, runs["code", "dominotree"])
    page.select_option("#explore-run-choice", label="DDTree")
    shows(page, runs["code", "ddtree"])
    says(page, "Prompt: ")
    page.select_option("#explore-group", label="Chat")  # the method stays
    shows(page, runs["chat", "ddtree"])
    page.focus("#explore-run-choice")
    page.keyboard.press("ArrowRight")  # steps, as everywhere
    page.wait_for_function("DominoPage.state('explore').player.round === 2")
    page.keyboard.press("ArrowDown")  # the menu's own key
    page.wait_for_function(
        "(id) => DominoPage.state('explore').player.run !== id", arg=runs["chat", "ddtree"]
    )
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(SHOWN.format("compare"))
    page.select_option("#compare-right", label="Marginal tree")
    page.wait_for_function(
        "(id) => DominoPage.state('compare').player.with === id", arg=runs["math", "marginal"]
    )


def test_a_link_leads_to_its_run_round_and_tab_and_survives_a_reload(visit: Open, runs: Any) -> None:
    left, right = runs["chat", "dominotree"], runs["chat", "static"]
    page = visit(f"#run={left}&round=5&scoring=marginal")
    page.wait_for_function("DominoPage.state('explore').player.round === 5")
    shows(page, left)
    assert state(page)["player"]["scoring"] == "marginal"
    assert page.input_value("#explore-group") == page.evaluate(
        "document.querySelector('#explore-group option:nth-child(3)').value"
    )
    page.reload()
    page.wait_for_function("DominoPage.state('explore').player?.round === 5")
    page = visit(f"#tab=compare&run={left}&with={right}&round=3", tab="compare")
    page.wait_for_function("DominoPage.state('compare').player.round === 3")
    assert page.input_value("#compare-right") == "static"
    page = visit("#lesson=budget", tab="lessons")
    assert page.locator("#panel-lessons .dl-kicker").inner_text().startswith("Lesson")


def test_files_are_those_that_the_page_makes(visit: Open, runs: Any, tmp_path: Path) -> None:
    page = visit()
    page.select_option("#explore-run-choice", label="DDTree")
    shows(page, runs["math", "ddtree"])
    trace = tr.load(TRACES / "math-ddtree.json.gz")
    name, rounds = saved(page, "#explore-rounds-csv")
    assert name == f"dominotree-ddtree-{trace.run_id}-rounds.csv"
    assert rounds.decode() == tr.rounds_csv(trace)
    assert saved(page, "#explore-nodes-csv")[1].decode() == tr.nodes_csv(trace)
    assert tr.from_json(saved(page, "#explore-trace-json")[1]).run_id == trace.run_id
    name, html = saved(page, "#explore-run-html")
    assert name == f"dominotree-ddtree-{trace.run_id}.html"
    one = tmp_path / "run.html"
    one.write_bytes(html)
    page.context.set_offline(True)
    page.goto(f"{one.as_uri()}#round=4")
    page.wait_for_selector(".dp:not(.dp-is-empty) .js-plotly-plot")
    page.wait_for_function("document.querySelector('.dp-headline').textContent.startsWith('Round 4 of')")
    assert page.title().startswith("DDTree: A bakery")
    assert saved(page, "[data-kind=rounds-csv]")[1] == rounds


def test_imports_are_read_and_laid_out_by_the_browser(visit: Open, tmp_path: Path) -> None:
    file = tmp_path / "mine.json.gz"
    tr.save(make_trace(9, 40, 5), file)
    trace = tr.load(file)
    page = visit()
    with page.expect_file_chooser() as chooser:
        page.click("#explore-import")
    chooser.value.set_files(file)
    shows(page, trace.run_id)
    says(page, "mine.json.gz: Recorded 2026-01-02")
    assert page.evaluate("document.querySelector('#explore-run-choice').selectedOptions[0].text").endswith(
        "(mine.json.gz)"
    )
    drawn = page.evaluate("DominoPage.inside.tabs.explore.player.panes[0].run.layout")
    assert drawn == json.loads(tr.to_json(served(trace)))["layout"]
    assert saved(page, "#explore-rounds-csv")[1].decode() == tr.rounds_csv(trace)
    page.select_option("#explore-group", label="Chat")
    page.wait_for_function("(id) => DominoPage.state('explore').player.run !== id", arg=trace.run_id)
    page.select_option("#explore-group", label="Your runs")
    shows(page, trace.run_id)
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    with page.expect_file_chooser() as chooser:
        page.click("#explore-import")
    chooser.value.set_files(bad)
    says(page, "bad.json cannot be read: it is not a trace")
    assert state(page)["player"]["run"] == trace.run_id
    page.wait_for_function("(id) => location.hash.includes(id)", arg=trace.run_id)
    page.reload()
    page.wait_for_function("(id) => DominoPage.state('explore').player?.run === id", arg=trace.run_id)


def test_what_has_been_opened_goes_on_without_the_server(chromium: Browser, folder: Path, runs: Any) -> None:
    with files_of(folder) as root:
        page = chromium.new_page()
        page.goto(root + PATH)
        page.wait_for_selector(SHOWN.format("explore"))
    page.keyboard.press("End")
    page.wait_for_function("DominoPage.state('explore').player.round > 20")
    assert saved(page, "#explore-rounds-csv")[1].startswith(b'"run_id"')
    page.select_option("#explore-group", label="Chat")
    says(page, "The web server does not answer; what has been opened still works.")
    assert state(page)["player"]["run"] == runs["math", "dominotree"]
    page.get_by_role("tab", name="Lessons").click()
    page.wait_for_function("document.querySelector('#panel-lessons').textContent.includes('does not answer')")
    page.close()


def test_every_tab_fits_a_phone_and_a_laptop_in_light_and_dark(visit: Open) -> None:
    for size, scheme in (((390, 844), "dark"), ((1440, 900), "light")):
        page = visit(size=size, color_scheme=scheme)
        for name in ("Compare", "Lessons", "Benchmarks", "Explore"):
            page.get_by_role("tab", name=name).click()
            page.wait_for_selector(f"#panel-{name.lower()} .js-plotly-plot")
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], name
        ground = "(place) => getComputedStyle(document.querySelector(place)).backgroundColor"
        assert page.evaluate(ground, SHOWN.format("explore")) == page.evaluate(ground, "body")
        before = page.evaluate(ground, "body")
        page.click(".dt-theme")
        assert page.evaluate(ground, "body") != before
        page.reload()  # the choice stays
        assert page.evaluate(ground, "body") != before


def test_opened_from_disk_it_says_what_to_do(chromium: Browser, folder: Path) -> None:
    page = chromium.new_page()
    page.goto((folder / PATH / "index.html").as_uri())
    page.wait_for_function(
        "document.querySelector('#panel-explore .dt-status').textContent.includes('python -m http.server')"
    )
    page.close()


# ---- the browser's copies of what Python does


@pytest.fixture
def browser_reads(visit_player: Open) -> Any:
    """A function: what the browser makes of a trace file's bytes, or the sentence with which it refuses them."""
    page = visit_player()

    def read(data: bytes) -> Any:
        return page.evaluate(
            """async (data) => {
              try {
                const trace = await DominoPlayer.reading.served(new File([new Uint8Array(data)], "it"), {unpacked: 64 << 20});
                const {rounds, nodes} = DominoPlayer.tables;
                return {layout: trace.layout, rounds: rounds(trace), nodes: nodes(trace), run_id: trace.run_id};
              } catch (error) { return error.message; }
            }""",
            list(data),
        )

    return read


def test_U11_U12_places_and_tables_are_those_of_python(browser_reads: Any) -> None:
    made = [
        make_trace(4, 40, 3, vocabulary=ODD_TOKENS),
        make_trace(2, 256, 1),
        make_trace(3, 16, 2, "dflash", temperature=0.7),
        make_trace(3, 16, 2, "ar"),
        make_trace(4, 16, 4, stop=1),
        make_trace(3, 16, 4, cut=1, finished=False),
        *(
            tr.load(TRACES / f"{name}.json.gz")
            for name in ("code-dominotree-64", "chat-ddtree-t1", "math-domino")
        ),
    ]
    for trace in made:
        text = tr.to_json(trace)
        trace = tr.from_json(text)  # as stored: numbers of six digits
        found = browser_reads(gzip.compress(text.encode(), 1))
        assert not isinstance(found, str), found
        assert found["layout"] == json.loads(tr.to_json(served(trace)))["layout"]
        assert found["rounds"] == tr.rounds_csv(trace)
        assert found["nodes"] == tr.nodes_csv(trace)
        assert found["run_id"] == trace.run_id


def test_what_python_refuses_the_browser_refuses(browser_reads: Any) -> None:
    whole = json.loads(tr.to_json(make_trace(3, 8, 1)))

    def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
        data = copy.deepcopy(whole)
        change(data)
        return json.dumps(data).encode()

    packed = gzip.compress(json.dumps(whole).encode())
    bad: dict[str, bytes] = {
        "empty": b"",
        "no gzip": packed[: len(packed) // 2],
        "no UTF-8": b"\xff\xfe{",
        "no JSON": b"{,}",
        "NaN": json.dumps(whole).encode().replace(b"null", b"NaN", 1),
        "a list": b"[]",
        "newer": changed(lambda t: t.update(version=2)),
        "no method": changed(lambda t: t["header"]["settings"].pop("method")),
        "no prompt": changed(lambda t: t["prompt"].pop("text")),
        "no rounds": changed(lambda t: t.update(rounds=None)),
        "a column is gone": changed(lambda t: t["rounds"][0]["nodes"].pop("delta")),
        "a column is short": changed(lambda t: t["rounds"][1]["nodes"]["static"].pop()),
        "a log is text": changed(lambda t: t["rounds"][1]["nodes"]["static"].__setitem__(0, "<b>")),
        "a parent comes later": changed(lambda t: t["rounds"][0]["nodes"]["parent"].__setitem__(0, 5)),
        "a depth is wrong": changed(lambda t: t["rounds"][0]["nodes"]["depth"].__setitem__(1, 9)),
        "a path leaves the tree": changed(
            lambda t: t["rounds"][0].update(path=[99], committed=[1, t["rounds"][0]["bonus"]])
        ),
        "no bonus": changed(lambda t: t["rounds"][0].update(bonus=-1)),
        "an id without bytes": changed(lambda t: t["tokens"].pop(str(t["rounds"][0]["nodes"]["token"][0]))),
        "bytes that are none": changed(lambda t: t["tokens"].update({"100": "zz"})),
        "rounds out of order": changed(lambda t: t["rounds"].reverse()),
        "a wrong sum": changed(lambda t: t["summary"].update(committed=1)),
        "visits elsewhere": changed(lambda t: t["rounds"][0]["visits"][0].update(node=3)),
    }
    for name, data in bad.items():
        with pytest.raises(tr.TraceError):
            tr.from_json(data, "it")
        said = browser_reads(data)
        assert isinstance(said, str) and said.startswith("it cannot be read: ") and said.endswith("."), name
    assert "larger than" in browser_reads(gzip.compress(b" " * (65 << 20)))
    assert browser_reads(packed)["run_id"] == whole["run_id"]
