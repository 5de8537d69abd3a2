"""The captured round on a GPU: every method's tokens and rounds are the eager engine's; rows N03, N08, N10, N12, N18, N20."""

from __future__ import annotations

import functools
import threading

import pytest
import torch
from round_cases import (
    ADAPTIVE,
    METHOD_NAMES,
    PROMPT,
    check_adaptive,
    check_limits,
    check_method,
    check_recorded,
    check_stops,
    decode,
    facts,
    small_pair,
)

from dominotree.decode import Run, Settings
from dominotree.errors import SettingsError
from dominotree.gpu import rounds as captured

pytestmark = pytest.mark.gpu


@functools.cache
def shared():
    return small_pair("cuda")


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_tokens_and_rounds_are_the_eager_ones(method: str, temperature: float) -> None:
    check_method(shared(), "graph", method, temperature)


@pytest.mark.parametrize("method", ["ddtree", "static", "dominotree"])
def test_the_reference_builder_between_two_graphs(method: str) -> None:
    check_method(shared(), "graph", method, 0.0, builder="reference")
    check_method(shared(), "graph", method, 1.0, builder="reference")


@pytest.mark.parametrize("builder", ["reference", "auto"])
@pytest.mark.parametrize("method", ADAPTIVE)
def test_cost_aware_trees(method: str, builder: str) -> None:
    check_adaptive(small_pair("cuda"), "graph", method, builder)


@pytest.mark.parametrize("budget", [1, 2, 15, 16, 17, 63, 64])
def test_N12_every_budget_runs_in_a_graph(budget: int) -> None:
    got = decode(shared(), "graph", budget=budget)
    assert facts(got) == facts(decode(shared(), "eager", budget=budget))
    settings = got.trace.header["settings"]
    assert (
        (settings["graph"], settings["engine"]) == ("yes", "graph")
        and settings["builder"]
        and settings["forward"]
    )


def test_N10_N18_replays_draw_anew_and_seeds_take_effect() -> None:
    texts: dict[tuple[int, str], list[list[int]]] = {}
    for seed in (7, 8, 7):
        for method in ("ar", "dominotree"):
            run = decode(shared(), "graph", method, temperature=50.0, seed=seed)
            texts.setdefault((seed, method), []).append(run.output)
    assert all(runs[0] == run for runs in texts.values() for run in runs)
    assert texts[7, "ar"] == texts[7, "dominotree"] and texts[7, "ar"] != texts[8, "ar"]
    assert len(set(texts[7, "ar"][0])) > 10


@pytest.mark.parametrize("method", ["ar", "domino", "ddtree", "dominotree"])
def test_recorded_rounds_are_the_eager_ones(method: str) -> None:
    check_recorded(shared(), "graph", method, 1e-3)


def test_runs_cross_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "SMALLEST_BUCKET", 32)
    pair = small_pair("cuda", 3)
    for method in ("ar", "domino", "dominotree"):
        got = decode(pair, "graph", method, max_new_tokens=180)
        assert facts(got) == facts(decode(pair, "eager", method, max_new_tokens=180))
        assert len({b for p in pair.engines["graph"].programs.values() for b, _ in p.pieces}) >= 3


def test_limits_shrink_trees_and_turn_drafting_off() -> None:
    check_limits("cuda", "graph")


def test_stop_ids_and_exact_lengths() -> None:
    check_stops("cuda", "graph")


def test_N08_earlier_rounds_do_not_change() -> None:
    settings = Settings(engine="graph", max_new_tokens=60)
    run = Run(shared(), prompt_ids=PROMPT, settings=settings, record=True)
    kept, copies = [], []

    def columns(r):
        return list(r.nodes.token), list(r.nodes.cum_conditional), list(r.path), list(r.committed)

    for rnd in run:
        kept.append(rnd)
        copies.append(columns(rnd))
    assert [columns(r) for r in kept] == copies


def test_cancel_and_the_lock() -> None:
    pair, cancel = shared(), threading.Event()
    settings = Settings(engine="graph", max_new_tokens=100)
    run = Run(pair, prompt_ids=PROMPT, settings=settings, record=False, cancel=cancel)
    for rnd in run:
        if rnd.index == 2:
            cancel.set()
    assert len(run.trace.rounds) == 2 and run.trace.summary["stop_reason"] == "cancelled"
    assert not pair.lock.locked()
    expected = decode(pair, "eager").output
    outputs: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: outputs.append(decode(pair, "graph").output)) for _ in range(3)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert outputs == [expected] * 3


def test_the_paper_builder_between_two_graphs() -> None:
    got = decode(shared(), "graph", builder="graph")
    assert got.trace.header["settings"]["builder"] == "graph"
    assert facts(got) == facts(decode(shared(), "eager"))
    with pytest.raises(SettingsError, match="ddtree"):
        decode(shared(), "graph", "ddtree", builder="graph")


def test_bfloat16_runs_in_graphs_too() -> None:
    pair = small_pair("cuda", 5, dtype=torch.bfloat16)
    for method in METHOD_NAMES:
        got = decode(pair, "graph", method)
        assert len(got.output) == 32 and got.trace.header["settings"]["graph"] == "yes"


def test_N20_a_moved_tree_under_one_graph() -> None:
    """The same captured verify at three lengths: positions are read from the buffer at every replay."""
    pair = small_pair("cuda", 2)
    for length in (4, 9, 30):
        prompt = [(7 * i + 3) % 300 for i in range(length)]
        assert facts(decode(pair, "graph", prompt=prompt)) == facts(decode(pair, "eager", prompt=prompt))


def test_N03_nan_drafts_are_flagged_and_harmless() -> None:
    pair = small_pair("cuda", 4)
    pair.domino.norm[3] = float("nan")
    for method in ("dflash", "ddtree", "marginal"):
        got = decode(pair, "graph", method)
        assert got.output == decode(pair, "eager", "ar").output
        assert all(r.flags[0] == "nan-draft" for r in got.trace.rounds)


def test_a_larger_cache_drops_graphs_and_captures_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool of the dropped graphs is gone with the last of them; memory does not pile up."""
    monkeypatch.setattr(captured, "SMALLEST_BUCKET", 64)
    pair, used = small_pair("cuda", 6), []
    for tokens in (20, 150, 20, 180):
        got = decode(pair, "graph", max_new_tokens=tokens)
        assert got.output == decode(pair, "eager", max_new_tokens=tokens).output
        used.append(torch.cuda.memory_allocated())
    assert used[3] - used[1] < 32 * 2**20
