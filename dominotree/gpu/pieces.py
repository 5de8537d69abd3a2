"""A piece of a round that is launched as one: named steps, captured in a CUDA graph or run one by one.

Between two steps stands a time stamp: a CUDA event inside the graph, so that stage times cost no launch and no
synchronisation (engine.md §9); ``perf_counter_ns`` on the CPU.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Step = tuple[str, Callable[[], None]]


class Piece:
    """Steps run one by one on the current device, with a stamp before, between and after them."""

    def __init__(self, steps: Sequence[Step], device: torch.device) -> None:
        self.steps, self.cuda = list(steps), device.type == "cuda"
        self.stamps: list[Any] = []

    def launch(self) -> None:
        self.stamps = [self._stamp()]
        for _, step in self.steps:
            step()
            self.stamps.append(self._stamp())

    def _stamp(self) -> Any:
        if not self.cuda:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self) -> list[tuple[str, float]]:
        """(step, ms) of the last launch; the device must have finished it."""
        pairs = zip(self.steps, self.stamps, self.stamps[1:], strict=False)
        return [(name, elapsed(a, b)) for (name, _), a, b in pairs]


class CapturedPiece(Piece):
    """The same steps in a CUDA graph. ``undo`` restores what the warm-up before the capture changed."""

    def __init__(
        self, steps: Sequence[Step], device: torch.device, pool: Any, undo: Callable[[], None]
    ) -> None:
        super().__init__(steps, device)
        self.graph = torch.cuda.CUDAGraph()
        current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
        side.wait_stream(current)
        collecting = gc.isenabled()
        gc.disable()  # a collection during the capture could free device objects, which ends the capture
        try:
            with torch.cuda.stream(side):
                for _, step in self.steps:
                    step()
                undo()
                side.synchronize()
                self.graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    self.stamps = [self._external()]
                    for _, step in self.steps:
                        step()
                        self.stamps.append(self._external())
                finally:
                    self.graph.capture_end()
        finally:
            if collecting:
                gc.enable()
        current.wait_stream(side)

    @staticmethod
    def _external() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True, external=True)
        event.record()
        return event

    def launch(self) -> None:
        self.graph.replay()


def elapsed(start: Any, stop: Any) -> float:
    """Milliseconds between two stamps."""
    return (stop - start) / 1e6 if isinstance(start, int) else start.elapsed_time(stop)
