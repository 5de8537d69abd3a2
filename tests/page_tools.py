"""What the tests of the page share: a scripted engine, a small library of made-up runs, a server."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from trace_factory import make_trace

from dominotree import trace as tr
from dominotree.errors import PromptError
from viz.library import Library
from viz.server import create_app
from viz.sessions import Engine, Limits, Sessions

RECORDED = ("dominotree", "static", "marginal", "ddtree", "domino", "dflash", "ar")


class ScriptedRun:
    """A run whose rounds were made up beforehand and come ``seconds`` apart; round ``fail_at`` raises."""

    def __init__(
        self,
        whole: tr.Trace,
        cancel: threading.Event,
        seconds: float,
        fail_at: int | None,
        gate: Callable[[], None],
    ) -> None:
        self.whole, self.cancel, self.seconds, self.fail_at, self.gate = whole, cancel, seconds, fail_at, gate
        self.trace = tr.Trace(header=whole.header, prompt=whole.prompt, first_token=whole.first_token)

    def __iter__(self) -> Iterator[tr.Round]:
        for rnd in self.whole.rounds:
            self.gate()
            if self.cancel.wait(self.seconds):
                break
            if rnd.index == self.fail_at:
                raise RuntimeError("scripted failure")
            self.trace.rounds.append(rnd)
            self.trace.tokens.update(self.whole.tokens)
            yield rnd
        self.trace.summary = {**self.whole.summary, "rounds": len(self.trace.rounds)}
        if self.cancel.is_set():
            self.trace.summary["stop_reason"] = "cancelled"


class ScriptedEngine:
    """An engine without a model, for tests of the queue: notes what ran when, and how many ran at once."""

    message = "scripted engine"

    def __init__(self, seconds: float = 0.01, rounds: int = 5, state: str = "ready") -> None:
        self.seconds, self.rounds, self.state = seconds, rounds, state
        self.fail_at: int | None = None
        self.refusal = ""
        self.prompts: list[str] = []
        self.settings: list[dict[str, Any]] = []
        self.at_once = 0
        self.most_at_once = 0
        self.gate: Callable[[], None] = lambda: None
        self._seed = itertools.count()

    def run(self, prompt: str, settings: dict[str, Any], cancel: threading.Event) -> Iterator[tr.Round]:
        if self.refusal:
            raise PromptError(self.refusal)
        whole = make_trace(self.rounds, min(settings["budget"], 32), next(self._seed), settings["method"])
        whole.header["settings"] |= settings
        whole.prompt["text"] = prompt
        self.prompts.append(prompt)
        self.settings.append(settings)
        return Counted(self, ScriptedRun(whole, cancel, self.seconds, self.fail_at, lambda: self.gate()))  # type: ignore[return-value]


class Counted:
    def __init__(self, engine: ScriptedEngine, run: ScriptedRun) -> None:
        self.engine, self.run, self.trace = engine, run, run.trace

    def __iter__(self) -> Iterator[tr.Round]:
        self.engine.at_once += 1
        self.engine.most_at_once = max(self.engine.most_at_once, self.engine.at_once)
        try:
            yield from self.run
        finally:
            self.engine.at_once -= 1


def write_library(folder: Path) -> Library:
    """Made-up recorded runs: three prompts by all methods."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, kind in enumerate(("math", "code", "chat")):
        for method in RECORDED:
            trace = make_trace(12, 16, seed=number, method=method)
            trace.prompt = {**trace.prompt, "kind": kind, "text": f"A {kind} prompt."}
            tr.save(trace, folder / f"{kind}-{method}.json.gz")
    return Library(folder)


def until(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Wait until ``condition()`` is true and return it; fail after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


@contextmanager
def serving(
    library: Library,
    engine: Engine,
    limits: Limits | None = None,
    wrap: Callable[[Any], Any] = lambda app: app,
) -> Iterator[tuple[str, Sessions]]:
    """The whole application on a free local port, in a thread; gives its address and its sessions."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sessions = Sessions(engine, limits)
    app = wrap(create_app(library, sessions, getattr(engine, "start", None)))
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started, 30)
    try:
        yield f"http://127.0.0.1:{port}/", sessions
    finally:
        server.should_exit = True
        thread.join(10)


ROOMY = 0.054  # s that ``work`` takes on two idle cores, where a first round takes 0.55 s


def work() -> float:
    """Seconds of plain products that read as much memory as a forward does, nothing of ours in them; the best of three."""
    import torch  # only here: whoever serves a page with these tools shall see that the page comes without it

    rows, weights = torch.ones(20, 576), torch.ones(90, 1536, 576)
    spent = []
    for _ in range(3):
        started = time.monotonic()
        for weight in weights:
            torch.nn.functional.linear(rows, weight)
        spent.append(time.monotonic() - started)
    return min(spent)


def busy() -> float:
    """How much slower this machine may be just now than two idle cores that run the page: by the processes that want
    to run, per core, and by ``work``, for a slow machine may be an idle one."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 1.0
    return max(1.0, load, work() / ROOMY)
