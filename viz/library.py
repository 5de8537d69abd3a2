"""The recorded runs that come with the project, and the files of the in-browser player, ready to be sent.

A run is listed from ``manifest.json`` beside the traces, so that the page can open without reading (or
laying out) any of them; each manifest line carries the file's own checksum, and a file that does not match
its line is read in full instead. ``python -m viz.library`` writes the manifest anew.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import mimetypes
import struct
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dominotree import trace as tr
from dominotree.methods import METHODS

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "assets" / "traces"
KINDS = {"math": "Math", "code": "Code", "chat": "Chat"}
#: Order of the methods in the menu of recorded runs; anything else follows.
METHOD_ORDER = ("dominotree", "static", "marginal", "ddtree", "domino", "dflash", "ar")


@dataclass(frozen=True)
class Recorded:
    """What the page must know of a recorded run before it is opened."""

    file: str
    checksum: str  # CRC-32 and length of the unpacked JSON, as gzip stores them
    run_id: str
    kind: str
    prompt: str
    method: str
    budget: int | None
    temperature: float
    machine: str
    pair: str
    tau: float | None

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
        return title if self.budget in (None, 16) or self.method == "ar" else f"{title}, {self.budget} nodes"


def _checksum(path: Path) -> str:
    """CRC-32 and length of a gzip file's content, read from its last eight bytes."""
    with path.open("rb") as file:
        file.seek(-8, 2)
        crc, length = struct.unpack("<II", file.read(8))
    return f"{crc:08x}-{length}"


def _describe(path: Path) -> Recorded:
    trace = tr.load(path)
    settings, pair = trace.header.get("settings", {}), trace.header.get("pair", {})
    chain = METHODS[settings["method"]].kind != "tree" if settings.get("method") in METHODS else False
    return Recorded(
        file=path.name,
        checksum=_checksum(path),
        run_id=trace.run_id,
        kind=str(trace.prompt.get("kind") or "other"),
        prompt=str(trace.prompt.get("text", "")),
        method=str(settings.get("method", "")),
        budget=None if chain else settings.get("budget"),
        temperature=float(settings.get("temperature") or 0.0),
        machine=str(trace.header.get("machine", "")),
        pair=str(pair.get("name", "")),
        tau=trace.summary.get("tau"),
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
    """The recorded runs of a folder. Opening it costs no more than reading the manifest."""

    def __init__(self, folder: Path = TRACES) -> None:
        self.folder = folder
        listed: dict[str, Recorded] = {}
        manifest = folder / "manifest.json"
        if manifest.exists():
            for line in json.loads(manifest.read_text(encoding="utf-8"))["runs"]:
                listed[line["file"]] = Recorded(**line)
        runs = []
        for path in sorted(folder.glob("*.json.gz")):
            run = listed.get(path.name)
            if run is None or run.checksum != _checksum(path):
                log.warning("%s is not in the manifest as it is now; run `python -m viz.library`", path.name)
                try:
                    run = _describe(path)
                except tr.TraceError as error:
                    log.error("recorded run %s left out: %s", path.name, error)
                    continue
            runs.append(run)
        self.runs = sorted(runs, key=_rank)
        self._by_id = {run.run_id: run for run in self.runs}
        self._lock = threading.Lock()
        self._served: dict[str, bytes] = {}

    def write_manifest(self) -> Path:
        """Write ``manifest.json`` for the folder as it is."""
        path = self.folder / "manifest.json"
        runs = [asdict(run) for run in self.runs]
        path.write_text(json.dumps({"runs": runs}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path

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
        """Groups in menu order: ``{"key", "title", "prompt", "runs": [{"id", "title", "method"}]}``."""
        several = len({(run.machine, run.pair) for run in self.runs}) > 1
        groups: dict[str, dict[str, Any]] = {}
        for run in self.runs:
            group = groups.setdefault(
                run.group,
                {"key": run.group, "title": run.group_title(several), "prompt": run.prompt, "runs": []},
            )
            group["runs"].append({"id": run.run_id, "title": run.method_title, "method": run.method})
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


if __name__ == "__main__":
    print(Library().write_manifest())
