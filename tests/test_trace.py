"""The trace: numbers over a run, counterfactuals, token labels, JSON, files, and what is refused."""

from __future__ import annotations

import copy
import errno
import gzip
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_factory import METHODS, ODD_TOKENS, make_trace, spoil, traces

from dominotree import trace as tr
from dominotree.trace import jsonform

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not strict JSON")


def as_dict(trace: tr.Trace) -> dict[str, Any]:
    return json.loads(tr.to_json(trace), parse_constant=refuse)


def as_stored(trace: tr.Trace) -> tr.Trace:
    """The trace with every float of its tables rounded as a file keeps it."""
    trace = copy.deepcopy(trace)
    holders: list[Any] = [this for this in trace.rounds]
    holders += [this.nodes for this in trace.rounds] + [pop for this in trace.rounds for pop in this.pops]
    for holder in holders:
        for name, value in vars(holder).items():
            if isinstance(value, list) and value and isinstance(value[0], float | None):
                setattr(holder, name, [float(f"{x:.6g}") if isinstance(x, float) else x for x in value])
    for this in trace.rounds:
        this.times_ms = {stage: float(f"{ms:.6g}") for stage, ms in this.times_ms.items()}
        for visit in this.visits:
            visit.top = [(token, float(f"{p:.6g}")) for token, p in visit.top]
    return trace


# ---------------------------------------------------------------------------------------- numbers over a run


def rounds_of(accepted: list[int]) -> tr.Trace:
    """A bare trace whose rounds accepted these many drafts of a chain of four."""
    trace = tr.Trace(
        header={"settings": {"method": "domino"}},
        prompt={"text": "p", "token_ids": [1]},
        first_token=0,
        tokens={k: bytes([97 + k]).hex() for k in range(8)},
    )
    anchor, position = 0, 1
    for index, n in enumerate(accepted, 1):
        path, bonus = list(range(n)), 6
        nodes = tr.Nodes(token=[1, 2, 3, 4], parent=[-1, 0, 1, 2], depth=[1, 2, 3, 4], order=[0, 1, 2, 3])
        nodes.trees = [tr.TREE_BITS["verified"]] * 4
        nodes.accepted = [k < n for k in range(4)]
        for name in vars(nodes):
            if not getattr(nodes, name):
                setattr(nodes, name, [None] * 4)
        nodes.logz_m = nodes.logz_v = [1.0] * 4
        committed = [*nodes.token[:n], bonus]
        trace.rounds.append(
            tr.Round(
                index, anchor, position, nodes, path, bonus, committed, len(committed), 4, 4, {"verify": 1.0}
            )
        )
        anchor, position = bonus, position + len(committed)
    tr.check(trace)
    return trace


def test_U23_both_counts_with_and_without_the_bonus() -> None:
    trace = rounds_of([3, 0, 2])
    counts = trace.counts
    assert (counts.accepted, counts.committed, counts.rounds) == (5, 8, 3)
    assert counts.mean_accepted == pytest.approx(5 / 3)
    assert counts.tau == pytest.approx(8 / 3)
    assert counts.output == 1 + sum(len(this.committed) for this in trace.rounds) == 9
    assert trace.tau_so_far == pytest.approx([4, 5 / 2, 8 / 3])


@few
@given(traces())
def test_U23_sum_of_tokens_is_the_output_length(trace: tr.Trace) -> None:
    counts = trace.counts
    assert counts.committed == counts.accepted + counts.rounds
    if trace.ended:
        assert counts.output == len(trace.summary["token_ids"]) == trace.summary["new_tokens"]
        assert trace.text(trace.summary["token_ids"]) == trace.summary["text"]


def test_U23_counts_before_the_first_round() -> None:
    trace = make_trace(0, 4, finished=False)
    assert trace.counts.tau is None and trace.counts.mean_accepted is None
    assert trace.tau_so_far == [] and trace.acceptance_by_depth == []
    assert trace.counts.output == 1


def test_U25_only_the_unbroken_prefix_counts_as_accepted() -> None:
    # The text matches draft 1, not draft 2, then again drafts 3 and 4: accepted 1, committed 2.
    trace = rounds_of([1])
    this = trace.rounds[0]
    assert this.accepted == 1 and len(this.committed) == 2
    path, censored = tr.counterfactual_path(this, "verified", [1, 7, 3, 4])
    assert (path, censored) == ([0], False)
    this.nodes.accepted = [True, False, True, True]
    with pytest.raises(tr.TraceError, match="accepted marks other nodes than the accepted path"):
        tr.check(trace)


def test_U26_acceptance_of_depth_of_nodes_and_by_depth() -> None:
    this = rounds_of([3]).rounds[0]
    this.verified_nodes = 16  # a tree of 16 nodes and depth 4 of which 3 were accepted
    assert this.accepted_of_depth == 3 / 4
    assert this.accepted_of_nodes == 3 / 16
    trace = rounds_of([3, 0, 2, 4])
    assert [d.accepted for d in trace.acceptance_by_depth] == [3, 3, 2, 1]
    assert [d.offered for d in trace.acceptance_by_depth] == [4, 4, 4, 4]
    assert trace.counts.accepted_of_depth == 9 / 16 == trace.counts.accepted_of_nodes


@few
@given(traces())
def test_U26_depth_counts_add_up(trace: tr.Trace) -> None:
    by_depth = trace.acceptance_by_depth
    assert sum(d.accepted for d in by_depth) == trace.counts.accepted
    assert all(d.accepted <= d.offered for d in by_depth)
    assert sum(d.offered for d in by_depth) == trace.counts.depth


def test_U26_nothing_drafted_has_no_rate() -> None:
    this = make_trace(1, 4, method="ar").rounds[0]
    assert this.accepted_of_depth is None and this.accepted_of_nodes is None


def test_U32_partial_runs_say_so() -> None:
    trace = make_trace(3, 4, finished=False)
    assert trace.partial and not trace.ended
    trace.summary["prefill_ms"] = 1.0  # known before the end
    assert trace.partial and not trace.ended
    tr.check(trace)
    trace = make_trace(3, 4)
    assert trace.ended and not trace.partial
    for reason in ("cancelled", "error"):
        trace.summary["stop_reason"] = reason
        assert trace.ended and trace.partial


# ------------------------------------------------------------------------------------------- counterfactuals


@few
@given(traces())
def test_own_counterfactual_is_the_accepted_path(trace: tr.Trace) -> None:
    """Engine.md §7: what the verified tree would have got accepted is what it did get accepted."""
    tr.finish(trace)
    scorer, _, _, chain = METHODS[trace.header["settings"]["method"]]
    for this in trace.rounds:
        path, censored = tr.counterfactual_path(this, "verified", trace.text_after(this.index), trace.stopped)
        assert path == this.path and not censored
        if scorer in this.counterfactual and not chain:
            assert this.counterfactual[scorer] == tr.Counterfactual(this.accepted, False)


def slow_counterfactual(this: tr.Round, scorer: str, text: list[int]) -> int:
    """The longest root path in a tree that is a prefix of the text, by looking at every node."""
    nodes, best = this.nodes, 0
    for k in range(len(nodes)):
        walk, at = [], k
        while at != -1:
            walk.append(nodes.token[at])
            at = nodes.parent[at]
        if nodes.trees[k] & tr.TREE_BITS[scorer] and text[: len(walk)] == walk[::-1]:
            best = max(best, len(walk))
    return best


@few
@given(traces())
def test_counterfactual_is_the_longest_match_in_the_tree(trace: tr.Trace) -> None:
    tr.finish(trace)
    for this in trace.rounds:
        for scorer, found in this.counterfactual.items():
            assert found.accepted == slow_counterfactual(this, scorer, trace.text_after(this.index))
        recorded = {s for s in tr.SCORERS if any(m & tr.TREE_BITS[s] for m in this.nodes.trees)}
        assert set(this.counterfactual) == recorded


def test_counterfactual_is_censored_where_the_text_ends_first() -> None:
    this = rounds_of([1]).rounds[0]
    assert tr.counterfactual_path(this, "verified", []) == ([], True)
    assert tr.counterfactual_path(this, "verified", [1, 2]) == ([0, 1], True)
    assert tr.counterfactual_path(this, "verified", [1, 2, 3, 4]) == ([0, 1, 2, 3], False)  # to a leaf
    assert tr.counterfactual_path(this, "verified", [1, 5]) == ([0], False)
    assert tr.counterfactual_path(this, "verified", [1, 2], stopped=True) == ([0, 1], False)
    assert tr.counterfactual_path(this, "marginal", [1]) == ([], False)  # that tree was not recorded


def test_counterfactual_of_a_recorded_run_is_censored_only_near_its_end() -> None:
    trace = tr.finish(make_trace(30, 64, 5, "marginal"))
    censored = [this.index for this in trace.rounds for c in this.counterfactual.values() if c.censored]
    assert all(index > 20 for index in censored)
    better = [this for this in trace.rounds if this.counterfactual["conditional"].accepted > this.accepted]
    assert better, "the path-dependent tree should hold more of the text somewhere"


def test_counterfactual_uses_text_beyond_the_token_limit_but_not_beyond_a_stop() -> None:
    cut = make_trace(4, 16, 1, cut=2)
    last = cut.rounds[-1]
    assert last.kept < len(last.committed)
    assert cut.text_after(4) == last.committed
    seed = next(s for s in range(50) if make_trace(4, 16, s, stop=1).rounds[-1].accepted == 2)
    stopped = tr.finish(make_trace(4, 16, seed, stop=1))
    last = stopped.rounds[-1]
    assert stopped.stopped and (last.kept, len(last.committed)) == (2, 3)
    assert stopped.text_after(4) == last.committed[:2]
    assert last.counterfactual["conditional"] == tr.Counterfactual(2, False)


# ---------------------------------------------------------------------------------------------- token labels

SHOWN = {
    b"": "",
    b" the": "␣the",
    b"\n": "⏎",
    b"\t\tx": "⇥⇥x",
    b"\r\n": "␍⏎",
    b"\x00": "⟨U+0000⟩",
    b"\x1b[0m": "⟨U+001B⟩[0m",
    "a\u200bb".encode(): "a⟨U+200B⟩b",
    "\u202e".encode(): "⟨U+202E⟩",
    "\ufeff".encode(): "⟨U+FEFF⟩",
    "\u00a0".encode(): "⟨U+00A0⟩",
    "\u00ad".encode(): "⟨U+00AD⟩",
    "\u2028".encode(): "⟨U+2028⟩",
    "\ue000".encode(): "⟨U+E000⟩",
    "\U000f0000".encode(): "⟨U+F0000⟩",
    "\u3164".encode(): "⟨U+3164⟩",
    "❤\ufe0f".encode(): "❤⟨U+FE0F⟩",
    "\u0301".encode(): "⟨U+0301⟩",
    "e\u0301".encode(): "e\u0301",
    "⟨␣⟩".encode(): "⟨U+27E8⟩⟨U+2423⟩⟨U+27E9⟩",
    b"\xf0\x9f": "⟨F0 9F⟩",
    b" \xf0\x9f": "␣⟨F0 9F⟩",
    b"\x98\x80!": "⟨98 80⟩!",
    b"\xed\xa0\x80": "⟨ED A0 80⟩",
    "😀".encode(): "😀",
    "中文é".encode(): "中文é",
    b"</s>": "</s>",
    b"<b>&amp;": "<b>&amp;",
}


@pytest.mark.parametrize("data", SHOWN, ids=repr)
def test_token_text(data: bytes) -> None:
    assert tr.token_text(data) == SHOWN[data]


def unshown(text: str) -> bytes:
    """What token_text showed, read back."""
    out = b""
    for part in re.findall(r"⟨U\+[0-9A-F]+⟩|⟨[0-9A-F ]+⟩|.", text, re.DOTALL):
        if part.startswith("⟨U+"):
            out += chr(int(part[3:-1], 16)).encode()
        elif part.startswith("⟨"):
            out += bytes.fromhex(part[1:-1])
        else:
            out += {"␣": " ", "⏎": "\n", "⇥": "\t", "␍": "\r"}.get(part, part).encode()
    return out


any_bytes = st.binary(max_size=12) | st.text(max_size=8).map(str.encode) | st.sampled_from(ODD_TOKENS)


@settings(max_examples=400, deadline=None)
@given(any_bytes)
def test_no_two_tokens_share_a_label_and_none_is_invisible(data: bytes) -> None:
    shown = tr.token_text(data)
    assert unshown(shown) == data  # so the label is unique
    assert shown.isprintable() and not shown.startswith(" ") and not shown.endswith(" ")
    assert bool(shown) == bool(data)


@settings(max_examples=400, deadline=None)
@given(any_bytes)
def test_token_escaped_gives_the_bytes_back(data: bytes) -> None:
    cell = tr.token_escaped(data)
    assert cell.isascii() and cell.isprintable()
    assert json.loads(cell).encode("utf-8", "surrogateescape") == data == tr.token_unescaped(cell)
    assert bytes.fromhex(tr.token_hex(data)[1:]) == data


def test_U31_special_markers_are_text() -> None:
    trace = make_trace(3, 8, stop=0)
    assert trace.summary["text"].endswith("<|im_end|>")
    assert trace.text(trace.summary["token_ids"]) == trace.summary["text"]


def test_text_joins_half_characters_before_decoding() -> None:
    trace = tr.Trace(header={}, prompt={}, tokens={1: "f09f", 2: "9880", 3: "f0"})
    assert trace.text([1, 2]) == "😀"
    assert trace.text([3, 2]) == b"\xf0\x98\x80".decode("utf-8", "replace")
    assert trace.token_bytes(1) == b"\xf0\x9f"
    with pytest.raises(KeyError):
        trace.token_bytes(4)


# ------------------------------------------------------------------------------------------------------ JSON


@few
@given(traces(odd=True))
def test_json_round_trip(trace: tr.Trace) -> None:
    text = tr.to_json(trace)
    assert text.isascii()
    json.loads(text, parse_constant=refuse)
    again = tr.from_json(text)
    want = as_stored(trace)
    for name in ("prompt", "first_token", "rounds", "tokens"):
        assert getattr(again, name) == getattr(want, name), name
    assert again.run_id == trace.run_id == tr.content_id(trace)
    assert tr.to_json(again) == text  # rounding twice changes nothing


def test_every_field_is_stored() -> None:
    data = as_dict(tr.finish(make_trace(2, 8, pops_for=[1])))
    assert list(data)[:3] == ["schema", "version", "run_id"]
    assert set(data) == {"schema", "version"} | set(vars(tr.Trace({}, {})))
    this = data["rounds"][0]
    assert set(this) == set(tr.Round.__dataclass_fields__)
    assert set(this["nodes"]) == set(tr.Nodes.__dataclass_fields__)
    assert set(this["visits"][0]) == {"node", "chosen", "top"}
    assert set(this["pops"][0]) == set(tr.Pop.__dataclass_fields__)
    assert set(this["counterfactual"]["static"]) == {"accepted", "censored"}


def test_U17_minus_infinity_and_missing_are_different_and_strict() -> None:
    trace = make_trace(1, 8)
    nodes = trace.rounds[0].nodes
    nodes.conditional[0], nodes.conditional[1] = -math.inf, None
    column = as_dict(trace)["rounds"][0]["nodes"]["conditional"]
    assert column[0] == "-inf" and column[1] is None
    again = tr.from_json(tr.to_json(trace)).rounds[0].nodes.conditional
    assert again[0] == -math.inf and again[1] is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_U17_nan_is_refused_by_name(bad: float) -> None:
    trace = make_trace(2, 8)
    trace.rounds[1].nodes.delta[3] = bad
    with pytest.raises(tr.TraceError, match=r"round 2: nodes\.delta holds NaN or \+inf"):
        tr.to_json(trace)
    with pytest.raises(tr.TraceError, match="cannot hold"):
        tr.to_json(trace.rounds[1])


def test_floats_keep_six_digits_and_whole_numbers_no_fraction() -> None:
    assert tr.to_json([1.23456789, -0.000123456789, 2.0, -0.0, None, 1e-300, -math.inf]) == (
        '[1.23457,-0.000123457,2,0,null,1e-300,"-inf"]'
    )
    assert tr.to_json({"x": 12345678.9, "y": (1, 0.5)}) == '{"x":12345700,"y":[1,0.5]}'


def test_parts_of_a_trace_are_json_too() -> None:
    this = make_trace(1, 4).rounds[0]
    assert json.loads(tr.to_json(this))["anchor"] == this.anchor
    assert json.loads(tr.to_json({"round": this, "n": 1}))["round"]["kept"] == this.kept
    with pytest.raises(tr.TraceError, match="cannot hold a set"):
        tr.to_json({"x": {1}})


def test_run_id_is_a_hash_of_the_content() -> None:
    one, same, other = make_trace(3, 8, 1), make_trace(3, 8, 1), make_trace(3, 8, 2)
    assert tr.content_id(one) == tr.content_id(same) != tr.content_id(other)
    same.header["machine"] = "another"
    assert tr.content_id(one) != tr.content_id(same)
    assert tr.finish(one).run_id == tr.content_id(one)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=20))
def test_run_id_never_looks_like_a_number(salt: bytes) -> None:
    assert re.fullmatch("[a-f][0-9a-f]{15}", jsonform._hash(salt.hex()))


def test_run_id_survives_another_program_rewriting_the_json() -> None:
    """A browser drops fractions and spaces differently, and adds fields; a person may re-indent the file."""
    trace = tr.finish(make_trace(3, 8, temperature=1.0))
    data = as_dict(trace)
    data["layout"] = [[1.5]]
    data["run_id"] = "0" * 16  # whatever a file claims
    again = tr.from_json(json.dumps(data, indent=1))
    assert again.run_id == trace.run_id
    data["header"]["title"] = "edited"
    assert tr.from_json(json.dumps(data)).run_id not in (trace.run_id, "0" * 16)


# ----------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_save_and_load(tmp_path: Path, name: str) -> None:
    trace = spoil(make_trace(5, 16, pops_for=[2]), 1)
    tr.save(trace, tmp_path / name)
    again = tr.load(tmp_path / name)
    assert again.run_id == trace.run_id and again.rounds == as_stored(trace).rounds
    assert (tmp_path / name).read_bytes()[:2] == (b"\x1f\x8b" if name.endswith("gz") else b'{"')
    first = (tmp_path / name).read_bytes()
    tr.save(again, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first  # no clock in the gzip header
    assert os.listdir(tmp_path) == [name]


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    trace = make_trace(1, 4)
    tr.save(trace, tmp_path / "a.gz")
    (tmp_path / "a.gz").rename(tmp_path / "a.json")
    assert tr.load(tmp_path / "a.json").rounds == as_stored(trace).rounds
    assert tr.from_json(b"\xef\xbb\xbf" + tr.to_json(trace).encode()).run_id == trace.run_id


class FullDisk:
    """Stands in for Path.open: takes some bytes, then says that the disk is full."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.real.close()

    def write(self, data: bytes) -> int:
        self.real.write(data[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_is_one_sentence_and_the_old_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json.gz"
    tr.save(make_trace(1, 4, 1), path)
    before = path.read_bytes()
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: FullDisk(opened(self, *a, **k)))
    with pytest.raises(
        tr.TraceError, match=r"run\.json\.gz cannot be written: the disk is full; free some space"
    ):
        tr.save(make_trace(2, 4, 2), path)
    monkeypatch.undo()
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.json.gz"]


def test_unwritable_and_unreadable_places(tmp_path: Path) -> None:
    with pytest.raises(
        tr.TraceError, match="cannot be written: no such file or directory; choose another place"
    ):
        tr.save(make_trace(1, 4), tmp_path / "no" / "run.json")
    with pytest.raises(tr.TraceError, match=r"none\.json cannot be read: no such file or directory"):
        tr.load(tmp_path / "none.json")
    with pytest.raises(tr.TraceError, match="cannot be read"):
        tr.load(tmp_path)


def test_inconsistent_trace_is_not_written(tmp_path: Path) -> None:
    trace = make_trace(2, 8)
    trace.rounds[1].bonus += 1
    with pytest.raises(tr.TraceError, match="this trace is inconsistent: round 2: committed is not"):
        tr.save(trace, tmp_path / "run.json")
    assert os.listdir(tmp_path) == []


# ------------------------------------------------------------------------------------------------- bad input


def bomb() -> bytes:
    return gzip.compress(b'{"schema":"dominotree.trace","x":"' + b" " * (tr.MAX_BYTES + 10) + b'"}', 1)


GOOD = make_trace(3, 12, 3, pops_for=[1, 2, 3])
FILE = gzip.compress(tr.to_json(GOOD).encode(), mtime=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"  \n", "it is empty"),
        (b"not json", "it is not strict JSON"),
        (b'{"schema":', "it is not strict JSON"),
        (b'{"schema": NaN}', "it is not strict JSON"),
        (b"[" * 100_000, "it is not strict JSON"),
        (b"1" * 10_000, "it is not strict JSON"),
        (b"\xff\xfe\x00\x01", "neither gzip nor UTF-8"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "neither gzip nor UTF-8"),
        (FILE[:-1], "gzip data is damaged or incomplete"),
        (FILE[: len(FILE) // 2], "gzip data is damaged or incomplete"),
        (FILE[:2], "gzip data is damaged or incomplete"),
        (FILE[:500] + bytes([FILE[500] ^ 255]) + FILE[501:], "gzip data is damaged or incomplete"),
        (FILE[:-6] + bytes([FILE[-6] ^ 1]) + FILE[-5:], "gzip data is damaged or incomplete"),
        (FILE + b"more", "gzip data is damaged or incomplete"),
        (bomb(), "it is larger than 64 MB"),
        (b" " * (tr.MAX_BYTES + 1), "it is larger than 64 MB"),
        (b"[1, 2]", "it is not a trace"),
        (b"null", "it is not a trace"),
        (b'{"nodes": [], "schema": "other"}', "it is not a trace"),
    ],
    ids=lambda x: str(x)[:40],
)
def test_damaged_and_foreign_files(data: bytes, message: str) -> None:
    with pytest.raises(tr.TraceError) as caught:
        tr.from_json(data, name="up.json")
    said = str(caught.value)
    assert said.startswith("up.json cannot be read: ") and message in said
    assert said.endswith(".") and said.count("\n") == 0 and "; " in said


def test_a_bomb_is_refused_without_being_unpacked() -> None:
    data = bomb()
    assert len(data) < tr.MAX_BYTES / 100
    started = time.process_time()
    with pytest.raises(tr.TraceError, match="larger than 1 MB"):
        tr.from_json(data, limit=2**20)
    assert time.process_time() - started < 0.2


def test_newer_and_unknown_versions() -> None:
    data = as_dict(GOOD)
    with pytest.raises(tr.TraceError, match="version 99, newer than the 1 that this program reads; update"):
        tr.from_json(json.dumps(data | {"version": 99}))
    for version in (0, None, "1", 1.5, True):
        with pytest.raises(tr.TraceError, match=r"its version .* is unknown"):
            tr.from_json(json.dumps(data | {"version": version}))


def test_older_versions_are_migrated_and_keep_their_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2 is imagined to have renamed a summary field; files of version 1 must go on working."""
    old = tr.to_json(GOOD)

    def to_2(data: dict) -> dict:
        data["summary"]["why"] = data["summary"].pop("stop_reason")
        return data

    def to_3(data: dict) -> dict:
        data["summary"]["stop_reason"] = data["summary"].pop("why").upper()
        return data

    monkeypatch.setattr(jsonform, "VERSION", 3)
    monkeypatch.setattr(jsonform, "MIGRATIONS", {1: to_2, 2: to_3})
    again = tr.from_json(old)
    assert again.summary["stop_reason"] == "MAX-NEW-TOKENS"
    assert again.run_id == GOOD.run_id  # links to it still work
    assert '"version":3' in tr.to_json(again)


Edit = Callable[[dict[str, Any]], Any]
BAD_EDITS: list[tuple[str, Edit]] = [
    ("header is missing", lambda d: d.pop("header")),
    ("prompt is missing", lambda d: d.pop("prompt")),
    ("rounds is missing", lambda d: d.pop("rounds")),
    ("tokens is missing", lambda d: d.pop("tokens")),
    ("summary is missing", lambda d: d.pop("summary")),
    ("rounds is a dict, not a list", lambda d: d.update(rounds={})),
    ("header.settings.method is missing", lambda d: d["header"].pop("settings")),
    ("header.settings.temperature is 'hot'", lambda d: d["header"]["settings"].update(temperature="hot")),
    ("header.settings.budget is a list", lambda d: d["header"]["settings"].update(budget=[1])),
    ("prompt.token_ids is not a list of token ids", lambda d: d["prompt"].update(token_ids=[1, "2"])),
    ("round 2: anchor is missing", lambda d: d["rounds"][1].pop("anchor")),
    ("round 2: kept holds a str, not int", lambda d: d["rounds"][1].update(kept="1")),
    ("round 2: kept holds a bool, not int", lambda d: d["rounds"][1].update(kept=True)),
    ("round 2: nodes.delta is missing", lambda d: d["rounds"][1]["nodes"].pop("delta")),
    ("round 2: nodes is not an object", lambda d: d["rounds"][1].update(nodes=[])),
    ("round 2: nodes.delta has", lambda d: d["rounds"][1]["nodes"]["delta"].pop()),
    ("round 2: nodes.delta holds a str", lambda d: d["rounds"][1]["nodes"]["delta"].__setitem__(0, "inf")),
    ("round 2: nodes.token is not a list", lambda d: d["rounds"][1]["nodes"].update(token=None)),
    ("round 2: nodes.token is not a list", lambda d: d["rounds"][1]["nodes"].update(token="12")),
    ("which does not come before it", lambda d: d["rounds"][1]["nodes"]["parent"].__setitem__(0, 0)),
    ("which does not come before it", lambda d: d["rounds"][1]["nodes"]["parent"].__setitem__(3, 7)),
    ("which does not come before it", lambda d: d["rounds"][1]["nodes"]["parent"].__setitem__(3, -2)),
    ("which is not its parent's plus one", lambda d: d["rounds"][1]["nodes"]["depth"].__setitem__(0, 2)),
    ("node 0 is in trees 0", lambda d: d["rounds"][1]["nodes"]["trees"].__setitem__(0, 0)),
    ("node 0 is in trees 16", lambda d: d["rounds"][1]["nodes"]["trees"].__setitem__(0, 16)),
    (
        "only the verified tree's nodes have one",
        lambda d: d["rounds"][1]["nodes"]["order"].__setitem__(0, None),
    ),
    ("pop orders are not 0", lambda d: d["rounds"][1].update(verified_nodes=11)),
    ("the verified tree's depth", lambda d: d["rounds"][1].update(depth_reached=1)),
    ("which is not in tokens", lambda d: d["tokens"].pop(str(d["rounds"][0]["nodes"]["token"][0]))),
    ("which is not in tokens", lambda d: d["tokens"].pop(str(d["first_token"]))),
    ("which is no token id", lambda d: d["tokens"].update({"1.5": "00"})),
    ("not lower-case hex digits", lambda d: d["tokens"].update({"1": "0"})),
    ("not lower-case hex digits", lambda d: d["tokens"].update({"1": "0 0"})),
    ("not lower-case hex digits", lambda d: d["tokens"].update({"1": 5})),
    ("committed is not the", lambda d: d["rounds"][1]["committed"].append(d["first_token"])),
    ("committed is not the", lambda d: d["rounds"][1].update(committed=[])),
    ("kept is 99", lambda d: d["rounds"][1].update(kept=99)),
    ("but it is not the last one", lambda d: d["rounds"][0].update(kept=0)),
    ("has the index 7", lambda d: d["rounds"][1].update(index=7)),
    ("does not start where the text before it ends", lambda d: d["rounds"][1].update(position=0)),
    ("does not start where the text before it ends", lambda d: d.update(first_token=None)),
    ("times_ms.verify is -1", lambda d: d["rounds"][1]["times_ms"].update(verify=-1)),
    (
        "unknown scorer 'x'",
        lambda d: d["rounds"][1]["counterfactual"].update(x={"accepted": 1, "censored": False}),
    ),
    ("visits are not the anchor and the accepted path", lambda d: d["rounds"][1]["visits"].pop()),
    ("visits[0].top is not a list of [id", lambda d: d["rounds"][1]["visits"][0].update(top=[[1, 2, 3]])),
    ("visits[0].top is not a list of (id", lambda d: d["rounds"][1]["visits"][0].update(top=[["1", -1.0]])),
    ("pops[0].node is 999", lambda d: d["rounds"][1]["pops"][0].update(node=999)),
    ("pops[0] has columns of different lengths", lambda d: d["rounds"][1]["pops"][0]["score"].pop()),
    ("summary.token_ids is not what the rounds add up to", lambda d: d["summary"]["token_ids"].pop()),
    ("summary.committed is missing", lambda d: d["summary"].pop("committed")),
    ("summary.tau is 1", lambda d: d["summary"].update(tau=1)),
    ("header.title holds half a character", lambda d: d["header"].update(title="\ud83d")),
    ("holds a number out of range", lambda d: d["rounds"][1]["nodes"]["delta"].__setitem__(0, 10**400)),
]


@pytest.mark.parametrize(
    ("message", "edit"), BAD_EDITS, ids=[f"{k}: {m}" for k, (m, _) in enumerate(BAD_EDITS)]
)
def test_reading_names_what_is_wrong(message: str, edit: Edit) -> None:
    data = as_dict(GOOD)
    edit(data)
    with pytest.raises(tr.TraceError) as caught:
        tr.from_json(json.dumps(data), name="run.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("run.json cannot be read: ")
    assert str(caught.value).endswith("; use an undamaged copy or record the run again.")


def test_accepted_path_must_be_a_path_of_the_verified_tree() -> None:
    seed = next(s for s in range(50) if make_trace(2, 12, s).rounds[0].accepted >= 2)
    data = as_dict(make_trace(2, 12, seed))
    data["rounds"][0]["path"][1] = data["rounds"][0]["path"][0]
    with pytest.raises(tr.TraceError, match="the accepted path leaves the verified tree at step 2"):
        tr.from_json(json.dumps(data))
    data = as_dict(make_trace(2, 12, seed))
    data["rounds"][0]["nodes"]["token"][data["rounds"][0]["path"][0]] = data["first_token"]
    with pytest.raises(tr.TraceError, match="committed token 1 is not that of node"):
        tr.from_json(json.dumps(data))


def test_a_walk_that_stopped_early_is_refused() -> None:
    seed = next(s for s in range(50) if make_trace(2, 12, s).rounds[0].accepted >= 1)
    trace = make_trace(2, 12, seed, finished=False)
    this = trace.rounds[0]
    this.nodes.accepted[this.path.pop()] = False
    this.committed.pop()
    this.bonus, this.kept = this.committed[-1], len(this.committed)
    del trace.rounds[1:]
    this.visits = []
    with pytest.raises(tr.TraceError, match="was drafted where the accepted path ends"):
        tr.check(trace)


def test_siblings_differ_and_parents_are_popped_first() -> None:
    trace = make_trace(1, 12, 1)
    nodes = trace.rounds[0].nodes
    twins = [k for k, parent in enumerate(nodes.parent) if parent == -1][:2]
    changed = copy.deepcopy(trace)
    changed.rounds[0].nodes.token[twins[1]] = nodes.token[twins[0]]
    with pytest.raises(tr.TraceError, match="repeats token"):
        tr.check(changed)
    child = next(k for k, parent in enumerate(nodes.parent) if parent != -1)
    parent = nodes.parent[child]
    nodes.order[child], nodes.order[parent] = nodes.order[parent], nodes.order[child]
    with pytest.raises(tr.TraceError, match="was popped before its parent"):
        tr.check(trace)


def test_rounds_without_nodes_need_a_header_that_says_so() -> None:
    trace = make_trace(3, 8, 3)
    for this in trace.rounds:
        this.nodes, this.visits = tr.Nodes(), []
    with pytest.raises(tr.TraceError, match="inconsistent"):
        tr.to_json(trace)
    trace.header["record"] = "rounds"
    assert tr.from_json(tr.to_json(trace)).counts == trace.counts


def test_unknown_fields_are_ignored() -> None:
    data = as_dict(GOOD)
    data["later"] = data["rounds"][0]["later"] = data["rounds"][0]["nodes"]["later"] = [1]
    assert tr.from_json(json.dumps(data)).run_id == GOOD.run_id


JUNK = st.sampled_from(
    [None, True, 0, -1, 3, 10**30, 1.5, -1e308, "", "x", "-inf", [], [0], {}, {"a": 1}, [None]]
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_single_change_is_read_or_refused_never_a_crash(data: st.DataObject) -> None:
    """Put junk somewhere in a good file: either a TraceError, or a trace that can be written and exported."""
    changed: Any = as_dict(GOOD)
    at = changed
    for _ in range(data.draw(st.integers(0, 5))):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        inner = [k for k in keys if isinstance(at[k], dict | list) and at[k]]
        if not inner:
            break
        at = at[data.draw(st.sampled_from(inner))]
    keys = list(at) if isinstance(at, dict) else list(range(len(at)))
    at[data.draw(st.sampled_from(keys))] = data.draw(JUNK)
    try:
        trace = tr.from_json(json.dumps(changed))
    except tr.TraceError as error:
        assert str(error).startswith("this trace cannot be read: ")
        return
    tr.to_json(tr.finish(trace))
    assert tr.rounds_csv(trace).count("\n") >= 1 and tr.nodes_csv(trace).count("\n") >= 1
    assert trace.counts.rounds == len(trace.rounds)


# -------------------------------------------------------------------------------------------- factory, speed


@few
@given(traces(odd=True))
def test_made_up_traces_are_consistent(trace: tr.Trace) -> None:
    tr.check(trace)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_all_methods_write_the_same_text(method: str) -> None:
    text = make_trace(12, 16, 7, "ar").summary["token_ids"]
    other = make_trace(12, 16, 7, method).summary["token_ids"]
    assert len(other) >= len(text) and other[: len(text)] == text


def test_ranked_scores_agree_with_the_pop_order() -> None:
    trace = make_trace(6, 32, 2)
    for this in trace.rounds:
        scores = [
            (o, c) for o, c in zip(this.nodes.order, this.nodes.cum_conditional, strict=True) if o is not None
        ]
        falling = [c for _, c in sorted(scores)]
        assert all(a is not None and b is not None and a >= b - 1e-9 for a, b in pairwise(falling))


def test_reading_a_long_run_is_fast(tmp_path: Path) -> None:
    trace = make_trace(200, 86, 1)  # unions of about 170 nodes
    count = sum(len(this.nodes) for this in trace.rounds)
    assert count > 30_000
    tr.save(trace, tmp_path / "run.json.gz")
    best = math.inf
    for _ in range(3):
        started = time.process_time()  # of this process alone, whatever else the machine does
        tr.load(tmp_path / "run.json.gz")
        best = min(best, time.process_time() - started)
    assert best / count * 51_200 < 1.0  # seconds for 200 x 256 nodes; 0.3 on an idle core


def test_the_trace_needs_no_torch() -> None:
    code = "import sys, dominotree.trace; print(sorted({'torch', 'pandas', 'numpy'} & set(sys.modules)))"
    root = Path(tr.__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert run.stdout.strip() == "[]"
