"""The spine layout: no cell shared, the spine straight, nothing moves, odd tokens do no harm."""

from __future__ import annotations

import json
import random
import time

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_factory import make_trace, traces

from dominotree import trace as tr
from viz.layout import ROOT, layout_round, round_graph, served, spine_of


def made_round(
    parents: list[int], tokens: list[int] | None = None, scores: list[float] | None = None
) -> tr.Round:
    """A round with the given tree; nothing of it was accepted."""
    n = len(parents)
    depth: list[int] = []
    for parent in parents:
        depth.append(1 if parent == ROOT else depth[parent] + 1)
    nodes = tr.Nodes(token=tokens or list(range(n)), parent=parents, depth=depth, trees=[12] * n)
    nodes.cum_conditional = list(scores) if scores else [-float(k) for k in range(n)]
    return tr.Round(
        index=1,
        anchor=999,
        position=5,
        nodes=nodes,
        path=[],
        bonus=998,
        committed=[998],
        kept=1,
        depth_reached=max(depth, default=0),
        verified_nodes=n,
        times_ms={},
    )


def segments(parents: list[int], depth: list[int], lane: list[int]) -> tuple[list, list, list]:
    """The drawing in units: marks, label boxes, connector lines as (x0, x1, y0, y1), each with its nodes."""
    marks, labels, lines = [], [], []
    for k in range(len(depth)):
        x, y = float(depth[k]), float(lane[k])
        marks.append(((x, x, y, y), {k}))
        labels.append(((x + 0.1, x + 0.7, y + 0.05, y + 0.9), {k}))
    for k, parent in enumerate(parents):
        px, py = (0.0, 0.0) if parent == ROOT else (float(depth[parent]), float(lane[parent]))
        bus = depth[k] - 0.2
        owners = {k, parent}
        lines += [
            ((px, bus, py, py), owners),
            ((bus, bus, min(py, lane[k]), max(py, lane[k])), owners),
            ((bus, float(depth[k]), float(lane[k]), float(lane[k])), owners),
        ]
    return marks, labels, lines


def meet(a: tuple, b: tuple) -> bool:
    return a[0] <= b[1] and b[0] <= a[1] and a[2] <= b[3] and b[2] <= a[3]


def assert_clear(parents: list[int], depth: list[int], lane: list[int]) -> None:
    marks, labels, lines = segments(parents, depth, lane)
    for i, (box, _) in enumerate(labels):
        for other, _ in labels[i + 1 :]:
            assert not meet(box, other)
        for other, owner in [*marks, *lines]:
            assert not meet(box, other), (i, owner)
    for i, (spot, mine) in enumerate(marks):
        for other, _ in marks[i + 1 :]:
            assert not meet(spot, other)
        for line, owners in lines:
            if not mine & owners:
                assert not meet(spot, line), (mine, owners)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[float], int]:
    n = draw(st.integers(1, 64))
    shape = draw(st.sampled_from(["any", "deep", "star", "recent"]))
    rng = random.Random(draw(st.integers(0, 2**32)))
    parents = [ROOT]
    for k in range(1, n):
        choice = {"any": rng.randrange(-1, k), "deep": k - 1 if rng.random() < 0.8 else rng.randrange(-1, k)}
        choice |= {
            "star": ROOT if rng.random() < 0.7 else rng.randrange(-1, k),
            "recent": max(ROOT, k - rng.randrange(1, 6)),
        }
        parents.append(choice[shape])
    scores = [-rng.choice([0.0, rng.random() * 9]) for _ in parents]
    return parents, scores, rng.randrange(0, 20)


@settings(max_examples=150, deadline=None)
@given(trees())
def test_no_label_meets_an_edge_a_mark_or_a_label(tree: tuple[list[int], list[float], int]) -> None:
    parents, scores, steps = tree
    round = made_round(parents, scores=scores)
    text: list[int] = []
    here = ROOT
    for _ in range(steps):  # some path of the tree is the emitted text
        here = next((k for k, p in enumerate(parents) if p == here), None)  # type: ignore[assignment]
        if here is None:
            break
        text.append(round.nodes.token[here])
    layout = layout_round(round, [*text, 997])
    assert layout["x"] == round.nodes.depth
    assert layout["spine"] == [round.nodes.token.index(t) for t in text]
    assert_clear(parents, layout["x"], layout["y"])
    assert_clear(parents, layout["x"], layout["y1"])
    assert min(layout["y1"]) >= 0
    assert layout["lanes"] == [min(0, *layout["y"]), max(0, *layout["y"])]


@settings(max_examples=40, deadline=None)
@given(traces())
def test_spine_is_the_emitted_text_on_the_line_y_0(trace: tr.Trace) -> None:
    data = served(trace)
    text = [t for r in trace.rounds for t in r.committed]
    for round, layout in zip(trace.rounds, data["layout"], strict=True):
        assert layout["root_y"] == 0.0
        assert [round.nodes.token[k] for k in layout["spine"]] == text[: len(layout["spine"])]
        assert layout["spine"][: len(round.path)] == round.path
        assert [layout["y"][k] for k in layout["spine"]] == [0] * len(layout["spine"])
        assert sorted(k for k, y in enumerate(layout["y"]) if y == 0) == sorted(layout["spine"])
        assert sorted(k for k, y in enumerate(layout["y1"]) if y == 0) == sorted(layout["spine"])
        text = text[len(round.committed) :]


def test_better_scores_lie_nearer() -> None:
    layout = layout_round(made_round([ROOT] * 6, scores=[-0.1, -0.2, -0.3, -0.4, -0.5, -0.6]))
    assert [abs(y) for y in layout["y"]] == [1, 1, 2, 2, 3, 3]
    assert layout["y1"] == [1, 2, 3, 4, 5, 6]


def test_union_of_all_trees_is_placed_once_whatever_the_scorer() -> None:
    trace = make_trace(4, 64, 3)
    for round, layout in zip(trace.rounds, served(trace)["layout"], strict=True):
        assert len(layout["x"]) == len(layout["y"]) == len(layout["y1"]) == len(round.nodes)
        kept = round.nodes.trees
        round.nodes.trees = [1] * len(kept)  # membership plays no part
        again = layout_round(round, [round.nodes.token[k] for k in layout["spine"]])
        round.nodes.trees = kept
        assert again == layout


def test_same_trace_same_layout_and_strict_json() -> None:
    one, two = served(make_trace(5, 40, 9)), served(make_trace(5, 40, 9))
    assert json.dumps(one, allow_nan=False) == json.dumps(two, allow_nan=False)


def test_U07_tokens_with_colons_quotes_and_twins_have_six_places() -> None:
    names = [":", "a:b", "a:c", '"', " the", " the"]
    tokens = [names.index(name) for name in names]  # the two " the" are one token id
    assert tokens == [0, 1, 2, 3, 4, 4]
    round = made_round([ROOT, ROOT, ROOT, 0, 1, 2], tokens=tokens)
    graph = round_graph(round.nodes)
    assert all(type(key) is int for key in graph.nodes)
    assert graph.number_of_nodes() == 7 and nx.is_arborescence(graph)
    layout = layout_round(round)
    assert len(set(zip(layout["x"], layout["y"], strict=True))) == 6


def test_U17_minus_infinity_and_missing_scores_are_placed_last() -> None:
    round = made_round([ROOT, ROOT, ROOT])
    round.nodes.cum_conditional = [float("-inf"), None, -0.5]
    layout = layout_round(round)
    assert layout["y1"] == [2, 3, 1]


def test_empty_rounds_and_rounds_of_one() -> None:
    empty = layout_round(made_round([]))
    assert empty["x"] == empty["y"] == empty["spine"] == [] and empty["lanes"] == [0, 0]
    one = layout_round(made_round([ROOT]), [0])
    assert (one["x"], one["y"], one["spine"]) == ([1], [0], [0])
    assert served(make_trace(3, 1, 1, "ar"))["layout"][0]["x"] == []


def test_child_before_parent_is_refused() -> None:
    round = made_round([ROOT, 0])
    round.nodes.parent = [ROOT, 1]
    with pytest.raises(ValueError, match="parents must come before"):
        layout_round(round)


def test_spine_stops_where_the_text_leaves_the_tree() -> None:
    graph = round_graph(made_round([ROOT, 0, 1, ROOT]).nodes)
    assert spine_of(graph, [0, 1, 7, 2]) == [0, 1]
    assert spine_of(graph, [9]) == []


def test_1024_nodes_take_well_under_100_ms() -> None:
    round = make_trace(1, 1024, 2, scorers=("conditional",), width=24).rounds[0]
    assert len(round.nodes) == 1024
    layout_round(round)
    best = min(_seconds(round) for _ in range(3))
    assert best < 0.1, f"{1000 * best:.0f} ms"


def _seconds(round: tr.Round) -> float:
    start = time.perf_counter()
    layout_round(round)
    return time.perf_counter() - start
