"""Where things stand on the screen: trees of 5 to 1024 nodes, folding, pictures, phones, access, in a real Chromium."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers import PLAIN, Open, assert_nothing_meets, js, show
from page_tools import until
from playwright.sync_api import Page
from trace_factory import make_trace

from dominotree import trace as tr
from viz.library import Library

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
