"""The command line without a model: exit codes and one clear sentence for every bad argument."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from trace_factory import make_trace

from dominotree.cli import build_parser, finite, main
from dominotree.decode import Settings
from dominotree.errors import PairError
from dominotree.methods import METHODS
from dominotree.trace import save

GENERATE = ["generate", "--prompt", "hello"]


def outcome(argv: list[str], capsys: pytest.CaptureFixture) -> tuple[int, str]:
    try:
        code = main(argv)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        (["--budget", "0"], "budget"), (["--budget", "1000000"], "1000000"), (["--budget", "x"], "'x'"),
        (["--temperature", "-1"], "-1"), (["--temperature", "nan"], "nan"), (["--method", "eagle"], "eagle"),
        (["--top-m", "none"], "none"), (["--seed", "-4"], "-4"), (["--max-new-tokens", "-1"], "-1"),
        (["--repetition-penalty", "1.3"], "repetition-penalty"), (["--prompt", ""], "empty"), (["--prompt", " \n "], "empty"),
        (["--threads", "0"], "threads"),
    ],
)  # fmt: skip
def test_E26_bad_arguments_exit_2_with_one_sentence(
    extra: list[str], word: str, capsys: pytest.CaptureFixture
) -> None:
    code, err = outcome([*GENERATE, *extra], capsys)
    assert code == 2 and word in err and len(err.strip().splitlines()) == 1


def test_failures_exit_1_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    def refuse(*args, **kwargs):
        raise PairError("the default pair is not on this machine; connect once.")

    monkeypatch.setattr("dominotree.checkpoints.load_pair", refuse)
    code, err = outcome(GENERATE, capsys)
    assert code == 1 and err == "dominotree: the default pair is not on this machine; connect once.\n"
    for name, content in (
        ("a.json", b"not json"),
        ("b.json.gz", gzip.compress(b"{}")[:-3]),
        ("c.json", b'{"schema": "other"}'),
    ):
        (tmp_path / name).write_bytes(content)
        code, err = outcome(["export", str(tmp_path / name), "--csv", str(tmp_path / "out")], capsys)
        assert code == 1 and name in err and len(err.strip().splitlines()) == 1
    code, err = outcome(["export", str(tmp_path / "missing.json"), "--csv", str(tmp_path)], capsys)
    assert code == 1 and "missing.json" in err
    code, err = outcome(["trace", "--prompt", "x", "--out", str(tmp_path / "no" / "run.json")], capsys)
    assert code == 2 and "no" in err


def test_export_writes_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    save(make_trace(3, 12, seed=1), tmp_path / "run.json.gz")
    assert main(["export", str(tmp_path / "run.json.gz"), "--csv", str(tmp_path / "csv")]) == 0
    assert {p.name for p in (tmp_path / "csv").iterdir()} == {"rounds.csv", "nodes.csv"}
    assert "rounds.csv" in capsys.readouterr().out


def test_defaults_are_those_that_the_readme_names() -> None:
    args = build_parser().parse_args(GENERATE)
    assert (args.method, args.budget, args.top_m, args.temperature, args.seed, args.max_new_tokens, args.pair) == (
        "dominotree", None, 64, 0, 0, 128, "default",
    )  # fmt: skip
    assert Settings().budget == Settings(budget=None).budget == 16
    assert build_parser().parse_args([*GENERATE, "--top-m", "full"]).top_m is None


def test_strict_json_has_no_infinity() -> None:
    assert json.loads(json.dumps(finite({"a": [float("inf"), float("nan"), 1.5]}), allow_nan=False)) == {
        "a": [None, None, 1.5]
    }


def test_every_method_names_its_parts() -> None:
    for name, method in METHODS.items():
        assert method.name == name and method.title and method.description
        own = Settings(method=name)
        assert own.budget == (256 if method.adaptive else 16) and own.children_per_node <= own.budget
    assert METHODS["dominotree"].children == 8 and METHODS["marginal"].children == 64
    assert Settings(method="caddtree").children_per_node == 256  # its cap
    assert Settings(method="condadaptive", budget=4).children_per_node == 4
