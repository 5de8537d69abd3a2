"""The real default pair, end to end: lossless, round by round, the ladder's order, the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import TINY_COSTS

from dominotree.bench import eval_file, eval_prompts
from dominotree.bench.accepted import rounds_along
from dominotree.checkpoints import Pair, load_pair
from dominotree.cli import main
from dominotree.decode import Run, Settings, generate
from dominotree.methods import METHODS
from dominotree.trace import load

pytestmark = pytest.mark.pair
TRACES = Path(__file__).parents[1] / "assets" / "traces"
PROMPTS = [3, 40, 70]  # one of each set


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    loaded = load_pair("default", progress=False)
    loaded.costs = TINY_COSTS  # cost-aware trees of the same sizes on every machine, and nothing is measured
    yield loaded


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_method_gives_the_tokens_of_ar(pair: Pair, temperature: float) -> None:
    prompt = eval_prompts()[PROMPTS[int(temperature * 2)]]["prompt"]
    common = {"temperature": temperature, "seed": 5, "max_new_tokens": 24}
    expected = generate(pair, prompt, Settings(method="ar", **common)).summary["token_ids"]
    for method in METHODS:
        trace = generate(pair, prompt, Settings(method=method, **common))
        ties = trace.summary["near_ties"]
        assert trace.summary["token_ids"] == expected or ties, method


def test_the_ladder_on_fixed_texts(pair: Pair) -> None:
    """Fewer rounds the more a tree knows of its path, over one text of each set."""
    entries = json.loads(eval_file("eval_texts.json").read_text())
    rounds = dict.fromkeys(("marginal", "static", "dominotree"), 0)
    for entry in (e for e in entries if e["prompt_number"] in PROMPTS):
        text = entry["response_ids"][:48]
        for method in rounds:
            rounds[method] += len(rounds_along(pair, entry["prompt_ids"], text, Settings(method=method)))
    assert rounds["dominotree"] <= rounds["static"] < rounds["marginal"], rounds


def test_recorded_round_tells_the_whole_story(pair: Pair) -> None:
    run = Run(pair, "Write a haiku about rivers.", Settings(max_new_tokens=16))
    list(run)
    trace = run.trace
    assert trace.text(trace.summary["token_ids"]) == trace.summary["text"]
    first = trace.rounds[0]
    assert first.anchor == trace.first_token and first.verified_nodes == 16
    assert set(first.counterfactual) == {"marginal", "static", "conditional"}
    assert all(v is not None and v <= 0 for v in first.nodes.target_logprob)
    assert (
        trace.header["pair"]["drafter"] and trace.header["drafter_label"] == trace.header["pair"]["drafter"]
    )


def test_generate_json_on_the_command_line(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("dominotree.checkpoints.load_pair", lambda *a, **k: pair)
    assert main(["generate", "--prompt", "Say hello.", "--max-new-tokens", "12", "--json"]) == 0
    captured = capsys.readouterr()
    out = json.loads(captured.out, parse_constant=lambda c: pytest.fail(f"not strict JSON: {c}"))
    assert set(out) >= {"method", "token_ids", "text", "rounds", "tau", "tokens_per_second", "stop_reason"}
    assert out["method"] == "dominotree" and len(out["token_ids"]) <= 12 and captured.err
    assert (
        main(["generate", "--prompt", "Say hello.", "--max-new-tokens", "12", "--method", "ar", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["token_ids"] == out["token_ids"]


def test_trace_and_export_on_the_command_line(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys, tmp_path
) -> None:
    monkeypatch.setattr("dominotree.checkpoints.load_pair", lambda *a, **k: pair)
    out = tmp_path / "run.json.gz"
    assert main(["trace", "--prompt", "Count to 12.", "--max-new-tokens", "12", "--out", str(out)]) == 0
    trace = load(out)
    assert main(["export", str(out), "--csv", str(tmp_path / "csv")]) == 0
    import pandas as pd

    rounds = pd.read_csv(tmp_path / "csv" / "rounds.csv")
    nodes = pd.read_csv(tmp_path / "csv" / "nodes.csv")
    assert len(rounds) == len(trace.rounds) and len(nodes) == sum(len(r.nodes) for r in trace.rounds)
    assert rounds["committed_tokens"].sum() == trace.summary["committed"]


def test_a_recorded_run_is_what_the_engine_does_today(pair: Pair) -> None:
    """The shipped recording of the code prompt, round by round: anchor, tokens, accepted nodes, tree."""
    recorded = load(TRACES / "code-dominotree.json.gz")
    s = recorded.header["settings"]
    run = Run(
        pair, recorded.prompt["text"], Settings(method=s["method"], budget=s["budget"], max_new_tokens=40)
    )
    assert run.prompt_ids == recorded.prompt["token_ids"]
    for ours, theirs in zip(run, recorded.rounds, strict=False):
        assert (ours.anchor, ours.position, ours.committed, ours.path) == (
            theirs.anchor,
            theirs.position,
            theirs.committed,
            theirs.path,
        )
        assert ours.nodes.token == theirs.nodes.token and ours.nodes.parent == theirs.nodes.parent
