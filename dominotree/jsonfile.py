"""Small JSON files that a user may name: read strictly, written whole or not at all. Nothing in them is ever executed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from dominotree.errors import FileError

MAX_BYTES = 8 << 20
T = TypeVar("T")


def read_object(path: Path, schema: str, version: int) -> dict[str, Any]:
    """The object in a JSON file that names its ``schema`` and a ``version`` up to ours.

    Raises FileError (one sentence) for a missing, large or damaged file, NaN, repeated keys, another schema or a newer
    version. Pickles and other binary tables are bytes that are no JSON: they are refused unread (fault S09).
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"{str(path)!r} cannot be read ({error.strerror or error}).") from error
    if len(data) > MAX_BYTES:
        raise FileError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB, so it is no {schema} file.")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path.name} is no JSON file of the schema {schema} ({error}).") from error
    if not isinstance(value, dict) or value.get("schema") != schema:
        raise FileError(f"{path.name} does not name the schema {schema!r}.")
    if type(value.get("version")) is not int or not 1 <= value["version"] <= version:
        raise FileError(
            f"{path.name} has version {value.get('version')!r}; this program reads 1 to {version}."
        )
    return value


def read_as(path: Path, schema: str, version: int, what: str, make: Callable[[Mapping[str, Any]], T]) -> T:
    """What ``make`` builds from the object in a file; its FileError then names the file and what it should have been."""
    value = read_object(path, schema, version)
    try:
        return make(value)
    except FileError as error:
        raise FileError(f"{path.name} is no usable {what}: {error}.") from error


def write_object(path: Path, value: dict[str, Any]) -> None:
    """Write beside the place, then rename; makes the folder. Raises ValueError for NaN and infinities."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, work = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(work, 0o644)
        os.replace(work, path)
    except BaseException:
        Path(work).unlink(missing_ok=True)
        raise


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key comes twice")
    return out


def numbers(value: Any, what: str, low: float, high: float = float("inf")) -> tuple[float, ...]:
    """A JSON list of finite numbers from ``low`` to ``high`` (infinity excluded). Raises FileError."""
    if not isinstance(value, list):
        raise FileError(f"{what} is not a list")
    for x in value:
        if (
            isinstance(x, bool)
            or not isinstance(x, int | float)
            or not low <= x <= high
            or abs(x) == float("inf")
        ):
            raise FileError(f"{what} holds {x!r}, which is no number from {low:g} to {high:g}")
    return tuple(float(x) for x in value)
