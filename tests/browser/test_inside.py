"""Inside a round in a real Chromium: the heap pop by pop, the slope chart, the verify walk; keys, sizes, odd tokens."""

from __future__ import annotations

import json
from math import exp
from pathlib import Path
from typing import Any

import pytest
from helpers import PLAIN, Open, js, show, state, visitors
from playwright.sync_api import Browser, Page
from trace_factory import make_trace

from dominotree import trace as tr
from viz import player
from viz.layout import served
from viz.library import TRACES, Library

pytestmark = pytest.mark.browser

SIZES = [(1440, 900), (1920, 1080), (390, 844)]


@pytest.fixture(scope="module")
def recorded() -> tr.Trace:
    """A recorded run of the real pair with pops in some of its rounds."""
    library = Library()
    runs = [
        r
        for r in library.runs
        if (r.kind, r.method, r.budget, r.temperature) == ("math", "dominotree", 16, 0)
    ]
    return tr.load(TRACES / runs[0].file)


def pops_round(trace: tr.Trace) -> tr.Round:
    return max((this for this in trace.rounds if this.pops), key=lambda this: (len(this.path), this.index))


def popped(this: tr.Round) -> list[int]:
    order = {o: k for k, o in enumerate(this.nodes.order) if o is not None}
    return [order[k] for k in range(this.verified_nodes)]


def heaps(this: tr.Round) -> list[list[tuple[float, int]]]:
    """After each step (anchor expanded, then each pop): scores and tokens on the heap, best first."""
    cum = this.nodes.cum_conditional
    pops = {pop.node: pop for pop in this.pops}
    place = {(this.nodes.parent[k], this.nodes.token[k]): k for k in popped(this)}
    heap: dict[tuple[int, int], float] = {}
    out = []
    for node in [-1, *popped(this)]:
        if node >= 0:
            del heap[this.nodes.parent[node], this.nodes.token[node]]
        if node in pops:
            above = 0.0 if node < 0 else cum[node] or 0.0
            for k in pops[node].offered:
                key = (node, pops[node].token[k])
                heap[key] = (cum[place[key]] or 0.0) if key in place else above + pops[node].score[k]
        out.append(sorted(((s, token) for (_, token), s in heap.items()), reverse=True))
    return out


def label(trace: tr.Trace, token: int) -> str:
    return tr.token_text(trace.token_bytes(token))


def number(x: float) -> str:
    return f"{x:.2f}".replace("-0.00", "0.00").replace("-", "−")


def enter(page: Page, this: tr.Round, step: int = 0) -> None:
    js(page, f"(p.goto({this.index}), p.flush(), p.inside.open({step}))")


def drawn(page: Page) -> list[int]:
    """Nodes of the tree that are on the screen."""
    return js(page, "(({kinds, g}) => [...Array(g.n).keys()].filter(kinds.drawn))(p.panes[0].tree.current)")


def text(page: Page, selector: str) -> str:
    return " ".join(js(page, f"document.querySelector({json.dumps(selector)}).innerText").split())


# ---- the build ----------------------------------------------------------------------------------------------


def test_the_tree_and_the_heap_grow_pop_by_pop(visit_player: Open, recorded: tr.Trace) -> None:
    """Each → pops the top of the heap, adds it to the tree and pushes its children."""
    this = pops_round(recorded)
    page = visit_player(recorded)
    js(page, f"p.goto({this.index})")
    page.keyboard.press("i")
    nodes, wanted = popped(this), heaps(this)
    for step in range(this.verified_nodes + 1):
        assert sorted(drawn(page)) == sorted(nodes[:step])
        assert js(page, "p.panes[0].tree.current.node") == (nodes[step - 1] if step else -1)
        assert f"Heap: {len(wanted[step])} path" in text(page, ".dp-inside-list")
        rows = js(
            page,
            "[...document.querySelectorAll('.dp-inside-path')].map((row) => [row.querySelector('b').textContent,"
            " row.querySelector('.dp-inside-score').textContent, row.classList.contains('dp-inside-next')])",
        )
        assert [row[1] for row in rows] == [number(s) for s, _ in wanted[step][: len(rows)]]
        if step < this.verified_nodes:
            assert rows[0] == [
                label(recorded, this.nodes.token[nodes[step]]),
                number(wanted[step][0][0]),
                True,
            ]
        page.keyboard.press("ArrowRight")
    assert js(page, "p.inside.build.at(p.inside.at).stage") == "verify", "the walk continues the same story"
    assert sorted(drawn(page)) == sorted(nodes)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert len(drawn(page)) == this.verified_nodes - 1
    js(page, f"p.select(p.panes[0], {nodes[2]})")
    assert state(page)["inside"] == 3, "a click on a node goes to its pop"


def test_the_slope_chart_and_its_table_show_every_candidate(visit_player: Open, recorded: tr.Trace) -> None:
    this = pops_round(recorded)
    page = visit_player(recorded)
    chosen = dict(zip([-1, *this.path], this.committed, strict=True))
    for pop in this.pops[1:4]:
        enter(page, this, 1 + (this.nodes.order[pop.node] or 0))
        js(page, "(p.inside.asTable = false)")
        left, right = (
            js(
                page,
                f"[...document.querySelectorAll('.dp-slope-{side} .dp-slope-row')]"
                ".map((row) => [row.querySelector('.dp-slope-token').textContent, row.className])",
            )
            for side in ("before", "after")
        )
        best = sorted(range(len(pop.token)), key=lambda k: (-pop.score[k], pop.token[k]))
        best = pop.offered + [k for k in best if k not in pop.offered]
        assert [row[0] for row in left] == [label(recorded, t) for t in pop.token[: len(left)]]
        assert [row[0] for row in right] == [label(recorded, pop.token[k]) for k in best[: len(right)]]
        assert (
            len(left) >= 8
            and ["slope-pushed" in row[1] or "chosen" in row[1] for row in right[:8]] == [True] * 8
        )
        blue = {row[0] for row in (*left, *right) if "slope-chosen" in row[1]}
        assert blue <= {label(recorded, chosen.get(pop.node, -1))} if pop.node in chosen else not blue
        assert js(page, "document.querySelectorAll('.dp-slope-lines path').length") == len(pop.token)
        said = js(page, "document.querySelector('.dp-slope').getAttribute('aria-label')")
        assert said.startswith(
            f"{len(pop.token)} candidates. First after the correction: {label(recorded, pop.token[best[0]])}"
        )
        page.get_by_role("button", name="Table", exact=True).click()
        rows = js(
            page,
            "[...document.querySelectorAll('.dp-slope-table tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))",
        )
        assert len(rows) == len(pop.token)
        for rank, (row, k) in enumerate(zip(rows, best, strict=True)):
            delta = pop.delta[k] or 0.0
            assert row[:4] == [
                str(rank + 1),
                str(k + 1),
                label(recorded, pop.token[k]),
                number(pop.base_logit[k]),
            ]
            assert row[4] == ("+" if delta > 0 else "") + number(delta) and row[8] == number(pop.score[k])
            assert ("pushed" in row[9]) == (k in pop.offered)


def test_what_the_top_m_cuts_off(visit_player: Open, recorded: tr.Trace) -> None:
    this = pops_round(recorded)
    page = visit_player(recorded)
    enter(page, this, 2)
    node = popped(this)[1]
    shares = js(page, f"p.inside.build.coverage({node})")
    depth = this.nodes.depth[node]
    m, v = this.level_logz_m[depth], this.level_logz_v[depth]
    child = this.nodes.parent.index(node)
    assert shares["base"] == pytest.approx(exp((m or 0) - (v or 0)))
    assert shares["corrected"] == pytest.approx(
        exp((this.nodes.logz_m[child] or 0) - (this.nodes.logz_v[child] or 0))
    )
    assert "Top 64 cuts off, of the whole vocabulary" in text(page, ".dp-inside-facts")


def test_a_round_without_pops_shows_what_the_trace_holds_and_says_so(
    visit_player: Open, recorded: tr.Trace
) -> None:
    this = next(r for r in recorded.rounds if not r.pops and r.verified_nodes)
    page = visit_player(recorded)
    enter(page, this, 5)
    assert "The candidates of this round were not recorded" in text(page, ".dp-inside-list")
    nodes = popped(this)
    assert sorted(drawn(page)) == sorted(nodes[:5])
    scores = js(page, "[...document.querySelectorAll('.dp-inside-score')].map((e) => e.textContent)")
    assert scores == [number(this.nodes.cum_conditional[k] or 0) for k in reversed(nodes[:5])]
    rows = js(page, "[...document.querySelectorAll('.dp-inside-main tbody th')].map((e) => e.textContent)")
    children = [k for k, parent in enumerate(this.nodes.parent) if parent == nodes[4]]
    assert sorted(rows) == sorted(label(recorded, this.nodes.token[k]) for k in children)
    others = [r.index for r in recorded.rounds if r.pops]
    page.get_by_role("button", name=str(others[0]), exact=True).click()
    assert (
        state(page)["round"] == others[0]
        and state(page)["inside"] == 0
        and "Heap: 8" in text(page, ".dp-inside-list")
    )


def test_large_trees_keep_the_short_form_and_say_what_is_left_out(visit_player: Open) -> None:
    """Recorded with 64 nodes: some candidates are counted, not listed."""
    run = next(r for r in Library().runs if r.method == "dominotree" and r.budget == 64 and r.kind == "code")
    trace = tr.load(TRACES / run.file)
    this = pops_round(trace)
    pop = this.pops[10]
    assert pop.left_out > 0
    page = visit_player(trace)
    enter(page, this, 1 + (this.nodes.order[pop.node] or 0))
    assert f"{pop.left_out} of the candidates were not recorded" in text(page, ".dp-inside-facts")
    assert f"{len(pop.token) + pop.left_out} candidates after" in text(page, ".dp-inside-main")
    assert js(page, "document.querySelectorAll('.dp-slope-lines path').length") == len(pop.token)
    js(page, f"p.inside.go({this.verified_nodes})")
    wanted = heaps(this)[-1]
    assert f"Heap: {len(wanted)} path" in text(page, ".dp-inside-list")
    assert "stay on the heap" in text(page, ".dp-inside-facts")


# ---- the verify walk ----------------------------------------------------------------------------------------


def test_the_walk_shows_the_targets_tokens_and_who_carries_them(
    visit_player: Open, recorded: tr.Trace
) -> None:
    this = pops_round(recorded)
    page = visit_player(recorded)
    enter(page, this, this.verified_nodes + 1)
    for k, visit in enumerate(this.visits):
        rows = js(
            page,
            "[...document.querySelectorAll('.dp-inside-target tbody tr')].map((r) => [r.cells[0].textContent,"
            " [...r.cells[4].children].map((c) => c.textContent), r.querySelector('i').style.width])",
        )
        kids = {this.nodes.token[i] for i in popped(this) if this.nodes.parent[i] == visit.node}
        assert [row[0] for row in rows] == [label(recorded, token) for token, _ in visit.top]
        for (token, logp), (_, tags, width) in zip(visit.top, rows, strict=True):
            assert tags == ["chosen"] * (token == visit.chosen) + ["drafted"] * (token in kids)
            assert float(width[:-1]) == pytest.approx(100 * exp(logp), abs=0.01)
        held = js(page, "p.panes[0].tree.current.kinds.held")
        assert held == this.path[: k + 1], "accepted as far as the walk has come"
        bonus = js(page, "(({kinds, g}) => kinds.drawn(g.n + 1))(p.panes[0].tree.current)")
        assert bonus == (k == len(this.path))
        page.keyboard.press("ArrowRight")
    assert "is the bonus" in text(page, ".dp-inside-title")
    facts = text(page, ".dp-inside-facts")
    assert (
        f"{len(this.path)} drafts + 1 bonus = {len(this.committed)} tokens" in facts and "The walk" in facts
    )


def missed(this: tr.Round, budget: int) -> str:
    """Why the bonus token was no child where the walk stopped, from the trace alone."""
    at, pops = ([-1, *this.path][-1]), {pop.node: pop for pop in this.pops}
    nodes = popped(this)
    if at == nodes[-1] and len(nodes) >= budget:
        return "budget"
    if at >= 0 and this.nodes.depth[at] >= len(this.level_logz_m):
        return "last-level"
    pop = pops[at]
    if this.bonus not in pop.token:
        return "cut-off"
    return "not-reached" if pop.token.index(this.bonus) in pop.offered else "not-pushed"


def test_why_the_walk_stopped_is_what_the_trace_says(visit_player: Open) -> None:
    found = set()
    page = visit_player()
    for seed, levels, children, skill in ((1, 16, 3, 0.8), (2, 3, 8, 0.97), (3, 16, 8, 0.5)):
        trace = make_trace(
            14,
            10,
            seed,
            levels=levels,
            width=9,
            children=children,
            skill=skill,
            vocabulary=PLAIN,
            pops_for=range(1, 15),
        )
        show(page, trace)
        whys = js(page, "p.run.rounds.map((_, k) => new DominoPlayer.parts.Build(p.run, k).missed().why)")
        words = {
            "budget": "the budget was spent when this node was popped",
            "last-level": "drafts no deeper level",
            "cut-off": "top-M cut it off",
            "not-pushed": f"only the best {children} are pushed",
            "not-reached": "the budget went to likelier paths",
        }
        for this, why in zip(trace.rounds, whys, strict=True):
            assert why == missed(this, 10), this.index
            if why not in found:
                enter(page, this, 999)
                assert words[why] in text(page, ".dp-inside-facts")
            found.add(why)
    assert found >= {"last-level", "cut-off", "not-pushed", "not-reached"}


def test_chains_and_plain_decoding_have_a_walk_too(visit_player: Open) -> None:
    page = visit_player()
    for method in ("ar", "domino", "ddtree"):
        show(page, make_trace(4, 8, 5, method=method, vocabulary=PLAIN))
        js(page, "p.inside.open(0)")
        steps = js(page, "[p.inside.build.builds, p.inside.build.size]")
        assert (steps[0] == 0) == (method == "ar") and steps[1] > steps[0]
        for _ in range(steps[1]):
            page.keyboard.press("ArrowRight")
        facts = text(page, ".dp-inside-facts")
        assert ("Nothing was drafted" in facts) == (method == "ar") and "1 bonus" in facts
        if method == "domino":
            js(page, "p.inside.go(1)")
            assert "A chain has no heap" in text(page, ".dp-inside-list")


# ---- keys, focus, state ------------------------------------------------------------------------------------


def test_keys_open_step_play_and_close(visit_player: Open, recorded: tr.Trace) -> None:
    page = visit_player(recorded)
    js(page, "(p.goto(3), p.scoring('marginal'))")
    page.focus("#field")
    page.keyboard.press("i")
    assert state(page)["inside"] is None and page.input_value("#field") == "i"
    page.get_by_role("button", name="Inside this round").focus()
    page.keyboard.press("i")
    assert state(page)["inside"] == 0 and page.is_visible(".dp-inside") and not page.is_visible(".dp-strip")
    assert page.evaluate("() => document.activeElement.className") == "dp-inside-close"
    for key, at in (
        ("ArrowRight", 1),
        ("ArrowDown", 2),
        ("ArrowLeft", 1),
        ("ArrowUp", 0),
        ("End", 999),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        last = js(page, "p.inside.build.size") - 1
        assert state(page)["inside"] == min(at, last) and state(page)["round"] == 3
    page.keyboard.press("s")
    assert js(page, "p.panes[0].tree.current.scorer") == "conditional", (
        "the build is that of the run's own tree"
    )
    js(page, "(p.setSpeed(8), document.activeElement.blur())")
    page.keyboard.press("Space")
    page.wait_for_function("() => p.inside.at >= 3")
    page.keyboard.press("Space")
    at = state(page)["inside"]
    page.wait_for_timeout(300)
    assert state(page)["inside"] == at
    page.keyboard.press("PageDown")
    assert state(page)["round"] == 4 and state(page)["inside"] == 0
    page.keyboard.press("Escape")
    assert (
        state(page)["inside"] is None and page.is_visible(".dp-strip") and not page.is_visible(".dp-inside")
    )
    assert state(page)["scoring"] == "marginal", "what was chosen before is back"
    assert js(page, "p.panes[0].tree.refine") is None
    page.keyboard.press("?")
    assert "inside the round" in page.inner_text(".dp-help")


def test_it_closes_for_another_run_compare_and_present_and_stays_in_a_live_run(visit_player: Open) -> None:
    a, b = make_trace(5, 8, 1, vocabulary=PLAIN, pops_for=[1, 2]), make_trace(5, 8, 2, vocabulary=PLAIN)
    page = visit_player(a)
    js(page, "p.inside.open(2)")
    show(page, b)
    assert state(page)["inside"] is None and page.is_visible(".dp-strip")
    js(page, "p.inside.open(2)")
    page.keyboard.press("p")
    assert state(page)["inside"] is None and js(page, "p.presenter.on") is True
    page.keyboard.press("Escape")
    js(page, "p.inside.open(1)")
    show(page, a, b)
    assert state(page)["inside"] is None
    assert not page.get_by_role("button", name="Inside this round").is_visible()
    page.keyboard.press("i")
    assert state(page)["inside"] is None
    live = json.loads(tr.to_json(served(tr.finish(a))))
    rounds, layout = live["rounds"], live["layout"]
    start = {**live, "rounds": rounds[:2], "layout": layout[:2], "summary": {}}
    page.evaluate("data => { p.load(data); p.flush(); p.goto(1); p.flush(); p.inside.open(3); }", start)
    page.evaluate(
        "d => { p.append(d); p.flush(); }",
        {"round": rounds[2], "layout": layout[2], "tokens": live["tokens"]},
    )
    assert state(page)["inside"] == 3 and state(page)["round"] == 1
    js(page, "p.clear('gone')")
    assert js(page, "p.inside.isOpen") is False


def test_a_file_and_its_link_go_inside_without_a_server(
    chromium: Browser, recorded: tr.Trace, tmp_path: Path
) -> None:
    this = pops_round(recorded)
    path = tmp_path / "run.html"
    data = json.loads(tr.to_json(served(recorded)))
    path.write_text(player.standalone(data), encoding="utf-8")
    with visitors(chromium) as new_page:
        page = new_page()
        page.goto(path.as_uri() + f"#run={data['run_id']}&round={this.index}&inside=4")
        page.wait_for_selector(".dp-inside .dp-slope")
        assert page.evaluate("() => p.state().inside") == 4
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => location.hash.includes('inside=5')")
        page.keyboard.press("Escape")
        page.wait_for_function("() => !location.hash.includes('inside')")


# ---- what it looks like -------------------------------------------------------------------------------------

LOOK = """() => {
  const root = document.querySelector('.dp');
  const shown = [...document.querySelectorAll('.dp-inside *, .dp-inside-bar *')].filter((e) => e.getClientRects().length && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  const light = (css) => { const [r, g, b] = css.match(/[\\d.]+/g).map(Number).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$|transparent/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  return {
    wide: document.documentElement.scrollWidth - innerWidth,
    small: shown.filter((e) => parseFloat(getComputedStyle(e).fontSize) < 14).map((e) => e.className + ': ' + e.textContent.slice(0, 20)),
    pale: shown.filter((e) => !e.closest(':disabled')).map((e) => { const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x); return [(a + 0.05) / (b + 0.05), e.className + ': ' + e.textContent.slice(0, 20)]; }).filter(([ratio]) => ratio < 4.5),
    out: shown.filter((e) => { const r = e.getBoundingClientRect(); return (r.right > innerWidth + 1 || r.left < -1) && !e.closest('.dp-table-wrap, .dp-inside-words'); }).map((e) => e.className + ': ' + e.textContent.slice(0, 20)),
    rows: [...document.querySelectorAll('.dp-slope-row .dp-slope-token')].filter((e) => e.getBoundingClientRect().width < 14).map((e) => e.textContent),
    bottom: document.querySelector('.dp-inside').getBoundingClientRect().bottom - document.querySelector('.dp-inside-bar').getBoundingClientRect().top,
  };
}"""


@pytest.mark.parametrize("size", SIZES, ids=["1440", "1920", "phone"])
def test_it_fits_and_can_be_read_in_light_and_dark(
    visit_player: Open, recorded: tr.Trace, size: tuple[int, int]
) -> None:
    """Labels of 14 px and more, contrast of 4.5 and more, nothing wider than the window; on a desk it fills one window."""
    this = pops_round(recorded)
    page = visit_player(recorded, size=size)
    for theme in ("light", "dark"):
        js(page, f"p.theme('{theme}')")
        enter(page, this)
        for step in (0, 4, this.verified_nodes, 999) if theme == "light" else (4, 999):
            js(page, f"p.inside.go({step})")
            seen: dict[str, Any] = js(page, f"({LOOK})()")
            assert seen["wide"] <= 0 and not seen["small"] and not seen["pale"] and not seen["out"], (
                theme,
                step,
                seen,
            )
            assert not seen["rows"], "a token of the chart has no room"
            if size[0] > 1000:
                assert seen["bottom"] <= size[1], (theme, step, seen["bottom"])
        js(page, "(p.inside.asTable = true, p.inside.go(4))")
        seen = js(page, f"({LOOK})()")
        assert seen["wide"] <= 0 and not seen["small"] and not seen["pale"] and not seen["out"], (theme, seen)
        js(page, "(p.inside.asTable = false)")


def test_token_text_never_runs_and_is_shown_as_it_is(visit_player: Open) -> None:
    """S10, U02: tags, templates and invisible characters in candidates, heap, facts and walk stay text."""
    words = [
        b"<img src=x onerror=window.hacked=1>",
        b"<b>",
        b"${window.hacked=1}",
        b"%{x}",
        b"\xf0\x9f",
        "\u202e".encode(),
        b"\n",
        b"</script>",
    ]
    trace = make_trace(2, 6, 1, levels=4, width=7, skill=0.9, vocabulary=words, pops_for=[1, 2])
    page = visit_player(trace)
    seen = ""
    for this in trace.rounds:
        enter(page, this)
        for step in range(js(page, "p.inside.build.size")):
            js(page, f"p.inside.go({step})")
            seen += js(page, "document.querySelector('.dp-inside').textContent + p.inside.title.textContent")
        js(page, "(p.inside.asTable = true, p.inside.go(1))")
        js(page, "(p.inside.asTable = false)")
    assert page.evaluate("() => window.hacked") is None
    assert js(page, "document.querySelectorAll('.dp-inside img, .dp-inside script').length") == 0
    for word in words:
        assert tr.token_text(word) in seen
    assert "NaN" not in seen and "undefined" not in seen and "\u202e" not in seen
