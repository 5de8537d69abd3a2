"""Trace files: written whole or not at all, read with a bound on their size."""

from __future__ import annotations

import errno
import gzip
import os
import secrets
from pathlib import Path

from dominotree.trace.jsonform import from_json, to_json
from dominotree.trace.schema import MAX_BYTES, Trace, TraceError


def save(trace: Trace, path: str | os.PathLike) -> None:
    """Write a trace as JSON, gzipped if the name ends in ".gz".

    The file is written whole or not at all; the same trace gives the same bytes. Sets ``trace.run_id``.
    Raises TraceError when the trace is inconsistent or the file cannot be written (disk full, no folder).
    """
    path = Path(path)
    data = to_json(trace).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    write(path, data)


def load(path: str | os.PathLike, limit: int = MAX_BYTES) -> Trace:
    """Read a trace file, gzipped or not (told by its content). Raises TraceError, see ``from_json``."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {reason(error)}; check the path.") from error
    return from_json(data, name=str(path), limit=limit)


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: into a temporary neighbour, then renamed over the old one."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with new.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        way_out = "free some space or choose another folder" if full else "choose another place"
        raise TraceError(f"{path} cannot be written: {reason(error)}; {way_out}.") from error


def reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return (error.strerror or str(error)).lower()
