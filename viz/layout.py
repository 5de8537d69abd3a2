"""Where the nodes of a round are drawn: the spine layout.

The anchor (root) sits at x = 0, a node of depth d at x = d. The text that the run really emitted is one
straight line at y = 0, the *spine*; everything that was drafted in vain hangs above and below it in lanes
(whole numbers), the better-scored branch nearer. One layout covers the union of all scorers' trees, so that
switching between them moves nothing.

How crossings are avoided. A node takes two cells of its lane: its mark and label at ``2 * depth``, and, if
it has children, the connector to them at ``2 * depth + 1``. The best child goes straight on in its parent's
lane; each further child's whole subtree is moved outwards to the first place where it shares no cell with
what lies nearer. Subtrees are placed from the deepest parent to the root, so a connector only passes lanes
that are still empty in its cell: no cell is used twice, whatever the tree. The player turns cells into
pixels (and cuts labels with "…").
"""

from __future__ import annotations

import math
from typing import Any

import networkx as nx

from dominotree import trace as tr

ROOT = -1
_SCORES = ("cum_conditional", "cum_static", "cum_marginal")


def round_graph(nodes: tr.Nodes) -> nx.DiGraph:
    """The union of the round's trees as a graph; keys are indices into ``nodes``, the anchor is ``ROOT``.

    Each node carries ``token``, ``depth`` and ``score`` (cumulative log-probability of the best scorer that
    has one, -inf if none). Raises ValueError if a parent does not come before its child.
    """
    graph = nx.DiGraph()
    graph.add_node(ROOT, token=None, depth=0, score=0.0)
    columns = [getattr(nodes, name) for name in _SCORES]
    for k in range(len(nodes)):
        if not ROOT <= nodes.parent[k] < k:
            raise ValueError(
                f"node {k} has parent {nodes.parent[k]}; parents must come before their children"
            )
        score = next(
            (column[k] for column in columns if k < len(column) and column[k] is not None), -math.inf
        )
        graph.add_node(k, token=nodes.token[k], depth=nodes.depth[k], score=score)
        graph.add_edge(nodes.parent[k], k)
    return graph


def spine_of(graph: nx.DiGraph, text_after: list[int]) -> list[int]:
    """Nodes, from the root's child on, whose tokens are those of ``text_after``: the longest such path."""
    spine: list[int] = []
    here = ROOT
    for token in text_after:
        child = next((c for c in graph.successors(here) if graph.nodes[c]["token"] == token), None)
        if child is None:
            break
        spine.append(child)
        here = child
    return spine


class _Shape:
    """Lanes used by a subtree, by cell from ``start`` on, as bit sets (bit 0 = the lane of its own root)."""

    __slots__ = ("cells", "start")

    def __init__(self, start: int, cells: list[int]) -> None:
        self.start = start
        self.cells = cells

    def room(self, other: _Shape, least: int) -> int:
        """Smallest shift from ``least`` on at which ``other`` meets nothing of this shape."""
        first = other.start - self.start
        pairs = [(a, b) for a, b in zip(self.cells[first:], other.cells, strict=False) if a]
        shift = least
        while any(a & (b << shift) for a, b in pairs):
            shift += 1
        return shift

    def add(self, other: _Shape, shift: int) -> None:
        """Take in ``other``, ``shift`` lanes outwards; its connector takes the cell before."""
        first = other.start - self.start
        self.cells.extend([0] * (first + len(other.cells) - len(self.cells)))
        self.cells[first - 1] |= (2 << shift) - 1
        for k, lanes in enumerate(other.cells, first):
            self.cells[k] |= lanes << shift

    @property
    def height(self) -> int:
        return max(self.cells).bit_length() - 1


def _ranked(graph: nx.DiGraph, node: int) -> list[int]:
    """Children, best score first; ties in the order in which they were recorded."""
    return sorted(graph.successors(node), key=lambda c: (-graph.nodes[c]["score"], c))


def _lanes(graph: nx.DiGraph, spine: list[int], reach: int, sides: tuple[int, ...]) -> dict[int, int]:
    """Lane of every node; ``sides``: signs that branches of the spine may take, ``reach``: its last depth."""
    on_spine = set(spine)
    shift = {ROOT: 0}  # of a node against its parent, outwards
    shapes: dict[int, _Shape] = {}
    for node in sorted(graph.nodes, reverse=True):  # children before parents
        if node == ROOT or node in on_spine:
            continue
        shape = _Shape(2 * graph.nodes[node]["depth"], [1])
        least = 0  # the best child goes straight on
        for child in _ranked(graph, node):
            branch = shapes.pop(child)
            shift[child] = shape.room(branch, least)
            shape.add(branch, shift[child])
            least = shift[child] + 1
        shapes[node] = shape

    full = {side: _Shape(0, [1] * (2 * max(reach, len(spine)) + 1)) for side in sides}
    sign: dict[int, int] = {}
    for node in [*reversed(spine), ROOT]:
        least_on = dict.fromkeys(sides, 1)
        for child in _ranked(graph, node):
            if child in on_spine:
                shift[child] = 0
                continue
            branch = shapes.pop(child)
            fit = {side: full[side].room(branch, least_on[side]) for side in sides}
            # The nearer place; else the side that is lower so far; else the first.
            side = min(sides, key=lambda s: (fit[s], full[s].height, sides.index(s)))
            shift[child], sign[child] = fit[side], side
            full[side].add(branch, fit[side])
            least_on[side] = fit[side] + 1

    lanes = {ROOT: 0}
    for node in sorted(graph.nodes):
        if node == ROOT:
            continue
        parent = next(iter(graph.predecessors(node)))
        sign.setdefault(node, sign.get(parent, 0))
        lanes[node] = lanes[parent] + sign[node] * shift[node]
    return lanes


def layout_round(round: tr.Round, text_after: list[int] | None = None) -> dict[str, Any]:
    """Places of a round's nodes.

    Args:
        round: the round; its ``nodes`` are the union of the scorers' trees.
        text_after: token ids that the run emitted after the anchor, as far as known; None: what this round
            committed.

    Returns:
        ``x``: depth of each node; ``y``: its lane (0 = spine, above it positive), branches on both sides;
        ``y1``: the same with all branches on one side (narrow screens); ``root_y``: 0.0; ``spine``: indices
        of the nodes on the emitted text, from depth 1; ``lanes``: [lowest, highest] of ``y``.
    """
    text = round.committed if text_after is None else text_after
    graph = round_graph(round.nodes)
    spine = spine_of(graph, text)
    reach = len(round.committed)  # the bonus token is drawn on the spine too
    both = _lanes(graph, spine, reach, (1, -1))
    one = _lanes(graph, spine, reach, (1,))
    keys = range(len(round.nodes))
    y = [both[k] for k in keys]
    return {
        "x": [graph.nodes[k]["depth"] for k in keys],
        "y": y,
        "y1": [one[k] for k in keys],
        "root_y": 0.0,
        "spine": spine,
        "lanes": [min([0, *y]), max([0, *y])],
    }


def served(trace: tr.Trace) -> dict[str, Any]:
    """What page and static exports send to the player: the trace's JSON form plus ``layout``, one per round.

    The text after an anchor is what the run emitted from there on, so a spine may run past the round's own
    tokens.
    """
    text = [
        token for round in trace.rounds for token in round.committed[: round.kept if trace.stopped else None]
    ]
    layouts, done = [], 0
    for round in trace.rounds:
        layouts.append(layout_round(round, text[done : done + 64]))
        done += len(round.committed)
    return {"schema": tr.SCHEMA, "version": tr.VERSION, **tr.plain(trace), "layout": layouts}
