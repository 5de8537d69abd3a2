"""Visitors' live runs: one engine, one first-come queue, one run at a time; what came out is kept for export.

Nothing is shared between visitors. A run (``Job``) is reached only through its ``token``, which cannot be
guessed and which only the browser that pressed Run is told. Nothing is written to disk.

A run is a growing list of events; a browser follows it over one server-sent-event stream and, after a dropped
connection, goes on behind the last event it saw, so no round is ever lost or shown twice. A browser that is
gone for longer than ``Limits.grace`` seconds (tab closed, network lost) gives its place or the engine back.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dominotree import trace as tr
from dominotree.errors import DominoTreeError, PromptError, SettingsError
from dominotree.methods import METHODS

log = logging.getLogger(__name__)

#: Methods that can be run live -> title, in the order of the menu: the best first, then down the ladder.
_ORDER = ("dominotree", "static", "marginal", "ddtree", "domino", "dflash")
LIVE_METHODS = {
    name: METHODS[name].title for name in (*_ORDER, *(m for m in METHODS if m not in (*_ORDER, "ar")), "ar")
}


@dataclass(frozen=True)
class Limits:
    """What the page accepts; enforced for every caller, the page and direct API calls alike."""

    prompt_chars: int = 8000
    max_new_tokens: int = 512
    budget: int = 1024
    top_m: int = 1024
    temperature: float = 5.0
    waiting: int = 300  # runs in the queue, all visitors together
    import_bytes: int = 16 << 20  # as sent
    import_unpacked: int = 64 << 20  # after gunzip
    kept_runs: int = 200  # finished or imported runs kept for export and reload …
    kept_nodes: int = 400_000  # … and the nodes in all of them (about 600 bytes each)
    kept_seconds: float = 2 * 3600
    grace: float = 3.0  # seconds without a listening browser until a run is given up
    grace_first: float = 10.0  # … before the first one has come


class LiveRun(Protocol):
    """One decoding run: iterating decodes; ``trace`` grows with it and has its summary at the end."""

    trace: tr.Trace

    def __iter__(self) -> Iterator[tr.Round]: ...


class Engine(Protocol):
    """What the queue needs of an engine. ``state`` is "loading", "ready", "failed" or "off"."""

    state: str
    message: str

    def run(self, prompt: str, settings: dict[str, Any], cancel: threading.Event) -> LiveRun: ...


class NoEngine:
    """The engine of ``--replay-only``: never loads anything."""

    state = "off"
    message = "This page only replays recorded runs; start it without --replay-only to run prompts."

    def run(self, prompt: str, settings: dict[str, Any], cancel: threading.Event) -> LiveRun:
        raise DominoTreeError(self.message)


# --- what may be asked ------------------------------------------------------------------------------


def _integer(name: str, value: Any, low: int, high: int) -> int:
    number = None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        number = int(value) if value == int(value) else None
    elif isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,30}\s*", value):
        number = int(value)
    if number is None or not low <= number <= high:
        raise SettingsError(f"{name} must be a whole number from {low} to {high}, not {_shown(value)}.")
    return number


def _shown(value: Any) -> str:
    text = "empty" if value is None or value == "" else str(value)
    return text if len(text) <= 40 else text[:37] + "…"


def check_prompt(prompt: Any, limits: Limits) -> str:
    """The prompt as it will be run. Raises PromptError (one sentence) when it is empty or too long."""
    if not isinstance(prompt, str) or not prompt.strip():
        raise PromptError("The prompt is empty: type something for the model to answer.")
    if len(prompt) > limits.prompt_chars:
        raise PromptError(
            f"The prompt has {len(prompt):,} characters; this page takes at most {limits.prompt_chars:,}."
        )
    if not prompt.isprintable() and any("\ud800" <= c <= "\udfff" for c in prompt):
        raise PromptError("The prompt holds half a character that no text can contain: type it again.")
    return prompt


def check_settings(
    limits: Limits,
    *,
    method: Any,
    budget: Any = 16,
    top_m: Any = 64,
    temperature: Any = 0.0,
    seed: Any = None,
    max_new_tokens: Any = 128,
) -> dict[str, Any]:
    """Settings of one run as plain numbers; a blank seed is drawn afresh (so unseeded runs differ).

    Raises SettingsError with one sentence that names the value and what is allowed.
    """
    if not isinstance(method, str) or method not in LIVE_METHODS:
        raise SettingsError(f"Unknown method {_shown(method)}: choose one of {', '.join(LIVE_METHODS)}.")
    try:
        heat = float(temperature)
    except (TypeError, ValueError, OverflowError):
        heat = math.nan
    if isinstance(temperature, bool) or not 0 <= heat <= limits.temperature:  # NaN fails every comparison
        raise SettingsError(
            f"Temperature must be a number from 0 to {limits.temperature:g}, not {_shown(temperature)}."
        )
    return {
        "method": method,
        "budget": _integer("Budget", budget, 1, limits.budget),
        "top_m": _integer("Top-M", top_m, 1, limits.top_m),
        "temperature": heat,
        "seed": secrets.randbelow(2**31)
        if seed is None or seed == ""
        else _integer("Seed", seed, 0, 2**63 - 1),
        "max_new_tokens": _integer("New tokens", max_new_tokens, 1, limits.max_new_tokens),
    }


def sentence(error: BaseException) -> str:
    """What a visitor reads about an error: ours as they are, anything else named and pointed to the log."""
    if isinstance(error, DominoTreeError | ValueError) and str(error):
        return str(error)
    if isinstance(error, MemoryError) or "out of memory" in str(error):
        return "The engine ran out of memory: use a smaller budget or fewer new tokens."
    name = type(error).__name__
    return f"The engine stopped with an internal error ({name}); the server's log has the details."


# --- one run ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """Something that happened to a run. ``kind``: start, round, finish, error, end; ``pane``: 0 or 1."""

    kind: str
    pane: int = 0
    round: tr.Round | None = None
    tokens: dict[int, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    trace: tr.Trace | None = None  # finish: the finished trace

    def to_json(self) -> str:
        """Strict JSON for the browser; rounds carry their layout and the token texts not sent before."""
        from viz.layout import layout_round  # not needed before the first live run; takes a while to import

        parts = {"type": json.dumps(self.kind), "pane": str(self.pane)}
        if self.round is not None:
            parts["round"] = tr.to_json(self.round)
            parts["layout"] = tr.to_json(layout_round(self.round, self.round.committed))
            parts["tokens"] = json.dumps({str(k): v for k, v in self.tokens.items()})
        if self.trace is not None:
            self.trace.run_id = self.trace.run_id or tr.content_id(self.trace)
            parts["run_id"] = json.dumps(self.trace.run_id)
            parts["header"] = tr.to_json(self.trace.header)
            parts["summary"] = tr.to_json(self.trace.summary)
            parts["counterfactuals"] = tr.to_json([rnd.counterfactual for rnd in self.trace.rounds])
        parts |= {key: tr.to_json(value) for key, value in self.data.items()}
        return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in parts.items()) + "}"


@dataclass
class Job:
    """One press of Run: one method (Explore) or two after one another (Compare) on one prompt."""

    visitor: str
    prompt: str
    settings: list[dict[str, Any]]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    state: str = "waiting"  # waiting -> running -> done | failed | cancelled
    events: list[Event] = field(default_factory=list)
    traces: list[tr.Trace] = field(default_factory=list)
    cancel: threading.Event = field(default_factory=threading.Event)
    touched: float = field(default_factory=time.monotonic)  # last time a browser listened or something ended
    listeners: int = 0
    heard: bool = False  # a browser has listened at least once
    _wake: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    @property
    def nodes(self) -> int:
        """How many nodes its traces hold (what its memory goes into); nine candidates of a pop weigh as much as one."""
        rounds = [rnd for trace in self.traces for rnd in trace.rounds]
        return sum(len(rnd.nodes) + 1 + sum(len(pop.token) for pop in rnd.pops) // 9 for rnd in rounds)

    def left_to_decode(self) -> int:
        """New tokens that may still come."""
        asked = sum(s["max_new_tokens"] for s in self.settings)
        return asked - sum(rnd.kept for trace in self.traces for rnd in trace.rounds)

    def push(self, event: Event) -> None:
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """Tell every listening browser to look again; from any thread."""
        for loop, flag in list(self._wake):
            if not loop.is_closed():
                loop.call_soon_threadsafe(flag.set)

    def snapshot(self, pane: int) -> tr.Trace | None:
        """The trace as it is now, safe to read while the run goes on; None if there is none (yet)."""
        if pane >= len(self.traces):
            return None
        trace = self.traces[pane]
        return replace(trace, rounds=list(trace.rounds), tokens=dict(trace.tokens))


# --- the queue --------------------------------------------------------------------------------------


class Sessions:
    """The queue in front of the engine, and the shelf of runs that can still be exported.

    One worker thread runs one job at a time, first come first served. A visitor has at most one run: pressing
    Run while one waits replaces it in its place; pressing Run while one decodes stops that one.
    """

    def __init__(self, engine: Engine, limits: Limits | None = None) -> None:
        self.engine = engine
        self.limits = limits or Limits()
        self._lock = threading.Condition()
        self._waiting: list[Job] = []
        self._running: Job | None = None
        self._shelf: OrderedDict[str, Job] = OrderedDict()
        self._tokens_per_second = 30.0  # until a run has been measured
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name="runs", daemon=True),
            threading.Thread(target=self._watch, name="leavers", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, visitor: str, prompt: Any, settings: Sequence[dict[str, Any]]) -> Job:
        """Queue a run. Raises DominoTreeError with one sentence, and changes nothing, if it cannot be run."""
        if self.engine.state in ("off", "failed"):
            raise DominoTreeError(self.engine.message)
        text = check_prompt(prompt, self.limits)
        if not 1 <= len(settings) <= 2:
            raise SettingsError("A run has one method, or two to compare.")
        job = Job(visitor, text, [check_settings(self.limits, **s) for s in settings])
        with self._lock:
            mine = [j for j in self._waiting if j.visitor == visitor]
            if not mine and len(self._waiting) >= self.limits.waiting:
                raise DominoTreeError(
                    f"{len(self._waiting)} runs are waiting already: try again in a minute, "
                    "or watch a recorded run."
                )
            if mine:
                self._waiting[self._waiting.index(mine[0])] = job
                self._end(mine[0], "cancelled")
            else:
                self._waiting.append(job)
            if self._running and self._running.visitor == visitor:
                self._running.cancel.set()
            self._shelf[job.token] = job
            self._tidy()
            self._lock.notify_all()
        return job

    def adopt(self, traces: list[tr.Trace], visitor: str) -> Job:
        """Keep an imported trace so that it can be exported like any other run."""
        job = Job(visitor, str(traces[0].prompt.get("text", "")), [], state="done", traces=traces)
        with self._lock:
            self._shelf[job.token] = job
            self._tidy()
        return job

    def find(self, token: str) -> Job | None:
        """The run with this token, if it is still kept."""
        with self._lock:
            return self._shelf.get(token)

    def stop(self, token: str) -> bool:
        """Stop a waiting or running job; False if there is no such job."""
        job = self.find(token)
        if job is None:
            return False
        with self._lock:
            job.cancel.set()
            if job in self._waiting:
                self._waiting.remove(job)
                self._end(job, "cancelled")
                self._moved()
        return True

    def place(self, job: Job) -> tuple[int, float]:
        """How many runs are before this one (0 = its turn) and the estimated seconds until its turn."""
        with self._lock:
            before = self._waiting[: self._waiting.index(job)] if job in self._waiting else []
            ahead = ([self._running] if self._running and self._running is not job else []) + before
            tokens = sum(max(0, j.left_to_decode()) for j in ahead)
            return len(ahead), tokens / self._tokens_per_second

    @property
    def load(self) -> int:
        """Runs waiting or decoding now."""
        with self._lock:
            return len(self._waiting) + (self._running is not None)

    def close(self) -> None:
        """Stop everything (server shutdown)."""
        with self._lock:
            self._closed = True
            for job in self._waiting:
                self._end(job, "cancelled")
            self._waiting.clear()
            if self._running:
                self._running.cancel.set()
            self._lock.notify_all()

    # -- a browser follows a run

    async def follow(self, job: Job, after: int = 0) -> AsyncIterator[tuple[int | None, str]]:
        """Events of a run as (number, JSON), those behind number ``after`` first and then as they come.

        Passing states (place in the queue, loading) have no number: they are not repeated after a reconnect.
        While nothing happens an empty string comes every few seconds: does the browser still take it?
        """
        flag = asyncio.Event()
        entry = (asyncio.get_running_loop(), flag)
        with self._lock:
            job.listeners += 1
            job.heard = True
            job._wake.append(entry)
        try:
            shown = None
            quiet = time.monotonic()
            while True:
                flag.clear()
                if job.state == "waiting":
                    place, seconds = self.place(job)
                    status = {"place": place, "seconds": round(seconds), "engine": self.engine.state}
                    if status != shown:
                        shown = status
                        quiet = time.monotonic()
                        yield None, json.dumps({"type": "waiting", **status})
                while after < len(job.events):
                    event = job.events[after]
                    after += 1
                    quiet = time.monotonic()
                    try:
                        yield after, await asyncio.to_thread(event.to_json)
                    except tr.TraceError as error:
                        log.exception("a round cannot be sent")
                        job.cancel.set()
                        yield after, json.dumps({"type": "error", "pane": event.pane, "message": str(error)})
                if job.over and after >= len(job.events):
                    return
                try:
                    await asyncio.wait_for(flag.wait(), 1.0)
                except TimeoutError:
                    if time.monotonic() - quiet > 5:
                        quiet = time.monotonic()
                        yield None, ""
        finally:
            with self._lock:
                job.listeners -= 1
                job.touched = time.monotonic()
                job._wake.remove(entry)

    # -- worker threads

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._closed and not (self._waiting and self.engine.state != "loading"):
                    self._lock.wait(0.1 if self._waiting else None)
                if self._closed:
                    return
                job = self._waiting.pop(0)
                self._running = job
                job.state = "running"
                self._moved()
            state, pane = "failed", 0
            try:
                for pane, settings in enumerate(job.settings):
                    if not job.cancel.is_set():
                        self._decode(job, pane, settings)
                state = "cancelled" if job.cancel.is_set() else "done"
            except Exception as error:
                if not isinstance(error, DominoTreeError):
                    log.exception("run failed")
                refused = len(job.traces) <= pane  # it never began to decode
                if not refused:
                    job.traces[pane].summary.setdefault("stop_reason", "error")
                job.push(Event("error", pane, data={"message": sentence(error), "refused": refused}))
            with self._lock:
                self._running = None
                self._end(job, state)
                self._tidy()
                self._moved()

    def _decode(self, job: Job, pane: int, settings: dict[str, Any]) -> None:
        run = self.engine.run(job.prompt, settings, job.cancel)
        trace = run.trace
        job.traces.append(trace)
        sent = 0
        started = time.monotonic()
        for rnd in run:
            if not trace.rounds or rnd is trace.rounds[0]:
                job.push(Event("start", pane, data=self._opening(trace)))
            fresh = dict(itertools.islice(trace.tokens.items(), sent, None))
            sent += len(fresh)
            job.push(Event("round", pane, rnd, fresh))
        if not trace.rounds:
            job.push(Event("start", pane, data=self._opening(trace)))
        kept = sum(rnd.kept for rnd in trace.rounds)
        spent = time.monotonic() - started
        if kept and spent > 0:
            self._tokens_per_second += 0.5 * (kept / spent - self._tokens_per_second)
        fresh = dict(itertools.islice(trace.tokens.items(), sent, None))
        job.push(Event("finish", pane, data={"tokens": {str(k): v for k, v in fresh.items()}}, trace=trace))

    @staticmethod
    def _opening(trace: tr.Trace) -> dict[str, Any]:
        """A trace without its rounds, from which the browser starts its own copy; the prefill's token with its text."""
        first = {str(t): text for t, text in trace.tokens.items() if t == trace.first_token}
        known = {
            "header": trace.header,
            "prompt": trace.prompt,
            "first_token": trace.first_token,
            "tokens": first,
        }
        return {"trace": {"schema": tr.SCHEMA, "version": tr.VERSION, **known, "rounds": [], "summary": {}}}

    def _watch(self) -> None:
        """Give up the runs of browsers that have left."""
        while True:
            with self._lock:
                while not self._closed and not self._waiting and self._running is None:
                    self._lock.wait()
                if self._closed:
                    return
                now = time.monotonic()
                jobs = [*self._waiting, *([self._running] if self._running else [])]
                left = [
                    j
                    for j in jobs
                    if not j.listeners
                    and now - j.touched > (self.limits.grace if j.heard else self.limits.grace_first)
                ]
            for job in left:
                self.stop(job.token)
            time.sleep(0.2)

    # -- with the lock held

    def _end(self, job: Job, state: str) -> None:
        job.state = state
        job.touched = time.monotonic()
        job.push(Event("end", data={"state": state}))

    def _moved(self) -> None:
        """The queue moved: everyone's place has changed."""
        for job in self._waiting:
            job.wake()
        self._lock.notify_all()

    def _tidy(self) -> None:
        """Drop the oldest finished runs beyond the limits."""
        now = time.monotonic()
        finished = [j for j in self._shelf.values() if j.over]
        nodes = sum(j.nodes for j in finished)
        for job in finished[:-1]:  # the newest stays, however large
            aged = now - job.touched > self.limits.kept_seconds
            if aged or len(self._shelf) > self.limits.kept_runs or nodes > self.limits.kept_nodes:
                nodes -= job.nodes
                del self._shelf[job.token]
