"""The strict JSON form of a trace: writing, run id, reading, older versions."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from math import inf
from typing import Any

from dominotree.trace.check import Bad, check, check_content
from dominotree.trace.schema import (
    MAX_BYTES,
    SCHEMA,
    VERSION,
    Counterfactual,
    Nodes,
    Pop,
    Round,
    Trace,
    TraceError,
    Visit,
)


def _stored(x: float) -> float | int | str:
    """A float as stored: 6 significant digits; whole numbers without a fraction, as a browser writes them."""
    if x == -inf:
        return "-inf"
    if x != x or x == inf:
        raise TraceError(f"a trace cannot hold {x}; write None for a value that is missing")
    y = float(f"{x:.6g}")
    return int(y) if y.is_integer() and abs(y) < 1e15 else y


def plain(value: Any) -> Any:
    """Any part of a trace as dicts, lists, strings and numbers that strict JSON can hold.

    Dataclasses become objects with the same field names, -inf becomes "-inf", None stays None, floats are
    rounded to 6 significant digits. Raises TraceError for NaN, +inf and types that JSON does not know.
    """
    if isinstance(value, list | tuple):
        kinds = set(map(type, value))
        if kinds <= {int, str, bool, type(None)}:
            return list(value)
        if kinds <= {float, int, type(None)}:
            return [_stored(x) if type(x) is float else x for x in value]
        return [plain(x) for x in value]
    if type(value) is float:
        return _stored(value)
    if value is None or type(value) in (int, str, bool):
        return value
    if isinstance(value, dict):
        return {str(key): plain(x) for key, x in value.items()}
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    raise TraceError(f"a trace cannot hold a {type(value).__name__}; convert it to a plain number or string")


def _dump(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _body(trace: Trace) -> str:
    """The JSON of everything but schema, version and run id: what the run id is a hash of."""
    data = plain(trace)
    del data["run_id"]
    data["tokens"] = {str(token): trace.tokens[token] for token in sorted(trace.tokens)}
    return _dump(data)


def _hash(body: str) -> str:
    """16 hex digits of the sha256, from its first letter on: no reader of a table takes that for a number."""
    digest = hashlib.sha256(body.encode()).hexdigest()
    start = next((k for k, digit in enumerate(digest[:48]) if digit in "abcdef"), 0)
    return digest[start : start + 16]


def content_id(trace: Trace) -> str:
    """The run id: a hash of all that the trace holds, as stored; the same before saving and after loading."""
    return _hash(_body(trace))


def to_json(value: Trace | Any) -> str:
    """Strict JSON (ASCII, no NaN) of a trace, or of any part of one (a Round, a list of them, a summary).

    A whole trace is checked first, so that what is written can be read (see ``check``), and its ``run_id`` is
    brought up to date. Raises TraceError.
    """
    if not isinstance(value, Trace):
        return _dump(plain(value))
    check(value)
    body = _body(value)
    value.run_id = _hash(body)
    return f'{{"schema":"{SCHEMA}","version":{VERSION},"run_id":"{value.run_id}",{body[1:]}'


#: version -> a function that turns the parsed JSON of that version into the next one's.
MIGRATIONS: dict[int, Callable[[dict], dict]] = {}


_HEAD = re.compile(rf'\{{"schema":"{re.escape(SCHEMA)}","version":\d+,"run_id":"([0-9a-f]{{16}})",')


def from_json(data: str | bytes, name: str = "this trace", limit: int = MAX_BYTES) -> Trace:
    """Read a trace from JSON text or bytes, gzipped or not.

    Fields that this version does not know are ignored. The run id comes from the content, never from what the
    file claims. ``name`` is what messages call the source; ``limit`` bounds the bytes before and after
    decompression. Raises TraceError: too large, damaged, not JSON, not a trace, written by a newer version,
    or not consistent (see ``check``).
    """
    copy = "use an undamaged copy or record the run again"
    try:
        text = _decoded(data, limit)
        try:
            parsed = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            where = (
                f" (line {error.lineno}, column {error.colno})"
                if isinstance(error, json.JSONDecodeError)
                else ""
            )
            raise Bad(f"it is not strict JSON{where}") from error
        if not isinstance(parsed, dict) or parsed.get("schema") != SCHEMA:
            copy = "choose a file that was saved as a trace"
            raise Bad(f'it is not a trace (no "schema": "{SCHEMA}")')
        version = parsed.get("version")
        if type(version) is int and version > VERSION:
            copy = "update this program"
            raise Bad(f"it has version {version}, newer than the {VERSION} that this program reads")
        while type(version) is not int or version < VERSION:
            if type(version) is not int or version not in MIGRATIONS:
                raise Bad(f"its version {version!r} is unknown")
            parsed = MIGRATIONS[version](parsed)
            version += 1
        trace = _read_trace(parsed)
        check_content(trace)
    except OverflowError as error:  # a whole number that no float can hold, where a float belongs
        raise TraceError(f"{name} cannot be read: it holds a number out of range; {copy}.") from error
    except Bad as bad:
        raise TraceError(f"{name} cannot be read: {bad}; {copy}.") from bad
    head = _HEAD.match(text)
    known = head is not None and _hash("{" + text[head.end() :].rstrip()) == head[1]
    trace.run_id = head[1] if head is not None and known else content_id(trace)
    return trace


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _decoded(data: str | bytes, limit: int) -> str:
    if isinstance(data, str):
        if len(data) > limit:
            raise Bad(f"it is larger than {limit / 2**20:g} MB")
        return data.removeprefix("\ufeff")
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(limit + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Bad("its gzip data is damaged or incomplete") from error
    if len(data) > limit:
        raise Bad(f"it is larger than {limit / 2**20:g} MB")
    if not data.strip():
        raise Bad("it is empty")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Bad("it is neither gzip nor UTF-8 text") from error


def _get(data: dict, key: str, kind: type, where: str) -> Any:
    if key not in data:
        raise Bad(f"{where}{key} is missing")
    if type(data[key]) is not kind:
        raise Bad(f"{where}{key} is a {type(data[key]).__name__}, not a {kind.__name__}")
    return data[key]


def _number(x: Any) -> Any:
    return -inf if x == "-inf" else float(x) if type(x) is int else x


def _read(cls: type, data: Any, where: str) -> Any:
    """A dataclass of plain columns and numbers from its JSON object; ``check`` looks at the types later."""
    if type(data) is not dict:
        raise Bad(f"{where[:-1] or cls.__name__} is not an object")
    values = {}
    for f in fields(cls):
        if f.name not in data:
            # A column of the nodes cannot be left out; elsewhere a field with a default may be.
            if cls is Nodes or f.default is f.default_factory is MISSING:
                raise Bad(f"{where}{f.name} is missing")
            continue
        value = data[f.name]
        if (
            f.type in ("list[float]", "list[Float]")
            and type(value) is list
            and set(map(type, value)) != {float}
        ):
            value = [_number(x) for x in value]
        elif f.type == "Float":
            value = _number(value)
        values[f.name] = value
    return cls(**values)


def _read_round(data: Any, where: str) -> Round:
    this: Round = _read(Round, data, where)
    this.nodes = _read(Nodes, this.nodes, where + "nodes.")
    for name in ("visits", "pops"):
        if type(getattr(this, name)) is not list:
            raise Bad(f"{where}{name} is not a list")
    this.visits = [_read(Visit, v, f"{where}visits[{k}].") for k, v in enumerate(this.visits)]
    for k, visit in enumerate(this.visits):
        rows: Any = visit.top
        if type(rows) is not list or not all(type(row) is list and len(row) == 2 for row in rows):
            raise Bad(f"{where}visits[{k}].top is not a list of [id, log-probability]")
        visit.top = [(token, _number(score)) for token, score in rows]
    this.pops = [_read(Pop, p, f"{where}pops[{k}].") for k, p in enumerate(this.pops)]
    for name in ("counterfactual", "times_ms"):
        if type(getattr(this, name)) is not dict:
            raise Bad(f"{where}{name} is not an object")
    this.counterfactual = {
        scorer: _read(Counterfactual, c, f"{where}counterfactual.{scorer}.")
        for scorer, c in this.counterfactual.items()
    }
    this.times_ms = {stage: _number(ms) for stage, ms in this.times_ms.items()}
    return this


def _read_trace(data: dict) -> Trace:
    tokens = _get(data, "tokens", dict, "")
    strange = next((key for key in tokens if not re.fullmatch("0|[1-9][0-9]{0,17}", key)), None)
    if strange is not None:
        raise Bad(f"tokens has the key {strange!r}, which is no token id")
    return Trace(
        header=_get(data, "header", dict, ""),
        prompt=_get(data, "prompt", dict, ""),
        first_token=data.get("first_token"),
        rounds=[_read_round(r, f"round {k}: ") for k, r in enumerate(_get(data, "rounds", list, ""), 1)],
        tokens={int(key): value for key, value in tokens.items()},
        summary=_get(data, "summary", dict, ""),
    )
