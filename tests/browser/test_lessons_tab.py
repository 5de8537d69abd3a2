"""The lessons in a real Chromium, from plain files: every lesson opens, can be tried and answered; progress is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import ROOT, files_of, visitors
from page_tools import ScriptedEngine, serving
from playwright.sync_api import Browser, Page

from viz import lessons, player
from viz.library import Library, served_json

pytestmark = pytest.mark.browser

PAGE = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>lessons</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width, initial-scale=1">{player.head("player/")}
<link rel="stylesheet" href="player/lessons.css"><style>body{{margin:0}}</style></head><body><main id="lessons"></main>
<script src="player/lessons.js"></script><script>
fetch("lessons.json").then((answer) => answer.json()).then((data) => {{
  window.lessons = DominoLessons.mount(document.getElementById("lessons"), {{
    data, run: async (id) => (await fetch(`recorded/${{id}}.json`)).json() }});
}});
</script></body></html>"""


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return lessons.build(Library(), strict=True)


@pytest.fixture(scope="module")
def address(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site, library = tmp_path_factory.mktemp("site"), Library()
    (site / "recorded").mkdir()
    (site / "player").symlink_to(ROOT / "viz" / "player")
    (site / "index.html").write_text(PAGE, encoding="utf-8")
    (site / "lessons.json").write_text(json.dumps(data), encoding="utf-8")
    for run_id in data["runs"]:
        (site / "recorded" / f"{run_id}.json").write_text(
            served_json(library.trace(run_id)), encoding="utf-8"
        )
    with files_of(site) as address:
        yield address


Visit = Callable[..., Page]


@pytest.fixture
def visit(chromium: Browser, address: str) -> Iterator[Visit]:
    """Open the lessons as a new visitor; an outside request or a script error fails the test."""
    with visitors(chromium) as new_page:

        def open_page(size: tuple[int, int] = (1440, 900), at: str = "", **more: Any) -> Page:
            page = new_page(size, **more)
            page.goto(address + at)
            ready(page)
            return page

        yield open_page


def ready(page: Page) -> None:
    page.wait_for_function("window.lessons && lessons.player && lessons.state().player.run")
    page.wait_for_selector(".dl-picture:not([aria-busy]) .dp-plot svg text")


def opened(page: Page, lesson: dict[str, Any]) -> dict[str, Any]:
    """Open a lesson, wait for its picture, give the player's state."""
    page.evaluate("id => { lessons.goto(id); }", lesson["id"])
    want = lesson["picture"]
    page.wait_for_function(
        "([run, round]) => { const s = lessons.state().player; return s.run === run && s.round === round && !s.with; }",
        arg=[want["run"], want["round"]],
    )
    page.wait_for_selector(".dl-picture:not([aria-busy])")
    return settled(page)


def settled(page: Page) -> dict[str, Any]:
    """The player's state once what was asked for is drawn; the next frame would do that."""
    page.evaluate("lessons.player.flush()")
    return dict(page.evaluate("lessons.state().player"))


def text(spans: list[list[str]]) -> str:
    return "".join(span[1] for span in spans)


def test_every_lesson_shows_its_round_and_answers(visit: Visit, data: dict[str, Any]) -> None:
    page = visit()
    for number, lesson in enumerate(data["lessons"], 1):
        state = opened(page, lesson)
        want = lesson["picture"]
        assert (state["scoring"], state["node"]) == (want["scoring"], want["node"]), lesson["id"]
        assert page.inner_text(".dl-kicker") == f"Lesson {number} of {len(data['lessons'])}"
        assert page.text_content(".dl-claim") == text(lesson["claim"])
        assert f"Round {want['round']} of" in page.inner_text(".dp-headline")
        assert page.locator(".dp-plot svg text").count() > 0, lesson["id"]
        answer = page.locator(".dl-answer")
        assert not answer.is_visible()
        page.get_by_role("button", name="Show the answer").click()
        assert answer.is_visible() and text(lesson["answer"][0]) in (answer.text_content() or "")
    assert page.locator(".dl-pill.dl-done").count() == len(data["lessons"])


def test_try_it_does_what_its_buttons_say(visit: Visit, data: dict[str, Any]) -> None:
    page = visit()
    for lesson in data["lessons"]:
        before = opened(page, lesson)
        for k, action in enumerate(lesson["actions"]):
            page.locator(".dl-actions .dl-button").nth(k).click()
            if "beside" in action:
                page.wait_for_function("run => lessons.state().player.with === run", arg=action["beside"])
                page.evaluate("lessons.player.flush()")
                state = page.evaluate("lessons.state().player")
                assert (state["round"], state["by"]) == (action["round"], action["by"]), lesson["id"]
                assert page.locator(".dl-picture .dp-pane").count() == 2
                continue
            page.wait_for_selector(".dl-picture:not([aria-busy])")
            page.wait_for_function("!lessons.state().player.with")
            state = settled(page)
            assert state["round"] == action["round"] and state["scoring"] == action["scoring"], lesson["id"]
            if "inside" in action:
                assert state["inside"] == action["inside"], lesson["id"]
                page.keyboard.press("Escape")
                page.wait_for_function("lessons.state().player.inside === null")
                continue
            assert state["node"] == (action["cycle"][0] if "cycle" in action else action["node"]), lesson[
                "id"
            ]
        page.get_by_role("button", name="Back to the lesson’s round").click()
        page.wait_for_selector(".dl-picture:not([aria-busy])")
        after = settled(page)
        assert {k: after[k] for k in ("run", "round", "scoring", "node", "with")} == {
            k: before[k] for k in ("run", "round", "scoring", "node", "with")
        }, lesson["id"]


def test_build_order_is_stepped_node_by_node(visit: Visit, data: dict[str, Any]) -> None:
    page = visit()
    lesson = next(x for x in data["lessons"] if x["id"] == "graph")
    opened(page, lesson)
    seen = []
    for _ in range(4):
        page.locator(".dl-actions .dl-button").first.click()
        page.wait_for_selector(".dl-picture:not([aria-busy])")
        seen.append(page.evaluate("lessons.state().player.node"))
    assert seen == lesson["actions"][0]["cycle"][:4]


def test_arrow_keys_step_rounds_and_buttons_step_lessons(visit: Visit, data: dict[str, Any]) -> None:
    page = visit()
    first, second = data["lessons"][:2]
    start = first["picture"]["round"]
    page.keyboard.press("ArrowRight")
    page.wait_for_function("round => lessons.state().player.round === round", arg=start + 1)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("round => lessons.state().player.round === round", arg=start)
    page.get_by_role("button", name="Next:").click()
    assert page.evaluate("lessons.state().id") == second["id"]
    assert page.evaluate("document.activeElement.className") == "dl-title", (
        "the new lesson's title has the focus"
    )
    assert page.evaluate("location.hash") == f"#lesson={second['id']}"
    page.keyboard.press("Home")  # its picture may be the last round of its run
    page.wait_for_function("() => lessons.state().player.round === 1")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => lessons.state().player.round === 2")
    page.get_by_role("button", name="← Previous").click()
    assert page.evaluate("lessons.state().id") == first["id"]
    assert page.get_by_role("button", name="← Previous").is_disabled()


def test_progress_survives_a_reload_and_can_be_reset(visit: Visit, data: dict[str, Any]) -> None:
    page = visit()
    third = data["lessons"][2]
    page.locator(".dl-pill").nth(2).click()
    page.get_by_role("button", name="Show the answer").click()
    page.evaluate("history.replaceState(null, '', location.pathname)")  # storage alone
    page.reload()
    ready(page)
    state = page.evaluate("lessons.state()")
    assert (state["id"], state["done"]) == (third["id"], [third["id"]])
    assert (
        page.locator(".dl-pill").nth(2).get_attribute("aria-label")
        == f"Lesson 3: {third['title']} (answered)"
    )
    page.get_by_role("button", name="Start over").click()
    assert page.evaluate("JSON.parse(localStorage.getItem('dt-lessons'))") == {
        "at": data["lessons"][0]["id"],
        "done": [],
    }


def test_a_link_opens_its_lesson(visit: Visit, data: dict[str, Any]) -> None:
    page = visit(at="#lesson=lossless")
    assert page.evaluate("lessons.state().id") == "lossless"
    page.evaluate("location.hash = '#lesson=head'")
    page.wait_for_function("lessons.state().id === 'head'")
    page.evaluate("location.hash = '#lesson=nonsense'")
    page.evaluate("location.hash = '#run=abc'")
    assert page.evaluate("lessons.state().id") == "head"


def test_damaged_progress_is_ignored(visit: Visit, data: dict[str, Any]) -> None:
    page = visit()
    for kept in ("no JSON", "7", "null", '{"at": 5, "done": "x"}'):
        page.evaluate(
            "kept => { localStorage.setItem('dt-lessons', kept); history.replaceState(null, '', '/'); }", kept
        )
        page.reload()
        ready(page)
        assert page.evaluate("lessons.state().id") == data["lessons"][0]["id"], kept


def test_without_the_server_everything_goes_on(visit: Visit, data: dict[str, Any]) -> None:
    page = visit()
    page.wait_for_function("count => lessons.served.size === count", arg=len(data["runs"]))
    page.evaluate("Promise.all([...lessons.served.values()]).then(() => true)")
    page.context.unroute_all()
    page.context.set_offline(True)
    for lesson in data["lessons"]:
        opened(page, lesson)
    assert not page.locator(".dl-trouble").is_visible()


def test_a_round_that_does_not_load_can_be_asked_for_again(chromium: Browser, address: str) -> None:
    with chromium.new_context() as context:
        page = context.new_page()
        page.route("**/recorded/*", lambda route: route.abort())
        page.goto(address)
        page.wait_for_selector(".dl-trouble:not([hidden])")
        assert "could not be loaded" in page.inner_text(".dl-trouble")
        page.unroute_all()
        page.get_by_role("button", name="Try again").click()
        ready(page)
        assert not page.locator(".dl-trouble").is_visible()


@pytest.mark.parametrize("size", [(390, 844), (820, 1180), (1440, 900)])
def test_U_no_lesson_scrolls_sideways(visit: Visit, data: dict[str, Any], size: tuple[int, int]) -> None:
    page = visit(size, has_touch=size[0] < 500)
    for lesson in data["lessons"]:
        opened(page, lesson)
        page.get_by_role("button", name="Show the answer").click()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size[0], f"{lesson['id']} is {wide} px wide"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(visit: Visit, theme: str) -> None:
    page = visit(color_scheme=theme)
    assert page.evaluate("lessons.root.dataset.theme") == theme
    ratios = page.evaluate("""() => {
      const part = (c) => { const v = c / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
      const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
      const light = (text) => { const [r, g, b] = rgb(text).map(part); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const behind = (e) => {
        for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$|transparent/.test(c)) return c; }
        return lessons.root.dataset.theme === "dark" ? "rgb(14, 17, 22)" : "rgb(255, 255, 255)";
      };
      lessons.goto("budget");
      lessons.root.querySelector(".dl-ask button").click();
      return [...lessons.root.querySelectorAll(".dl-nav *, .dl-head *, .dl-rest *")]
        .filter((e) => !e.disabled && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
        .map((e) => { const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
                      return [e.className || e.tagName, (a + 0.05) / (b + 0.05)]; });
    }""")
    assert len(ratios) > 30
    poor = [(name, round(ratio, 2)) for name, ratio in ratios if ratio < 4.5]
    assert not poor


# ---- as a tab of the page


def test_a_talk_can_be_given_from_the_lessons_tab(chromium: Browser, data: dict[str, Any]) -> None:
    lesson = next(x for x in data["lessons"] if any("beside" in action for action in x["actions"]))
    picture = lesson["picture"]
    player = "DominoLinks.parts.lessons.player"
    library = Library()
    with serving(library, ScriptedEngine(state="off")) as (address, _), chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{address}#lesson={lesson['id']}&present=1")
        page.wait_for_selector("html.dp-present-page .dl .dp-presenting", timeout=30_000)
        page.wait_for_selector(".dl-picture:not([aria-busy]) .dp-plot svg text")
        assert f"Round {picture['round']} of" in page.inner_text(".dl .dp-present-head")
        assert page.is_visible(".dl .dp-output"), (
            "what was written is on the screen, whatever the lesson shows"
        )
        page.keyboard.press("q")  # the view on the screen, which Explore can show
        link = page.inner_text(".dl .dp-present-link")
        assert (
            f"run={picture['run']}" in link and f"round={picture['round']}" in link and "lesson" not in link
        )
        page.keyboard.press("q")
        page.keyboard.press("c")
        beside = next(action["beside"] for action in lesson["actions"] if "beside" in action)
        page.wait_for_function(f"with_ => {player}.state().with === with_", arg=beside)
        page.keyboard.press("q")
        assert f"with={beside}" in page.inner_text(".dl .dp-present-link")
        assert "tab=compare" in page.inner_text(".dl .dp-present-link")
        page.keyboard.press("Escape")
        other = next(
            run["id"] for group in library.menu() for run in group["runs"] if run["id"] not in data["runs"]
        )
        page.evaluate(
            "id => DominoPlayer.stops.replace([{run: id, round: 2, note: ''}])", other
        )  # a stop may show any run of the page
        page.keyboard.press("Home")
        page.wait_for_function(
            f"id => {player}.state().run === id && {player}.state().round === 2", arg=other
        )
        page.keyboard.press("Escape")
        page.wait_for_function("!location.hash.includes('present')")
        assert f"lesson={lesson['id']}" in page.url
        page.get_by_role("button", name="Back to the lesson’s round").click()
        page.wait_for_function(f"id => {player}.state().run === id", arg=picture["run"])


def test_the_page_opens_lessons_when_asked(chromium: Browser, data: dict[str, Any]) -> None:
    with (
        serving(Library(), ScriptedEngine(state="off")) as (page_address, _),
        chromium.new_context() as context,
    ):
        asked: list[str] = []
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_address)
        page.wait_for_selector("#explore-player .dp:not(.dp-is-empty)")
        assert not [url for url in asked if "lessons" in url], (
            "the lessons are fetched before they are opened"
        )
        page.get_by_role("tab", name="Lessons").click()
        page.wait_for_selector(".dl-picture:not([aria-busy]) .dp-plot svg text", timeout=30_000)
        assert page.text_content(".dl-claim") == text(data["lessons"][0]["claim"])
        shown = (
            page.inner_text("#explore-player .dp-slider-text")
            if page.locator("#explore-player .dp-slider-text").first.is_visible()
            else ""
        )
        assert shown == "", "Explore is hidden while the lessons are open"
        before = page.inner_text(".dl .dp-slider-text")
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "before => document.querySelector('.dl .dp-slider-text').textContent !== before", arg=before
        )
        theme = page.evaluate("document.querySelector('.dl').dataset.theme")
        page.get_by_role("button", name="Switch between light and dark").click()
        page.wait_for_function("theme => document.querySelector('.dl').dataset.theme !== theme", arg=theme)
        page.locator(".dl-pill").nth(4).click()
        link = page.url
        assert link.endswith("#lesson=budget")
        page.goto("about:blank")
        page.goto(link)
        page.wait_for_selector(".dl-title:has-text('Best first')", timeout=30_000)
        assert not [url for url in asked if not url.startswith((page_address, "data:", "blob:", "about:"))]
