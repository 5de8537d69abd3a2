"""Is a trace what its fields promise?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from itertools import pairwise
from math import inf
from typing import Any

from dominotree.trace.schema import SCORERS, TREE_BITS, Round, Trace, TraceError


class Bad(Exception):
    """What is wrong with a trace; becomes a TraceError that also names the source and the way out."""


def check(trace: Trace) -> None:
    """Raise TraceError unless the trace is what its fields promise.

    Types; equal column lengths; parents before children, one deeper, trees closed under ancestors, siblings
    with different tokens; pop order; the accepted path, its bonus and the committed tokens; each anchor the
    last bonus; every id in ``tokens``; the summary's sums and its output. A run that is still going (no
    stop reason) passes. Rounds without nodes pass in a trace whose header says ``"record": "rounds"``.
    """
    try:
        check_content(trace)
    except Bad as bad:
        raise TraceError(f"this trace is inconsistent: {bad}.") from bad


_NONE = type(None)
_TYPES: dict[str, set[type]] = {
    "int": {int},
    "bool": {bool},
    "Float": {float, int, _NONE},
    "list[int]": {int},
    "list[int | None]": {int, _NONE},
    "list[bool]": {bool},
    "list[str]": {str},
    "list[float]": {float, int},
    "list[Float]": {float, int, _NONE},
}


def _check_types(value: Any, where: str) -> None:
    """Every field of a dataclass whose annotation is in ``_TYPES`` holds what it says, and no NaN."""
    for f in fields(value):
        allowed = _TYPES.get(str(f.type))
        if allowed is None:
            continue
        held = getattr(value, f.name)
        column = held if str(f.type).startswith("list") else [held]
        if type(column) is not list:
            raise Bad(f"{where}{f.name} is not a list")
        wrong = set(map(type, column)) - allowed
        if wrong:
            raise Bad(f"{where}{f.name} holds a {min(t.__name__ for t in wrong)}, not {f.type}")
        if float in allowed and (inf in column or any(x != x for x in column)):
            raise Bad(f"{where}{f.name} holds NaN or +inf (None is for what is missing)")


def _check_free(value: Any, where: str) -> None:
    """Header, prompt, summary: plain JSON values, finite numbers, text that UTF-8 can hold."""
    if type(value) is str:
        if not value.isascii() and any(0xD800 <= ord(char) <= 0xDFFF for char in value):
            raise Bad(f"{where} holds half a character")
    elif type(value) is float:
        if value != value or value == inf:
            raise Bad(f"{where} is {value}")
    elif type(value) in (list, tuple):
        for k, x in enumerate(value):
            if type(x) is not int:
                _check_free(x, f"{where}[{k}]")
    elif type(value) is dict:
        for key, x in value.items():
            if type(key) is not str:
                raise Bad(f"{where} has the key {key!r}, which is no string")
            _check_free(key, f"a key of {where}")
            _check_free(x, f"{where}.{key}")
    elif value is not None and type(value) not in (int, bool):
        raise Bad(f"{where} is a {type(value).__name__}")


def _check_ids(ids: Iterable[int], tokens: dict[int, str], where: str) -> None:
    unknown = set(ids) - tokens.keys()
    if unknown:
        raise Bad(f"{where} has the id {min(unknown)}, which is not in tokens")


def _check_nodes(this: Round, where: str) -> None:
    """The union of trees, and the verified tree in it; types are right."""
    nodes = this.nodes
    for f in fields(nodes):
        if len(getattr(nodes, f.name)) != len(nodes):
            raise Bad(
                f"{where}nodes.{f.name} has {len(getattr(nodes, f.name))} entries, token has {len(nodes)}"
            )
    verified = TREE_BITS["verified"]
    rows = zip(nodes.parent, nodes.token, nodes.depth, nodes.trees, nodes.order, strict=True)
    seen: set[tuple[int, int]] = set()
    for k, (parent, token, depth, trees, order) in enumerate(rows):
        if not -1 <= parent < k:
            raise Bad(f"{where}node {k} has parent {parent}, which does not come before it")
        if depth != (nodes.depth[parent] + 1 if parent >= 0 else 1):
            raise Bad(f"{where}node {k} has depth {depth}, which is not its parent's plus one")
        if not 0 < trees < 16 or (parent >= 0 and trees & ~nodes.trees[parent]):
            raise Bad(f"{where}node {k} is in trees {trees}, its parent in {nodes.trees[parent]}")
        if (parent, token) in seen:
            raise Bad(f"{where}node {k} repeats token {token} of a sibling")
        seen.add((parent, token))
        if (order is not None) != bool(trees & verified):
            raise Bad(f"{where}node {k} has pop order {order}, but only the verified tree's nodes have one")
        if order is not None and parent >= 0 and not (nodes.order[parent] or 0) < order:
            raise Bad(f"{where}node {k} was popped before its parent")
    orders = sorted(order for order in nodes.order if order is not None)
    if orders != list(range(this.verified_nodes)):
        raise Bad(f"{where}pop orders are not 0 … {this.verified_nodes - 1}, one for each verified node")
    deepest = max((d for d, t in zip(nodes.depth, nodes.trees, strict=True) if t & verified), default=0)
    if deepest != this.depth_reached:
        raise Bad(f"{where}depth_reached is {this.depth_reached}, the verified tree's depth {deepest}")

    at, count = -1, len(nodes)
    for step, k in enumerate(this.path):
        if not 0 <= k < count or not nodes.trees[k] & verified or nodes.parent[k] != at:
            raise Bad(f"{where}the accepted path leaves the verified tree at step {step + 1} (node {k})")
        if nodes.token[k] != this.committed[step]:
            raise Bad(f"{where}committed token {step + 1} is not that of node {k} of the accepted path")
        at = k
    if {k for k, accepted in enumerate(nodes.accepted) if accepted} != set(this.path):
        raise Bad(f"{where}nodes.accepted marks other nodes than the accepted path")
    # Below an accepted stop token nothing is accepted, though it may be drafted: that round is cut.
    if this.kept == len(this.committed) and any(
        p == at and t == this.bonus and m & verified
        for p, t, m in zip(nodes.parent, nodes.token, nodes.trees, strict=True)
    ):
        raise Bad(
            f"{where}the bonus token {this.bonus} was drafted where the accepted path ends: it stopped early"
        )


def _check_round(this: Round, tokens: dict[int, str], rounds_only: bool, where: str) -> None:
    _check_types(this, where)
    if len(this.committed) != this.accepted + 1 or this.committed[-1] != this.bonus:
        raise Bad(f"{where}committed is not the {this.accepted} accepted drafts and the bonus token")
    if not 0 <= this.kept <= len(this.committed):
        raise Bad(f"{where}kept is {this.kept} of {len(this.committed)} committed tokens")
    _check_types(this.nodes, where + "nodes.")
    if len(this.nodes) or not rounds_only:
        _check_nodes(this, where)
    _check_ids([this.anchor, *this.committed, *this.nodes.token], tokens, where[:-2])
    for stage, ms in this.times_ms.items():
        if type(stage) is not str or type(ms) not in (float, int) or not 0 <= ms < inf:
            raise Bad(f"{where}times_ms.{stage} is {ms!r}, not milliseconds")
    for flag in this.flags:
        _check_free(flag, f"{where}flags")
    for scorer, counterfactual in this.counterfactual.items():
        if scorer not in SCORERS:
            raise Bad(f"{where}counterfactual has the unknown scorer {scorer!r}")
        _check_types(counterfactual, f"{where}counterfactual.{scorer}.")
    for k, visit in enumerate(this.visits):
        _check_types(visit, f"{where}visits[{k}].")
        if any(type(t) is not int or type(p) not in (float, int) or not p < inf for t, p in visit.top):
            raise Bad(f"{where}visits[{k}].top is not a list of (id, log-probability)")
        _check_ids([visit.chosen, *(t for t, _ in visit.top)], tokens, f"{where}visits[{k}]")
    if this.visits and (
        [v.node for v in this.visits] != [-1, *this.path] or [v.chosen for v in this.visits] != this.committed
    ):
        raise Bad(f"{where}visits are not the anchor and the accepted path with the tokens chosen there")
    _check_pops(this, tokens, where)


def _check_pops(this: Round, tokens: dict[int, str], where: str) -> None:
    """The build: anchor first, then expanded nodes of the verified tree in pop order, each with its candidates."""
    before = -2
    for k, pop in enumerate(this.pops):
        at = f"{where}pops[{k}]"
        _check_types(pop, f"{at}.")
        if not -1 <= pop.node < len(this.nodes):
            raise Bad(f"{at}.node is {pop.node}, there are {len(this.nodes)} nodes")
        order = -1 if pop.node < 0 else this.nodes.order[pop.node]
        if order is None or order <= before or (k == 0) != (pop.node < 0):
            raise Bad(f"{at}.node is {pop.node}; pops are the anchor, then verified nodes in pop order")
        before = order
        count = len(pop.token)
        if not count == len(pop.base_logit) == len(pop.delta) == len(pop.score):
            raise Bad(f"{at} has columns of different lengths")
        if len(set(pop.token)) != count:
            raise Bad(f"{at} lists a candidate twice")
        if len(set(pop.offered)) != len(pop.offered) or not all(0 <= i < count for i in pop.offered):
            raise Bad(f"{at}.offered are not places in its columns")
        if pop.place and (len(pop.place) != count or any(a >= b for a, b in pairwise([-1, *pop.place]))):
            raise Bad(f"{at}.place is not an ascending place for each candidate")
        if pop.left_out < 0:
            raise Bad(f"{at}.left_out is {pop.left_out}")
        _check_ids(pop.token, tokens, at)


def check_content(trace: Trace) -> None:
    """As ``check``, but raises Bad."""
    for name in ("header", "prompt", "summary"):
        _check_free(getattr(trace, name), name)
    settings = trace.header.get("settings")
    if type(settings) is not dict or type(settings.get("method")) is not str:
        raise Bad("header.settings.method is missing")
    for key, value in settings.items():
        if isinstance(value, list | dict):
            raise Bad(f"header.settings.{key} is a {type(value).__name__}")
    if type(settings.get("temperature", 0)) not in (int, float, _NONE):
        raise Bad(f"header.settings.temperature is {settings['temperature']!r}, not a number")
    if type(trace.header.get("pair", {})) is not dict:
        raise Bad("header.pair is not an object")
    if type(trace.prompt.get("text")) is not str:
        raise Bad("prompt.text is missing")
    ids = trace.prompt.get("token_ids")
    if type(ids) is not list or set(map(type, ids)) - {int}:
        raise Bad("prompt.token_ids is not a list of token ids")
    for token, data in trace.tokens.items():
        if type(token) is not int or type(data) is not str or not re.fullmatch("(?:[0-9a-f]{2})*", data):
            raise Bad(f"token {token!r} is {data!r}, not lower-case hex digits")
    anchor, position = trace.first_token, None
    if anchor is not None:
        if type(anchor) is not int:
            raise Bad(f"first_token is a {type(anchor).__name__}")
        _check_ids([anchor], trace.tokens, "first_token")
    rounds_only = trace.header.get("record") == "rounds"
    for k, this in enumerate(trace.rounds, 1):
        _check_round(this, trace.tokens, rounds_only, f"round {k}: ")
        if this.index != k:
            raise Bad(f"round {k} has the index {this.index}")
        if this.anchor != anchor or position not in (None, this.position):
            raise Bad(f"round {k} does not start where the text before it ends")
        if k < len(trace.rounds) and this.kept != len(this.committed):
            raise Bad(f"round {k} cut tokens off, but it is not the last one")
        anchor, position = this.bonus, this.position + len(this.committed)
    if trace.ended:
        _check_summary(trace)


def _check_summary(trace: Trace) -> None:
    counts = trace.counts
    output = [] if trace.first_token is None else [trace.first_token]
    output += [token for this in trace.rounds for token in this.committed[: this.kept]]
    right = {
        "rounds": counts.rounds,
        "committed": counts.committed,
        "accepted_drafts": counts.accepted,
        "new_tokens": counts.output,
        "token_ids": output,
    }
    for key, value in right.items():
        if key not in trace.summary:
            raise Bad(f"summary.{key} is missing")
        if trace.summary[key] != value:
            raise Bad(f"summary.{key} is not what the rounds add up to")
    tau: Any = trace.summary.get("tau")
    if counts.tau is not None and (
        type(tau) not in (float, int) or abs(tau - counts.tau) > 1e-5 * counts.tau
    ):
        raise Bad(f"summary.tau is {tau!r}, the rounds give {counts.tau:.6g}")
