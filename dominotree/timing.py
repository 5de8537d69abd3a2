"""Stage clocks with the same boundaries for every method (engine.md §9)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StageClock:
    """Milliseconds per stage of one round: CUDA events on a GPU, ``perf_counter_ns`` on the CPU.

    draft = backbone, LM head, root GRU state; build = top-M through ids, positions, mask; verify = the target's
    forward; commit = choice, walk, KV, features. What runs outside a ``stage`` block is not timed.
    """

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self._spans: list[tuple[str, object, object]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = self._now()
        yield
        self._spans.append((name, start, self._now()))

    def _now(self) -> object:
        if not self.cuda:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def read(self) -> dict[str, float]:
        """Milliseconds by stage; waits for the device once."""
        if self.cuda:
            torch.cuda.synchronize()
        total = dict.fromkeys(("draft", "build", "verify", "commit"), 0.0)
        for name, start, stop in self._spans:
            ms = start.elapsed_time(stop) if self.cuda else (stop - start) / 1e6  # type: ignore[attr-defined, operator]
            total[name] = total.get(name, 0.0) + ms
        return total
