"""Stage clocks: boundaries, prefill apart, the same mode for every arm (row N19)."""

from __future__ import annotations

import time

import pytest
import torch
from tiny import tiny_pair

from dominotree.decode import Run, Settings
from dominotree.timing import StageClock


def test_N19_stages_are_timed_apart_and_recording_is_outside() -> None:
    """Draft slowed by 20 ms and verify by 40 ms a round, 10 rounds: 0.2 s and 0.4 s, prefill apart."""
    pair = tiny_pair()
    drafter, target = pair.domino, pair.target
    draft, verify = drafter.draft, target.verify

    def slow_draft(context, anchor):
        time.sleep(0.02)
        return draft(context, anchor)

    def slow_verify(*args):
        time.sleep(0.04)
        return verify(*args)

    drafter.draft, target.verify = slow_draft, slow_verify
    run = Run(pair, prompt_ids=[5, 9, 2], settings=Settings(max_new_tokens=60), record=True)
    rounds = [rnd for rnd, _ in zip(run, range(10), strict=False)]
    assert len(rounds) == 10
    spent = {stage: sum(r.times_ms[stage] for r in rounds) for stage in rounds[0].times_ms}
    assert 200 <= spent["draft"] < 400
    assert 400 <= spent["verify"] < 600  # the recorder's own forward is slowed too, but not counted
    assert run.trace.summary["prefill_ms"] > 0
    assert set(spent) == {"draft", "build", "verify", "commit"}


def test_clock_sums_repeated_stages() -> None:
    clock = StageClock(torch.device("cpu"))
    for _ in range(2):
        with clock.stage("build"):
            time.sleep(0.005)
    assert clock.read()["build"] >= 10 and clock.read()["verify"] == 0.0


def test_ar_has_no_draft_time() -> None:
    run = Run(tiny_pair(), prompt_ids=[5, 9], settings=Settings(method="ar", max_new_tokens=6))
    assert all(r.times_ms["draft"] == 0.0 and r.times_ms["verify"] > 0 for r in run)


def test_speed_is_committed_tokens_over_stage_times() -> None:
    run = Run(tiny_pair(), prompt_ids=[5, 9], settings=Settings(max_new_tokens=20))
    rounds = list(run)
    total = sum(sum(r.times_ms.values()) for r in rounds)
    s = run.trace.summary
    assert s["decode_ms"] == pytest.approx(total)
    assert s["tokens_per_second"] == pytest.approx(1000 * s["committed"] / total)
