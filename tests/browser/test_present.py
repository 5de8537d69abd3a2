"""Present in a real Chromium: sizes on a projector, keys, stops, notes window, QR code; no server behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import qrcode
from helpers import PLAIN, ROOT, Open, assert_nothing_meets, js, show, state
from playwright.sync_api import Page, expect
from trace_factory import make_trace

from dominotree import trace as tr
from viz.layout import served
from viz.player import standalone

pytestmark = pytest.mark.browser

PROJECTOR = (1920, 1080)
STANDING = """(() => { const s = p.presenter; return {on: s.on, grown: s.grown, stop: DominoPlayer.stops.at,
  covers: ['blank', 'qr', 'help'].filter((name) => !s[name].hidden)}; })()"""


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def standing(page: Page) -> dict[str, Any]:
    return js(page, STANDING)


def run(seed: int = 7, rounds: int = 6, nodes: int = 16, **more: Any) -> tr.Trace:
    return make_trace(rounds, nodes, seed, skill=0.85, width=24, vocabulary=PLAIN, **more)


def prepared(visit_player: Open, *traces: tr.Trace, size: tuple[int, int] = (1440, 900), **more: Any) -> Page:
    """The first run open; the others are what the page's library has."""
    page = visit_player(traces[0], size=size, **more)
    others = {o["run_id"]: o for o in (json.loads(tr.to_json(served(tr.finish(t)))) for t in traces[1:])}
    page.evaluate(
        """(others) => { p.presenter.library = {
             run: async (id) => { if (!others[id]) throw new Error(`There is no run ${id}.`); return others[id]; },
             title: (id) => (others[id] ? 'another run' : ''), partner: () => Object.keys(others)[0] || null }; }""",
        others,
    )
    return page


# ---- what is on the screen --------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "scheme"), [(16, "light"), (64, "dark")])
def test_on_a_projector_the_spine_has_28_px_all_else_20_and_no_label_meets_anything(
    visit_player: Open, nodes: int, scheme: str
) -> None:
    page = visit_player(run(nodes=nodes), run(8, nodes=nodes), size=PROJECTOR, color_scheme=scheme)
    press(page, "c", "p")
    for compared in (False, True):
        for scorer in ("conditional", "marginal"):
            js(page, f"p.goto({2 + compared}).scoring('{scorer}')")
            for pane in range(1 + compared):
                seen = js(page, f"probe.measure(p.panes[{pane}].tree)")
                assert len(seen["labels"]) > 8
                assert_nothing_meets(seen)
                spine = js(
                    page,
                    f"(({{g}}) => [...g.label].filter((_, i) => g.spine[i]))(p.panes[{pane}].tree.current)",
                )
                assert all(label[5] >= 20 for label in seen["labels"])
                shown = [label[5] for label in seen["labels"] if label[4] in spine]
                assert shown and min(shown) >= 28
        small = js(
            page,
            """(() => { const found = [], walk = document.createTreeWalker(p.root, NodeFilter.SHOW_TEXT);
              while (walk.nextNode()) { const e = walk.currentNode.parentElement;
                if (walk.currentNode.textContent.trim() && e.checkVisibility({checkVisibilityCSS: true}) &&
                    e.getClientRects().length && parseFloat(getComputedStyle(e).fontSize) < 20)
                  found.push([e.className, walk.currentNode.textContent]); }
              return found; })()""",
        )
        assert small == []
        frame = js(page, "(({x, y, width, height}) => [x, y, width, height])(p.root.getBoundingClientRect())")
        assert frame == [0, 0, *PROJECTOR]
        if not compared:
            press(page, "c")
    assert js(page, "probe.contrast()") == []
    for key in ("?", "q"):
        press(page, key)
        sizes = js(
            page,
            "[...p.root.querySelectorAll('.dp-present-cover:not([hidden]) :is(p, kbd, dd, button)')]"
            ".map((e) => parseFloat(getComputedStyle(e).fontSize))",
        )
        assert sizes and min(sizes) >= 20


def test_only_tree_text_and_tau_are_shown_and_leaving_brings_the_rest_back(visit_player: Open) -> None:
    trace = run()
    page = visit_player(trace)
    before = js(page, "[p.panes[0].tree.current.g.width, p.panes[0].tree.current.g.height]")
    press(page, "ArrowRight", "p")
    assert (
        not page.locator(".dp-toolbar, .dp-side, .dp-strip, .dp-foot, .dp-heads").filter(visible=True).count()
    )
    for part in (".dp-tree", ".dp-text .dp-output", ".dp-present-head"):
        assert page.locator(part).is_visible()
    tau = sum(len(r.committed) for r in trace.rounds[:2]) / 2
    assert f"τ {tau:.2f} so far" in page.inner_text(".dp-present-tau")
    assert page.locator("#other").evaluate("(e) => e.inert") is True
    press(page, "p")
    assert standing(page)["on"] is False and state(page)["round"] == 2
    assert page.locator(".dp-toolbar").is_visible() and not page.locator(".dp-present-head").count()
    assert page.locator("#other").evaluate("(e) => e.inert") is False
    assert js(page, "[p.panes[0].tree.current.g.width, p.panes[0].tree.current.g.height]") == before


def test_the_words_of_the_round_are_in_view_and_lines_are_whole(visit_player: Open) -> None:
    page = visit_player(run(rounds=30), size=(1280, 720))
    press(page, "p", "End")
    page.wait_for_function(
        """() => { const {text, now} = p.panes[0].text, line = parseFloat(getComputedStyle(text).lineHeight);
          const top = now.getClientRects()[0].top - text.getBoundingClientRect().top;
          return text.scrollTop > 0 && Math.abs(text.scrollTop / line % 1) < 0.02 && top > -4 && top < text.clientHeight - line + 4; }"""
    )


@pytest.mark.parametrize("name, at", [("code-dominotree-64", 3), ("chat-domino", 2)])
def test_the_deepest_recorded_rounds_fit_the_stage_and_what_came_out_can_be_read(
    visit_player: Open, name: str, at: int
) -> None:
    trace = tr.load(ROOT / "assets" / "traces" / f"{name}.json.gz")
    page = visit_player(trace, size=PROJECTOR)
    press(page, "p")
    js(page, f"p.goto({at})")
    wide = js(page, "(({scroller: s}) => [s.scrollWidth, s.clientWidth])(p.panes[0].tree)")
    assert wide[0] <= wide[1]
    labels = js(page, "(({g}) => [...g.label].filter((_, i) => g.emitted[i]))(p.panes[0].tree.current)")
    assert len(labels) == len(trace.rounds[at - 1].committed) + 1
    assert sum(len(label.strip("␣…")) >= 2 or "…" not in label for label in labels) == len(labels), labels


def test_the_ring_of_the_growing_tree_goes_with_it(visit_player: Open) -> None:
    page = visit_player(run())
    press(page, "p", "ArrowDown", "ArrowDown")
    ring = "p.panes[0].tree.hoverRing.hidden"
    assert js(page, "p.presenter.grown") == 1
    press(page, "Shift+ArrowRight")
    assert js(page, ring) is True
    press(page, "ArrowDown", "ArrowDown", "Escape")
    assert js(page, ring) is True


def test_the_first_key_only_takes_away_what_covers_the_stage(visit_player: Open) -> None:
    page = visit_player(run())
    press(page, "p")
    for cover in ("?", "q", "b"):
        for key in ("ArrowRight", "PageDown", "s", "End", "ArrowDown"):
            before = state(page)
            press(page, cover)
            assert page.locator(".dp-present-cover:visible").count() == 1
            press(page, key)
            assert page.locator(".dp-present-cover:visible").count() == 0
            assert state(page) == before, (cover, key)
    press(page, "ArrowRight")
    assert state(page)["round"] == 2


def test_a_race_is_presented_as_the_rounds_it_stood_in_and_goes_on_afterwards(visit_player: Open) -> None:
    page = visit_player(run(), run(8))
    page.click("[data-by=race]")
    press(page, "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight")
    stood = js(page, "[p.comparison.race.t, p.comparison.race.rounds[0] + 1]")
    press(page, "p")
    assert "A talk has no race" in page.inner_text(".dp-present-message")
    assert state(page)["by"] == "round" and state(page)["at"] + 1 == stood[1]
    press(page, "Escape")
    assert js(page, "p.comparison.racing") is True and js(page, "p.comparison.race.t") == pytest.approx(
        stood[0], abs=1
    )


# ---- keys -------------------------------------------------------------------------------------------------


def test_keys_work_whatever_has_the_focus_except_text_fields(visit_player: Open) -> None:
    page = prepared(visit_player, run(), run(9))
    page.focus("#other")
    press(page, "p")
    for focus in ("document.body", "p.presenter.bar.children[0]"):
        page.evaluate(f"() => {focus}.focus()")
        for key, expected in (
            ("PageDown", 2), ("ArrowRight", 3), ("PageUp", 2), ("ArrowLeft", 1), ("End", 6), ("Home", 1),
        ):  # fmt: skip
            press(page, key)
            assert state(page)["round"] == expected, key
    press(page, "s")
    assert state(page)["scoring"] in ("static", "marginal")
    press(page, "b")
    assert standing(page)["covers"] == ["blank"]
    assert js(page, "getComputedStyle(p.presenter.blank).backgroundColor") == "rgb(0, 0, 0)"
    press(page, "b", "?")
    assert standing(page)["covers"] == ["help"]
    assert "node by node" in page.inner_text(".dp-present-card")
    press(page, "q")
    assert standing(page)["covers"] == ["qr"]
    press(page, "Escape")
    assert standing(page)["covers"] == [] and standing(page)["on"]
    press(page, "c")
    page.wait_for_function("p.comparing")
    press(page, "c")
    assert state(page)["with"] is None
    press(page, "d")
    assert js(page, "p.root.dataset.theme") == "dark"
    press(page, "Shift+ArrowRight", "i")  # `i` belongs to the panel that is not shown here
    assert state(page)["round"] == 2
    page.evaluate(
        "() => { const f = document.createElement('input'); f.id = 'f'; p.presenter.layer.append(f); f.style.pointerEvents = 'auto'; f.focus(); }"
    )
    press(page, "b", "s", "ArrowRight")
    assert page.input_value("#f") == "bs" and state(page)["round"] == 2 and standing(page)["covers"] == []


def test_space_plays_and_plus_and_minus_set_the_speed(visit_player: Open) -> None:
    page = visit_player(run(rounds=5))
    press(page, "p", "+", "+", "+")
    assert state(page)["speed"] == 8
    press(page, "-", "+", " ")
    page.wait_for_function("() => p.state().round === 5 && !p.state().playing", timeout=10000)


def test_full_screen(visit_player: Open) -> None:
    page = visit_player(run())
    press(page, "p", "f")
    page.wait_for_function("document.fullscreenElement === document.documentElement")
    press(page, "p")
    page.wait_for_function("document.fullscreenElement === null")


def test_down_and_up_grow_the_tree_in_the_order_of_the_build(visit_player: Open) -> None:
    trace = run(nodes=8)
    page = visit_player(trace)
    press(page, "ArrowRight", "p")
    nodes = trace.rounds[1].nodes
    order = sorted((i for i in range(len(nodes)) if nodes.order[i] is not None), key=lambda i: nodes.order[i])
    drawn = (
        "(({kinds, g}) => [...Array(g.n + 2).keys()].filter((i) => kinds.drawn(i)))(p.panes[0].tree.current)"
    )
    kinds = "p.panes[0].tree.current.kinds.kind"
    everything = js(page, drawn)
    press(page, "ArrowDown")
    assert js(page, drawn) == [len(nodes)]  # the anchor alone
    assert "nothing is drafted yet" in page.inner_text(".dp-present-line")
    for count in range(1, len(order) + 1):
        press(page, "ArrowDown")
        assert js(page, drawn) == sorted([*order[:count], len(nodes)])
        assert "held" not in js(page, kinds)
    assert f"{len(order)} nodes drafted" in page.inner_text(".dp-present-line")
    press(page, "ArrowDown")
    assert js(page, drawn) == everything
    assert [i for i, kind in enumerate(js(page, kinds)) if kind == "held"] == sorted(trace.rounds[1].path)
    press(page, "ArrowUp", "ArrowUp")
    assert js(page, drawn) == sorted([*order[:-1], len(nodes)])
    press(page, "ArrowRight")
    assert standing(page)["grown"] is None


def test_a_folded_tree_grows_by_the_counts_of_its_marks(visit_player: Open) -> None:
    trace = run(nodes=64)
    page = visit_player(trace, size=(390, 844))
    press(page, "p")
    seen = "(({kinds, g}) => [...g.parent.keys()].filter((i) => kinds.drawn(i)).reduce((sum, i) => sum + (kinds.counts.get(i) ?? 1), -1))(p.panes[0].tree.current)"
    assert js(page, "Boolean(p.panes[0].tree.current.g.folded)")
    for count in (0, 1, 2, 3):
        press(page, "ArrowDown")
        assert js(page, seen) == count
    js(page, "p.presenter.grow(40)")
    assert js(page, seen) == 43 and js(page, "p.panes[0].tree.current.kinds.counts.size") > 0


def test_scoring_toggles_without_a_new_layout(visit_player: Open) -> None:
    page = visit_player(run(nodes=64), size=PROJECTOR)
    press(page, "p")
    page.wait_for_timeout(500)  # the window's new size has been laid out
    js(page, "window.places = p.panes[0].tree.current.g")
    for _ in range(3):
        press(page, "s")
        assert js(page, "p.panes[0].tree.current.g === places")
    spent = page.evaluate(
        """async () => { const times = [];
          for (let k = 0; k < 12; k++) {
            const start = performance.now();
            dispatchEvent(new KeyboardEvent('keydown', {key: 's', cancelable: true}));
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            times.push(performance.now() - start);
          }
          return times.sort((a, b) => a - b)[6]; }"""
    )
    assert spent < 150  # two frames are 33 ms; the rest is room for a busy machine


def test_the_screen_is_kept_awake_where_that_is_possible(visit_player: Open) -> None:
    page = visit_player(run())
    page.evaluate(
        """() => { window.locks = [];
          Object.defineProperty(navigator, 'wakeLock', {configurable: true, value: {
            request: async (kind) => { const lock = {kind, released: false, release: async () => { lock.released = true; }};
              locks.push(lock); return lock; } }}); }"""
    )
    press(page, "p")
    assert page.evaluate("locks.map((l) => [l.kind, l.released])") == [["screen", False]]
    press(page, "Escape")
    page.wait_for_function("locks[0].released")
    page.evaluate("Object.defineProperty(navigator, 'wakeLock', {configurable: true, value: undefined})")
    press(page, "p")
    assert standing(page)["on"]


# ---- stops ------------------------------------------------------------------------------------------------


def add_stop(page: Page, note: str) -> None:
    page.click("text=Add this view as a stop")
    page.keyboard.type(note)


def test_a_talk_is_prepared_ordered_edited_kept_and_stepped_through(visit_player: Open) -> None:
    one, two = run(), run(9)
    page = prepared(visit_player, one, two)
    page.click(".dp-stops-open")
    assert page.locator(".dp-stops").get_by_role("button", name="Present").is_disabled()
    add_stop(page, "first")
    js(page, "p.goto(4).scoring('marginal')")
    add_stop(page, "second: 多 «ü»")
    js(page, "p.goto(5)")
    add_stop(page, "third")
    page.evaluate("([id]) => DominoPlayer.stops.add({run: id, round: 3, note: 'other run'})", [two.run_id])
    names = page.locator(".dp-stops-name")
    assert names.count() == 4 and "round 4, marginal" in names.nth(1).inner_text()
    assert "another run, round 3" in names.nth(3).inner_text()
    page.locator(".dp-stops-list li").nth(1).get_by_role("button", name="Earlier").click()
    assert page.locator(".dp-stops-note").first.input_value() == "second: 多 «ü»"
    page.locator(".dp-stops-list li").nth(2).get_by_role("button", name="Delete").click()
    kept = page.evaluate(
        "JSON.parse(localStorage['dt-stops']).map((s) => [s.round, s.scoring ?? null, s.note])"
    )
    assert kept == [[4, "marginal", "second: 多 «ü»"], [1, None, "first"], [3, None, "other run"]]
    page.wait_for_function("location.hash.includes('stops=')")

    page.locator(".dp-stops").get_by_role("button", name="Present").click()
    page.wait_for_function("p.presenter.on")
    seen = [(state(page)["round"], state(page)["scoring"], state(page)["run"])]
    for key in ("PageDown", "ArrowRight", "PageDown"):
        press(page, key)
        page.wait_for_timeout(30)
        now = state(page)
        seen.append((now["round"], now["scoring"], now["run"]))
    other = (3, None, two.run_id)
    assert seen == [(4, "marginal", one.run_id), (1, None, one.run_id), other, other]
    assert "Stop 3 of 3" in page.inner_text(".dp-present-what")
    press(page, "PageUp")
    assert (state(page)["run"], state(page)["round"]) == (one.run_id, 1)
    press(page, "Shift+ArrowRight")
    assert state(page)["round"] == 2
    press(page, "r", "ArrowRight")  # by round now
    assert state(page)["round"] == 3
    press(page, "r", "Home")
    assert (state(page)["round"], state(page)["scoring"]) == (4, "marginal")


def test_a_stop_whose_run_is_missing_says_so_and_the_talk_goes_on(visit_player: Open) -> None:
    page = prepared(visit_player, run())
    page.evaluate(
        "() => DominoPlayer.stops.replace([{run: 'gone', round: 1, note: ''}, {run: p.run.id, round: 2, note: ''}])"
    )
    press(page, "p", "Home")
    expect(page.locator(".dp-present-message")).to_have_text("There is no run gone.")
    press(page, "ArrowRight")
    page.wait_for_function("p.state().round === 2")


def test_stops_as_a_file_and_back(visit_player: Open, tmp_path: Path) -> None:
    page = prepared(visit_player, run())
    page.click(".dp-stops-open")
    add_stop(page, "kept")
    with page.expect_download() as waiting:
        page.click("text=Save file")
    saved = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert waiting.value.suggested_filename == "dominotree-stops.json"
    assert json.loads(saved)["schema"] == "dominotree.stops"
    page.click("text=Remove all")
    assert page.locator(".dp-stops-name").count() == 0
    for number, (text, answer) in enumerate(
        (
            ("not json", "This file is not JSON."),
            ('{"schema": "dominotree.trace"}', "This file is not a list of stops."),
            ('{"schema": "dominotree.stops", "version": 9, "stops": []}', "has version 9"),
            (
                '{"schema": "dominotree.stops", "version": 1, "stops": [1, {}, {"run": "<img>"}]}',
                "names a run",
            ),
            (saved, "1 stop from"),
        )
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(text, encoding="utf-8")
        with page.expect_file_chooser() as chooser:
            page.click("text=Open file")
        chooser.value.set_files(path)
        expect(page.locator(".dp-stops-message")).to_contain_text(answer)
    assert page.locator(".dp-stops-note").first.input_value() == "kept"


# ---- the speaker's window ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["http", "file"])
def test_the_notes_follow_keep_time_and_hand_keys_back(
    visit_player: Open, place: str, tmp_path: Path
) -> None:
    trace = run()
    page = visit_player(trace)
    if place == "file":
        path = tmp_path / "run.html"
        path.write_text(standalone(json.loads(tr.to_json(served(tr.finish(trace))))), encoding="utf-8")
        page.goto(path.as_uri())
        page.wait_for_function("p.run")
    page.evaluate(
        """() => DominoPlayer.stops.replace([1, 3, 5].map((round) => ({run: p.run.id, round, note: `say ${round}`})))"""
    )
    press(page, "p", "Home")
    with page.expect_popup() as waiting:
        press(page, "n")
    notes = waiting.value
    expect(notes.locator("#place")).to_have_text("Stop 1 of 3")
    expect(notes.locator("#note")).to_have_text("say 1")
    expect(notes.locator("#next-note")).to_have_text("say 3")
    press(page, "PageDown")
    expect(notes.locator("#note")).to_have_text("say 3")
    assert "Round 3 of 6" in notes.inner_text("#facts")
    notes.keyboard.press("PageDown")
    expect(notes.locator("#place")).to_have_text("Stop 3 of 3")
    assert state(page)["round"] == 5 and not notes.locator("#next").is_visible()

    assert notes.inner_text("#elapsed") == "0:00" and notes.inner_text("#clock")
    notes.click("#go")
    expect(notes.locator("#elapsed")).to_have_text("0:01", timeout=4000)
    notes.click("#go")
    assert notes.inner_text("#go") == "Go on"
    page.reload()  # the notes keep their time and find the main window again
    if place == "http":
        show(page, trace)
        press(page, "p")
    page.wait_for_function(
        "document.documentElement.classList.contains('dp-present-page')"
    )  # a file goes on with its talk by itself
    press(page, "Home")
    expect(notes.locator("#place")).to_have_text("Stop 1 of 3")
    assert notes.inner_text("#elapsed") == "0:01"
    notes.click("#reset")
    assert notes.inner_text("#elapsed") == "0:00"


def test_a_blocked_notes_window_is_told_in_one_sentence(visit_player: Open) -> None:
    page = visit_player(run())
    page.evaluate("() => { window.open = () => null; }")
    press(page, "p", "n")
    assert "allow pop-ups" in page.inner_text(".dp-present-message")


# ---- QR codes ---------------------------------------------------------------------------------------------


def modules_of(text: str, version: int, level: str, mask: int) -> list[list[bool]]:
    """The code as the Python library ``qrcode`` makes it, all in byte mode."""
    levels = {"M": qrcode.constants.ERROR_CORRECT_M, "L": qrcode.constants.ERROR_CORRECT_L}
    code = qrcode.QRCode(version=version, error_correction=levels[level], mask_pattern=mask, border=0)
    code.add_data(qrcode.util.QRData(text.encode(), mode=qrcode.util.MODE_8BIT_BYTE))
    code.make(fit=False)
    return [[bool(dark) for dark in row] for row in code.modules]


def format_of(modules: list[list[bool]]) -> tuple[int, str, int]:
    """Version, level of error correction and mask that a code states (ISO/IEC 18004, 7.9)."""
    bits = [modules[8][x] for x in (0, 1, 2, 3, 4)]
    value = int("".join("01"[bit] for bit in bits), 2) ^ 0b10101
    return (len(modules) - 17) // 4, {0: "M", 1: "L"}[value >> 3], value & 7


@pytest.mark.parametrize("length", [30, 120, 700, 2800])
def test_qr_codes_are_those_of_an_independent_encoder(visit_player: Open, length: int) -> None:
    page = visit_player()
    text = ("https://example.org/dominotree/#run=c667198970a25ee4&round=4&scoring=marginal&x=" * 40)[:length]
    ours = page.evaluate("(text) => DominoPlayer.qr.modules(text)", text)
    assert ours == modules_of(text, *format_of(ours))


def test_the_qr_code_is_of_the_link_on_the_screen_and_too_long_ones_are_told(visit_player: Open) -> None:
    trace = run()
    page = visit_player(trace)
    page.evaluate("() => { p.presenter.library.link = (hash) => 'https://example.org/d/' + hash; }")
    js(page, "p.goto(3).scoring('marginal')")
    press(page, "p", "q")
    link = page.inner_text(".dp-present-link")
    assert link == f"https://example.org/d/#run={trace.run_id}&round=3&scoring=marginal"
    assert page.locator(".dp-present-card", has_text="this machine only").count() == 0
    picture = page.evaluate(
        """async () => { const svg = document.querySelector('.dp-present-qr svg');
          const size = svg.viewBox.baseVal.width, canvas = Object.assign(document.createElement('canvas'), {width: 4 * size, height: 4 * size});
          const image = new Image();
          image.src = 'data:image/svg+xml,' + encodeURIComponent(new XMLSerializer().serializeToString(svg).replace('<svg', `<svg width="${4 * size}" height="${4 * size}"`));
          await image.decode();
          const context = canvas.getContext('2d');
          context.drawImage(image, 0, 0);
          return Array.from({length: size - 8}, (_, y) => Array.from({length: size - 8}, (_, x) =>
            context.getImageData(4 * (x + 4) + 2, 4 * (y + 4) + 2, 1, 1).data[0] < 128)); }"""
    )
    assert picture == modules_of(link, *format_of(picture))
    press(page, "q")
    page.evaluate("() => { p.presenter.library.link = (hash) => 'http://127.0.0.1/?' + 'x'.repeat(4000); }")
    press(page, "q")
    assert "too long for a QR code" in page.inner_text(".dp-present-qr")
    assert "works on this machine only" in page.inner_text(".dp-present-qr")


def test_a_saved_file_follows_its_address_and_names_a_run_that_it_does_not_hold(
    visit_player: Open, tmp_path: Path
) -> None:
    trace = run()
    path = tmp_path / "run.html"
    path.write_text(standalone(json.loads(tr.to_json(served(tr.finish(trace))))), encoding="utf-8")
    page = visit_player()
    page.goto(f"{path.as_uri()}#run={trace.run_id}&round=3&scoring=marginal&present=1")
    page.wait_for_function("p.presenter.on && p.state().round === 3 && p.state().scoring === 'marginal'")
    press(page, "Escape")
    page.evaluate("() => { location.hash = 'run=cafe&round=2'; }")
    expect(page.locator(".dp-error")).to_have_text("This link is to the run cafe, which is not in this file.")
    assert state(page)["round"] == 3
    page.go_back()
    expect(page.locator(".dp-error")).to_be_hidden()
