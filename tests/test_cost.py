"""Cost profiles and calibrations: fits, tables, strict files, what is measured and where it is kept."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from round_cases import decode, small_pair
from tiny import TINY_COSTS, tiny_pair

from dominotree import calibration, cost, profile, trace
from dominotree.calibration import Calibration
from dominotree.cli import main
from dominotree.cost import CostModel, fit_convex, is_monotone_convex
from dominotree.decode import Run, Settings
from dominotree.errors import FileError, PairError

PROMPT = [5, 9, 2, 30]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# ---- the fit


def values(nodes: list[int], ms: list[float]) -> list[float]:
    """The fit at the measured counts."""
    base, slopes = fit_convex(nodes, ms)
    return [
        base + sum(s * (b - a) for s, a, b in zip(slopes[:k], nodes, nodes[1:], strict=False))
        for k in range(len(nodes))
    ]


def test_a_convex_curve_is_kept_and_a_dent_is_smoothed() -> None:
    nodes = [0, 1, 4, 16, 64]
    assert values(nodes, [2.0, 2.0, 2.3, 4.1, 14.0]) == pytest.approx([2.0, 2.0, 2.3, 4.1, 14.0], rel=1e-5)
    fitted = values(nodes, [2.0, 3.0, 2.0, 4.0, 4.0])
    assert is_monotone_convex(nodes, fitted) and fitted[-1] < 6
    assert values(nodes, [3.0] * 5) == pytest.approx([3.0] * 5)
    falling = values(nodes, [5.0, 4.0, 3.0, 2.0, 1.0])
    assert falling == pytest.approx([falling[0]] * 5)  # never falls: flat is the nearest
    assert fit_convex([0], [7.0]) == (7.0, ())


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(1e-3, 1e4), min_size=2, max_size=12), st.randoms(use_true_random=False))
def test_every_fit_is_monotone_and_convex(ms: list[float], random) -> None:
    """Also after a trace has rounded it, and then with the very same numbers."""
    nodes = [0, *sorted(random.sample(range(1, 300), len(ms) - 1))]
    raw = [{"what": "verify", "nodes": n, "context": 100, "ms": [x]} for n, x in zip(nodes, ms, strict=True)]
    model = cost.fit(
        TINY_COSTS.about, [*raw, {"what": "draft", "kind": "domino", "context": 100, "ms": [1 / 3]}]
    )
    table = model.verify_table(600, 100)
    assert is_monotone_convex(range(601), table) and table[0] > 0
    assert [table[n] for n in nodes] == pytest.approx(values(nodes, ms)) == model.verify_ms[0]
    again = CostModel.from_dict(json.loads(trace.to_json(model.summary())))
    assert (
        again.verify_table(600, 100) == table
        and again.draft_ms == model.draft_ms
        and again.hash == model.hash
    )


def test_context_is_interpolated_and_never_extrapolated() -> None:
    model = TINY_COSTS  # contexts 16 and 64
    assert model.verify_table(12, 3)[12] == model.verify_table(12, 16)[12] == 8.0
    assert model.verify_table(12, 64)[12] == model.verify_table(12, 9999)[12] == 8.4
    assert model.verify_table(12, 40)[0] == pytest.approx(4.2) and model.draft("domino", 40) == pytest.approx(
        1.1
    )
    assert model.verify_table(20, 16)[20] == pytest.approx(
        8.0 + 8 * 0.4
    )  # beyond the largest count: the last slope
    assert is_monotone_convex(range(21), model.verify_table(20, 40))
    with pytest.raises(FileError, match="no times of a eagle drafter"):
        model.draft("eagle", 1)


# ---- files


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    raw = [
        {"what": "verify", "nodes": n, "context": c, "ms": [1.0 + n, 9.0, 1.2 + n]}
        for c in (8, 32)
        for n in (0, 2, 8)
    ]
    raw += [{"what": "draft", "kind": "domino", "context": c, "ms": [0.5, 0.7, 0.6]} for c in (8, 32)]
    model = cost.fit(TINY_COSTS.about, raw)
    assert model.draft_ms == {"domino": (0.6, 0.6)} and model.nodes == (0, 2, 8)
    model.save(tmp_path / "a" / "p.json")
    again = CostModel.load(tmp_path / "a" / "p.json")
    assert again == model and again.hash == model.hash and list(again.raw) == raw
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["p.json"]  # no work files are left
    assert "raw" not in model.summary()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda d: d.update(schema="other"), "schema"),
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(version=True), "version"),
        (lambda d: d["base_ms"].__setitem__(0, 4.1), "hash"),
        (lambda d: d["slope_ms"][0].__setitem__(0, 0.5), "convex"),
        (lambda d: d["slope_ms"][0].__setitem__(0, -1.0), "-1.0"),
        (lambda d: d["base_ms"].__setitem__(0, 0), "0"),
        (lambda d: d["base_ms"].__setitem__(0, True), "True"),
        (lambda d: d["base_ms"].__setitem__(0, "4"), "'4'"),
        (lambda d: d["slope_ms"].pop(), "per context"),
        (lambda d: d["slope_ms"][0].pop(), "per stretch"),
        (lambda d: d.update(nodes=[1, 4, 12]), "begin with 0"),
        (lambda d: d.update(nodes=[0, 4, 4]), "ascending"),
        (lambda d: d.update(contexts=[16.5, 64]), "ascending"),
        (lambda d: d.update(draft_ms={}), "draft_ms"),
        (lambda d: d.update(draft_ms={"domino": [1.0]}), "draft_ms"),
        (lambda d: d["about"].update(machine=5), "about"),
        (lambda d: d.update(raw=[1]), "raw"),
    ],
)
def test_a_wrong_profile_is_refused_in_one_sentence(change, word: str, tmp_path: Path) -> None:
    data = json.loads(json.dumps(TINY_COSTS.summary() | {"raw": []}))
    change(data)
    (tmp_path / "p.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match="p.json") as caught:
        CostModel.load(tmp_path / "p.json")
    assert word in str(caught.value) and "\n" not in str(caught.value)


class Trap:
    """Unpickling it leaves a file behind."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self):
        return Path.touch, (self.sentinel,)


def test_S09_a_cost_table_never_runs_code(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Fault S09: a cost table that is a pickle (.pt, .pkl, or one named .json) is refused and nothing in it runs."""
    sentinel = tmp_path / "ran"
    torch.save({"type": "convex", "x": Trap(sentinel)}, tmp_path / "table.pt")
    for name in ("table.pkl", "table.json"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap(sentinel)))
    code = ["generate", "--prompt", "x", "--method", "caddtree", "--max-new-tokens", "1", "--profile"]
    for name in ("table.pt", "table.pkl", "table.json"):
        with pytest.raises(FileError, match=name):
            CostModel.load(tmp_path / name)
        with pytest.raises(FileError, match=name):
            Calibration.load(tmp_path / name)
        assert main([*code, str(tmp_path / name)]) == 1
        error = capsys.readouterr().err
        assert name in error and len(error.strip().splitlines()) == 1
    assert not sentinel.exists()
    pickle.loads(pickle.dumps(Trap(sentinel)))
    assert sentinel.exists()  # the trap is a real one


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"schema": NaN}', b"\xff\xfe", b'{"schema": 1, "schema": 2}', b"[" * 100_000],
)
def test_damaged_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(content)
    for load in (CostModel.load, Calibration.load):
        with pytest.raises(FileError, match="p.json"):
            load(tmp_path / "p.json")
    with pytest.raises(FileError, match="cannot be read"):
        CostModel.load(tmp_path)
    (tmp_path / "big.json").write_bytes(b" " * (9 << 20))
    with pytest.raises(FileError, match="larger"):
        CostModel.load(tmp_path / "big.json")


# ---- measuring


def test_profiles_of_another_machine_pair_or_precision_are_not_taken(cache: Path) -> None:
    pair = tiny_pair()
    mine = profile.identity(pair)
    assert mine["engine"] == "eager" and mine["dtype"] == "float32" and mine["domino"] == "tiny drafter"
    assert cost.stored(mine) is None
    TINY_COSTS.save(cost.profile_path(mine))
    assert cost.stored(mine) == TINY_COSTS
    for key in cost.IDENTITY:
        assert cost.stored({**mine, key: "other"}) is None
    cost.profile_path(mine).write_text("{}")
    with pytest.raises(FileError):
        cost.stored(mine)


def test_a_run_without_a_profile_measures_one_and_keeps_it(cache: Path) -> None:
    pair = tiny_pair()
    pair.costs = None
    first = Run(pair, prompt_ids=PROMPT, settings=Settings(method="condadaptive", max_new_tokens=8))
    assert "cost_profile" not in first.trace.header  # nothing is computed before the run begins
    list(first)
    told = first.trace.header["cost_profile"]
    assert told["about"]["kind"] == "quick" and told["about"]["machine"] == first.trace.header["machine"]
    assert set(told["draft_ms"]) == {"domino"} and told["nodes"][0] == 0
    kept = CostModel.load(next((cache / "profiles").iterdir()))
    assert kept.hash == told["hash"] and all(row["ms"] for row in kept.raw)
    other = tiny_pair()
    other.costs = None
    second = Run(other, prompt_ids=PROMPT, settings=Settings(method="caddtree", max_new_tokens=8))
    assert second.trace.header["cost_profile"]["hash"] == told["hash"]
    silent = Run(tiny_pair(), prompt_ids=PROMPT, settings=Settings(method="condadaptive", max_new_tokens=0))
    list(silent)


def test_the_quick_measurement_keeps_to_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine: large trees are left out, what was begun is ended, every point has a sample."""
    clock = [0.0]
    monkeypatch.setattr(profile.time, "perf_counter", lambda: clock[0])

    class Slow:
        engine, turns = "slow", True

        def draft(self, kind, context):
            return self.verify(3, context)

        def verify(self, nodes, context):
            def once() -> float:
                clock[0] += 0.05 * (nodes + 1)
                return 50.0 * (nodes + 1)

            return once

    model = profile.quick(tiny_pair(), probe=Slow())
    assert clock[0] < 3.0 and model.nodes == (0, 1, 4, 8)
    assert model.verify_table(8, 0) == pytest.approx([50.0 * (n + 1) for n in range(9)])
    clock[0] = 0.0
    raw = profile.measure(tiny_pair(), Slow(), [16], [0, 1, 100], 3)
    assert len(raw) == 4 and all(len(row["ms"]) == 3 for row in raw)


@pytest.mark.parametrize("ends", [1, 2])
def test_a_captured_profile_does_not_end_on_stop_tokens(ends: int) -> None:
    """A measurement's text is no text: one that began with a stop id left nothing to measure."""
    prompt = [(7919 * k + 17) % small_pair("cpu").target.vocab_size for k in range(16)]
    text = decode(small_pair("cpu"), "eager", "ar", prompt=prompt, max_new_tokens=4).output
    pair = small_pair("cpu", stop_ids=[text[ends - 1]])
    model = profile.full(pair, {"engine": "static"}, contexts=(16,), max_nodes=2, repeats=3)
    assert all(len(row["ms"]) == 1 and row["ms"][0] > 0 for row in model.raw)


def test_profile_on_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path) -> None:
    pair = tiny_pair()
    monkeypatch.setattr("dominotree.checkpoints.load_pair", lambda *a, **k: pair)
    command = ["profile", "--contexts", "8", "32", "9999", "--max-nodes", "12", "--repeats", "2"]
    assert main([*command, "--out", str(tmp_path / "p.json")]) == 0
    out = capsys.readouterr().out
    model = CostModel.load(tmp_path / "p.json")
    assert model.hash in out and model.contexts == (8, 32) and model.nodes[-1] == 12
    assert all(len(row["ms"]) == 2 for row in model.raw)
    assert main([*command]) == 0 and cost.stored(profile.identity(pair)) is not None
    capsys.readouterr()
    for wrong in (["--max-nodes", "0"], ["--repeats", "0"], ["--contexts", "9999"]):
        assert main(["profile", *wrong]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


# ---- calibration


def test_calibration_by_hand() -> None:
    g = Calibration({}, (-4.0, -2.0, -1.0), (-5.0, -2.0, -0.5))
    assert [g(s) for s in (-6.0, -4.0, -3.0, -1.5, -1.0, 0.0)] == [-7.0, -5.0, -3.5, -1.25, -0.5, -0.5]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 40))
def test_a_fitted_calibration_is_monotone_and_near_the_truth(seed: int, bins: int) -> None:
    """Acceptance = the square of the predicted probability: the map finds it, and never turns the order around."""
    random = np.random.default_rng(seed)
    s = np.log(random.uniform(0.001, 1.0, 4000))
    hit = random.uniform(size=4000) < np.exp(s) ** 2
    g = calibration.fit({"drafter": "x"}, s.tolist(), hit.tolist(), bins)
    grid = [g(x) for x in np.linspace(-8, 0, 200)]
    assert all(a <= b for a, b in itertools.pairwise(grid)) and grid[-1] <= 0
    assert Calibration.from_dict(json.loads(json.dumps(g.summary()))) == g
    if bins >= 10:
        assert math.exp(g(math.log(0.7))) == pytest.approx(0.49, abs=0.12)


def test_a_calibration_belongs_to_its_drafter(tmp_path: Path) -> None:
    Calibration({"target": "t", "drafter": "d"}, (-1.0,), (-2.0,)).save(tmp_path / "d.json")
    assert calibration.find("t", "d", tmp_path)(-1.0) == -2.0
    for target, drafter in (("other", "d"), ("t", "e"), ("t", None), ("t", "../d")):
        with pytest.raises(PairError, match="no calibration"):
            calibration.find(target, drafter, tmp_path)
    pair = tiny_pair()
    pair.calibration = None
    with pytest.raises(PairError, match="no calibration"):
        Run(pair, prompt_ids=PROMPT, settings=Settings(method="condadaptive-calibrated"))


@pytest.mark.parametrize("x", [[], [-1.0, -1.0], [-1.0, -2.0], [0.5], [None], "x"])
def test_a_wrong_calibration_is_refused(x, tmp_path: Path) -> None:
    y = [-1.0] * len(x)
    data = {"schema": calibration.SCHEMA, "version": 1, "about": {}, "x": x, "y": y}
    (tmp_path / "c.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match="c.json"):
        Calibration.load(tmp_path / "c.json")


def test_the_shipped_calibration_is_of_the_shipped_drafter() -> None:
    from dominotree.default_pair import DOMINO_NAME, TARGET_NAME

    g = calibration.find(TARGET_NAME, DOMINO_NAME)
    assert g.about["prompts"] == 48 and g.about["nodes"] > 100_000 and len(g.x) > 20
    assert -0.1 < g(0.0) <= 0.0


def test_reliability_counts_every_node_once() -> None:
    rows = calibration.reliability(
        [0.0, 0.05, 0.5, 0.55, 1.0], [False, True, False, True, True], (0.0, 0.1, 0.6, 1.0)
    )
    assert [(r["nodes"], r["accepted"]) for r in rows] == [(2, 1), (2, 1), (1, 1)]
    assert rows[1]["predicted"] == pytest.approx(0.525) and rows[1]["observed"] == 0.5
    assert all(r["low"] <= r["observed"] <= r["high"] for r in rows)
    assert calibration.wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
