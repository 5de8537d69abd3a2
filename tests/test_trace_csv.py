"""rounds.csv and nodes.csv: what pandas, with its default settings, reads back."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_factory import METHODS, ODD_TOKENS, make_trace, traces

from dominotree import trace as tr

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(text: str) -> pd.DataFrame:
    """As a person would: the file's bytes, no options."""
    return pd.read_csv(io.BytesIO(text.encode()))


def read_floats(text: str) -> pd.DataFrame:
    """pandas before 3 needs an option to read floats to the last bit."""
    old = int(pd.__version__.split(".")[0]) < 3
    return pd.read_csv(io.BytesIO(text.encode()), float_precision="round_trip") if old else read(text)


def one_token_trace(tokens: list[bytes]) -> tr.Trace:
    """One round whose verified tree holds these tokens as children of the anchor; none accepted."""
    count = len(tokens)
    blank: list[Any] = [None] * count
    nodes = tr.Nodes(list(range(1, count + 1)), [-1] * count, [1] * count, list(range(count)))
    for name in vars(nodes):
        if not getattr(nodes, name):
            setattr(nodes, name, list(blank))
    nodes.logz_m = nodes.logz_v = [0.0] * count
    nodes.trees, nodes.accepted = [tr.TREE_BITS["verified"]] * count, [False] * count
    names = {0: b"anchor".hex(), **{k: data.hex() for k, data in enumerate(tokens, 1)}}
    trace = tr.Trace(
        header={"settings": {"method": "dominotree"}},
        prompt={"text": "", "token_ids": []},
        first_token=0,
        tokens=names,
    )
    depth = 1 if count else 0
    trace.rounds = [tr.Round(1, 0, 3, nodes, [], 0, [0], 1, depth, count, {})]
    tr.check(trace)
    return trace


def tokens_of(frame: pd.DataFrame) -> list[tuple[bytes, bytes]]:
    return [
        (json.loads(escaped).encode("utf-8", "surrogateescape"), bytes.fromhex(hexed[1:]))
        for escaped, hexed in zip(frame.token_escaped, frame.token_hex, strict=True)
    ]


# -------------------------------------------------------------------------------------- every token, exactly

NAMED = [
    *(b"\r", b"\n", b"\r\n", b",", b'"', b"\t", b"\x00"),  # U11
    *(b"NA", b"null", b"None", b"nan", b""),  # U12
    *(
        b"=1+1",
        b"+",
        b"-",
        b"@",
        b"\xf0\x9f",
        b"\x98",
        b"1e5",
        b"31",
        b"0",
        b"\x31\xe5",
        b"True",
        b"\xef\xbb\xbf",
    ),
]


@pytest.mark.parametrize("data", NAMED, ids=repr)
def test_U11_U12_a_column_of_one_token(data: bytes) -> None:
    """Alone in its column a token is most in danger: pandas then guesses a type for the whole column."""
    frame = read(tr.nodes_csv(one_token_trace([data])))
    assert tokens_of(frame) == [(data, data)]


def test_U11_U12_all_odd_tokens_in_one_table() -> None:
    frame = read(tr.nodes_csv(one_token_trace(list(ODD_TOKENS))))
    assert tokens_of(frame) == [(data, data) for data in ODD_TOKENS]
    assert list(frame.token_id) == list(range(1, len(ODD_TOKENS) + 1))


token = st.binary(max_size=8) | st.text(max_size=6).map(str.encode) | st.sampled_from(ODD_TOKENS)
numeric = st.from_regex(r"\A-?[0-9]{0,6}\.?[0-9eE+]{0,5}\Z", fullmatch=True).map(str.encode)
digits_in_hex = st.lists(st.integers(0, 9).map(lambda k: 0x30 + k) | st.just(0x1E), max_size=4).map(bytes)


@settings(max_examples=300, deadline=None)
@given(st.lists(token | numeric | digits_in_hex, max_size=8))
def test_U11_U12_any_tokens_survive_a_default_read_csv(tokens: list[bytes]) -> None:
    text = tr.nodes_csv(one_token_trace(tokens))
    frame = read(text)
    assert tokens_of(frame) == [(data, data) for data in tokens]
    assert list(frame.columns) == list(tr.NODE_COLUMNS)
    # One line per row whatever the tokens hold, so that grep, wc and line-based readers work too.
    assert text.count("\n") == len(tokens) + 1 and "\r" not in text and "\x00" not in text


@settings(max_examples=200, deadline=None)
@given(st.lists(token, min_size=1, max_size=8))
def test_U11_U12_the_standard_csv_reader_gives_them_back_too(tokens: list[bytes]) -> None:
    rows = list(csv.DictReader(io.StringIO(tr.nodes_csv(one_token_trace(tokens)), newline="")))
    assert [tr.token_unescaped(row["token_escaped"]) for row in rows] == tokens
    assert [bytes.fromhex(row["token_hex"][1:]) for row in rows] == tokens
    for data, row in zip(tokens, rows, strict=True):
        assert row["token_text"].removeprefix("'") == tr.token_text(data).removeprefix("'")


def test_U12_text_columns_are_not_taken_for_missing_values_or_formulas() -> None:
    words = [
        b"NA",
        b"null",
        b"None",
        b"nan",
        b"<NA>",
        b"=1+1",
        b"+1",
        b"-ing",
        b"@SUM(A1)",
        b"the",
        b"=",
        b"-",
    ]
    frame = read(tr.nodes_csv(one_token_trace(words)))
    assert list(frame.token_text) == [
        *("'NA", "'null", "'None", "'nan", "'<NA>", "'=1+1", "'+1", "'-ing", "'@SUM(A1)", "the", "=", "-"),
    ]


def test_the_readers_list_of_missing_words_is_the_one_we_guard() -> None:
    from pandas._libs.parsers import STR_NA_VALUES

    from dominotree.trace.tables import _TAKEN_FOR_MISSING

    assert set(STR_NA_VALUES) - {""} <= _TAKEN_FOR_MISSING


# ---------------------------------------------------------------------------------------------------- layout

APP_ROUND_COLUMNS = [
    *("run_id", "method", "drafter", "round", "start_position", "nodes", "depth_reached", "accepted_drafts"),
    *("committed_tokens", "tau_so_far", "draft_ms", "build_ms", "verify_ms", "commit_ms", "budget", "scorer"),
    *("builder", "temperature", "seed", "text_committed"),
    *("counterfactual_marginal", "counterfactual_static", "counterfactual_conditional"),
]
APP_NODE_COLUMNS = [
    *("run_id", "round", "node", "parent", "depth", "token_id", "token_text", "token_escaped", "token_hex"),
    *("expansion_order", "base_logit", "delta_logit", "marginal_logprob", "static_logprob"),
    *("conditional_logprob", "logz_m", "logz_v", "cum_marginal", "cum_static", "cum_conditional"),
    *("target_logprob", "target_rank", "in_marginal", "in_static", "in_conditional", "in_verified_tree"),
    "accepted",
]


def test_columns_are_those_of_the_design_in_its_order_then_our_own() -> None:
    own = [
        "kept_tokens",
        "text_committed_escaped",
        "censored_marginal",
        "censored_static",
        "censored_conditional",
    ]
    assert list(tr.ROUND_COLUMNS) == APP_ROUND_COLUMNS + own
    assert list(tr.NODE_COLUMNS) == APP_NODE_COLUMNS


def test_every_column_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "trace.md").read_text(encoding="utf-8")
    for name in (*tr.ROUND_COLUMNS, *tr.NODE_COLUMNS):
        assert f"`{name}`" in page, name
    for cls in (tr.Trace, tr.Round, tr.Nodes, tr.Visit, tr.Pop, tr.Counterfactual):
        for name in cls.__dataclass_fields__:
            assert f"`{name}`" in page, (cls, name)


@few
@given(traces(odd=True))
def test_every_field_is_quoted_and_lines_end_in_newline(trace: tr.Trace) -> None:
    for text, columns in ((tr.rounds_csv(trace), tr.ROUND_COLUMNS), (tr.nodes_csv(trace), tr.NODE_COLUMNS)):
        assert text.endswith('"\n') and "\r" not in text
        quoted = r'"(?:[^"]|"")*"'
        row = re.compile(",".join([quoted] * len(columns)))
        assert all(row.fullmatch(line) for line in text.removesuffix("\n").split("\n"))


def test_U16_no_byte_order_mark_and_the_first_header_is_exact(tmp_path: Path) -> None:
    rounds, nodes = tr.write_csv(make_trace(3, 8), tmp_path / "new" / "folder")
    assert (rounds.name, nodes.name) == ("rounds.csv", "nodes.csv")
    for path, columns in ((rounds, tr.ROUND_COLUMNS), (nodes, tr.NODE_COLUMNS)):
        assert path.read_bytes().startswith(b'"run_id","')
        assert list(pd.read_csv(path).columns) == list(columns)
        path.read_bytes().decode("utf-8")


# ---------------------------------------------------------------------------------------------------- values


def same(column: pd.Series, wanted: list[Any]) -> bool:
    """Equal bit for bit; None is read as missing."""
    got = column.to_numpy(dtype=float)
    want = np.array([math.nan if x is None else x for x in wanted], dtype=float)
    return got.tobytes() == want.tobytes() or (
        bool(np.array_equal(np.isnan(got), np.isnan(want)))
        and got[~np.isnan(got)].tobytes() == want[~np.isnan(want)].tobytes()
    )


@few
@given(traces(odd=True))
def test_U17_nodes_round_trip(trace: tr.Trace) -> None:
    """Floats to the last bit, -inf as itself, missing as missing, whole numbers and flags as such."""
    tr.finish(trace)
    frame = read_floats(tr.nodes_csv(trace))
    assert len(frame) == sum(len(this.nodes) for this in trace.rounds)
    if not len(frame):
        return
    assert set(frame.run_id) == {trace.run_id}
    columns = {
        **{"parent": "parent", "depth": "depth", "token_id": "token", "expansion_order": "order"},
        **{"base_logit": "base_logit", "delta_logit": "delta", "marginal_logprob": "marginal"},
        **{"static_logprob": "static", "conditional_logprob": "conditional", "logz_m": "logz_m"},
        **{"logz_v": "logz_v", "cum_marginal": "cum_marginal", "cum_static": "cum_static"},
        **{
            "cum_conditional": "cum_conditional",
            "target_logprob": "target_logprob",
            "target_rank": "target_rank",
        },
    }
    for name, held in columns.items():
        assert same(frame[name], [x for this in trace.rounds for x in getattr(this.nodes, held)]), name
    for name, bit in tr.TREE_BITS.items():
        column = frame["in_verified_tree" if name == "verified" else f"in_{name}"]
        assert column.dtype == bool
        assert list(column) == [bool(m & bit) for this in trace.rounds for m in this.nodes.trees]
    assert list(frame.accepted) == [x for this in trace.rounds for x in this.nodes.accepted]
    assert list(frame.node) == [k for this in trace.rounds for k in range(len(this.nodes))]
    assert tokens_of(frame) == [
        (b, b) for this in trace.rounds for b in map(trace.token_bytes, this.nodes.token)
    ]


@few
@given(traces(odd=True))
def test_U23_rounds_round_trip(trace: tr.Trace) -> None:
    tr.finish(trace)
    frame = read_floats(tr.rounds_csv(trace))
    assert len(frame) == len(trace.rounds)
    if not len(frame):
        return
    assert set(frame.run_id) == {trace.run_id} and set(frame.method) == {trace.header["settings"]["method"]}
    assert list(frame.accepted_drafts) == [this.accepted for this in trace.rounds]
    assert list(frame.committed_tokens) == list(frame.accepted_drafts + 1)
    assert same(frame.tau_so_far, list((frame.committed_tokens.cumsum() / frame["round"]).to_numpy()))
    assert list(frame.start_position) == [this.position for this in trace.rounds]
    for stage in tr.STAGES:
        assert same(frame[f"{stage}_ms"], [this.times_ms.get(stage) for this in trace.rounds])
    for scorer in tr.SCORERS:
        found = [this.counterfactual.get(scorer) for this in trace.rounds]
        assert same(frame[f"counterfactual_{scorer}"], [c and c.accepted for c in found])
    # The whole output, byte for byte, from the table alone; and its length.
    written = b"".join(tr.token_unescaped(cell) for cell in frame.text_committed_escaped)
    output = [t for this in trace.rounds for t in this.committed[: this.kept]]
    assert written == b"".join(map(trace.token_bytes, output))
    assert 1 + frame.kept_tokens.sum() == trace.counts.output
    if trace.ended:
        assert frame.tau_so_far.iloc[-1] == pytest.approx(trace.summary["tau"])


def test_U23_the_three_rounds_of_the_fault_log() -> None:
    trace = make_trace(3, 16, 327)
    assert [this.accepted for this in trace.rounds] == [3, 0, 2]
    frame = read(tr.rounds_csv(trace))
    assert frame.accepted_drafts.mean() == pytest.approx(1.67, abs=0.01)
    assert frame.committed_tokens.mean() == pytest.approx(2.67, abs=0.01)
    assert 1 + frame.committed_tokens.sum() == len(trace.summary["token_ids"]) == 9


def test_U17_minus_infinity_and_missing_as_written() -> None:
    trace = make_trace(1, 8)
    nodes = trace.rounds[0].nodes
    nodes.delta[0], nodes.delta[1] = -math.inf, None
    cells = [row["delta_logit"] for row in csv.DictReader(io.StringIO(tr.nodes_csv(trace)))]
    assert cells[:2] == ["-inf", ""]
    column = read(tr.nodes_csv(trace)).delta_logit
    assert column[0] == -math.inf and math.isnan(column[1]) and column.dtype == float


def test_U28_target_scores_are_the_targets_own() -> None:
    """At temperature 1 and without a cut-off, whatever temperature the run sampled at (rounds.csv has it)."""
    trace = make_trace(2, 8, temperature=0.5)
    frame, rounds = read_floats(tr.nodes_csv(trace)), read(tr.rounds_csv(trace))
    assert same(frame.target_logprob, [x for this in trace.rounds for x in this.nodes.target_logprob])
    assert set(rounds.temperature) == {0.5}
    page = (Path(__file__).parents[1] / "docs" / "trace.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| `target_logprob` |"))
    assert "temperature 1" in row


def test_U21_the_tables_belong_to_the_run_they_are_made_from() -> None:
    one, two = tr.finish(make_trace(3, 8, 1)), tr.finish(make_trace(5, 8, 2))
    for trace in (one, two, one):
        frame = read(tr.rounds_csv(trace))
        assert set(frame.run_id) == {trace.run_id} and len(frame) == len(trace.rounds)
        assert set(read(tr.nodes_csv(trace)).run_id) == {trace.run_id}
    unfinished = make_trace(2, 8, 3, finished=False)
    assert set(read(tr.rounds_csv(unfinished)).run_id) == {tr.content_id(unfinished)}


def test_E27_tokens_cut_off_are_in_no_text() -> None:
    seed = next(s for s in range(100) if make_trace(4, 16, s, stop=1).rounds[-1].accepted == 2)
    trace = make_trace(4, 16, seed, stop=1)
    last = read(tr.rounds_csv(trace)).iloc[-1]
    assert (last.committed_tokens, last.kept_tokens) == (3, 2)
    assert json.loads(last.text_committed_escaped).endswith("<|im_end|>")
    assert last.text_committed.endswith("<|im_end|>")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_who_drafted(method: str) -> None:
    trace = make_trace(2, 8, method=method)
    row = read(tr.rounds_csv(trace)).iloc[0]
    scorer, builder, label, _ = METHODS[method]
    assert row.drafter == (label or "made-up-drafter")
    assert (
        (row.scorer, row.builder) == (scorer, builder)
        if scorer
        else (pd.isna(row.scorer) and pd.isna(row.builder))
    )
    assert row.seed == 0 and row.temperature == 0


def test_live_and_loaded_runs_give_the_same_tables(tmp_path: Path) -> None:
    """Once stored, a run's tables never change again."""
    tr.save(tr.finish(make_trace(4, 16, 9)), tmp_path / "run.json.gz")
    rounds, nodes = tr.export_csv(tmp_path / "run.json.gz", tmp_path / "csv")
    first = rounds.read_bytes(), nodes.read_bytes()
    tr.save(tr.load(tmp_path / "run.json.gz"), tmp_path / "again.json")
    rounds, nodes = tr.export_csv(tmp_path / "again.json", tmp_path / "csv")
    assert first == (rounds.read_bytes(), nodes.read_bytes())


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(tr.TraceError, match=r"cannot be made: .*; choose another folder"):
        tr.write_csv(make_trace(1, 4), tmp_path / "file" / "csv")
    with pytest.raises(tr.TraceError, match="cannot be read"):
        tr.export_csv(tmp_path / "file", tmp_path / "csv")
    assert not (tmp_path / "csv").exists()


def test_large_table_has_one_type_per_column(tmp_path: Path) -> None:
    """pandas reads long files in pieces and may guess another type for each."""
    _, path = tr.write_csv(make_trace(100, 64, 1), tmp_path)
    frame = pd.read_csv(path)
    assert len(frame) > 10_000
    for name in ("run_id", "token_escaped", "token_hex"):
        assert frame[name].map(type).eq(str).all(), name
    assert frame.token_text[frame.token_hex != "x"].map(type).eq(str).all()  # "x": the token without bytes


def test_the_recipe_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tr.finish(make_trace(12, 16, 3, cut=1))
    tr.write_csv(trace, tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "trace.md").read_text(encoding="utf-8")
    recipe = page.split("### With pandas")[1].split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(recipe, names)
    kept = [t for this in trace.rounds for t in this.committed[: this.kept]]
    assert names["text"] == trace.text(kept)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"tau {trace.counts.tau}  drafts accepted per round {trace.counts.mean_accepted}"
    assert said[1] == f"accepted of depth {trace.counts.accepted_of_depth}"
    assert said[2] == f"accepted of nodes {trace.counts.accepted_of_nodes}"
    assert said[3] == "True"
