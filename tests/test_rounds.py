"""The static round, its steps one by one on the CPU: the same code that a GPU captures; rows N02, N03, N10, N15, N18."""

from __future__ import annotations

import functools

import emulation
import pytest
import torch
from round_cases import (
    ADAPTIVE,
    METHOD_NAMES,
    TINY_COSTS,
    check_adaptive,
    check_limits,
    check_method,
    check_recorded,
    check_stops,
    decode,
    facts,
    small_pair,
)

from dominotree.calibration import Calibration
from dominotree.decode import Settings
from dominotree.drafter import Drafter
from dominotree.errors import SettingsError
from dominotree.gpu import fused, plan, rounds
from dominotree.gpu.static_forward import StaticForward


@functools.cache
def shared():
    return small_pair("cpu")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_tokens_and_rounds_are_the_eager_ones(method: str, temperature: float) -> None:
    check_method(shared(), "static", method, temperature)


@pytest.mark.parametrize("method", ADAPTIVE)
def test_cost_aware_trees(method: str) -> None:
    check_adaptive(small_pair("cpu"), "static", method, "reference")


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused builder's kernels on the CPU."""
    if reason := emulation.why_not():
        pytest.skip(reason)
    monkeypatch.setattr(fused, "Kernel", emulation.Kernel)
    monkeypatch.setattr(plan, "fused_unsupported", lambda *asked: None)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("method", ["condadaptive-calibrated", "caddtree"])
def test_the_device_decides_how_many_rows_are_verified(method: str) -> None:
    """The fused builder's kernels, emulated: draft and build, then a verify of the size that comes out."""
    pair = small_pair("cpu")
    pair.costs = TINY_COSTS
    pair.calibration = Calibration({}, (-9.0, -2.0, -0.5), (-8.0, -2.5, -0.7))
    got = decode(pair, "static", method, builder="fused", budget=12, max_new_tokens=6)
    assert got.plan.builder == "fused" and facts(got) == facts(
        decode(pair, "eager", method, budget=12, max_new_tokens=6)
    )
    sizes = {key[4] for key in pair.engines["static"].programs if key[0] == "verify"}
    assert len(sizes) > 1 and all(
        min(s for s in sizes if s > r.verified_nodes) <= 2 * max(r.verified_nodes, 1)
        for r in got.trace.rounds
    )


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("builder", ["reference", "fused"])
def test_a_round_says_that_its_verify_took_another_forward(
    builder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cost-aware tree may be too large for the kernels that the plan names."""
    monkeypatch.setattr(plan, "_forward", lambda *asked: "kernels")
    monkeypatch.setattr(rounds, "LARGEST_SIZED", 4)

    def forward(engine: rounds.Engine, which: str, drafter: Drafter | None, rows: int) -> StaticForward:
        made = StaticForward(engine.target, drafter, rows)
        made.name = which  # the kernels need a GPU; what matters is which ones were asked for
        return made

    monkeypatch.setattr(rounds.Engine, "forward", forward)
    pair = small_pair("cpu")
    pair.costs = TINY_COSTS
    got = decode(pair, "static", "condadaptive", builder=builder, budget=12, max_new_tokens=6)
    assert got.plan.forward == "kernels"
    flags = {r.verified_nodes: "static-forward" in r.flags for r in got.trace.rounds}
    assert flags and all(flag == (nodes > 2) for nodes, flag in flags.items()), flags


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("builder", ["reference", "fused"])
def test_a_round_that_begins_anew_is_the_same_round(builder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a verify's graph is made when its size comes first, and drafting and building run again."""
    again = []

    def made(run: rounds.StaticRun, verify: rounds.Verify, bucket: int) -> bool:
        if (bucket, 0) in verify.pieces:
            return False
        again.append(verify.piece(bucket, 0))
        return True

    monkeypatch.setattr(rounds.StaticRun, "_made", made)
    pair = small_pair("cpu")
    pair.costs = TINY_COSTS
    got = decode(pair, "static", "condadaptive", builder=builder, budget=12, max_new_tokens=6)
    assert again and facts(got) == facts(decode(pair, "eager", "condadaptive", budget=12, max_new_tokens=6))


@pytest.mark.parametrize("budget", [1, 2, 17, 40])
def test_every_budget(budget: int) -> None:
    assert facts(decode(shared(), "static", budget=budget)) == facts(decode(shared(), "eager", budget=budget))


@pytest.mark.parametrize("method", ["ar", "domino", "dominotree"])
def test_recorded_rounds_are_the_eager_ones(method: str) -> None:
    check_recorded(shared(), "static", method, 1e-4)


def test_limits_shrink_trees_and_turn_drafting_off() -> None:
    check_limits("cpu", "static")


def test_stop_ids_and_exact_lengths() -> None:
    check_stops("cpu", "static")


def test_runs_cross_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "SMALLEST_BUCKET", 16)
    pair = small_pair("cpu", 3)
    got = decode(pair, "static", max_new_tokens=60)
    assert facts(got) == facts(decode(pair, "eager", max_new_tokens=60))
    assert len({b for p in pair.engines["static"].programs.values() for b, _ in p.pieces}) >= 3


def test_N03_nan_drafts_are_flagged_and_harmless() -> None:
    pair = small_pair("cpu", 4)
    pair.domino.norm[3] = float("nan")
    for method in ("dflash", "ddtree", "marginal"):
        got = decode(pair, "static", method)
        assert facts(got) == facts(decode(pair, "eager", method))
        assert all(r.flags[0] == "nan-draft" for r in got.trace.rounds)


def test_nan_from_the_target_is_an_error_not_a_token() -> None:
    pair = small_pair("cpu", 4)
    run_norm = pair.target.norm
    first = decode(pair, "static", max_new_tokens=1)
    assert len(first.output) == 1
    engine = pair.engines["static"]
    original = engine.forward

    def broken(*args):
        forward = original(*args)
        verify = forward.verify

        def spoiled(*inputs):
            logits, features = verify(*inputs)
            return logits.fill_(float("nan")), features

        forward.verify = spoiled
        return forward

    engine.forward = broken
    with pytest.raises(rounds.EngineError, match="NaN"):
        decode(pair, "static", budget=9)
    assert run_norm.isfinite().all()


def test_programs_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST_PROGRAMS", 16)
    pair = small_pair("cpu")
    for budget in range(1, 20):
        decode(pair, "static", budget=budget, max_new_tokens=4)
    engine = pair.engines["static"]
    assert len(engine.programs) == rounds.MOST_PROGRAMS
    before = dict(engine.programs)
    decode(pair, "static", budget=19, max_new_tokens=4)
    assert dict(engine.programs) == before


def test_verifies_of_all_sizes_leave_their_scores_in_the_same_memory() -> None:
    pair = small_pair("cpu")
    wishes = [{"method": "ar"}, {"budget": 5}, {"budget": 21}, {"method": "domino"}, {"budget": 140}]
    first = [decode(pair, "static", **wish).output for wish in wishes]
    again = [decode(pair, "static", **wish).output for wish in wishes]
    assert first == again  # what one left disturbs no other
    assert first == [decode(pair, "eager", **wish).output for wish in wishes]
    at: dict[int, set[int]] = {}
    for program in pair.engines["static"].programs.values():
        if isinstance(program, rounds.Verify) and program.logits is not None:
            at.setdefault(program.rows, set()).add(program.logits.data_ptr())
    assert {1, 6, 22, 141} <= set(at)
    assert at[6] == at[22] and len(at[6]) == 1  # up to 129 rows
    assert not at[6] & at[1] and not at[6] & at[141]


def test_a_forced_path_is_walked_and_committed() -> None:
    """What measurements use: six drafts and the bonus each round where the tree is deep enough, through the real walk."""
    from dominotree.decode import Run

    for method in ("domino", "dominotree"):
        run = Run(
            shared(),
            prompt_ids=[5, 9, 2],
            settings=Settings(method=method, engine="static", max_new_tokens=60),
            record=False,
        )
        run.forced = 4
        for rnd in run:
            assert rnd.accepted == min(4, rnd.depth_reached)


@pytest.mark.parametrize(
    ("wish", "word"),
    [({"engine": "graph"}, "CUDA"), ({"builder": "fused"}, "CUDA"), ({"builder": "graph"}, "CUDA"),
     ({"forward": "kernels"}, "CUDA"), ({"engine": "static", "builder": "fused"}, "CUDA"),
     ({"engine": "static", "forward": "kernels"}, "CUDA")],
)  # fmt: skip
def test_a_wish_that_needs_a_gpu_is_one_sentence(wish: dict, word: str) -> None:
    with pytest.raises(SettingsError, match=word) as error:
        decode(shared(), **{"engine": "auto", **wish})
    assert "\n" not in str(error.value)
    with pytest.raises(SettingsError, match="warp"):
        Settings(engine="warp")


def test_the_header_names_what_ran() -> None:
    def header(**kwargs):
        s = decode(shared(), max_new_tokens=3, **kwargs).trace.header["settings"]
        return s["engine"], s["builder"], s["forward"], s["graph"]

    assert header(engine="auto") == ("eager", "reference", "eager", "no")
    assert header(engine="static") == ("static", "reference", "static", "no")
    assert header(engine="static", method="domino") == ("static", "chain", "static", "no")
    assert header(engine="static", method="ar") == ("static", None, "static", "no")


def test_N18_global_random_state_is_left_alone() -> None:
    state = torch.random.get_rng_state()
    decode(shared(), "static", temperature=1.0)
    assert torch.equal(torch.random.get_rng_state(), state)
