"""Traces of the real engine (tiny random models): consistent, readable, their own counterfactual."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from tiny import tiny_pair

from dominotree import trace as tr
from dominotree.decode import Run, Settings
from dominotree.methods import METHODS

PROMPT = [5, 9, 2, 30]


def decode(method: str, record: bool = True, stop_ids: tuple[int, ...] = (), **asked: float) -> tr.Trace:
    settings = Settings(method=method, budget=12, **{"max_new_tokens": 24, **asked})  # type: ignore[arg-type]
    run = Run(tiny_pair(stop_ids=stop_ids), prompt_ids=PROMPT, settings=settings, record=record)
    for _ in run:
        tr.check(run.trace)  # consistent while it grows, too
    return run.trace


@pytest.mark.parametrize("record", [True, False], ids=["full", "rounds"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_engine_traces_are_consistent_and_survive_a_file(method: str, record: bool, tmp_path: Path) -> None:
    trace = decode(method, record, temperature=0.8, seed=3)
    tr.save(trace, tmp_path / "run.json.gz")
    again = tr.load(tmp_path / "run.json.gz")
    assert again.run_id == trace.run_id and again.counts == trace.counts
    rounds, nodes = tr.write_csv(again, tmp_path)
    frame = pd.read_csv(rounds)
    assert len(frame) == trace.counts.rounds and set(frame.run_id) == {trace.run_id}
    assert len(pd.read_csv(nodes)) == sum(len(this.nodes) for this in trace.rounds)


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.kind == "tree"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_own_counterfactual_is_what_the_engine_accepted(method: str, temperature: float) -> None:
    trace = decode(method, temperature=temperature, seed=1)
    scorer = METHODS[method].scorer
    assert scorer is not None
    found = [this.counterfactual[scorer] for this in trace.rounds if len(this.nodes)]
    assert found and found == [
        tr.Counterfactual(this.accepted, False) for this in trace.rounds if len(this.nodes)
    ]


def test_own_counterfactual_at_a_stop_token() -> None:
    plain = decode("dominotree", seed=1, temperature=1.0)
    stop = plain.summary["token_ids"][10]
    trace = decode("dominotree", stop_ids=(stop,), seed=1, temperature=1.0)
    assert trace.stopped and trace.summary["token_ids"][-1] == stop
    last = trace.rounds[-1]
    assert last.counterfactual["conditional"] == tr.Counterfactual(last.accepted, False)
