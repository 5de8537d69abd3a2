"""The two CSV tables of a trace: rounds and nodes. Columns are explained in docs/trace.md."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dominotree.trace.files import load, reason, write
from dominotree.trace.jsonform import content_id
from dominotree.trace.schema import SCORERS, STAGES, TREE_BITS, Trace, TraceError
from dominotree.trace.tokens import token_escaped, token_hex, token_text

_ROUND = """
run_id method drafter round start_position nodes depth_reached accepted_drafts committed_tokens tau_so_far
draft_ms build_ms verify_ms commit_ms budget scorer builder temperature seed text_committed
counterfactual_marginal counterfactual_static counterfactual_conditional
kept_tokens text_committed_escaped censored_marginal censored_static censored_conditional
"""
_NODE = """
run_id round node parent depth token_id token_text token_escaped token_hex expansion_order
base_logit delta_logit marginal_logprob static_logprob conditional_logprob logz_m logz_v
cum_marginal cum_static cum_conditional target_logprob target_rank
in_marginal in_static in_conditional in_verified_tree accepted
"""
ROUND_COLUMNS = tuple(_ROUND.split())
NODE_COLUMNS = tuple(_NODE.split())
#: What pandas takes for a missing value unless told otherwise.
_MISSING = (
    "#N/A,#N/A N/A,#NA,<NA>,N/A,n/a,NA,NULL,null,NaN,nan,-NaN,-nan,None,-1.#IND,1.#IND,-1.#QNAN,1.#QNAN"
)
_TAKEN_FOR_MISSING = frozenset(_MISSING.split(","))


def _cell(data: bytes) -> str:
    """Bytes for a column that people read: the visible form, after an apostrophe where a spreadsheet would
    run it as a formula or pandas take it for a missing value."""
    shown = token_text(data)
    formula = len(shown) > 1 and shown[0] in "=+-@"
    return "'" + shown if formula or shown in _TAKEN_FOR_MISSING else shown


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def rounds_csv(trace: Trace) -> str:
    """One row per round, ``ROUND_COLUMNS``: as CSV text: all fields quoted, missing ones empty."""
    settings, pair = trace.header["settings"], trace.header.get("pair", {})
    temperature = settings.get("temperature")
    start = (
        trace.run_id or content_id(trace),
        settings["method"],
        trace.header.get("drafter_label") or pair.get("drafter"),
    )
    asked = (
        settings.get("budget"),
        settings.get("scorer"),
        settings.get("builder"),
        None if temperature is None else float(temperature),
        settings.get("seed"),
    )
    rows = []
    for this, tau in zip(trace.rounds, trace.tau_so_far, strict=True):
        text = b"".join(map(trace.token_bytes, this.committed[: this.kept]))
        other = [this.counterfactual.get(scorer) for scorer in SCORERS]
        rows.append(
            (
                *start,
                *(this.index, this.position, this.verified_nodes, this.depth_reached, this.accepted),
                *(len(this.committed), tau),
                *(this.times_ms.get(stage) for stage in STAGES),
                *asked,
                _cell(text),
                *(c and c.accepted for c in other),
                this.kept,
                token_escaped(text),
                *(c and c.censored for c in other),
            )
        )
    return _csv(ROUND_COLUMNS, rows)


def nodes_csv(trace: Trace) -> str:
    """One row per node of each round's union of trees, ``NODE_COLUMNS``; the same form as ``rounds_csv``."""
    run_id = trace.run_id or content_id(trace)
    forms = {}
    for token in trace.tokens:
        data = trace.token_bytes(token)
        forms[token] = (token, _cell(data), token_escaped(data), token_hex(data))
    rows = []
    for this in trace.rounds:
        n = this.nodes
        columns = zip(
            *(range(len(n)), n.parent, n.depth, n.token, n.trees, n.accepted),
            *(n.order, n.base_logit, n.delta, n.marginal, n.static, n.conditional, n.logz_m, n.logz_v),
            *(n.cum_marginal, n.cum_static, n.cum_conditional, n.target_logprob, n.target_rank),
            strict=True,
        )
        for node, parent, depth, token, trees, accepted, *scores in columns:
            member = (bool(trees & bit) for bit in TREE_BITS.values())
            rows.append((run_id, this.index, node, parent, depth, *forms[token], *scores, *member, accepted))
    return _csv(NODE_COLUMNS, rows)


def write_csv(trace: Trace, folder: str | os.PathLike) -> tuple[Path, Path]:
    """Write ``rounds.csv`` and ``nodes.csv`` (UTF-8, no byte-order mark) into a folder, made if needed.

    Returns both paths. Raises TraceError when they cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(f"{folder} cannot be made: {reason(error)}; choose another folder.") from error
    paths = folder / "rounds.csv", folder / "nodes.csv"
    for path, text in zip(paths, (rounds_csv(trace), nodes_csv(trace)), strict=True):
        write(path, text.encode())
    return paths


def export_csv(trace_path: str | os.PathLike, out_dir: str | os.PathLike) -> tuple[Path, Path]:
    """Read a trace file and write its two CSV files into a folder. Raises TraceError."""
    return write_csv(load(trace_path), out_dir)
