"""Cost-aware trees: the stop rule by hand and as properties, what a run tells of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TINY_CALIBRATION, TINY_COSTS, tiny_pair

from dominotree import trace as tr
from dominotree.builders.adaptive import grow
from dominotree.builders.reference import best_first
from dominotree.calibration import Calibration
from dominotree.cost import CostModel, RoundCost
from dominotree.decode import Run, Settings, generate
from dominotree.methods import METHODS

ADAPTIVE = [name for name, m in METHODS.items() if m.adaptive]
PROMPT = [5, 9, 2, 30]


class TableScorer:
    """Children by path from a table of probabilities: the state is the path. Counts what it is asked for."""

    name = "table"

    def __init__(self, table: dict[tuple[int, ...], dict[int, float]]) -> None:
        self.table, self.steps = table, 0

    def root(self) -> tuple[int, ...]:
        return ()

    def step(self, state, token):
        self.steps += 1
        return (*state, token)

    def children(self, state, level, count):
        ranked = sorted(self.table.get(state, {}).items(), key=lambda kv: (-kv[1], kv[0]))[:count]
        return [t for t, _ in ranked], [math.log(p) if p else float("-inf") for _, p in ranked]


def five() -> TableScorer:
    """Pops: 1 (.6), 2 (.4), 5 (.36), 3 (.3), 4 (.3); Φ = .6, 1.0, 1.36, 1.66, 1.96."""
    return TableScorer({(): {1: 0.6, 2: 0.4}, (1,): {3: 0.5, 4: 0.5}, (2,): {5: 0.9}})


@pytest.mark.parametrize(
    ("verify", "nodes"),
    [
        # (1 + Φ) / (1 + C): 1/2, 1.6/2, 2/2, 2.36/2, 2.66/2, 2.96/2 – every node pays when nothing costs
        ((1, 1, 1, 1, 1, 1), 5),
        # 1/2 = .50, 1.6/2.5 = .64, 2/3 = .667, 2.36/3.5 = .674, 2.66/4 = .665: the fourth node lowers it
        ((1, 1.5, 2, 2.5, 3, 3.5), 3),
        # 1/2 = .5, 1.6/3 = .533, 2/4 = .5: only the best token pays
        ((1, 2, 3, 4, 5, 6), 1),
        # 1/2 = .5, 1.6/4 = .4: not even that; the anchor is verified alone
        ((1, 3, 5, 7, 9, 11), 0),
        # 1/2, 1.6/3.2 = 1/2 exactly: equality stops
        ((1, 2.2, 2.2, 2.2, 2.2, 2.2), 0),
    ],
)
def test_stop_rule_by_hand(verify: tuple[float, ...], nodes: int) -> None:
    tree = grow(five(), 2, 5, 8, RoundCost(1.0, verify))
    assert len(tree) == nodes
    assert tree.token == [1, 2, 5, 3, 4][:nodes] and tree.parent == [-1, -1, 1, 0, 0][:nodes]


def test_cap_empty_heap_and_hopeless_nodes_end_the_tree() -> None:
    flat = RoundCost(1.0, [1.0] * 9)
    assert len(grow(five(), 2, 3, 8, flat)) == 3
    assert len(grow(five(), 1, 8, 8, flat)) == 2  # nothing left to pop
    assert len(grow(five(), 2, 0, 8, flat)) == 0 and len(grow(five(), 0, 8, 8, flat)) == 0
    assert len(grow(TableScorer({(): {1: 0.5, 2: 0.0}}), 1, 8, 8, flat)) == 1  # p = 0 adds nothing
    nan = TableScorer({(): {1: 0.5}})
    assert len(grow(nan, 1, 8, 8, flat, lambda score: float("nan"))) == 0


def test_the_last_node_is_not_expanded() -> None:
    """A node is expanded only when the next one is popped: with the cap reached, or the budget spent, nothing more."""
    for build in (lambda s: grow(s, 2, 2, 8, RoundCost(1.0, [1.0] * 9)), lambda s: best_first(s, 2, 2, 8)):
        scorer = five()
        build(scorer)
        assert scorer.steps == 1


def test_calibration_changes_the_number_of_nodes_not_their_order() -> None:
    costs = RoundCost(1.0, (1, 1.5, 2, 2.5, 3, 3.5))
    assert (
        len(grow(five(), 2, 5, 8, costs, lambda s: s + math.log(0.7))) == 1
    )  # 1.42/2.5 = .568, 1.7/3 = .567
    assert len(grow(five(), 2, 5, 8, costs, lambda s: s / 4)) == 5


@st.composite
def scored(draw):
    """A random conditional table three levels deep, and a random monotone convex cost."""
    table: dict[tuple[int, ...], dict[int, float]] = {}
    paths = [()]
    for _ in range(3):
        after = []
        for path in paths:
            weights = draw(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=3))
            table[path] = {t: w / (sum(weights) + 0.1) for t, w in enumerate(weights)}
            after += [(*path, t) for t in table[path]]
        paths = after
    slopes = sorted(draw(st.lists(st.floats(0.0, 2.0), min_size=12, max_size=12)))
    verify = [draw(st.floats(0.1, 10.0))]
    for slope in slopes:
        verify.append(verify[-1] + slope)
    return TableScorer(table), RoundCost(draw(st.floats(0.0, 5.0)), verify)


@settings(max_examples=60, deadline=None)
@given(scored(), st.integers(1, 12), st.integers(1, 4))
def test_properties_of_a_cost_aware_tree(made, cap: int, children: int) -> None:
    """The first n nodes of the fixed-budget tree, and the n up to the cap with the highest rate."""
    scorer, cost = made
    tree, whole = grow(scorer, 3, cap, children, cost), best_first(scorer, 3, cap, children)
    n = len(tree)
    tree.validate()
    assert n <= cap
    assert (tree.token, tree.parent, tree.score) == (whole.token[:n], whole.parent[:n], whole.score[:n])
    phi, rates = 0.0, [1.0 / (cost.draft + cost.verify[0])]
    for k, score in enumerate(whole.score):
        phi += math.exp(score)
        rates.append((1.0 + phi) / (cost.draft + cost.verify[k + 1]))
    assert rates[n] >= max(rates) * (1 - 1e-12)  # convex cost: the first peak is the only one
    free = RoundCost(cost.draft, [cost.verify[0]] * 13)
    assert len(grow(scorer, 3, cap, children, free)) == len(whole)
    steep = RoundCost(cost.draft, [cost.verify[0] + 100.0 * k for k in range(13)])
    assert len(grow(scorer, 3, cap, children, steep)) == 0


# ---- in a run


@pytest.mark.parametrize("method", ADAPTIVE)
def test_a_run_tells_by_which_costs_its_trees_were_built(method: str) -> None:
    """Budget is the cap, nodes are those of each round; header and scores give every tree again."""
    pair = tiny_pair(dflash={"pure_draft_prefix_len": 1})
    run = Run(pair, prompt_ids=PROMPT, settings=Settings(method=method, budget=12, max_new_tokens=40))
    list(run)
    trace = tr.from_json(tr.to_json(run.trace))
    s = trace.header["settings"]
    assert s["budget"] == 12 and s["builder"] == "reference" and s["rule"] == METHODS[method].rule
    costs = CostModel.from_dict(trace.header["cost_profile"])
    assert costs.hash == TINY_COSTS.hash == trace.header["cost_profile"]["hash"]
    calibrated = method.endswith("calibrated")
    assert ("calibration" in trace.header) == calibrated
    g = Calibration.from_dict(trace.header["calibration"]) if calibrated else float
    scorer = METHODS[method].scorer
    sizes = set()
    for this in trace.rounds:
        kind = "domino"
        cost = costs.round(kind, 12, this.position)
        column = getattr(this.nodes, f"cum_{scorer}")
        scores = [
            column[k] for _, k in sorted((o, k) for k, o in enumerate(this.nodes.order) if o is not None)
        ]
        phi, best = 0.0, 1.0 / (cost.draft + cost.verify[0])
        for n, score in enumerate(scores):
            p = math.exp(g(score))
            rate = (1.0 + (phi + p)) / (cost.draft + cost.verify[n + 1])
            assert rate > best
            phi, best = phi + p, rate
        sizes.add(this.verified_nodes)
        if "tree-shrunk" not in this.flags:
            assert this.counterfactual[scorer].accepted == this.accepted
    assert len(sizes) > 1 and max(sizes) <= 12


@pytest.mark.parametrize("method", ADAPTIVE)
def test_given_the_profile_the_trees_repeat(method: str) -> None:
    """A replay takes profile and calibration from the header, not from this machine."""
    pair = tiny_pair(dflash={"pure_draft_prefix_len": 1})
    chosen = Settings(method=method, budget=12, max_new_tokens=30)
    first = Run(pair, prompt_ids=PROMPT, settings=chosen)
    list(first)
    other = tiny_pair(dflash={"pure_draft_prefix_len": 1})
    other.costs = replace(TINY_COSTS, slope_ms=((0.0, 0.0),) * 2)
    header = tr.from_json(tr.to_json(first.trace)).header  # as a file gives it
    if "calibration" in header:
        other.calibration = Calibration.from_dict(header["calibration"])
    costs = CostModel.from_dict(header["cost_profile"])
    again = Run(other, prompt_ids=PROMPT, settings=chosen, costs=costs)
    list(again)
    assert [r.nodes for r in again.trace.rounds] == [r.nodes for r in first.trace.rounds]
    flat = Run(other, prompt_ids=PROMPT, settings=chosen)
    assert [r.verified_nodes for r in flat] != [r.verified_nodes for r in first.trace.rounds]


def test_an_empty_tree_is_a_round_of_one_token() -> None:
    steep = replace(TINY_COSTS, slope_ms=((100.0, 100.0),) * 2)
    pair = tiny_pair()
    pair.costs = steep
    run = Run(pair, prompt_ids=PROMPT, settings=Settings(method="condadaptive", max_new_tokens=6))
    for this in run:
        assert this.verified_nodes == 0 and len(this.committed) == 1 and this.depth_reached == 0
        tr.check(run.trace)
    ar = generate(pair, prompt_ids=PROMPT, settings=Settings(method="ar", max_new_tokens=6))
    assert run.output == ar.summary["token_ids"]


def test_fixed_methods_name_no_profile() -> None:
    trace = generate(tiny_pair(), prompt_ids=PROMPT, settings=Settings(max_new_tokens=4))
    assert "cost_profile" not in trace.header and trace.header["settings"]["rule"] == "fixed"


def test_caddtree_without_a_dflash_drafter_says_so() -> None:
    trace = generate(tiny_pair(), prompt_ids=PROMPT, settings=Settings(method="caddtree", max_new_tokens=4))
    assert trace.header["drafter_label"] == "Domino base logits"


def test_tiny_calibration_is_monotone() -> None:
    ys = [TINY_CALIBRATION(-0.01 * k) for k in range(900)]
    assert ys == sorted(ys, reverse=True) and ys[0] == -0.2 and ys[-1] == pytest.approx(-5.0 - 2.99)
