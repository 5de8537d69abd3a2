"""``dominotree bench pair`` on a tiny pair: its parts run in order, their results are files that the rest can read."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

import pytest
from tiny import tiny_pair, tiny_target

from dominotree import profile
from dominotree.bench import identical, speed
from dominotree.bench import pair as bench
from dominotree.cost import CostModel
from dominotree.methods import METHODS

PROMPTS = [{"kind": "chat", "prompt": "hello"}]


def test_parts_share_a_pair_and_leave_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    chosen = {name: METHODS[name] for name in ("ar", "domino", "dominotree")}
    for module in (identical, speed):
        monkeypatch.setattr(module, "eval_prompts", lambda: PROMPTS)
        monkeypatch.setattr(module, "METHODS", chosen)
    monkeypatch.setattr(profile, "full", partial(profile.full, contexts=(16,), max_nodes=8))
    loaded: list[str] = []

    def load(dtype: str):
        loaded.append(dtype)
        pair = tiny_pair(target=tiny_target(max_position_embeddings=1024))
        pair.info = {"name": "tiny", "target": "tiny target", "drafter": "tiny drafter"}
        return pair

    args = argparse.Namespace(
        out=tmp_path / "results", parts=["speed", "profile", "identical"], dtypes=["float32", "bfloat16"],
        prompts=1, tokens=8, repeats=1,
    )  # fmt: skip
    bench.run(args, load, lambda text: None)
    assert loaded == ["float32", "bfloat16"]
    said = [line for line in capsys.readouterr().out.splitlines() if " took " in line]
    assert [line.split(" took ")[0] for line in said] == [
        "float32: identical", "float32: profile", "bfloat16: profile", "bfloat16: speed",
    ]  # fmt: skip
    found = json.loads((args.out / "identical-float32.json").read_text())
    assert found["differing"] == [] and set(found["identical"]) == {"domino", "dominotree"}
    assert all(count == 1 for by in found["identical"].values() for count in by.values())
    assert CostModel.load(args.out / "profile-float32.json").draft("domino", 16) > 0
    rows = json.loads((args.out / "speed-float32.json").read_text())["rows"]  # the tiny pair's own precision
    assert {r["method"] for r in rows} == {"domino", "dominotree"} and all(r["tau"] >= 1 for r in rows)


def test_every_part_belongs_to_a_precision() -> None:
    assert {part for parts in bench.PLAN.values() for part in parts} == set(bench.PARTS)
    assert all(callable(getattr(bench.Session, part)) for part in bench.PARTS)
