"""``dominotree bench adaptive``: rules along texts by hand, the results file, and what the documentation says of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny import TINY_CALIBRATION, TINY_COSTS

from dominotree.bench import adaptive as bench
from dominotree.bench.adaptive import Anchor, fixed, merge, ruled, walk

HELD = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
PAGE = (bench.RESULTS.parents[1] / "performance.md").read_text(encoding="utf-8")


class MadeUp:
    """A text of six tokens whose anchors all have the same tree of three nodes, a chain."""

    def __init__(self, path: list[int]) -> None:
        self.prompt, self.text = [1, 2], [10, 11, 12, 13, 14, 15]
        self.drafter = SimpleNamespace(config=SimpleNamespace(kind="domino"))
        self.path = path

    def at(self, start: int) -> Anchor:
        scores = [math.log(p) for p in (0.8, 0.4, 0.1)]
        rest = len(self.text) - start - 1
        return Anchor(scores, [1, 2, 3], [n for n in self.path if n < rest], rest)


def test_rounds_along_a_text_by_hand() -> None:
    """Two of three drafts fit everywhere: steps of 3 from token 0 and 3, the second one cut at the text's end."""
    found = walk([MadeUp([0, 1])], fixed(3), TINY_COSTS)
    assert found.committed == [3, 2] and found.nodes == [3, 3]
    # behind token 3 two tokens are left, so the node at depth 3 says nothing there
    assert found.accepted == [True, True, False, True, True] and len(found.scores) == 5
    assert found.observed == [2] and found.expected == pytest.approx([1.3])
    assert found.ms == pytest.approx([1.0 + 4.6] * 2)  # C_draft and C_verify(3) below the first context
    assert walk([MadeUp([0, 1])], fixed(1), TINY_COSTS).committed == [2, 2, 1]
    made = bench.summary(found, None)
    assert made["tau"] == 2.5 and made["model_tokens_per_second"] == pytest.approx(1e3 * 5 / 11.2)
    assert made["nodes_median"] == 3 and sum(n for _, _, n in made["histogram"]) == 2


def test_a_rule_takes_the_beginning_of_the_largest_tree() -> None:
    """1/5; 1.8/5.2 = .346, 2.2/5.4 = .407, 2.3/5.6 = .411: all pay; twice as steep 1.8/5.4, 2.2/5.8 = .379, 2.3/6.2 = .371."""
    anchor = MadeUp([0]).at(0)
    assert ruled(TINY_COSTS, "domino", 3)(anchor, 0) == 3
    steeper = replace(TINY_COSTS, slope_ms=((0.4, 0.4),) * 2)
    assert ruled(steeper, "domino", 3)(anchor, 0) == 2
    assert ruled(steeper, "domino", 1)(anchor, 0) == 1
    assert ruled(steeper, "domino", 3, TINY_CALIBRATION)(anchor, 0) == 2


def test_results_of_one_machine_are_one_entry(tmp_path: Path) -> None:
    path = tmp_path / "docs" / "adaptive.json"
    first = {"profile": TINY_COSTS.summary(), "along": {"texts": 1}}
    assert merge(path, first) == [first]
    both = merge(path, {"profile": TINY_COSTS.summary(), "engine": {"prompts": 2}})
    assert both == [{**first, "engine": {"prompts": 2}}] == json.loads(path.read_text())
    other = replace(TINY_COSTS, about={**TINY_COSTS.about, "machine": "another"}).summary()
    assert len(merge(path, {"profile": other})) == 2
    again = replace(
        TINY_COSTS, base_ms=(5.0, 5.0)
    ).summary()  # measured anew: the old parts do not belong to it
    assert merge(path, {"profile": again, "along": {"texts": 3}})[0] == {
        "profile": again,
        "along": {"texts": 3},
    }


def test_the_documentation_shows_the_results() -> None:
    assert bench.replaced(PAGE, bench.tables(HELD)) == PAGE, (
        "run dominotree bench adaptive, or its tables() again"
    )
    assert bench.replaced("no marks", "x") == "no marks"


def test_what_the_documentation_concludes_is_in_the_results() -> None:
    """The sentences of docs/performance.md about the adaptive budget."""
    cpu, gpu = (e["along"] for e in HELD[:2])
    rules = cpu["rules"]
    assert (rules["condadaptive"]["nodes_median"], gpu["rules"]["condadaptive"]["nodes_median"]) == (11, 32)
    assert all(e["rules"][f"condadaptive{s}"]["at_cap"] == 0 for e in (cpu, gpu) for s in ("", "-calibrated"))
    whole = rules["dominotree@256"]
    assert whole["expected_accepted"] / whole["observed_accepted"] == pytest.approx(1.13, abs=0.005)
    assert f"{whole['expected_accepted']:.2f}" == "5.63" and f"{whole['observed_accepted']:.2f}" == "4.99"
    for part in (cpu, gpu):
        own = part["rules"]["condadaptive"]
        assert 1.055 < own["expected_accepted"] / own["observed_accepted"] < 1.08
        best = max(r["model_tokens_per_second"] for n, r in part["rules"].items() if "@" in n)
        assert 1 < own["model_tokens_per_second"] / best < (1.001 if part is gpu else 1.035)
        control = part["rules"]["condadaptive-calibrated"]
        assert 0 <= own["nodes_median"] - control["nodes_median"] <= 2
        assert 1 < control["model_tokens_per_second"] / own["model_tokens_per_second"] < 1.005
        for row in part["steepness"]:
            shares = (row["raw"]["at_cap"], row["calibrated"]["at_cap"])
            assert min(shares) > 0.5 if row["ratio"] <= 1.1 else max(shares) < 0.2
    low = sum(r["observed"] < r["predicted"] for r in cpu["reliability"]["raw"])
    assert low >= 12 and len(cpu["reliability"]["raw"]) == 15
    assert sum(r["nodes"] for r in cpu["reliability"]["raw"]) > 200_000
    assert all(row["same_tokens_as_ar"] for row in HELD[0]["engine"]["rows"])
