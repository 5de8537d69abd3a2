"""Links: what an address carries, Back and Forward, unknown runs, reloads; a talk goes on when the server is killed."""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import Open, visitors
from page_tools import ScriptedEngine, serving, until
from playwright.sync_api import Browser, Page, expect
from test_present import modules_of
from trace_factory import make_trace

from dominotree import trace as tr
from viz.library import Library

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SHOWN = "#{0}-player .dp:not(.dp-is-empty)"


# ---- the address as text: no page behind it ---------------------------------------------------------------


def random_view(rng: random.Random) -> dict[str, Any]:
    """Any sensible view: each field there or not."""
    fields = {
        "run": f"{rng.getrandbits(64):016x}",
        "with": f"{rng.getrandbits(64):016x}",
        "round": rng.randint(1, 400),
        "by": rng.choice(["round", "position", "race"]),
        "at": rng.randint(0, 900),
        "scoring": rng.choice(tr.SCORERS),
        "node": rng.randint(-2, 1023),
        "filters": {"target": "Qwen3-4B", "temperature": "1", "own-view": "rounds by method"},
        "stops": "1" + "".join(rng.choices("abcXYZ019-_", k=40)),
        "present": True,
    }
    view = {name: value for name, value in fields.items() if rng.random() < 0.6}
    tab = rng.choice([None, "compare", "benchmarks", "lessons"])
    if tab == "lessons":
        view["lesson"] = "top-m"
    return {**view, **({"tab": tab} if tab else {})}


def test_every_view_survives_the_address(visit_player: Open) -> None:
    rng = random.Random(5)
    views = [random_view(rng) for _ in range(300)]
    back = visit_player().evaluate(
        "(views) => views.map((v) => DominoPlayer.link.decode(DominoPlayer.link.encode(v)))", views
    )
    assert back == views


def test_an_address_that_makes_no_sense_is_left_out_and_never_fails(visit_player: Open) -> None:
    rng = random.Random(6)
    garbage = [
        "#", "#=", "#run", "#run=", "#run=<img src=x onerror=alert(1)>", "#round=0", "#round=-3", "#round=1e9",
        "#round=NaN&node=-3&scoring=constructor&tab=__proto__&by=x&present=yes", "#filters=a", "#filters=:,:",
        "#stops=2abc", "#stops=1$", "#lesson=../..", "#%E0%A4%A", "#run=" + "a" * 65, "#x=" + "y" * 70000,
    ]  # fmt: skip
    garbage += ["#" + "".join(chr(rng.randint(1, 0x2FF)) for _ in range(60)) for _ in range(200)]
    page = visit_player()
    found = page.evaluate("(all) => all.map((hash) => DominoPlayer.link.decode(hash))", garbage)
    assert found == [{}] * len(garbage)
    assert page.evaluate("DominoPlayer.link.decode('#run=ab&round=x&scoring=marginal')") == {
        "run": "ab",
        "scoring": "marginal",
    }


def test_stops_survive_the_address_compressed_and_garbage_is_told_in_a_sentence(visit_player: Open) -> None:
    page = visit_player()
    notes = ["", "Plain words, and many of them: the correction pays here.", 'ü 多 🎲 "quoted" <b>\n#&=%']
    stops = [
        {"run": f"{k % 3:016x}", "round": k + 1, "note": notes[k % 3]}
        | ({"scoring": "static"} if k % 2 else {})
        | ({"with": "f" * 16} if k % 3 == 1 else {})
        | ({"node": -2} if k % 5 == 0 else {})
        for k in range(12)
    ]
    stops.append({"run": "a" * 16, "with": "b" * 16, "by": "position", "at": 0, "round": 1, "note": ""})
    text = page.evaluate("(stops) => DominoPlayer.link.pack(stops)", stops)
    assert re.fullmatch(r"1[A-Za-z0-9_-]+", text) and len(text) < 0.4 * len(json.dumps(stops))
    assert page.evaluate("(text) => DominoPlayer.link.unpack(text)", text) == stops
    refuse = "(text) => DominoPlayer.link.unpack(text).then((list) => list.length, (error) => error.message)"
    bomb = page.evaluate(
        """async () => { const packer = new CompressionStream('deflate-raw'), writer = packer.writable.getWriter();
          writer.write(new Uint8Array(50e6)); writer.close();
          const bytes = new Uint8Array(await new Response(packer.readable).arrayBuffer());
          let text = ''; for (const b of bytes) text += String.fromCharCode(b);
          return '1' + btoa(text).replace(/\\+/g, '-').replace(/\\//g, '_').replace(/=+$/, ''); }"""
    )
    rng = random.Random(7)
    broken = [text[: len(text) // 2], "1", "0", "1AAAA", "0" + "QUJD", "0bnVsbA", "0W10", "0WzEsMl0", bomb]
    broken += ["1" + "".join(rng.choices("abcXYZ019-_", k=50)) for _ in range(40)]
    for garbage in broken:
        assert page.evaluate(refuse, garbage) in (
            0, "The stops in this link cannot be read: it may have been cut when it was copied."
        ), garbage  # fmt: skip


def test_stops_of_a_link_do_not_replace_the_visitors_own_until_asked(visit_player: Open) -> None:
    page = visit_player()
    listed = "DominoPlayer.stops.list.map((s) => s.note)"
    page.evaluate("() => DominoPlayer.stops.replace([{run: 'mine', round: 1, note: 'mine'}])")
    page.wait_for_function("location.hash.includes('stops=')")
    text = page.evaluate("DominoPlayer.link.pack([{run: 'theirs', round: 2, note: 'theirs'}])")
    page.evaluate("(text) => { location.hash = 'stops=' + text; }", text)
    page.wait_for_function("DominoPlayer.stops.borrowed")
    assert page.evaluate(listed) == ["theirs"]
    assert json.loads(page.evaluate("localStorage['dt-stops']"))[0]["note"] == "mine"
    page.evaluate("() => DominoPlayer.stops.mine()")
    assert page.evaluate(listed) == ["mine"]
    page.evaluate("() => { location.hash = 'stops=1broken'; }")
    page.wait_for_function("DominoPlayer.stops.trouble.startsWith('The stops in this link cannot be read')")
    assert page.evaluate(listed) == ["mine"]


# ---- the page ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(0.02, rounds=6)


@pytest.fixture(scope="module")
def library() -> Library:
    """The recorded runs that come with the project: the lessons need them."""
    return Library()


@pytest.fixture(scope="module")
def site(library: Library, engine: ScriptedEngine) -> Iterator[str]:
    with serving(library, engine) as (address, _):
        yield address


@pytest.fixture
def visit(chromium: Browser, site: str, engine: ScriptedEngine) -> Iterator[Callable[..., Page]]:
    """Open the page with a hash as a new visitor; script errors and outside requests fail the test."""
    engine.seconds, engine.rounds = 0.02, 6
    with visitors(chromium, console=False) as new_page:

        def open_page(hash: str = "", **more: Any) -> Page:
            page = new_page(**more)
            page.goto(site + hash)
            return page

        yield open_page


def id_of(library: Library, group: int, method: str) -> str:
    """The first run of a method in a group of the menu."""
    return next(str(run["id"]) for run in library.menu()[group]["runs"] if run["method"] == method)


def at(page: Page, tab: str = "explore", **expected: Any) -> None:
    """Wait until the player of a tab stands there."""
    page.wait_for_function(
        """([tab, expected]) => { const now = DominoPage.state(tab).player || {};
          return Object.entries(expected).every(([name, value]) => now[name] === value); }""",
        arg=[tab, expected],
    )


def says(page: Page, *parts: str) -> None:
    page.wait_for_function("(parts) => parts.every((part) => location.hash.includes(part))", arg=list(parts))


def test_a_link_opens_run_round_scoring_and_node_and_the_menus_follow(visit: Any, library: Library) -> None:
    run = id_of(library, 1, "static")
    page = visit(f"#run={run}&round=4&scoring=marginal&node=2")
    at(page, run=run, round=4, scoring="marginal", node=2)
    assert page.evaluate("location.hash") == f"#run={run}&round=4&scoring=marginal&node=2"
    group = library.menu()[1]
    expect(page.locator("#explore-group input")).to_have_value(group["title"])
    expect(page.locator("#explore-run-choice input")).to_have_value("Static-corrected tree")
    expect(page.locator("#explore-prompt textarea")).to_have_value(group["prompt"])
    assert page.evaluate("DominoPage.state('explore').shown[0].base") == f"recorded/{run}"
    labels = page.locator(".dt-tab:visible label").all_inner_texts()
    assert len(labels) == len(set(labels))  # no two controls of the same name
    page.keyboard.press("ArrowRight")
    page.keyboard.press("s")
    says(page, "round=5", "scoring=")


def test_back_and_forward_go_through_runs_tabs_and_lessons(visit: Any, library: Library) -> None:
    run, other = id_of(library, 0, "dominotree"), id_of(library, 2, "ddtree")
    page = visit()
    at(page, run=run)
    page.keyboard.press("ArrowRight")
    says(page, "round=2")
    page.evaluate("(hash) => { location.hash = hash; }", f"run={other}&round=3")
    at(page, run=other, round=3)
    page.get_by_role("tab", name="Compare").click()
    says(page, "tab=compare", "run=", "with=")
    page.get_by_role("tab", name="Lessons").click()
    says(page, "lesson=")
    lesson = page.evaluate("location.hash.slice(1).split('&')[0]")
    page.locator(".dl-pill").nth(2).click()
    page.wait_for_function("(lesson) => !location.hash.includes(lesson)", arg=lesson)
    page.go_back()
    says(page, lesson)
    expect(page.locator(".dl-kicker")).to_contain_text("Lesson 1 of")
    page.go_back()
    says(page, "tab=compare")
    expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(page.get_by_role("tab", name="Explore")).to_have_attribute("aria-selected", "true")
    at(page, run=other, round=3)
    page.go_back()
    at(page, run=run, round=2)
    page.go_forward()
    at(page, run=other, round=3)
    expect(page.locator("#explore-group input")).to_have_value(library.menu()[2]["title"])


def test_a_link_opens_a_pair_with_its_way_of_stepping(visit: Any, library: Library) -> None:
    left, right = id_of(library, 2, "marginal"), id_of(library, 2, "dflash")
    page = visit(f"#tab=compare&run={left}&with={right}&by=position&at=3")
    at(page, "compare", run=left, by="position", at=3, **{"with": right})
    expect(page.locator("#compare-group input")).to_have_value(library.menu()[2]["title"])
    expect(page.locator("#compare-right input")).to_have_value("DFlash chain")
    expect(page.locator("#compare-prompt textarea")).to_have_value(library.menu()[2]["prompt"])
    page.locator(".dp-segment[data-by=round]:visible").click()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    says(page, "round=2")
    assert "by=" not in page.evaluate("location.hash")
    page.evaluate(
        "(hash) => { location.hash = hash; }", f"tab=compare&run={left}&with={right}&by=position&at=5"
    )
    at(page, "compare", by="position", at=5)
    page.evaluate("(hash) => { location.hash = hash; }", f"tab=compare&run={left}&with={right}&round=4")
    at(page, "compare", by="round", at=3)


def test_a_link_opens_a_race_where_it_stood(visit: Any, library: Library) -> None:
    left, right = id_of(library, 1, "dominotree"), id_of(library, 1, "ddtree")
    page = visit(f"#tab=compare&run={left}&with={right}&by=race&at=70")
    at(page, "compare", run=left, by="race", at=70, **{"with": right})
    expect(page.locator(".dp-race:visible .dp-slider-text")).to_have_count(0)  # its clock is in the toolbar
    expect(page.locator(".dp-race-seek:visible .dp-slider-text")).to_contain_text("0.070 /")
    assert not page.evaluate("DominoPage.inside.tabs.compare.player.isPlaying")
    page.keyboard.press("End")
    most = page.evaluate("Math.ceil(DominoPage.inside.tabs.compare.player.comparison.race.most)")
    says(page, "by=race", f"at={most}")
    stop = page.evaluate("DominoPage.inside.tabs.compare.player.presenter.stop()")
    assert stop["round"] >= 1 and stop["by"] is None  # a talk has rounds
    page.evaluate(
        "(hash) => { location.hash = hash; }", f"tab=compare&run={left}&with={right}&by=race&at=999999999"
    )
    at(page, "compare", by="race", at=most)
    page.evaluate("(hash) => { location.hash = hash; }", f"tab=compare&run={left}&with={right}&round=2")
    at(page, "compare", by="round", at=1)
    expect(page.locator(".dp-race:visible")).to_have_count(0)


def test_benchmark_filters_are_in_the_link(visit: Any) -> None:
    page = visit("#tab=benchmarks&filters=metric:tau,target:Qwen3-8B,nonsense:1,temperature:7,constructor:x")
    pressed = (
        "[...document.querySelectorAll('.dp-bench-filters [aria-pressed=true]')].map((b) => b.textContent)"
    )
    page.wait_for_selector(".dp-bench-filters")
    page.wait_for_function(
        f"{pressed}.includes('τ') && {pressed}.includes('Qwen3-8B') && {pressed}.includes('0')"
    )
    page.locator(".dp-bench-filters .dp-segment[data-value=tokens_per_second]").click()
    says(page, "filters=", "metric:tokens_per_second", "target:Qwen3-8B")
    assert "nonsense" not in page.evaluate("location.hash")


def test_an_unknown_run_is_told_in_a_sentence_and_can_be_imported(visit: Any, tmp_path: Path) -> None:
    trace = make_trace(5, 8, 99)
    path = tmp_path / "somewhere.json"
    path.write_text(tr.to_json(tr.finish(trace)), encoding="utf-8")
    page = visit(f"#run={trace.run_id}&round=4")
    note = page.locator("#explore-player .dp-tree-note")
    wanted = f"This link is to the run {trace.run_id}, which is not on this page: import its file to see it."
    expect(note).to_contain_text(wanted)
    assert page.evaluate("DominoPage.state('explore').shown") == []
    says(page, f"run={trace.run_id}", "round=4")
    with page.expect_file_chooser() as chooser:
        note.get_by_role("button", name="Import").click()
    chooser.value.set_files(path)
    at(page, run=trace.run_id, round=4)
    assert "recorded" in page.inner_text("#explore-player .dp-title")
    page.reload()  # and this browser keeps it
    at(page, run=trace.run_id, round=4)


def run_live(page: Page, prompt: str) -> str:
    page.fill("#explore-prompt textarea", prompt)
    page.click("#explore-run")
    page.wait_for_function(
        "DominoPage.state('explore').live?.over && DominoPage.state('explore').player.run", timeout=15000
    )
    says(page, "run=")
    return str(page.evaluate("DominoPage.state('explore').player.run"))


def test_a_reload_finds_the_live_run_again_even_without_its_copy_on_the_server(
    visit: Any, library: Library, engine: ScriptedEngine
) -> None:
    page = visit()
    page.wait_for_selector(SHOWN.format("explore"))
    run = run_live(page, "mine")
    assert "run live" in page.inner_text("#explore-player .dp-title")
    assert "recorded" not in page.inner_text("#explore-player .dp-title")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    says(page, f"run={run}", "round=2")
    page.wait_for_function("DominoKept.mine().then((runs) => runs.length === 1)")
    page.route(re.compile("/live/"), lambda route: route.abort())
    page.reload()
    at(page, run=run, round=2)
    expect(page.locator("#explore-group input")).to_have_value("Your runs")
    assert "run live" in page.inner_text("#explore-player .dp-title")
    other = (
        page.context.new_page()
    )  # another tab is another session: nothing of it in the menu, but the link works
    other.goto(page.url)
    at(other, run=run, round=2)
    assert other.evaluate("DominoKept.mine().then((runs) => runs.length)") == 0


def test_a_run_goes_on_over_a_reload(visit: Any, engine: ScriptedEngine) -> None:
    engine.seconds, engine.rounds = 0.15, 40
    page = visit()
    page.wait_for_selector(SHOWN.format("explore"))
    page.fill("#explore-prompt textarea", "long")
    page.click("#explore-run")
    page.wait_for_function("DominoPage.state('explore').live?.rounds >= 3")
    page.reload()
    page.wait_for_function("DominoPage.state('explore').live?.rounds >= 5")
    page.wait_for_function("DominoPage.state('explore').live?.over", timeout=20000)
    expect(page.locator("#explore-player .dp-head .dp-headline")).to_contain_text("of 40")
    assert engine.prompts[-1] == "long"


def test_what_the_browser_keeps_has_a_bound_and_the_oldest_goes_first(visit: Any) -> None:
    page = visit()
    page.wait_for_selector(SHOWN.format("explore"))
    kept = page.evaluate(
        """async () => { const text = 'x'.repeat(DominoKept.MOST_BYTES / 3);
          const put = (k, text) => DominoKept.put({token: `t${k}`, ids: [`i${k}`], titles: ['t'], title: 't', texts: [text]});
          for (let k = 0; k < 4; k++) await put(k, text);
          const large = (await DominoKept.mine()).map((r) => r.token);
          for (let k = 4; k < 4 + DominoKept.MOST_RUNS + 3; k++) await put(k, 'x');
          return [large, (await DominoKept.mine()).length, await put(99, text.repeat(4)), (await DominoKept.find('i46')).text]; }"""
    )
    assert kept == [["t3", "t2", "t1"], 40, False, "x"]


def test_a_talk_as_a_link_opens_in_present_for_someone_else(visit: Any, library: Library) -> None:
    one, two = id_of(library, 0, "dominotree"), id_of(library, 1, "dominotree")
    page = visit()
    page.wait_for_selector(SHOWN.format("explore"))
    stops = [
        {"run": one, "round": 2, "note": "a"},
        {"run": two, "round": 3, "scoring": "marginal", "note": "b"},
    ]
    page.evaluate("(stops) => DominoPlayer.stops.replace(stops)", stops)
    page.keyboard.press("p")
    page.keyboard.press("Home")
    says(page, "stops=", "present=1", f"run={one}", "round=2")
    link = page.evaluate("location.href")

    other = visit(link[link.index("#") :])
    other.wait_for_selector(".dp-presenting .dp-present-head")
    at(other, run=one, round=2)
    other.wait_for_function("DominoPlayer.stops.list.length === 2")
    other.keyboard.press("PageDown")
    at(other, run=two, round=3, scoring="marginal")
    other.keyboard.press("Escape")
    title = library.menu()[1]["title"]
    expect(other.locator("#explore-group input")).to_have_value(title)  # the menus follow
    assert other.evaluate("DominoPage.state('explore').shown[0].base") == f"recorded/{two}"
    assert "present" not in other.evaluate("location.hash")
    assert other.evaluate("localStorage['dt-stops'] ?? null") is None  # a borrowed talk is not kept unasked


@pytest.mark.parametrize("tab", ["explore", "compare", "lessons"])
def test_a_talk_goes_on_after_a_reload_from_whichever_tab_it_began_in(
    visit: Any, library: Library, tab: str
) -> None:
    one, two = id_of(library, 0, "dominotree"), id_of(library, 2, "ddtree")
    stops = [
        {"run": one, "round": 2, "note": "a"},
        {"run": two, "with": id_of(library, 2, "dominotree"), "round": 3, "note": "b"},
        {"run": two, "round": 4, "scoring": "marginal", "note": "c"},
    ]
    page = visit({"explore": "", "compare": "#tab=compare", "lessons": "#lesson=marginals"}[tab])
    page.wait_for_selector(f"{'.dl-stage' if tab == 'lessons' else f'#{tab}-player'} .dp:not(.dp-is-empty)")
    page.evaluate("(stops) => DominoPlayer.stops.replace(stops)", stops)
    player = (
        f"({'DominoLinks.parts.lessons' if tab == 'lessons' else f'DominoPage.inside.tabs.{tab}'}?.player)"
    )
    page.wait_for_function(player)
    page.keyboard.press("p")
    page.keyboard.press("End")
    shown = f"(([run, round, scoring]) => {{ const s = {player}?.state() || {{}}; return s.run === run && s.round === round && s.scoring === scoring && !s.with; }})"
    page.wait_for_function(shown, arg=[two, 4, "marginal"])
    says(page, "stops=", "present=1", f"run={two}", "round=4")
    page.reload()
    page.wait_for_function(shown, arg=[two, 4, "marginal"])
    page.wait_for_selector(".dp-presenting .dp-present-head")
    expect(page.locator(".dp-present-what:visible")).to_contain_text("Stop 3 of 3")
    page.keyboard.press("PageUp")
    page.wait_for_function(f"(run) => {player}.state().with === run", arg=stops[1]["with"])


# ---- the real program -------------------------------------------------------------------------------------


def test_public_url_is_checked() -> None:
    for wrong in ("example.org", "ftp://example.org", "javascript:alert(1)", "https://"):
        asked = subprocess.run(
            [sys.executable, "app.py", "--public-url", wrong], cwd=ROOT, capture_output=True, text=True
        )
        assert asked.returncode == 2 and "is not an address such as https://" in asked.stderr, wrong


def test_everything_in_present_works_when_the_server_is_killed(chromium: Browser, tmp_path: Path) -> None:
    """The real program, killed in the middle of a talk (app.md, Present)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "app.py", "--replay-only", "--port", str(port)]
    command += ["--public-url", "https://example.org/dominotree"]
    server = subprocess.Popen(command, cwd=ROOT)
    runs = Library().menu()
    first, later = runs[0]["runs"][0]["id"], runs[1]["runs"][0]["id"]
    stops = [{"run": first, "round": 2, "note": "before"}, {"run": later, "round": 3, "note": "after"}]

    def answers() -> bool:
        try:
            return bool(urllib.request.urlopen(address, timeout=2).status == 200)
        except OSError:
            return False

    try:
        until(answers, 60)
        with visitors(chromium, console=False) as new_page:
            page = new_page()
            page.goto(address)
            page.wait_for_selector(SHOWN.format("explore"))
            page.evaluate("(stops) => DominoPlayer.stops.replace(stops)", stops)
            page.keyboard.press("p")
            page.keyboard.press("Home")
            at(page, run=first, round=2)
            every = [run["id"] for group in runs for run in group["runs"]]
            page.wait_for_function(
                "(ids) => ids.every((id) => performance.getEntriesByType('resource')"
                ".some((e) => e.name.includes(id) && e.responseEnd))",
                arg=every,
            )
            page.wait_for_load_state("networkidle")
            server.kill()
            server.wait(20)
            assert not answers()

            page.keyboard.press("PageDown")
            at(page, run=later, round=3)
            page.keyboard.press("Shift+ArrowRight")
            at(page, run=later, round=4)
            page.keyboard.press("s")
            page.wait_for_function("DominoPage.state('explore').player.scoring !== null")
            page.keyboard.press("PageUp")
            at(page, run=first, round=2, scoring=None)
            page.keyboard.press("c")
            page.wait_for_function("DominoPage.state('explore').player.with !== null")
            page.keyboard.press("c")
            for key in ("ArrowDown", "ArrowDown", "ArrowUp"):
                page.keyboard.press(key)
            expect(page.locator(".dp-present-line")).to_contain_text("Only the anchor")
            page.keyboard.press("q")
            link = page.inner_text(".dp-present-link")
            assert link == f"https://example.org/dominotree#run={first}&round=2"
            ours = page.evaluate("(text) => DominoPlayer.qr.modules(text)", link)
            assert len(ours) >= 21 and modules_of(link, (len(ours) - 17) // 4, "M", 0)[0][:7] == ours[0][:7]
            page.keyboard.press("q")
            with page.expect_popup() as waiting:
                page.keyboard.press("n")
            expect(waiting.value.locator("#note")).to_have_text("before")
            page.keyboard.press("b")
            page.keyboard.press("b")
            page.keyboard.press("+")
            page.keyboard.press("r")
            page.keyboard.press("Space")
            page.wait_for_function("DominoPage.state('explore').player.round > 3")
            page.keyboard.press("Space")
            page.wait_for_selector(".dt-badge[data-state=offline]", state="attached", timeout=20000)
            shown = page.locator(".toast-body, .toast-wrap > *, .dp-error").filter(visible=True)
            assert shown.count() == 0
            box = page.evaluate(
                "JSON.stringify(document.querySelector('.dp-presenting').getBoundingClientRect())"
            )
            assert json.loads(box)["width"] == 1440 and json.loads(box)["height"] == 900
            page.keyboard.press("Escape")
            page.wait_for_selector(".dp-toolbar:visible")
            never = every[-1]  # no stop and no tab has shown it yet
            page.evaluate("(id) => { location.hash = `run=${id}&round=1`; }", never)
            at(page, run=never, round=1)
    finally:
        server.kill()
        server.wait(20)
