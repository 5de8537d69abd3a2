"""Where things stand on the screen: trees of 5 to 1024 nodes, folding, pictures, phones, access, in a real Chromium."""

from __future__ import annotations

import base64
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers import PLAIN, Open, assert_nothing_meets, js, show, visitors
from page_tools import ScriptedEngine, serving, until
from playwright.sync_api import Browser, Page
from trace_factory import make_trace

from dominotree import trace as tr
from viz.library import TRACES, Library

pytestmark = pytest.mark.browser

WORDS = "label => !/^\\d+$/.test(label[4]) && label[4] !== 'depth'"


def measured(page: Page) -> dict[str, Any]:
    """The tree on the screen, checked: nothing meets, and every label but the depths is of 14 px or more."""
    seen = js(page, "probe.measure()")
    assert_nothing_meets(seen)
    for label in seen["labels"]:
        assert label[5] >= 14 or label[4].isdigit() or label[4] == "depth", label
    return seen


def tree(page: Page, expression: str) -> Any:
    """The value of an expression of `t` (the tree view), `g` (its geometry) and `kinds`."""
    return js(page, f"((t) => {{ const {{g, kinds}} = t.current; return {expression}; }})(p.panes[0].tree)")


# ---- trees ------------------------------------------------------------------------------------------------


def test_recorded_64_node_rounds_are_readable_at_1440x900(visit_player: Open) -> None:
    """Every sixth round of the recorded runs of 64 nodes, in the height that the page leaves to the tree."""
    library = Library()
    runs = [run for run in library.runs if run.budget == 64]
    assert runs
    page = visit_player()
    page.add_style_tag(
        content=".dp { --dp-tree-height: clamp(320px, calc(100dvh - 500px), 900px) !important }"
    )
    for run in runs:
        trace = library.trace(run.run_id)
        show(page, trace)
        page.evaluate("() => p.resized()")
        assert js(page, "p.panes[0].treeHost.clientHeight") <= 402
        for k in range(2, len(trace.rounds), 6):
            this = trace.rounds[k]
            js(page, f"p.goto({k + 1})")
            measured(page)
            emitted = tree(page, "g.label.filter((_, i) => g.emitted[i] && kinds.drawn(i) && kinds.shown[i])")
            assert len(emitted) == len(this.committed) + 1, "the text that came out is always readable"
            places = tree(page, "[...g.x, ...g.y]")
            js(page, "p.scoring('marginal')")
            assert tree(page, "[...g.x, ...g.y]") == places, "the toggle moves nothing"
            js(page, "p.scoring('conditional')")


def test_punctuation_is_drawn_bold(visit_player: Open) -> None:
    words = [b".", b" the", b",", b" ", b" (", b"a", b"\n", b" it's"]
    page = visit_player(make_trace(3, 16, 2, width=7, vocabulary=words, skill=0.4))
    weights: dict[str, set[int]] = {}
    for k in range(3):
        js(page, f"p.goto({k + 1}).scoring('conditional')")
        for text, kind, weight in tree(
            page,
            "(({text, customdata, textfont}) => text.map((x, i) => [x, customdata[i], textfont.weight[i]]))"
            "(t.plot.data.find((d) => d.mode === 'text'))",
        ):
            if kind in ("tree", "slight"):
                weights.setdefault(text, set()).add(weight)
    assert weights and weights.get("␣the", {400}) == {400}
    assert {text: weights[text] for text in weights if text not in ("␣the", "a", "␣it's")}
    assert all(w == {600} for text, w in weights.items() if text not in ("␣the", "a", "␣it's"))


def test_U20_a_figure_of_512_nodes_is_built_in_less_than_2_s(visit_player: Open) -> None:
    """Fault row U20: shapes are one path a kind of line, so that 512 nodes are drawn at once and not one by one."""
    page = visit_player()
    show(page, make_trace(2, 512, 8, skill=0.85, width=24, scorers=("conditional",), vocabulary=PLAIN))
    spent = js(
        page,
        """(() => {
          const t = p.panes[0].tree;
          const times = [];
          for (let k = 0; k < 2; k++) {
            const start = performance.now();
            t.cache.clear();
            t.draw(p.run, k, "conditional", null);
            times.push(performance.now() - start);
          }
          return times;
        })()""",
    )
    assert tree(page, "g.n") == 512
    assert max(spent) < 2000, spent
    assert tree(page, "t.plot.layout.shapes.length") <= 25


@pytest.mark.parametrize("nodes", [256, 1024])
def test_unlikely_branches_fold_to_counts_and_open_by_click(visit_player: Open, nodes: int) -> None:
    trace = make_trace(3, nodes, 8, skill=0.85, width=24, vocabulary=PLAIN)
    page = visit_player(trace)
    this = trace.rounds[0]
    assert f"{nodes} nodes," in page.inner_text(".dp-fold-row")
    page.get_by_role("button", name="Fold unlikely branches").last.click()
    places = None
    for scorer in tr.SCORERS:
        js(page, f"p.scoring('{scorer}')")
        seen = measured(page)
        folded = tree(
            page, "{counts: [...kinds.counts], marks: [...g.stands.keys()].filter((i) => g.stands[i])}"
        )
        bit = 8 if scorer == "conditional" else tr.TREE_BITS[scorer]
        drawn = tree(page, "[...Array(g.n).keys()].filter((i) => kinds.drawn(i) && !g.stands[i])")
        inside = [i for i in drawn if this.nodes.trees[i] & bit]
        total = sum(1 for bits in this.nodes.trees if bits & bit)
        assert total == len(inside) + sum(count for _, count in folded["counts"]), (
            "every node is shown or counted"
        )
        # The node that carries the bonus token stands under the bonus mark in the run's own tree.
        assert set(this.path) <= set(drawn)
        shown = {label[4] for label in seen["labels"]}
        assert {f"+{count}" for _, count in folded["counts"]} <= shown
        assert places in (None, tree(page, "[...g.x, ...g.y]")), "the toggle moves nothing"
        places = tree(page, "[...g.x, ...g.y]")
    assert tree(page, "g.height <= t.host.clientHeight + 1"), "what is folded fits without scrolling"
    js(page, "p.scoring('conditional')")
    mark, count = max(tree(page, "[...kinds.counts]"), key=lambda found: found[1])
    x, y = tree(page, f"[g.x[{mark}], g.y[{mark}]]")
    stage = page.locator(".dp-stage").bounding_box()
    assert stage
    page.mouse.click(stage["x"] + x, stage["y"] + y)
    opened = dict(tree(page, "[...kinds.counts]"))
    assert opened.get(mark, 0) < count and js(page, "p.state()")["node"] is None
    measured(page)
    page.get_by_role("button", name="Show every node").click()
    assert tree(page, "g.folded") is None and tree(page, "g.stands.every((s) => !s)")


def test_folding_is_offered_from_257_nodes_on_and_by_keyboard_always(visit_player: Open) -> None:
    page = visit_player(make_trace(2, 64, 8, width=24, vocabulary=PLAIN, scorers=("conditional",)))
    assert not page.is_visible(".dp-fold-row")
    button = page.get_by_role("button", name="Fold unlikely branches")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true" and tree(page, "g.folded !== null")
    measured(page)
    page.keyboard.press("ArrowRight")
    assert js(page, "p.state()")["round"] == 2 and tree(page, "g.folded !== null"), "it stays folded"


def test_folded_trees_share_no_cell(visit_player: Open) -> None:
    """The packing in the browser keeps the promise of viz/layout.py: no cell twice, the spine alone on its lane."""
    page = visit_player(make_trace(4, 256, 5, skill=0.7, width=24))
    js(page, "p.panes[0].tree.fold(true)")
    for k in range(4):
        js(page, f"p.goto({k + 1})")
        for name in ("y", "y1"):
            found = tree(
                page,
                "{lanes: [...g.layout." + name + "], hidden: [...g.hidden],"
                " parent: p.run.rounds[t.current.k].nodes.parent, depth: p.run.rounds[t.current.k].nodes.depth}",
            )
            taken: dict[tuple[int, int], int] = {}
            lanes, hidden = found["lanes"], found["hidden"]
            children: dict[int, list[int]] = {}
            for i, parent in enumerate(found["parent"]):
                if hidden[i]:
                    continue
                cell = (2 * found["depth"][i], lanes[i])
                assert cell not in taken, (i, taken[cell])
                taken[cell] = i
                children.setdefault(parent, []).append(i)
            for parent, below in children.items():
                lane, depth = (0, 0) if parent < 0 else (lanes[parent], found["depth"][parent])
                ends = [lane, *(lanes[c] for c in below)]
                for across in range(min(ends), max(ends) + 1):
                    cell = (2 * depth + 1, across)
                    assert cell not in taken, (parent, taken[cell])
                    taken[cell] = parent
            if name == "y1":
                assert min(lanes) == 0


# ---- pictures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tree_is_saved_as_png_and_svg_in_the_theme(
    visit_player: Open, tmp_path: Path, theme: str
) -> None:
    trace = make_trace(
        4, 16, 3, skill=0.9, vocabulary=[b"<b>", b" &", b" the", b"word", b",", b" a b"], width=5
    )
    page = visit_player(trace, color_scheme=theme)
    js(page, "p.goto(2).scoring('marginal')")
    this = trace.rounds[1]
    found = {}
    for kind in ("png", "svg"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"Save the tree as {kind.upper()}").click()
        name = f"dominotree-dominotree-{trace.run_id}-round-2-marginal.{kind}"
        assert waiting.value.suggested_filename == name
        found[kind] = Path(waiting.value.path()).read_bytes()
    size = tree(page, "[g.width, g.height]")
    wide, high = struct.unpack(">II", found["png"][16:24])
    assert [wide, high] == [2 * size[0], 2 * (size[1] + 58)]
    picture = found["svg"].decode()
    texts = [
        "".join(e.itertext())
        for e in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    ]
    drafts = f"{this.accepted} draft{'s' * (this.accepted != 1)} + 1 bonus"
    assert any(t.startswith(f"DominoTree, round 2 of 4: {drafts}") for t in texts)
    assert any("marginal tree, not the one verified" in t and trace.run_id in t for t in texts)
    labels = set(tree(page, "g.label.filter((l, i) => l && kinds.drawn(i) && kinds.shown[i])"))
    assert labels and labels <= set(texts)
    ground = {"light": "rgb(255, 255, 255)", "dark": "rgb(14, 17, 22)"}[theme]
    assert f"fill: {ground}" in picture
    assert page.evaluate(
        """async ([text, theme]) => {
          const image = new Image();
          image.src = "data:image/png;base64," + text;
          await image.decode();
          const canvas = Object.assign(document.createElement("canvas"), {width: image.width, height: image.height});
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          const {data} = context.getImageData(0, 0, image.width, image.height);
          const seen = new Set();
          for (let k = 0; k < data.length; k += 4) seen.add(`${data[k]},${data[k + 1]},${data[k + 2]}`);
          return seen.has(theme === "light" ? "255,255,255" : "14,17,22") && seen.has(theme === "light" ? "27,95,208" : "130,177,255");
        }""",
        [base64.b64encode(found["png"]).decode(), theme],
    ), "background and accent of the theme"


def test_both_trees_of_a_comparison_are_saved(visit_player: Open) -> None:
    a, b = (make_trace(3, 16, 3, m, vocabulary=PLAIN) for m in ("dominotree", "ddtree"))
    page = visit_player(a, b)
    names: list[str] = []
    page.on("download", lambda d: names.append(d.suggested_filename))
    page.get_by_role("button", name="Save the tree as SVG").click()
    until(lambda: (page.wait_for_timeout(50), len(names) == 2)[1], 10)
    assert names == [
        f"dominotree-dominotree-{a.run_id}-round-1-conditional.svg",
        f"dominotree-ddtree-{b.run_id}-round-1-marginal.svg",
    ]


# ---- the page ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, tr.Trace]]:
    """The real page over the recorded runs and one made-up run whose tree has five nodes."""
    folder = tmp_path_factory.mktemp("page") / "traces"
    shutil.copytree(TRACES, folder)
    small = make_trace(2, 5, 11, levels=3, vocabulary=PLAIN, scorers=("conditional",))
    small.prompt = {**small.prompt, "kind": "five"}
    small = tr.finish(small)
    tr.save(small, folder / "five.json.gz")
    with serving(Library(folder), ScriptedEngine(0.4, rounds=20)) as (address, _):
        yield address, small


@pytest.fixture
def visit(chromium: Browser, site: tuple[str, tr.Trace]) -> Iterator[Open]:
    """Open the page as a new visitor, with the probes at hand."""
    with visitors(chromium, console=False) as new_page:

        def open_page(size: tuple[int, int] = (1440, 900), **more: Any) -> Page:
            page = new_page(size, **more)
            page.goto(site[0])
            page.wait_for_selector("#explore-player .dp:not(.dp-is-empty) .dp-plot .main-svg")
            page.add_script_tag(path=Path(__file__).parent / "probe.js")
            return page

        yield open_page


READY = {
    "Explore": "#explore-player .dp:not(.dp-is-empty)",
    "Compare": "#compare-player .dp:not(.dp-is-empty)",
    "Lessons": ".dl-picture:not([aria-busy]) .dp-plot .main-svg",
    "Benchmarks": ".dp-benchmarks[aria-busy=false]",
}


def open_tab(page: Page, title: str) -> None:
    page.get_by_role("tab", name=title, exact=True).click()
    page.wait_for_selector(READY[title])


def test_U18_five_nodes_are_five_marks_at_their_places_in_the_installed_gradio(
    visit: Open, site: Any
) -> None:
    """Fault row U18: the figure holds plain lists, so that no library has to unpack what another packed."""
    trace = site[1]
    page = visit()
    page.evaluate("(id) => DominoPage.pickRun('explore', id)", trace.run_id)
    page.wait_for_function("(id) => DominoPage.state('explore').player.run === id", arg=trace.run_id)
    page.wait_for_timeout(100)
    found = page.evaluate(
        """() => {
          const {tree} = DominoPage.inside.tabs.explore.player.panes[0];
          const stage = tree.stage.getBoundingClientRect();
          const marks = tree.plot.data.find((d) => d.mode === "markers");
          const seen = [...tree.plot.querySelectorAll(".points .point")].map((e) => {
            const b = e.getBoundingClientRect();
            return [(b.left + b.right) / 2 - stage.left, (b.top + b.bottom) / 2 - stage.top];
          });
          const {g} = tree.current;
          const packed = (x) => x && typeof x === "object" && !Array.isArray(x) && ("bdata" in x || ArrayBuffer.isView(x));
          const lists = Object.entries(marks).filter(([, x]) => Array.isArray(x) || packed(x));
          return {n: g.n, x: [...g.x], y: [...g.y], seen, kinds: marks.customdata, packed: lists.filter(([, x]) => !Array.isArray(x)).length, lists: lists.length};
        }"""
    )
    nodes = trace.rounds[0].nodes
    assert found["n"] == len(nodes) == 5 and found["packed"] == 0 and found["lists"] >= 3
    assert len(found["seen"]) == len(found["kinds"])
    marks = sorted(
        place
        for place, kind in zip(found["seen"], found["kinds"], strict=True)
        if kind not in ("anchor", "bonus")
    )
    assert len(marks) == 5
    places = sorted([x, y] for x, y in zip(found["x"][:5], found["y"][:5], strict=True))
    assert marks == [pytest.approx(place, abs=1.0) for place in places]
    left = {
        depth: {x for x, d in zip(found["x"], nodes.depth, strict=False) if d == depth}
        for depth in nodes.depth
    }
    assert all(len(xs) == 1 for xs in left.values()), "one column a depth"


def test_the_toggle_says_what_each_tree_would_have_got(visit: Open) -> None:
    """Against the trace itself: the three counts of every fifth round, the tally over the run's anchors."""
    library = Library()
    run = next(
        r
        for r in library.runs
        if (r.kind, r.method, r.budget, r.temperature) == ("math", "dominotree", 16, 0)
    )
    trace = library.trace(run.run_id)
    page = visit()
    player = "DominoPage.inside.tabs.explore.player"
    tally = {s: sum(r.counterfactual[s].accepted for r in trace.rounds) for s in tr.SCORERS}
    for k in range(0, len(trace.rounds), 5):
        page.evaluate(f"() => {{ {player}.goto({k + 1}); {player}.flush(); }}")
        counts = page.locator("#explore-player .dp-scoring-row .dp-count").all_inner_texts()
        held = [trace.rounds[k].counterfactual[s].accepted for s in ("conditional", "static", "marginal")]
        assert [f"holds {n} of the coming tokens" for n in held] == [
            c.removesuffix(" · verified") for c in counts[-3:]
        ]
    tops = set()
    for scorer in ("conditional", "static", "marginal"):
        page.evaluate(f"() => {{ {player}.scoring('{scorer}'); {player}.flush(); }}")
        tops.add((page.locator("#explore-player .dp-tree").bounding_box() or {})["y"])
        other = "marginal" if scorer == "conditional" else scorer
        more = tally["conditional"] - tally[other]
        count = f"{abs(more)} {'more' if more > 0 else 'fewer'}" if more else "as many"
        name = {"static": "static-corrected"}.get(other, other)
        said = page.inner_text("#explore-player .dp-holds")
        assert (
            f"At these {len(trace.rounds)} anchors the conditional tree holds {count} of the coming tokens"
            in said
        )
        assert f"the {name} tree" in said
        ends = sum(r.counterfactual[other].censored for r in trace.rounds)
        assert ("cut by the end of the text" in said) == bool(ends)
    assert len(tops) == 1, "the sentence is longer for some trees, but the tree stays where it is"


def test_on_a_phone_the_tree_is_above_the_fold_and_nothing_scrolls_sideways(visit: Open) -> None:
    page = visit(size=(390, 844), has_touch=True, is_mobile=True)
    for title in READY:
        open_tab(page, title)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, title
        if title == "Explore":
            box = page.locator("#explore-player .dp-tree").bounding_box()
            assert box and box["y"] < 380 and 844 - box["y"] > 420
            bar = page.locator("#explore-player .dp-toolbar").bounding_box()
            assert bar and bar["y"] + bar["height"] == pytest.approx(844, abs=1), (
                "the transport stands at the foot"
            )
    open_tab(page, "Explore")
    player = "DominoPage.inside.tabs.explore.player"
    for k in range(1, 24, 4):
        page.evaluate(f"() => {{ {player}.goto({k}); {player}.flush(); }}")
        inside = page.evaluate(
            f"(({{scroller: s}}) => s.scrollWidth - s.clientWidth)({player}.panes[0].tree)"
        )
        assert inside <= 0, "trees fold to the width"
        assert_nothing_meets(page.evaluate(f"() => probe.measure({player}.panes[0].tree)"))
    assert not page.is_visible("#explore-run") and not page.is_visible("#explore-trace-json")
    page.click("#explore-player >> xpath=ancestor::*[contains(@class,'dt-tab')] >> [data-opens=live]")
    assert page.is_visible("#explore-run") and page.is_visible("#explore-method")
    page.click("#explore-run")
    page.wait_for_selector("#explore-stop:enabled")
    assert page.is_visible("#explore-stop") and not page.is_visible("#explore-run")
    page.click("#explore-stop")
    page.wait_for_selector("#explore-stop:disabled", state="attached")
    page.click("[data-opens=files] >> nth=0")
    assert page.is_visible("#explore-trace-json")
    page.click("#explore-player .dp-more-button")
    for name in (".dp-speed", ".dp-help-button", ".dp-icon[aria-label^=First]"):
        assert page.is_visible(f"#explore-player .dp-toolbar {name}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("title", ["Explore", "Compare"])
def test_every_control_is_reached_with_the_tab_key(visit: Open, title: str) -> None:
    page = visit()
    open_tab(page, title)
    page.evaluate(
        """() => {
          document.activeElement?.blur();
          getSelection().collapse(document.body, 0);
          window.reached = new Set();
          document.addEventListener("focusin", (event) => reached.add(event.target));
        }"""
    )
    for _ in range(150):  # once round
        page.keyboard.press("Tab")
        if page.evaluate(
            "() => reached.size > 5 && document.activeElement === reached.values().next().value"
        ):
            break
    missed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, textarea, a[href], summary, [tabindex]")]
          .filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility({visibilityProperty: true, opacityProperty: false})
                         && !e.closest("[hidden], .dp-present-layer"))
          .filter((e) => !reached.has(e))
          .map((e) => `${e.tagName}.${e.className} ${e.id} ${e.textContent.slice(0, 30)}`)"""
    )
    assert missed == []
    unnamed = page.evaluate(
        """() => [...window.reached].filter((e) => e.matches("button, input, select, textarea"))
          .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length || e.title || e.placeholder
                           || e.getAttribute("aria-labelledby")))
          .map((e) => e.outerHTML.slice(0, 160))"""
    )
    assert unnamed == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_4_5_to_1(visit: Open, scheme: str) -> None:
    page = visit(color_scheme=scheme)
    page.click("#explore-more")
    for title in READY:
        open_tab(page, title)
        if title in ("Explore", "Compare"):
            player = f"DominoPage.inside.tabs.{title.lower()}.player"
            assert (
                page.evaluate(
                    f"() => {{ {player}.flush(); return probe.contrastOf(document.body, {player}); }}"
                )
                == []
            )
        else:
            assert page.evaluate("() => probe.contrastOf(document.body)") == [], title


def test_reduced_motion_moves_nothing(visit: Open) -> None:
    page = visit(reduced_motion="reduce")
    page.keyboard.press("s")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(60)
    running = "document.getAnimations().filter((a) => a.playState === 'running').length"
    assert page.evaluate(running) == 0
    open_tab(page, "Compare")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(60)
    assert page.evaluate(running) == 0


def test_the_round_is_there_as_a_table_for_screen_readers(visit_player: Open) -> None:
    a, b = (make_trace(3, 16, 3, m, vocabulary=PLAIN, skill=0.9) for m in ("dominotree", "ddtree"))
    page = visit_player(a, b)
    for i, trace in enumerate((a, b)):
        stage = page.locator(".dp-stage").nth(i)
        assert stage.get_attribute("role") == "img"
        assert "The same as a table below." in (stage.get_attribute("aria-label") or "")
        js(page, f"p.select(p.panes[{i}], 0)")
        if i == 0:
            page.click(".dp-table summary")
        page.wait_for_selector(".dp-nodes tbody tr")
        nodes = trace.rounds[0].nodes
        caption = page.inner_text(".dp-nodes caption")
        assert caption.startswith("Round 1: anchor ") and f"{len(nodes)} node" in caption
        cells = js(
            page,
            "[...document.querySelectorAll('.dp-nodes tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))",
        )
        outcome = [
            "accepted" if nodes.accepted[i] else "not accepted" if nodes.trees[i] & 8 else "not verified"
            for i in range(len(nodes))
        ]
        assert [row[0] for row in cells] == [str(depth) for depth in nodes.depth]
        assert [row[-1] for row in cells] == outcome
        heads = js(
            page, "[...document.querySelectorAll('.dp-nodes thead th')].map((c) => [c.scope, c.textContent])"
        )
        assert len(heads) == len(cells[0]) and all(scope == "col" and name for scope, name in heads)
