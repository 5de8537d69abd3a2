"""The recorded runs that come with the project, and the files of the in-browser player, ready to be sent.

The list of runs is made from the first kilobytes of each file (a trace begins with its run id, header and prompt),
so the page opens without reading, or laying out, any of them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import mimetypes
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dominotree import trace as tr
from dominotree.methods import METHODS

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "assets" / "traces"
HEAD_BYTES = 1 << 16  # enough for any header and prompt of ours
KINDS = {"math": "Math", "code": "Code", "chat": "Chat"}
#: Order of the methods in the menu of recorded runs; anything else follows.
METHOD_ORDER = ("dominotree", "static", "marginal", "ddtree", "domino", "dflash", "ar")


@dataclass(frozen=True)
class Recorded:
    """What the page must know of a recorded run before it is opened."""

    file: str
    run_id: str
    kind: str
    prompt: str
    method: str
    budget: int | None  # None where no tree is built
    temperature: float
    machine: str
    pair: str
    device: str  # of the recording: "cpu", "cuda", …

    @property
    def group(self) -> str:
        """Runs of one group can be compared: same prompt, temperature and machine."""
        return f"{self.kind}|{self.temperature:g}|{self.machine}|{self.pair}"

    def group_title(self, several_machines: bool) -> str:
        title = KINDS.get(self.kind, self.kind.capitalize())
        if self.temperature:
            title += f", temperature {self.temperature:g}"
        return f"{title} · {self.machine}" if several_machines else title

    @property
    def method_title(self) -> str:
        title = METHODS[self.method].title if self.method in METHODS else self.method
        usual = METHODS[self.method].budget if self.method in METHODS else 16
        return title if self.budget in (None, usual) else f"{title}, {self.budget} nodes"


def _beginning(path: Path) -> dict[str, Any]:
    """The first fields of a trace file, up to its prompt. Raises ValueError, OSError or zlib.error."""
    with path.open("rb") as file:
        text = zlib.decompressobj(31).decompress(file.read(HEAD_BYTES), HEAD_BYTES).decode("ascii")
    decoder, found, at = json.JSONDecoder(), {}, 0
    while "prompt" not in found:
        key, at = decoder.raw_decode(text, at + 1)
        found[key], at = decoder.raw_decode(text, at + 1)
    return found


def _describe(path: Path) -> Recorded:
    """One line of the list. Raises TraceError if the file is not a trace."""
    try:
        found = _beginning(path)
        run_id, header, prompt = found["run_id"], found["header"], found["prompt"]
    except (ValueError, IndexError, KeyError, zlib.error):  # damaged, or fields in another order: read it all
        trace = tr.load(path)
        run_id, header, prompt = trace.run_id, trace.header, trace.prompt
    settings, pair = header.get("settings", {}), header.get("pair", {})
    method = str(settings.get("method", ""))
    return Recorded(
        file=path.name,
        run_id=run_id,
        kind=str(prompt.get("kind") or "other"),
        prompt=str(prompt.get("text", "")),
        method=method,
        budget=settings.get("budget") if method in METHODS and METHODS[method].kind == "tree" else None,
        temperature=float(settings.get("temperature") or 0.0),
        machine=str(header.get("machine", "")),
        pair=str(pair.get("name", "")),
        device=str(pair.get("device", "")),
    )


def _rank(run: Recorded) -> tuple[Any, ...]:
    kinds, order = list(KINDS), METHOD_ORDER
    return (
        run.pair,
        run.machine,
        kinds.index(run.kind) if run.kind in kinds else len(kinds),
        run.temperature,
        order.index(run.method) if run.method in order else len(order),
        run.method,
        run.budget or 0,
    )


class Library:
    """The recorded runs of a folder. Opening it reads a few kilobytes of each; damaged files are left out."""

    def __init__(self, folder: Path = TRACES) -> None:
        self.folder = folder
        runs = []
        for path in sorted(folder.glob("*.json.gz")):
            try:
                runs.append(_describe(path))
            except tr.TraceError as error:
                log.error("recorded run %s is left out: %s", path.name, error)
        self.runs = sorted(runs, key=_rank)
        self._by_id = {run.run_id: run for run in self.runs}
        self._lock = threading.Lock()
        self._served: dict[str, bytes] = {}

    def find(self, run_id: str) -> Recorded | None:
        return self._by_id.get(run_id)

    def trace(self, run_id: str) -> tr.Trace:
        """The whole recorded trace. Raises KeyError for an unknown run, TraceError for a damaged file."""
        return tr.load(self.folder / self._by_id[run_id].file)

    def served(self, run_id: str) -> bytes:
        """What the player gets: trace and layout as gzipped JSON, made once."""
        with self._lock:  # one at a time: two visitors asking for the same run pay once
            if run_id not in self._served:
                self._served[run_id] = pack(served_json(self.trace(run_id)))
            return self._served[run_id]

    def warm(self) -> None:
        """Prepare every run ahead of the first visitor that asks for it."""
        for run in self.runs:
            self.served(run.run_id)

    def menu(self) -> list[dict[str, Any]]:
        """Groups in menu order: ``{"key", "title", "prompt", "device", "runs": [{"id", "title", "method", "variant"}]}``.

        ``variant`` names a run within its group: its method, and for a second run of the same method
        ``method@budget``.
        """
        several = len({(run.machine, run.pair) for run in self.runs}) > 1
        groups: dict[str, dict[str, Any]] = {}
        for run in self.runs:
            group = groups.setdefault(
                run.group,
                {
                    "key": run.group,
                    "title": run.group_title(several),
                    "prompt": run.prompt,
                    "device": run.device,
                    "runs": [],
                },
            )
            again = any(other["method"] == run.method for other in group["runs"])
            group["runs"].append(
                {
                    "id": run.run_id,
                    "title": run.method_title,
                    "method": run.method,
                    "variant": f"{run.method}@{run.budget}" if again else run.method,
                }
            )
        return list(groups.values())


def served_json(trace: tr.Trace) -> str:
    """Trace and layout as strict JSON, as the player takes it."""
    from viz.layout import served

    return tr.to_json(served(trace))


def pack(text: str) -> bytes:
    return gzip.compress(text.encode("utf-8"), compresslevel=6, mtime=0)


@dataclass(frozen=True)
class WebFile:
    """A file for the browser, compressed once."""

    body: bytes
    media_type: str
    packed: bool


def web_files(folder: Path) -> dict[str, WebFile]:
    """Every file under ``folder`` by its relative path; only these are served, so no path can escape."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in (".py", ".pyc"):
            continue
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        body = path.read_bytes()
        packed = kind.startswith("text/") or kind in (
            "application/javascript",
            "application/json",
            "image/svg+xml",
        )
        files[path.relative_to(folder).as_posix()] = WebFile(
            gzip.compress(body, 6, mtime=0) if packed else body, kind, packed
        )
    return files


def version(*folders: dict[str, WebFile]) -> str:
    """A short hash of browser files: changes exactly when one of them does."""
    digest = hashlib.sha256()
    for files in folders:
        for file in files.values():
            digest.update(file.body)
    return digest.hexdigest()[:12]
