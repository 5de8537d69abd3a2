"""The build pop by pop: right by hand, the builder's own numbers, enough to build the tree again."""

from __future__ import annotations

import heapq
import json
import math
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_pair

from dominotree import pops as recorder
from dominotree import trace as tr
from dominotree.bench.pops import add_pops, wanted_rounds
from dominotree.builders.reference import best_first
from dominotree.correction import CorrectionHead
from dominotree.decode import Run, Settings
from dominotree.drafter import DraftBlock
from dominotree.errors import DominoTreeError, SettingsError
from dominotree.pops import record_pops
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, StaticScorer
from viz.lessons import rounds_shown
from viz.library import TRACES, Library

PROMPT = [5, 9, 2, 30]
TREES = ("ddtree", "marginal", "static", "dominotree")


# ---- by hand: three candidates, two levels, a head of one number -------------------------------------------

#: Embeddings of the four tokens: what the GRU reads; tanh makes them 1, -1, 0, 0.
READ = torch.tensor([[100.0], [-100.0], [0.0], [0.0]])
LOGITS = torch.tensor([[2.0, 1.0, 0.0, -9.0], [1.0, 1.0, 0.0, -9.0]])
#: ΔL = W2 · SiLU(state)
W2 = torch.tensor([[0.0], [4.0], [-2.0], [0.0]])


def silu(x: float) -> float:
    return x / (1 + exp(-x))


def hand_made() -> tuple[Candidates, CorrectionHead, Any]:
    """State after a token: half the old one plus half of 1, -1 or 0 (gates at 0.5); anchor: token 2, so it begins at 0."""
    gate = torch.tensor([[0.0], [0.0], [1.0]])
    head = CorrectionHead(gate, torch.zeros(3, 1), torch.tensor([[0.0, 1.0]]), W2, prefix_len=1)
    block = DraftBlock(torch.zeros(2, 1), LOGITS, 2)
    return Candidates.of(block, 3), head, lambda ids: READ[ids]


def test_pops_by_hand() -> None:
    found, head, embed = hand_made()
    scorer = ConditionalScorer(found, head, embed)
    tree = best_first(scorer, levels=2, budget=4, children=2)
    z0 = log(exp(2) + exp(1) + exp(0) + exp(-9))
    after0 = [1.0, 1 + 4 * silu(0.5), -2 * silu(0.5)]  # L + ΔL of tokens 0, 1, 2 after token 0
    after1 = [1.0, 1 + 4 * silu(-0.5), -2 * silu(-0.5)]
    z1, z2 = (log(sum(map(exp, row))) for row in (after0, after1))
    # Popped: 0 (p 0.66), then 0 1 (0.49, last level), then 1 (0.24), then 0 0 (0.14), which fills the budget.
    assert [(tree.parent[k], tree.token[k]) for k in range(4)] == [(-1, 0), (0, 1), (-1, 1), (0, 0)]
    anchor, first, third = record_pops(tree, scorer, found, 2, 4, 2)

    assert (anchor.node, anchor.token, anchor.base_logit) == (-1, [0, 1, 2], [2.0, 1.0, 0.0])
    assert anchor.delta == [None] * 3 and anchor.offered == [0, 1]  # no correction at level 0
    assert anchor.score == pytest.approx([2 - z0, 1 - z0, -z0])
    assert (first.node, first.token) == (0, [0, 1, 2])  # equal logits: the lower id first
    assert first.delta == pytest.approx([0, 4 * silu(0.5), -2 * silu(0.5)])
    assert first.score == pytest.approx([x - z1 for x in after0])
    assert first.offered == [1, 0], "the correction puts token 1 before token 0"
    assert third.node == 2 and third.delta == pytest.approx([0, 4 * silu(-0.5), -2 * silu(-0.5)])
    assert third.score == pytest.approx([x - z2 for x in after1])
    assert third.offered == [0, 2], "after token 1 it takes token 1 out of the best two"
    for pop in (anchor, first, third):
        assert pop.place == [] and pop.left_out == 0 and pop.left_base is pop.left_score is None


def test_pops_by_hand_of_the_path_blind_scorers() -> None:
    found, head, embed = hand_made()
    static = StaticScorer(found, head, embed)
    tree = best_first(static, 2, 3, 2)
    for pop in record_pops(tree, static, found, 2, 3, 2)[1:]:
        assert pop.delta == pytest.approx([0, 4 * silu(0.5), -2 * silu(0.5)]), (
            "the greedy chain begins with token 0"
        )
    marginal = MarginalScorer(found.block, 2)
    tree = best_first(marginal, 2, 3, 2)
    z = log(2 * exp(1) + 1 + exp(-9))
    for pop in record_pops(tree, marginal, found, 2, 3, 2)[1:]:
        assert pop.delta == [None] * 3 and pop.score == pytest.approx([1 - z, 1 - z, -z])
        assert pop.offered == [0, 1]


def test_what_is_left_out_is_counted_and_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    found, head, embed = hand_made()
    scorer = ConditionalScorer(found, head, embed)
    tree = best_first(scorer, 2, 4, 1)
    monkeypatch.setattr(recorder, "WHOLE", 0)
    monkeypatch.setattr(recorder, "BEST", 1)
    first = record_pops(tree, scorer, found, 2, 4, 1)[1]
    # Best by base logit: token 0; best by score and pushed: token 1; token 2 is left out.
    assert (first.token, first.place, first.offered, first.left_out) == ([0, 1], [0, 1], [1], 1)
    row = [1.0, 1 + 4 * silu(0.5), -2 * silu(0.5)]
    assert first.left_base == pytest.approx(log(1 / (2 * exp(1) + 1)))
    assert first.left_score == pytest.approx(row[2] - log(sum(map(exp, row))))
    kept = record_pops(tree, scorer, found, 2, 4, 1, {0: 2})[1]
    assert kept.token == [0, 1, 2] and kept.left_out == 0 and kept.place == [], (
        "what the target chose is kept"
    )


# ---- of the engine ------------------------------------------------------------------------------------------


def decode(method: str, **asked: Any) -> tr.Trace:
    settings = Settings(method=method, **{"budget": 12, "max_new_tokens": 10, **asked})
    run = Run(tiny_pair(), prompt_ids=PROMPT, settings=settings)
    list(run)
    tr.check(run.trace)
    return run.trace


def rebuilt(this: tr.Round, pops: dict[int, tr.Pop], slack: float = 0.0) -> list[tuple[int, int]]:
    """(parent, token) in pop order of the tree that a heap makes of the recorded children.

    ``slack``: scores so close may have changed places when they were rounded; then the recorded order decides.
    """
    nodes, heap, out, pushed = this.nodes, [], [], 0
    order = {o: k for k, o in enumerate(nodes.order) if o is not None}

    def push(node: int, score: float) -> None:
        nonlocal pushed
        if node in pops:
            for k in pops[node].offered:
                heapq.heappush(heap, (-(score + pops[node].score[k]), pushed, node, pops[node].token[k]))
                pushed += 1

    push(-1, 0.0)
    for k in range(this.verified_nodes):
        best = heap[0]
        if slack:
            wanted = (nodes.parent[order[k]], nodes.token[order[k]])
            best = next(x for x in heap if x[2:] == wanted and x[0] <= heap[0][0] + slack)
        heap.remove(best)
        heapq.heapify(heap)
        out.append(best[2:])
        push(order[k], -best[0])
    return out


def tree_of(this: tr.Round) -> list[tuple[int, int]]:
    order = {o: k for k, o in enumerate(this.nodes.order) if o is not None}
    return [(this.nodes.parent[order[k]], this.nodes.token[order[k]]) for k in range(this.verified_nodes)]


@pytest.mark.parametrize("method", (*TREES, "condadaptive"))
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"top_m": 9, "children": 3, "temperature": 0.9, "seed": 4},
        {"budget": 40, "top_m": 40},
        {"full_row": True, "top_m": 5},
        {"top_m": None, "budget": 30},
        {"top_m": 2, "budget": 30},
    ],
    ids=["default", "narrow", "short-form", "full-row", "whole-vocabulary", "two-candidates"],
)
def test_the_recorded_children_build_the_tree_again(method: str, asked: dict[str, Any]) -> None:
    """A heap over the offered children pops exactly the recorded tree, in its order and with its scores' bits."""
    trace = decode(method, **asked)
    kept = tr.from_json(tr.to_json(trace))
    assert any(this.verified_nodes for this in trace.rounds)
    for this, stored in zip(trace.rounds, kept.rounds, strict=True):
        pops = {pop.node: pop for pop in this.pops}
        assert rebuilt(this, pops) == tree_of(this)
        assert rebuilt(stored, {pop.node: pop for pop in stored.pops}, 1e-3) == tree_of(stored)
        cum = getattr(this.nodes, f"cum_{trace.header['settings']['scorer']}")
        for node, token, order in zip(
            range(len(this.nodes)), this.nodes.token, this.nodes.order, strict=True
        ):
            if order is not None:
                pop, parent = pops[this.nodes.parent[node]], this.nodes.parent[node]
                above = 0.0 if parent < 0 else cum[parent]
                assert cum[node] == above + pop.score[pop.token.index(token)]


@pytest.mark.parametrize("method", TREES)
def test_pops_agree_with_the_nodes_and_say_all_of_the_candidates(method: str) -> None:
    trace = decode(method, budget=12, top_m=9)
    for this in trace.rounds:
        assert [pop.node for pop in this.pops][:2] == [-1, 0]
        for pop in this.pops:
            level = 0 if pop.node < 0 else this.nodes.depth[pop.node]
            assert pop.base_logit == sorted(pop.base_logit, reverse=True) and len(pop.token) == max(
                9, 12 * (method in ("ddtree", "marginal"))
            )
            z = this.level_logz_m[level]
            assert z is not None
            assert sum(exp(x - z) for x in pop.base_logit[:9]) == pytest.approx(1, abs=1e-4)
            scores = [pop.score[k] for k in pop.offered]
            assert scores == sorted(pop.score, reverse=True)[: len(scores)]
            if method == "static" and level:
                continue  # its ΔL is the greedy chain's, the nodes' their own path's
            for node, parent in enumerate(this.nodes.parent):
                if parent == pop.node and this.nodes.token[node] in pop.token:
                    k = pop.token.index(this.nodes.token[node])
                    assert pop.base_logit[k] == pytest.approx(this.nodes.base_logit[node], abs=1e-5)
                    if method == "dominotree":
                        assert (pop.delta[k] is None) == (this.nodes.delta[node] is None)
                        assert (pop.delta[k] or 0) == pytest.approx(this.nodes.delta[node] or 0, abs=1e-4)


def test_recording_pops_changes_nothing_else() -> None:
    pair = tiny_pair()
    both = []
    for pops in (True, False):
        run = Run(pair, prompt_ids=PROMPT, settings=Settings(budget=12, max_new_tokens=20), pops=pops)
        both.append([replace(this, pops=[], times_ms={}) for this in run])
        assert all(bool(this.pops) == pops for this in run.trace.rounds)
    assert both[0] == both[1]


def test_the_short_form_bounds_what_a_large_tree_keeps() -> None:
    trace = decode("dominotree", budget=100, top_m=50, children=60, max_new_tokens=4)
    this = trace.rounds[0]
    assert len(this.pops) == recorder.POPS
    for pop in this.pops:
        assert len(pop.offered) <= recorder.PUSHED and len(pop.token) + pop.left_out == 50
    small = decode("dominotree", budget=40, top_m=50, max_new_tokens=4).rounds[0]
    most = 2 * recorder.BEST + 8 + 1
    assert all(len(pop.token) <= most and pop.place for pop in small.pops)
    assert all(abs(exp(pop.left_score) + sum(map(exp, pop.score)) - 1) < 1e-4 for pop in small.pops[1:])


def test_no_tree_no_pops() -> None:
    for method in ("ar", "dflash", "domino"):
        assert not any(this.pops for this in decode(method).rounds)


# ---- in files -----------------------------------------------------------------------------------------------


def test_pops_survive_a_file_and_may_lack_the_newer_fields(tmp_path: Path) -> None:
    trace = decode("dominotree", budget=40, top_m=40)
    tr.save(trace, tmp_path / "run.json.gz")
    again = tr.load(tmp_path / "run.json.gz")
    assert again.run_id == trace.run_id and tr.plain(again) == tr.plain(trace)
    data = json.loads(tr.to_json(trace))
    for this in data["rounds"]:
        for pop in this["pops"]:
            for name in ("offered", "place", "left_out", "left_base", "left_score"):
                del pop[name]
    old = tr.from_json(json.dumps(data))
    assert old.rounds[0].pops[0].offered == [] and old.rounds[0].pops[0].left_out == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: p[1].update(node=p[0]["node"]), "pops are the anchor, then"),
        (lambda p: p.insert(0, p.pop(1)), "pops are the anchor, then"),
        (lambda p: p[0]["token"].append(0), "different lengths"),
        (lambda p: p[0]["token"].__setitem__(1, p[0]["token"][0]), "lists a candidate twice"),
        (lambda p: p[0].update(offered=[0, 0]), "offered are not places"),
        (lambda p: p[0].update(offered=[99]), "offered are not places"),
        (lambda p: p[0].update(place=[1, 0]), "not an ascending place"),
        (lambda p: p[0].update(left_out=-1), "left_out is -1"),
        (lambda p: p[0].update(left_base="much"), "left_base holds a str"),
        (lambda p: p[0].pop("delta"), "delta is missing"),
    ],
)
def test_damaged_pops_are_refused(change: Any, sentence: str) -> None:
    data = json.loads(tr.to_json(decode("dominotree", max_new_tokens=6)))
    change(data["rounds"][0]["pops"])
    with pytest.raises(tr.TraceError, match=sentence):
        tr.from_json(json.dumps(data))


def test_minus_infinity_and_missing_survive() -> None:
    trace = decode("dominotree", budget=40, top_m=40, max_new_tokens=4)
    trace.rounds[0].pops[0].left_score = -math.inf
    trace.rounds[0].pops[0].score[-1] = -math.inf
    again = tr.from_json(tr.to_json(trace)).rounds[0].pops[0]
    assert again.left_score == -math.inf == again.score[-1]


# ---- added to recorded runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dominotree", "condadaptive"])
def test_pops_are_added_to_single_rounds_and_nothing_else_moves(method: str, tmp_path: Path) -> None:
    pair = tiny_pair()
    settings = Settings(method=method, budget=12, max_new_tokens=30)
    run = Run(pair, prompt_ids=PROMPT, settings=settings, pops=False)
    whole = [this.pops for this in Run(pair, prompt_ids=PROMPT, settings=run.settings)]
    list(run)
    path = tmp_path / "tiny.json.gz"
    tr.save(run.trace, path)
    before = tr.load(path)
    add_pops(pair, tmp_path, {"tiny": [2, 3]}, lambda text: None)
    after = tr.load(path)
    assert after.run_id != before.run_id and before.tokens.items() <= after.tokens.items()
    for index, (old, new) in enumerate(zip(before.rounds, after.rounds, strict=True), 1):
        assert tr.plain(new.pops) == tr.plain(whole[index - 1] if index in (2, 3) else [])
        assert replace(new, pops=[]) == old
    assert (after.header, after.prompt, after.summary) == (before.header, before.prompt, before.summary)
    add_pops(pair, tmp_path, {"tiny": [1]}, lambda text: None)
    assert [bool(this.pops) for this in tr.load(path).rounds[:3]] == [True, False, False]


def test_pops_of_another_engine_are_refused(tmp_path: Path) -> None:
    run = Run(tiny_pair(), prompt_ids=PROMPT, settings=Settings(budget=12, max_new_tokens=8), pops=False)
    list(run)
    path = tmp_path / "tiny.json.gz"
    tr.save(run.trace, path)
    written = path.read_bytes()
    with pytest.raises(DominoTreeError, match="round 1 differs"):
        add_pops(tiny_pair(seed=3), tmp_path, {"tiny": [1]}, lambda text: None)
    assert path.read_bytes() == written
    with pytest.raises(SettingsError, match="no recording is named other"):
        add_pops(tiny_pair(), tmp_path, {"other": [1]}, lambda text: None)
    with pytest.raises(SettingsError, match="not \\[99\\]"):
        add_pops(tiny_pair(), tmp_path, {"tiny": [99]}, lambda text: None)
    with pytest.raises(SettingsError, match="'tiny:x'"):
        wanted_rounds(["tiny:x"])
    assert wanted_rounds(["a:3,1", "b:2"]) == {"a": [1, 3], "b": [2]}


def test_recorded_runs_have_the_pops_of_the_rounds_that_lessons_show() -> None:
    """And they build those rounds' trees again; all recorded runs together stay small."""
    library = Library()
    for file, numbers in rounds_shown(library).items():
        trace = tr.load(TRACES / file)
        assert [this.index for this in trace.rounds if this.pops] == numbers, f"{file}: record its pops again"
        for this in (trace.rounds[k - 1] for k in numbers):
            assert rebuilt(this, {pop.node: pop for pop in this.pops}, 2e-3) == tree_of(this)
    assert sum(path.stat().st_size for path in TRACES.glob("*.json.gz")) <= 2_000_000
