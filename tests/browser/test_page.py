"""The page in a real Chromium: open, step, compare, run live, stop, save, several visitors at once."""

from __future__ import annotations

import io
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers import visitors
from page_tools import ScriptedEngine, busy, serving, until, write_library
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.routing import Mount
from trace_factory import make_trace

from dominotree import trace as tr
from viz.library import Library

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SHOWN = "#{0}-player .dp:not(.dp-is-empty)"


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(0.05, rounds=8)


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, engine: ScriptedEngine
) -> Iterator[tuple[str, Library, Any]]:
    library = write_library(tmp_path_factory.mktemp("page") / "traces")
    library.warm()
    with serving(library, engine) as (address, sessions):
        yield address, library, sessions


@pytest.fixture
def visit(chromium: Browser, site: Any, engine: ScriptedEngine) -> Iterator[Callable[..., Page]]:
    """Open the page as a new visitor; anything asked of another host, or any script error, fails the test."""
    engine.seconds, engine.rounds, engine.fail_at, engine.refusal = 0.05, 8, None, ""
    with visitors(chromium, r"(https?://127\.0\.0\.1[:/]|data:|blob:)", console=False) as new_page:

        def open_page(address: str = site[0], size: tuple[int, int] = (1440, 900), **more: Any) -> Page:
            page = new_page(size, **more)
            page.goto(address)
            page.wait_for_selector(SHOWN.format("explore"))
            return page

        yield open_page


def state(page: Page, tab: str = "explore") -> dict[str, Any]:
    return page.evaluate(
        """(tab) => {
            const s = DominoPage.state(tab);
            return {shown: s.shown, message: s.message[0], kind: s.message[1], player: s.player,
                    rounds: s.live ? s.live.rounds : 0, over: s.live ? s.live.over : null};
        }""",
        tab,
    )


def shown_text(page: Page, tab: str = "explore") -> str:
    return page.inner_text(f"#{tab}-player")


def round_now(page: Page, tab: str = "explore") -> int:
    return page.evaluate("(tab) => DominoPage.state(tab).player.round", tab)


def at_round(page: Page, expected: int, tab: str = "explore") -> None:
    """Wait until the player stands at a round: it draws in the next frame after a key."""
    page.wait_for_function(
        "([tab, n]) => DominoPage.state(tab).player.round === n", arg=[tab, expected], timeout=5000
    )


def ask(page: Page, prompt: str, tab: str = "explore") -> None:
    page.fill(f"#{tab}-prompt textarea", prompt)
    page.click(f"#{tab}-run")


def wait_rounds(page: Page, count: int = 1, tab: str = "explore") -> None:
    page.wait_for_function(
        "([tab, n]) => DominoPage.state(tab).live && DominoPage.state(tab).live.rounds >= n", arg=[tab, count]
    )


def wait_over(page: Page, tab: str = "explore") -> None:
    page.wait_for_function("(tab) => DominoPage.state(tab).live && DominoPage.state(tab).live.over", arg=tab)


def choose(page: Page, menu: str, title: str) -> None:
    page.click(f"#{menu} input")
    page.get_by_role("option", name=title, exact=True).click()


def saved(page: Page, button: str) -> str:
    with page.expect_download() as waiting:
        page.click(f"#{button}")
    return Path(waiting.value.path()).read_bytes().decode("utf-8")


def test_a_recorded_run_is_visible_within_3_s_and_nothing_comes_from_outside(visit: Any) -> None:
    spent = []
    for _ in range(2):  # the better of two, and more time where others use the machine as well
        started = time.monotonic()
        page = visit()
        spent.append(time.monotonic() - started)
    assert min(spent) < 3 * busy()
    assert "Round 1 of 12" in shown_text(page)
    assert page.locator("#explore-player .js-plotly-plot").count() >= 1
    assert page.title() == "DominoTree Live"
    page.wait_for_selector(".dt-badge[data-state=ready]")


def test_keys_step_and_toggle_without_the_server(visit: Any) -> None:
    page = visit()
    page.context.set_offline(True)
    for key, expected in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 12), ("Home", 1)):
        page.keyboard.press(key)
        at_round(page, expected)
    assert page.evaluate("DominoPage.state('explore').player.scoring") is None
    page.keyboard.press("s")
    assert page.evaluate("DominoPage.state('explore').player.scoring") in ("static", "marginal")
    page.click("#explore-prompt textarea")
    page.keyboard.press("ArrowRight")  # in a text field the keys are the field's
    assert round_now(page) == 1


def test_recorded_runs_are_chosen_by_prompt_and_method(visit: Any, site: Any) -> None:
    page = visit()
    ids = {(run.kind, run.method): run.run_id for run in site[1].runs}
    choose(page, "explore-group", "Code")
    page.wait_for_function(
        "(id) => DominoPage.state('explore').player.run === id", arg=ids["code", "dominotree"]
    )
    assert page.input_value("#explore-prompt textarea") == "A code prompt."
    choose(page, "explore-run-choice", "DDTree")
    page.wait_for_function("(id) => DominoPage.state('explore').player.run === id", arg=ids["code", "ddtree"])
    choose(page, "explore-group", "Chat")  # the method stays
    page.wait_for_function("(id) => DominoPage.state('explore').player.run === id", arg=ids["chat", "ddtree"])


def test_U19_compare_is_drawn_the_first_time_it_is_opened(visit: Any, site: Any) -> None:
    page = visit()
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(SHOWN.format("compare"))
    assert page.locator("#compare-player .js-plotly-plot").count() == 2
    ids = {(run.kind, run.method): run.run_id for run in site[1].runs}
    told = state(page, "compare")["player"]
    assert (told["run"], told["with"]) == (ids["math", "dominotree"], ids["math", "ddtree"])
    page.keyboard.press("ArrowRight")
    assert state(page, "compare")["player"]["at"] == 1
    assert round_now(page, "explore") == 1  # the hidden player does not listen
    choose(page, "compare-right", "Autoregressive")
    page.wait_for_function("(id) => DominoPage.state('compare').player.with === id", arg=ids["math", "ar"])
    page.get_by_role("tab", name="Explore").click()
    page.keyboard.press("ArrowRight")
    at_round(page, 2)


def test_a_live_run_streams_in_and_can_be_stepped_like_a_recorded_one(visit: Any) -> None:
    page = visit()
    ask(page, "hello there")
    wait_rounds(page, 2)
    assert "decoding" in state(page)["message"]
    wait_over(page)
    page.wait_for_function(
        "DominoPage.state('explore').shown.length === 1 && DominoPage.state('explore').player.run"
    )
    told = state(page)
    assert told["rounds"] == 8 and "tokens in 8 rounds" in told["message"]
    assert "Round 8 of 8" in shown_text(page)
    page.keyboard.press("Home")
    at_round(page, 1)
    assert page.input_value("#explore-group input") == "Your runs"


def test_stop_shows_at_once_and_run_right_after_works(visit: Any, engine: ScriptedEngine, site: Any) -> None:
    engine.seconds, engine.rounds = 0.03, 300
    page = visit()
    ask(page, "to be stopped")
    wait_rounds(page, 2)
    reaction = page.evaluate(
        """async () => {
            const started = performance.now();
            document.getElementById("explore-stop").click();
            const stopped = () => DominoPage.state("explore").message[0].startsWith("Stop");
            while (!stopped()) await new Promise(requestAnimationFrame);
            return performance.now() - started;
        }"""
    )
    assert reaction < 100
    ask(page, "right after")
    wait_rounds(page, 1)
    until(lambda: engine.prompts[-2:] == ["to be stopped", "right after"])
    page.click("#explore-stop")
    wait_over(page)
    until(lambda: site[2].load == 0, 2)
    assert "partial" in shown_text(page)


def test_closing_the_tab_ends_the_run(visit: Any, engine: ScriptedEngine, site: Any) -> None:
    engine.seconds, engine.rounds = 0.05, 300
    page = visit()
    ask(page, "nobody waits for this")
    wait_rounds(page, 1)
    assert site[2].load == 1
    page.close()
    until(lambda: site[2].load == 0, 6)


def test_U21_files_are_of_the_run_on_the_screen_at_the_click(visit: Any, site: Any) -> None:
    page = visit()
    recorded = pd.read_csv(io.StringIO(saved(page, "explore-rounds-csv")))
    assert set(recorded["run_id"]) == {site[1].runs[0].run_id} and len(recorded) == 12
    ids = []
    for prompt in ("run A", "run B"):
        ask(page, prompt)
        wait_over(page)
        page.wait_for_function("() => DominoPage.state('explore').message[0].includes('tokens in 8 rounds')")
        ids.append(state(page)["player"]["run"])
    rounds = pd.read_csv(io.StringIO(saved(page, "explore-rounds-csv")))
    nodes = pd.read_csv(io.StringIO(saved(page, "explore-nodes-csv")))
    trace = tr.from_json(saved(page, "explore-trace-json"))
    assert ids[0] != ids[1]
    assert set(rounds["run_id"]) == set(nodes["run_id"]) == {ids[1]} == {trace.run_id}
    assert trace.prompt["text"] == "run B" and len(rounds) == len(trace.rounds) == 8
    assert nodes["token_escaped"].tolist() == [
        tr.token_escaped(bytes.fromhex(trace.tokens[t])) for rnd in trace.rounds for t in rnd.nodes.token
    ]
    choose(page, "explore-run-choice", "1 · DominoTree")  # back to run A
    page.wait_for_function("(id) => DominoPage.state('explore').player.run === id", arg=ids[0])
    assert set(pd.read_csv(io.StringIO(saved(page, "explore-rounds-csv")))["run_id"]) == {ids[0]}


def test_import_shows_a_trace_and_refuses_others_with_a_sentence(visit: Any, tmp_path: Path) -> None:
    page = visit()
    good, bad = tmp_path / "mine.json.gz", tmp_path / "bad.json"
    trace = make_trace(3, 8, seed=77, method="static")
    tr.save(trace, good)
    bad.write_text("{]")

    def take(path: Path) -> None:
        with page.expect_file_chooser() as chooser:
            page.click("#explore-import")
        chooser.value.set_files(path)

    before = state(page)["player"]["run"]
    take(bad)
    page.wait_for_function("DominoPage.state('explore').message[1] === 'error'")
    assert "not strict JSON" in state(page)["message"] and state(page)["player"]["run"] == before
    take(good)
    page.wait_for_function("(id) => DominoPage.state('explore').player.run === id", arg=tr.load(good).run_id)
    assert tr.from_json(saved(page, "explore-trace-json")).run_id == tr.load(good).run_id
    page.wait_for_function("document.querySelector('#explore-group input').value === 'Your runs'")


def test_U29_a_run_of_one_round_works(visit: Any, engine: ScriptedEngine) -> None:
    engine.rounds = 1
    page = visit()
    ask(page, "short")
    wait_over(page)
    page.wait_for_function("DominoPage.state('explore').message[0].includes('in 1 round')")
    page.keyboard.press("ArrowRight")
    assert round_now(page) == 1 and "Round 1 of 1" in shown_text(page)


def test_U32_a_failed_run_shows_its_own_rounds_as_partial_and_never_the_older_run(
    visit: Any, engine: ScriptedEngine
) -> None:
    page = visit()
    ask(page, "run A")
    wait_over(page)
    page.wait_for_function("DominoPage.state('explore').message[0].includes('tokens in 8 rounds')")
    run_a = state(page)["player"]["run"]
    engine.fail_at = 3
    ask(page, "run B")
    wait_over(page)
    page.wait_for_function("DominoPage.state('explore').message[1] === 'error'")
    assert "internal error (RuntimeError)" in state(page)["message"]
    assert "partial" in shown_text(page) and "of 2" in shown_text(page)
    rounds = pd.read_csv(io.StringIO(saved(page, "explore-rounds-csv")))
    assert len(rounds) == 2 and run_a not in set(rounds["run_id"])
    engine.fail_at = 1
    ask(page, "run C")
    wait_over(page)
    page.wait_for_function("DominoPage.state('explore').message[1] === 'error'")
    assert state(page)["shown"] == [] and page.is_disabled("#explore-rounds-csv")
    choose(page, "explore-run-choice", "1 · DominoTree")  # the earlier run is still there when asked for
    page.wait_for_function("(id) => DominoPage.state('explore').player.run === id", arg=run_a)


def test_a_run_that_the_engine_refuses_keeps_what_is_shown(visit: Any, engine: ScriptedEngine) -> None:
    page = visit()
    before = state(page)["player"]["run"]
    engine.refusal = "The prompt has 9000 tokens, but the context holds 2048: shorten it."
    ask(page, "far too long")
    wait_over(page)
    assert state(page)["message"] == engine.refusal
    assert state(page)["player"]["run"] == before and len(state(page)["shown"]) == 1
    assert page.locator(".dt-stale").count() == 0


def test_bad_settings_get_a_sentence_and_keep_what_is_shown(visit: Any) -> None:
    page = visit()
    before = state(page)["player"]["run"]
    page.click("#explore-more")
    for label, value, named in (
        ("Temperature", "-1", "-1"),
        ("Budget", "1000000", "1000000"),
        ("New tokens", "0", "0"),
    ):
        field = page.locator("#explore-settings").get_by_label(label)
        old = field.input_value()
        field.fill(value)
        ask(page, "hello")
        page.wait_for_function(
            "(v) => DominoPage.state('explore').message[0].includes(v)", arg=f"not {named}"
        )
        assert state(page)["kind"] == "error" and state(page)["player"]["run"] == before
        field.fill(old)
    ask(page, "   ")
    page.wait_for_function("DominoPage.state('explore').message[0].startsWith('The prompt is empty')")
    assert page.locator(".toast-body").count() == 0


def test_the_budget_shown_is_the_usual_one_of_the_method_until_another_is_typed(visit: Any) -> None:
    page = visit()
    page.click("#explore-more")
    budget = page.locator("#explore-settings").get_by_label("Budget")
    expect(budget).to_have_value("16")
    choose(page, "explore-method", "CondAdaptive")
    expect(budget).to_have_value("256")
    choose(page, "explore-method", "DDTree")
    expect(budget).to_have_value("16")
    budget.fill("40")
    choose(page, "explore-method", "CaDDTree")
    page.wait_for_timeout(300)
    expect(budget).to_have_value("40")


def test_in_compare_a_method_that_decides_round_by_round_has_its_own_cap(
    visit: Any, engine: ScriptedEngine
) -> None:
    page = visit()
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector("#compare-player .dp:not(.dp-is-empty)")
    choose(page, "compare-right", "CondAdaptive")
    ask(page, "both", "compare")
    wait_over(page, "compare")
    assert [settings["budget"] for settings in engine.settings[-2:]] == [16, 256]


def test_a_menu_that_is_opened_and_left_changes_nothing(visit: Any) -> None:
    page = visit()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("DominoPage.state('explore').player.round === 5")
    page.click("#explore-run-choice input")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    page.click("#explore-group input")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    page.wait_for_timeout(400)
    assert state(page)["player"]["round"] == 5


def test_a_run_of_one_token_shows_its_token_and_nothing_of_the_run_before(
    visit: Any, engine: ScriptedEngine
) -> None:
    page = visit()
    page.keyboard.press("End")
    engine.rounds = 0
    ask(page, "one token")
    wait_over(page)
    page.wait_for_function("DominoPage.state('explore').message[0].includes('1 token in 0 rounds')")
    page.wait_for_function("DominoPage.state('explore').shown[0].base.startsWith('live/')")
    player = page.locator("#explore-player")
    expect(player.locator(".dp-headline").first).to_have_text("No rounds were recorded")
    assert player.locator(".dp-walk li").count() == 0 and not player.locator(".dp-nodes").count()
    assert player.locator(".dp-strip-tip").inner_text() == ""
    assert player.locator(".dp-output .dp-prefill .dp-t").count() == 1
    says = page.evaluate("DominoPage.inside.tabs.explore.own.map((own) => own.title)")
    assert len(says) == 1


def test_a_live_run_shows_its_first_token_from_the_start(visit: Any, engine: ScriptedEngine) -> None:
    engine.seconds, engine.rounds = 0.3, 40
    page = visit()
    ask(page, "live")
    wait_rounds(page, 2)
    first = "DominoPage.inside.tabs.explore.player.run.pieces[0]"
    assert page.evaluate(f"{first}.round") == 0 and page.evaluate(f"{first}.text") != ""
    assert "run=" not in page.evaluate("location.hash")  # it has no name yet, and the run before is not its
    page.click("#explore-stop")
    wait_over(page)


def test_S01_two_visitors_at_once_see_only_their_own_run(visit: Any) -> None:
    pages = {name: visit() for name in ("alpha", "beta")}
    for name, page in pages.items():
        ask(page, f"prompt {name}")
    for page in pages.values():
        wait_over(page)
        page.wait_for_function("DominoPage.state('explore').message[0].includes('tokens in 8 rounds')")
    texts = {}
    for name, page in pages.items():
        trace = tr.from_json(saved(page, "explore-trace-json"))
        assert trace.prompt["text"] == f"prompt {name}"
        texts[name] = trace.run_id
    assert texts["alpha"] != texts["beta"]
    pages["beta"].wait_for_function("(id) => location.hash.includes(id)", arg=texts["beta"])
    pages["beta"].reload()  # a reload finds one's own run again, another visitor none
    pages["beta"].wait_for_function(
        "(id) => DominoPage.state('explore').player?.run === id", arg=texts["beta"]
    )
    third = visit()
    assert third.input_value("#explore-group input") == "Math"
    assert state(third)["player"]["run"] not in texts.values()


def test_waiting_visitors_are_told_their_place(visit: Any, engine: ScriptedEngine) -> None:
    engine.seconds, engine.rounds = 0.1, 300
    first, second = visit(), visit()
    ask(first, "long")
    wait_rounds(first)
    ask(second, "next")
    place = "Waiting: one run before yours, about"
    second.wait_for_function("(text) => DominoPage.state('explore').message[0].startsWith(text)", arg=place)
    first.close()
    wait_rounds(second)


def test_S10_prompts_and_tokens_are_shown_as_typed_and_never_run(visit: Any) -> None:
    page = visit()
    page.evaluate("() => { window.ran = 0; window.alert = () => { window.ran++; }; }")
    prompt = "<img src=x onerror=window.ran++> ${window.ran++} {{value}} <script>window.ran++</script>"
    ask(page, prompt)
    wait_over(page)
    page.wait_for_function("DominoPage.state('explore').message[0].includes('tokens in 8 rounds')")
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate("window.ran") == 0
    assert tr.from_json(saved(page, "explore-trace-json")).prompt["text"] == prompt
    assert page.locator("#explore-player img").count() == 0


def test_compare_runs_both_methods_live(visit: Any) -> None:
    page = visit()
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector(SHOWN.format("compare"))
    ask(page, "both of them", "compare")
    wait_over(page, "compare")
    page.wait_for_function("DominoPage.state('compare').shown.length === 2")
    told = state(page, "compare")
    assert "DominoTree: " in told["message"] and "DDTree: " in told["message"]
    assert page.locator("#compare-player .js-plotly-plot").count() == 2
    with (
        page.expect_download() as first,
        page.expect_download(lambda file: "ddtree" in file.suggested_filename),
    ):
        page.click("#compare-rounds-csv")
    assert first.value.suggested_filename.startswith("dominotree-dominotree-")


def test_without_a_first_round_in_5_s_a_recorded_run_is_offered(visit: Any, engine: ScriptedEngine) -> None:
    engine.seconds, engine.rounds = 6.5, 2
    page = visit()
    ask(page, "slow")
    page.wait_for_selector(".dt-stale")  # what was shown stays, dimmed
    page.get_by_role("button", name="Watch a recorded run meanwhile").click()
    page.wait_for_function("document.querySelector('.dt-stale') === null")
    assert state(page)["over"] is False
    page.click("#explore-stop")
    wait_over(page)


def test_below_a_path(visit: Any, site: Any) -> None:
    def below(app: Any) -> Any:
        return Starlette(
            routes=[Mount("/some/place", app)], lifespan=lambda _: app.router.lifespan_context(app)
        )

    with serving(site[1], ScriptedEngine(0.01, 4), wrap=below) as (address, _):
        page = visit(f"{address}some/place/")
        ask(page, "below a path")
        wait_over(page)
        page.wait_for_function("DominoPage.state('explore').message[0].includes('tokens in 4 rounds')")
        assert len(pd.read_csv(io.StringIO(saved(page, "explore-rounds-csv")))) == 4


@pytest.mark.parametrize("size", [(390, 844), (1440, 900)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_the_screen(visit: Any, size: tuple[int, int], scheme: str) -> None:
    page = visit(size=size, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    if size[0] == 1440:
        tree = page.locator("#explore-player .js-plotly-plot").first.bounding_box()
        assert tree is not None and tree["y"] + tree["height"] <= 900
    dark = page.evaluate("getComputedStyle(document.querySelector('#explore-player .dp')).backgroundColor")
    assert dark == page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click(".dt-theme")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('#explore-player .dp')).backgroundColor")
        != dark
    )


def test_what_is_shown_stays_usable_when_the_server_is_gone(chromium: Browser, site: Any) -> None:
    with serving(site[1], ScriptedEngine()) as (address, _):
        page = chromium.new_page()
        page.goto(address)
        page.wait_for_selector(SHOWN.format("explore"))
    page.keyboard.press("ArrowRight")
    at_round(page, 2)
    assert len(pd.read_csv(io.StringIO(saved(page, "explore-rounds-csv")))) == 12  # made by the browser
    choose(page, "explore-group", "Chat")  # never asked for while the server was there
    page.wait_for_function("DominoPage.state('explore').message[0].startsWith('The server does not answer')")
    page.wait_for_selector(".dt-badge[data-state=offline]", timeout=20000)
    page.click("#explore-run")
    page.wait_for_function("DominoPage.state('explore').message[0].startsWith('Starting')")
    page.wait_for_function("DominoPage.state('explore').message[0].startsWith('The server does not answer')")
    assert not page.locator(".toast-body").is_visible()
    page.close()


@pytest.mark.pair
def test_the_real_app_runs_the_real_pair(chromium: Browser, tmp_path: Path) -> None:
    port = 7931
    app = subprocess.Popen([sys.executable, "app.py", "--port", str(port)], cwd=ROOT)
    try:
        address = f"http://127.0.0.1:{port}/"

        def answers() -> bool:
            try:
                return bool(urllib.request.urlopen(address, timeout=2).status == 200)
            except OSError:
                return False

        until(answers, 60)
        page = chromium.new_page()
        page.goto(address)
        page.wait_for_selector(".dt-badge[data-state=ready]", timeout=240_000)
        page.fill("#explore-prompt textarea", "Name three colours of the rainbow.")
        page.click("#explore-more")
        page.locator("#explore-settings").get_by_label("New tokens").fill("24")
        page.click("#explore-run")
        wait_rounds(page)
        page.wait_for_function("DominoPage.state('explore').live.over", timeout=240_000)
        page.wait_for_function("DominoPage.state('explore').message[0].includes('τ')")
        rounds = pd.read_csv(io.StringIO(saved(page, "explore-rounds-csv")))
        trace = tr.from_json(saved(page, "explore-trace-json"))
        assert trace.summary["new_tokens"] <= 24 and len(rounds) == len(trace.rounds) > 0
        assert 1 + sum(rnd.kept for rnd in trace.rounds) == trace.summary["new_tokens"]
        assert trace.header["pair"]["name"] == "default"
        assert set(rounds["run_id"]) == {trace.run_id}
        page.close()
    finally:
        app.terminate()
        app.wait(20)
