"""The in-browser player in a real Chromium: what a visitor sees and does, without any server behind it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import PLAIN, Open, assert_nothing_meets, headline, js, show, state
from trace_factory import ODD_TOKENS, VOCABULARY, make_trace

from dominotree import trace as tr
from viz import player
from viz.layout import served
from viz.player import bench

pytestmark = pytest.mark.browser


@pytest.fixture
def visit(visit_player: Open) -> Open:
    return visit_player


# ---- text is data (U01, U02, U04, U05, U06, S10) ----------------------------------------------------------


def odd_trace(tokens: list[bytes], rounds: int = 3) -> tr.Trace:
    """A small run whose text and trees are made of the given tokens only."""
    return make_trace(rounds, 8, 1, levels=4, width=len(tokens) - 1, skill=0.9, vocabulary=tokens)


def test_U01_output_text_is_exactly_what_was_emitted(visit: Open) -> None:
    words = [b"<think>", b"a", b"</think>", b" 3<5", b" &", b" <b>", b"x", b"</b>", b"\n", b"  ", b"</s>"]
    trace = odd_trace(words, 6)
    page = visit(trace)
    wanted = trace.summary["text"]
    assert "<think>" in wanted and "</b>" in wanted and "& 3<5" in wanted
    assert js(page, "document.querySelector('.dp-output').textContent") == wanted
    page.evaluate("() => getSelection().selectAllChildren(document.querySelector('.dp-output'))")
    assert page.evaluate("() => getSelection().toString()").strip("\n ") == wanted.strip("\n ")
    assert js(page, "document.querySelectorAll('.dp-output b, .dp-output think').length") == 0


def test_U02_tag_like_tokens_are_escaped_in_the_figure_and_shown_as_they_are(visit: Open) -> None:
    words = [b"<b>", b"<br>", b"&lt;", b"<a href=x>", b"x", b"y", b"z"]
    page = visit(odd_trace(words, 8))
    for k in range(8):
        js(page, f"p.goto({k + 1})")
        shown = js(
            page,
            """(() => {
              const t = p.panes[0].tree, g = t.current.g;
              const figure = t.plot.data.filter((d) => d.mode === 'text').flatMap((d) => [...d.text]);
              const screen = [...t.plot.querySelectorAll('.textpoint text')].map((e) => e.textContent);
              return {figure, screen, labels: g.label.filter((l) => l)};
            })()""",
        )
        escaped = {x.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for x in shown["labels"]}
        assert {f for f in shown["figure"] if not f.isdigit() and f != "depth"} <= escaped
        assert set(shown["screen"]) - {"depth", *"123456789"} <= set(shown["labels"])
        assert not any("<" in f or ">" in f for f in shown["figure"])
    figures = {"<b>": "&lt;b&gt;", "<br>": "&lt;br&gt;", "&lt;": "&amp;lt;"}
    assert {js(page, f"DominoPlayer.parts.escapePlotly({json.dumps(k)})") for k in figures} == set(
        figures.values()
    )


def test_U04_missing_values_are_dashes_and_templates_stay_text(visit: Open) -> None:
    trace = odd_trace([b"%{x}", b"%{customdata[0]}", b"${1+1}", b"{{7*7}}", b"a"])
    first = trace.rounds[0]
    for name in ("delta", "marginal", "static", "cum_static", "target_logprob", "target_rank", "base_logit"):
        getattr(first.nodes, name)[0] = None
    page = visit(trace)
    js(page, "p.select(p.panes[0], 0)")
    panel = page.inner_text(".dp-node")
    label = tr.token_text(bytes.fromhex(trace.tokens[first.nodes.token[0]]))
    assert label in panel and "%{customdata[0]}" in (label, "%{customdata[0]}")
    rows = dict(r.split("\t") for r in js(page, "probe.facts()"))
    assert rows["L"] == rows["ΔL"] == rows["Target rank"] == "–"
    assert "–" in page.inner_text(".dp-scores") and "NaN" not in panel and "undefined" not in panel
    js(page, "p.select(p.panes[0], -1)")
    assert "Anchor" in page.inner_text(".dp-node") and "%{customdata" not in page.inner_text(".dp-meta")


def test_U05_U06_equal_and_digit_tokens_keep_their_own_mark_and_order(visit: Open) -> None:
    words = [b" the", b"1", b"2", b"a", b"10"]
    trace = odd_trace(words)
    page = visit(trace)
    nodes = trace.rounds[0].nodes
    assert len(set(nodes.token)) < len(nodes), "the trace must repeat a token"
    places = js(
        page,
        "(({x, y, n}) => [...x].map((at, i) => [at, y[i]]).slice(0, n))(p.panes[0].tree.current.g)",
    )
    assert len({tuple(place) for place in places}) == len(nodes)
    js(page, "p.tableHost.querySelector('details').open = true")
    page.wait_for_selector(".dp-nodes tbody tr")
    rows = js(page, "[...document.querySelectorAll('.dp-nodes tbody th')].map((e) => e.textContent)")
    assert rows == [tr.token_text(bytes.fromhex(trace.tokens[t])) for t in nodes.token]
    tops = js(
        page, "[...document.querySelectorAll('.dp-walk li:first-child .dp-top b')].map((e) => e.textContent)"
    )
    visit_ = trace.rounds[0].visits[0]
    assert tops == [tr.token_text(bytes.fromhex(trace.tokens[t])) for t, _ in visit_.top[:3]]


def test_U17_minus_infinity_differs_from_missing(visit: Open) -> None:
    trace = odd_trace([b"a", b"b", b"c", b"d"])
    trace.rounds[0].nodes.conditional[0] = float("-inf")
    trace.rounds[0].nodes.target_logprob[0] = float("-inf")
    trace.rounds[0].nodes.marginal[0] = None
    page = visit(trace)
    js(page, "p.select(p.panes[0], 0)")
    cells = js(
        page,
        "[...document.querySelectorAll('.dp-scores tbody tr')]"
        ".map((row) => [...row.cells].map((c) => c.textContent))",
    )
    by_name = {row[0]: row for row in cells}
    assert by_name["Conditional"][3] == "−∞" and by_name["Conditional"][2] == "0 %"
    assert by_name["Marginal"][3] == "–" and by_name["Marginal"][2] == "–"
    assert "−∞" in dict(r.split("\t") for r in js(page, "probe.facts()"))["Target p"]
    figure = js(page, "JSON.stringify({d: p.panes[0].tree.plot.data, s: p.panes[0].tree.plot.layout.shapes})")
    json.loads(figure, parse_constant=lambda name: pytest.fail(f"{name} in the figure"))
    assert "NaN" not in figure


def test_S10_token_text_never_runs(visit: Open) -> None:
    words = [
        b'<img src=x onerror="window.hacked=1">',
        b"${window.hacked=1}",
        b"<script>window.hacked=1</script>",
        b"a",
    ]
    trace = odd_trace(words, 5)
    trace.header["pair"]["target"] = trace.header["machine"] = "<img src=x onerror='window.hacked=1'>"
    page = visit(trace)
    js(page, "p.tableHost.querySelector('details').open = true")
    for k in range(5):
        js(page, f"p.goto({k + 1})")
        js(page, "p.select(p.panes[0], 0)")
    page.evaluate("() => p.setError('<img src=x onerror=\"window.hacked=1\">')")
    page.wait_for_timeout(200)
    assert page.evaluate("() => window.hacked") is None
    assert page.evaluate("() => document.querySelectorAll('.dp img, .dp script').length") == 0
    assert "<img src=x" in page.inner_text(".dp-error")


def test_token_labels_are_those_of_the_trace_module(visit: Open) -> None:
    samples = [
        *ODD_TOKENS,
        *VOCABULARY,
        bytes(range(256)),
        "e\u0301 \u0301".encode(),
        b"\xe4\xb8",
        "\U000e0100".encode(),
    ]
    page = visit()
    shown = page.evaluate(
        "hexes => hexes.map((x) => DominoPlayer.parts.tokenText(DominoPlayer.parts.bytesOf(x)))",
        [s.hex() for s in samples],
    )
    assert shown == [tr.token_text(s) for s in samples]


# ---- stepping, keys, controls -----------------------------------------------------------------------------


def test_keys_step_play_toggle_and_help_wherever_the_focus_is(visit: Open) -> None:
    page = visit(make_trace(9, 16, 3, skill=0.95, vocabulary=PLAIN))
    assert state(page)["round"] == 1
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert state(page)["round"] == 3
    page.focus("#other")
    page.keyboard.press("ArrowLeft")
    assert state(page)["round"] == 2
    page.keyboard.press("End")
    assert state(page)["round"] == 9
    page.focus(".dp-slider")
    page.keyboard.press("Home")
    assert state(page)["round"] == 1
    page.focus("#field")
    page.keyboard.type(" sc?")
    page.keyboard.press("ArrowRight")
    assert state(page)["round"] == 1 and state(page)["scoring"] is None
    assert page.input_value("#field") == " sc?"
    page.focus(".dp-icon[aria-label^=Play]")
    page.keyboard.press("s")
    assert state(page)["scoring"] == "static"
    page.keyboard.press("s")
    page.keyboard.press("s")
    assert state(page)["scoring"] == "conditional"
    page.keyboard.press("Space")
    assert state(page)["playing"] is True
    page.keyboard.press("Space")
    assert state(page)["playing"] is False
    page.keyboard.press("?")
    assert page.is_visible(".dp-help")
    page.keyboard.press("?")
    assert not page.is_visible(".dp-help")
    page.keyboard.press("c")
    assert page.evaluate("() => events.filter(([n]) => n === 'compare').length") == 1


def test_headline_slider_strip_and_text_agree(visit: Open) -> None:
    trace = make_trace(12, 16, 5, skill=0.95, vocabulary=PLAIN)
    page = visit(trace)
    done = 0
    for k, this in enumerate(trace.rounds):
        done += len(this.committed)
        n, m = this.accepted, len(this.committed)
        words = f"{n} draft{'s' * (n != 1)} + 1 bonus = {m} token{'s' * (m != 1)}"
        assert headline(page) == f"Round {k + 1} of 12 · {words} · τ so far {done / (k + 1):.2f}"
        now = js(page, "document.querySelector('.dp-r.dp-now').textContent")
        assert now == "".join(bytes.fromhex(trace.tokens[t]).decode() for t in this.committed)
        assert js(page, "document.querySelector('.dp-slider').value") == str(k + 1)
        page.keyboard.press("ArrowRight")
    speed = trace.summary["tokens_per_second"]
    wanted = f"τ of the run {trace.summary['tau']:.2f} tokens/s {speed:.1f} over AR {speed / 31.4159:.2f}×"
    assert " ".join(page.inner_text(".dp-stats").split()) == wanted
    page.fill(".dp-slider", "4")
    assert state(page)["round"] == 4
    box = page.locator(".dp-bars").bounding_box()
    step = js(page, "p.panes[0].strip.step")
    assert box
    page.mouse.click(box["x"] + 6.5 * step, box["y"] + 10)
    assert state(page)["round"] == 7
    page.click(".dp-output [data-round='10'] .dp-t >> nth=0")
    assert state(page)["round"] == 10
    assert state(page)["node"] == (trace.rounds[9].path[0] if trace.rounds[9].path else -2)


def test_missing_ar_speed_is_a_dash(visit: Open) -> None:
    trace = make_trace(3, 8, 1, vocabulary=PLAIN)
    trace.header["ar_tokens_per_second"] = None
    page = visit(trace)
    assert "–" in page.inner_text(".dp-stats") and "NaN" not in page.inner_text(".dp-stats")


def test_play_runs_to_the_end_and_stops(visit: Open) -> None:
    page = visit(make_trace(5, 8, 1, vocabulary=PLAIN))
    page.select_option(".dp-speed", "8")
    page.click(".dp-icon[aria-label^=Play]")
    page.wait_for_function("() => p.state().round === 5 && !p.state().playing", timeout=10000)
    page.keyboard.press("Space")
    page.wait_for_function("() => p.state().round >= 1 && p.state().round < 5", timeout=5000)
    page.keyboard.press("ArrowRight")
    assert state(page)["playing"] is False


def test_scoring_toggle_counts_marks_and_moves_nothing(visit: Open) -> None:
    trace = make_trace(8, 16, 7, skill=0.8, width=24, vocabulary=PLAIN)
    page = visit(trace)
    tally = {s: sum(r.counterfactual[s].accepted for r in trace.rounds) for s in tr.SCORERS}
    for k, this in enumerate(trace.rounds):
        js(page, f"p.goto({k + 1})")
        places = None
        for scorer in ("conditional", "static", "marginal"):
            js(page, f"p.scoring('{scorer}')")
            button = page.locator(
                ".dp-scoring-row .dp-segment", has_text={"static": "Static"}.get(scorer, scorer.capitalize())
            )
            assert button.get_attribute("aria-pressed") == "true"
            held = this.counterfactual[scorer].accepted
            assert f"holds {held} of the coming tokens" in button.inner_text()
            seen = js(
                page,
                "(() => { const {g, kinds} = p.panes[0].tree.current;"
                " return {places: [...g.x, ...g.y], kind: kinds.kind, held: kinds.held}; })()",
            )
            assert places is None or seen["places"] == places
            places = seen["places"]
            assert len(seen["held"]) == held
            bit = tr.TREE_BITS[scorer]
            for i, trees in enumerate(this.nodes.trees):
                inside = bool(trees & (8 if scorer == "conditional" else bit))
                if seen["kind"][i] != "none":
                    assert (seen["kind"][i] != "ghost") == inside
                if seen["kind"][i] == "only":
                    assert trees & 7 == bit
    more = tally["conditional"] - tally["marginal"]
    said = "as many" if more == 0 else f"{abs(more)} {'more' if more > 0 else 'fewer'}"
    wanted = f"At these 8 anchors the conditional tree holds {said} of the coming tokens"
    assert wanted in page.inner_text(".dp-holds")


def test_node_panel_and_walk_say_why(visit: Open) -> None:
    trace = make_trace(6, 16, 4, skill=0.9, vocabulary=PLAIN)
    page = visit(trace)
    for k, this in enumerate(trace.rounds):
        js(page, f"p.goto({k + 1})")
        visited = {v.node: v.chosen for v in this.visits}
        for i in range(len(this.nodes)):
            js(page, f"p.panes[0].node === {i} || p.select(p.panes[0], {i})")
            said = page.inner_text(".dp-node .dp-verdict")
            if this.nodes.accepted[i]:
                assert said.startswith("Accepted")
            elif not this.nodes.trees[i] & 8:
                assert said.startswith("Not in the tree that this run verified")
            elif this.nodes.parent[i] in visited:
                chosen = tr.token_text(bytes.fromhex(trace.tokens[visited[this.nodes.parent[i]]]))
                assert said == f"Not accepted: the target chose {chosen} here."
            else:
                assert said.startswith("Not reached")
        assert page.locator(".dp-walk li").count() == len(this.visits)
        bonus = tr.token_text(bytes.fromhex(trace.tokens[this.bonus]))
        assert bonus in page.inner_text(".dp-walk .dp-why")


def test_U25_U26_rates_are_named_and_only_the_path_counts(visit: Open) -> None:
    trace = make_trace(6, 16, 4, skill=0.9, vocabulary=PLAIN)
    page = visit(trace)
    for k, this in enumerate(trace.rounds):
        js(page, f"p.goto({k + 1})")
        levels = f"{this.depth_reached} level{'s' * (this.depth_reached != 1)}"
        wanted = (
            f"Accepted: {this.accepted} of {levels}, {this.accepted} of {this.verified_nodes} drafted nodes."
        )
        assert page.inner_text(".dp-walk-card .dp-hint") == wanted
        kinds = js(page, "p.panes[0].tree.current.kinds.kind")
        assert [i for i, kind in enumerate(kinds) if kind == "held"] == sorted(this.path)


def test_U28_target_probabilities_say_that_they_come_before_temperature(visit: Open) -> None:
    page = visit(make_trace(2, 8, 4, vocabulary=PLAIN, temperature=1.0))
    assert "(before temperature)" in page.inner_text(".dp-walk-card .dp-kicker")
    show(page, make_trace(2, 8, 4, vocabulary=PLAIN))
    assert "temperature" not in page.inner_text(".dp-walk-card .dp-kicker")


def test_hover_shows_a_node_and_leaving_brings_the_legend_back(visit: Open) -> None:
    trace = make_trace(3, 8, 4, skill=0.9, vocabulary=PLAIN)
    page = visit(trace)
    stage = page.locator(".dp-stage").bounding_box()
    assert stage and "How to read" in page.inner_text(".dp-node")
    x, y = js(page, "[p.panes[0].tree.current.g.x[0], p.panes[0].tree.current.g.y[0]]")
    page.mouse.move(stage["x"] + x, stage["y"] + y)
    page.wait_for_selector(".dp-node .dp-token")
    label = tr.token_text(bytes.fromhex(trace.tokens[trace.rounds[0].nodes.token[0]]))
    assert page.inner_text(".dp-node .dp-token") == label
    page.mouse.move(5, 5)
    page.wait_for_selector(".dp-node .dp-legend")
    page.mouse.click(stage["x"] + x, stage["y"] + y)
    assert state(page)["node"] == 0


# ---- compare ----------------------------------------------------------------------------------------------


def test_compare_two_runs_by_round_and_by_text_position(visit: Open) -> None:
    a = make_trace(10, 16, 6, "dominotree", skill=0.95, vocabulary=PLAIN)
    b = make_trace(14, 16, 6, "ddtree", skill=0.6, vocabulary=PLAIN)
    page = visit(a, b)
    heads = js(page, "p.panes.map((pane) => pane.headline.innerText)")
    assert [head.split(" · ")[0] for head in heads] == ["Round 1 of 10", "Round 1 of 14"]
    assert js(page, "document.querySelectorAll('.dp-tree .dp-plot .main-svg').length") >= 2
    table = page.inner_text(".dp-compare")
    assert "DominoTree" in table and "DDTree" in table
    assert f"{a.summary['tau']:.2f}" in table and f"{b.summary['tau']:.2f}" in table
    for _ in range(13):
        page.keyboard.press("ArrowRight")
    heads = js(page, "p.panes.map((pane) => pane.k)")
    assert heads == [9, 13]
    page.click("[data-by=position]")
    page.keyboard.press("Home")
    starts = [[1 + sum(len(r.committed) for r in t.rounds[:k]) for k in range(len(t.rounds))] for t in (a, b)]
    for position in sorted({*starts[0], *starts[1]}):
        want = [max(k for k, s in enumerate(run) if s <= max(position, run[0])) for run in starts]
        assert js(page, "p.panes.map((pane) => pane.k)") == want
        page.keyboard.press("ArrowRight")
    page.keyboard.press("c")
    assert js(page, "p.panes.length") == 1
    page.keyboard.press("c")
    assert js(page, "p.panes.length") == 2 and state(page)["with"] == b.run_id


# ---- live, errors, edges ----------------------------------------------------------------------------------


def test_live_rounds_are_followed_until_the_visitor_steps_back(visit: Open) -> None:
    trace = tr.finish(make_trace(6, 8, 2, vocabulary=PLAIN))
    data = json.loads(tr.to_json(served(trace)))
    rounds, layouts, tokens = data["rounds"], data["layout"], data["tokens"]
    start = data | {"rounds": [], "layout": [], "summary": {}, "run_id": ""}
    page = visit()
    page.evaluate("d => p.load(d)", start)
    assert "first round" in page.inner_text(".dp-tree-note")
    add = "([round, layout, tokens]) => p.append({round, layout, tokens})"
    for k in range(3):
        page.evaluate(add, [rounds[k], layouts[k], tokens])
        assert headline(page).startswith(f"Round {k + 1} of {k + 1}")
    page.keyboard.press("ArrowLeft")
    page.evaluate(add, [rounds[3], layouts[3], tokens])
    assert headline(page).startswith("Round 2 of 4")
    page.keyboard.press("End")
    page.evaluate(add, [rounds[4], layouts[4], tokens])
    page.evaluate(add, [rounds[5], layouts[5], tokens])
    assert headline(page).startswith("Round 6 of 6")
    end = {"summary": data["summary"], "header": data["header"], "run_id": data["run_id"]}
    page.evaluate("e => p.finish(e)", end | {"counterfactuals": [r["counterfactual"] for r in rounds]})
    assert state(page)["run"] == trace.run_id
    assert js(page, "document.querySelector('.dp-output').textContent") == trace.summary["text"]
    assert "anchors the" in page.inner_text(".dp-holds")


def test_U32_an_error_keeps_the_rounds_and_marks_them_partial(visit: Open) -> None:
    trace = make_trace(3, 8, 2, vocabulary=PLAIN, finished=False)
    page = visit(trace)
    page.evaluate("() => p.setError('The engine stopped: out of memory.')")
    assert "out of memory" in page.inner_text(".dp-error")
    assert "partial" in page.inner_text(".dp-title")
    assert headline(page).startswith("Round 3 of 3")
    page.evaluate("() => p.clear('Starting …')")
    assert not page.is_visible(".dp-error")
    assert "Starting …" in page.inner_text(".dp-tree-note")
    assert trace.rounds and page.inner_text(".dp-headline") == ""
    bad = page.evaluate("() => { try { p.load({schema: 'x'}); } catch (e) { return e.message; } }")
    assert bad == "This is not a DominoTree trace."


def test_U29_a_run_of_one_round_works(visit: Open) -> None:
    page = visit(make_trace(1, 8, 2, vocabulary=PLAIN))
    assert headline(page).startswith("Round 1 of 1")
    assert page.is_disabled(".dp-slider")
    for key in ("ArrowRight", "ArrowLeft", "End", "Home", " "):
        page.keyboard.press(key)
    assert state(page)["round"] == 1 and state(page)["playing"] is False


@pytest.mark.parametrize("method", ["ar", "dflash", "domino"])
def test_chains_and_ar_are_shown_without_a_toggle(visit: Open, method: str) -> None:
    scorers: tuple[str, ...] = ()
    trace = make_trace(4, 8, 2, method, vocabulary=PLAIN, scorers=scorers)
    page = visit(trace)
    assert not page.is_visible(".dp-segments[aria-label^=Tree]")
    note = page.inner_text(".dp-tree-note") if page.is_visible(".dp-tree-note") else ""
    assert ("drafts nothing" in note) == (method == "ar")
    page.keyboard.press("s")
    page.keyboard.press("ArrowRight")
    assert state(page)["round"] == 2 and state(page)["scoring"] is None
    kinds = js(page, "p.panes[0].tree.current.kinds.kind")
    assert kinds.count("held") == trace.rounds[1].accepted


def test_no_rounds_at_all(visit: Open) -> None:
    page = visit(make_trace(0, 8, 2, vocabulary=PLAIN))
    assert "ended before its first round" in page.inner_text(".dp-tree-note")
    page.keyboard.press("ArrowRight")
    assert state(page)["round"] is None


def test_state_can_be_read_and_set_again(visit: Open) -> None:
    trace = make_trace(6, 16, 2, vocabulary=PLAIN)
    page = visit(trace)
    js(page, "p.goto(4).scoring('marginal')")
    js(page, "p.select(p.panes[0], 1)")
    kept = state(page)
    assert kept | {"round": 4, "scoring": "marginal", "node": 1, "run": trace.run_id} == kept
    show(page, trace)
    assert state(page)["round"] == 1
    page.evaluate("s => p.setState(s)", kept)
    assert state(page) == kept
    page.evaluate("() => { p.hash = true; p.render(); p.flush(); }")
    page.wait_for_function("() => location.hash.length > 1")
    assert page.evaluate("() => DominoPlayer.readHash()") == {
        "run": trace.run_id,
        "round": 4,
        "scoring": "marginal",
        "node": 1,
    }


def test_download_buttons_name_the_run_on_screen(visit: Open) -> None:
    one, two = make_trace(3, 8, 2, vocabulary=PLAIN), make_trace(3, 8, 9, vocabulary=PLAIN)
    page = visit(one)
    show(page, two)
    page.click("[data-kind=rounds-csv]")
    page.click("[data-kind=json]")
    asked = page.evaluate("() => events.filter(([n]) => n === 'download').map(([, d]) => d)")
    assert asked == [{"kind": "rounds-csv", "run_id": two.run_id}, {"kind": "json", "run_id": two.run_id}]


# ---- geometry, sizes, access ------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [16, 64, 256])
def test_no_label_meets_an_edge_a_mark_or_another_label_at_1440x900(visit: Open, nodes: int) -> None:
    page = visit(make_trace(6, nodes, 8, skill=0.85, width=24))
    for k in range(6):
        for scorer in ("conditional", "marginal"):
            js(page, f"p.goto({k + 1}).scoring('{scorer}')")
            seen = js(page, "probe.measure()")
            assert len(seen["labels"]) > 8
            assert all(
                label[5] >= 14 for label in seen["labels"] if not label[4].isdigit() and label[4] != "depth"
            )
            assert_nothing_meets(seen)
            shown = {label[4] for label in seen["labels"]}
            current = "p.panes[0].tree.current"
            spine = js(
                page,
                f"{current}.g.label.filter((_, i) => {current}.g.emitted[i] && {current}.kinds.drawn(i))",
            )
            assert set(spine) <= shown, "the text that came out is always readable"


def test_every_label_of_a_64_node_tree_is_readable(visit: Open) -> None:
    trace = make_trace(5, 64, 8, skill=0.95, width=24, vocabulary=PLAIN, scorers=("conditional",))
    page = visit(trace)
    for k, this in enumerate(trace.rounds):
        js(page, f"p.goto({k + 1})")
        labels = js(page, "document.querySelectorAll('.dp-plot .textpoint text').length")
        ticks = js(page, "p.panes[0].tree.current.g.ticks.length")
        assert labels - ticks >= 0.9 * this.verified_nodes, (k, labels - ticks, this.verified_nodes)


def test_phone_is_top_down_and_never_scrolls_sideways(visit: Open) -> None:
    page = visit(make_trace(4, 16, 3, skill=0.9), size=(390, 844), has_touch=True)
    js(page, "p.goto(2)")
    assert js(page, "document.documentElement.scrollWidth") <= 390
    assert js(page, "p.panes[0].tree.current.g.narrow") is True
    g = js(page, "(({x, y, depth}) => ({x: [...x], y: [...y], depth}))(p.panes[0].tree.current.g)")
    order = sorted(range(len(g["depth"])), key=lambda i: g["depth"][i])
    assert [g["y"][i] for i in order] == sorted(g["y"])
    assert_nothing_meets(js(page, "probe.measure()"))
    page.set_viewport_size({"width": 1440, "height": 900})
    page.wait_for_function("() => p.panes[0].tree.current.g.narrow === false")


def test_U19_a_player_that_was_hidden_draws_when_it_is_shown(visit: Open) -> None:
    page = visit()
    page.evaluate("() => { document.getElementById('player').style.display = 'none'; }")
    show(page, make_trace(3, 8, 2, vocabulary=PLAIN))
    page.evaluate("() => { document.getElementById('player').style.display = ''; }")
    page.wait_for_function("() => document.querySelectorAll('.dp-plot .point').length > 3")


def test_dark_light_and_contrast(visit: Open) -> None:
    for scheme in ("light", "dark"):
        page = visit(make_trace(4, 16, 3, vocabulary=PLAIN), color_scheme=scheme)
        assert js(page, "p.root.dataset.theme") == scheme
        worst = js(page, "probe.contrast()")
        assert not worst, worst
        page.evaluate("() => p.theme('dark').theme('light')")
        assert js(page, "p.root.dataset.theme") == "light"


def test_controls_can_be_reached_and_named_by_keyboard_and_screen_reader(visit: Open) -> None:
    page = visit(make_trace(4, 16, 3, vocabulary=PLAIN))
    unnamed = js(
        page,
        "[...p.root.querySelectorAll('button, input, select')]"
        ".filter((e) => !(e.getAttribute('aria-label') || e.textContent.trim())).length",
    )
    assert unnamed == 0
    page.focus(".dp-icon >> nth=2")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            js(page, "document.activeElement.className + '|' + (document.activeElement.dataset.kind || '')")
        )
    text = " ".join(reached)
    for name in ("dp-slider", "dp-speed", "dp-segment", "dp-help-button", "dp-term", "rounds-csv"):
        assert name in text
    page.focus(".dp-term >> nth=0")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.is_visible(".dp-tip")
    assert js(page, "p.panes[0].tree.stage.getAttribute('aria-label')").startswith("DominoTree, round 1")
    page.click(".dp-table summary")
    page.wait_for_selector(".dp-nodes tbody tr")
    page.click(".dp-nodes tbody tr >> nth=1 >> button")
    assert state(page)["node"] == 1


def test_forty_steps_never_show_an_empty_frame(visit: Open) -> None:
    page = visit(make_trace(41, 64, 3, width=24, vocabulary=PLAIN, scorers=("conditional",)))
    page.evaluate("""() => {
      window.frames_seen = []; window.sampling = true;
      const look = () => {
        frames_seen.push(document.querySelectorAll(".dp-plot .textpoint text").length);
        if (sampling) requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    }""")
    for _ in range(40):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(20)
    seen = page.evaluate("() => { sampling = false; return frames_seen; }")
    assert state(page)["round"] == 41
    assert len(seen) > 20 and min(seen) > 5


def test_a_run_of_200_rounds_loads_within_a_second(visit: Open) -> None:
    page = visit()
    text = tr.to_json(served(tr.finish(make_trace(200, 16, 3, vocabulary=PLAIN))))
    best = page.evaluate(
        """async (text) => {
          const times = [];
          for (let k = 0; k < 3; k++) {
            const start = performance.now();
            p.load(JSON.parse(text));
            p.flush();
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            times.push(performance.now() - start);
          }
          return Math.min(...times);
        }""",
        text,
    )
    assert best < 1000
    assert headline(page).startswith("Round 1 of 200")


def test_reduced_motion_flashes_nothing(visit: Open) -> None:
    page = visit(make_trace(4, 16, 3, skill=0.7, width=24), reduced_motion="reduce")
    js(page, "p.goto(2).scoring('marginal')")
    js(page, "1")
    assert js(page, "p.panes[0].tree.pulse.childElementCount") == 0


def test_standalone_file_shows_a_run_and_two(visit: Open, tmp_path: Path) -> None:
    trace = make_trace(3, 8, 2)
    text = player.standalone(json.loads(tr.to_json(served(tr.finish(trace)))))
    path = tmp_path / "run.html"
    path.write_text(text, encoding="utf-8")
    page = visit()
    page.goto(path.as_uri())
    page.wait_for_selector(".dp-plot .point")
    assert page.inner_text(".dp-headline").startswith("Round 1 of 3")
    page.wait_for_function("id => location.hash.includes(id)", arg=trace.run_id)
    with pytest.raises(ValueError, match="one run or two, not 0"):
        player.standalone()
    # small trees need less height than the page offers, and are drawn in what they get
    small = make_trace(3, 2, 2, "ddtree", scorers=("marginal",), levels=5)
    path.write_text(player.standalone(json.loads(tr.to_json(served(tr.finish(small))))), encoding="utf-8")
    for size in ((1440, 900), (1920, 1080)):
        page = visit(size=size)
        page.goto(path.as_uri())
        page.wait_for_selector(".dp-plot .point")
        page.wait_for_function(
            "() => { const [box, stage] = ['.dp-scroller', '.dp-stage'].map((x) => document.querySelector(x).clientHeight);"
            " return box < 500 && Math.abs(box - stage) <= 1; }"
        )


def test_benchmark_measures_steps_toggles_and_loading() -> None:
    with ThreadPoolExecutor(1) as apart:  # Playwright allows one loop a thread
        runs = [make_trace(5, 16, 3, vocabulary=PLAIN)]
        rows, version = apart.submit(bench.measure, runs, steps=6, pause_ms=60).result()
    assert [row["what"] for row in rows] == ["step", "toggle", "load", "load"]
    assert [row["rounds"] for row in rows] == [5, 5, 5, 200] and version
    for row in rows:
        assert row["nodes"] == 16 and row["union"] >= 16
        assert 0 < row["p50_ms"] <= row["p95_ms"] < 5000
    assert 0 < rows[0]["draw_p50_ms"] < rows[0]["p95_ms"]
    assert [bench.quantile([3, 1, 2, 4], q) for q in (0.25, 0.5, 0.95)] == [1, 2, 4]
