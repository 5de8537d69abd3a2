"""Measure what a round costs on this machine: ``dominotree profile``, and the quick look before a cost-aware run.

A *probe* gives callables that do one draft or one verify exactly as the runs of its engine do; this module times them
with the stage clock's own means (CUDA events on a GPU, ``perf_counter_ns`` on the CPU) and hands the samples to
``cost.fit``. Points are measured in turns, so that a slow moment of the machine touches all of them alike.
"""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

import dominotree
from dominotree import cost
from dominotree.checkpoints import Pair
from dominotree.errors import SettingsError
from dominotree.model import KVCache
from dominotree.timing import StageClock
from dominotree.tree import DraftTree

NODES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (64, 512, 2048)
REPEATS = 7
QUICK_NODES = (0, 1, 4, 8, 16, 32, 64, 128, 256)
QUICK_CONTEXTS = (256,)
QUICK_SECONDS = 2.5


class Probe(Protocol):
    """One engine's way to draft and to verify. Each method returns a callable that does it once."""

    engine: str

    def draft(self, kind: str, context: int) -> Callable[[], object]:
        """Backbone, LM head and root state of the ``kind`` drafter behind ``context`` committed rows."""

    def verify(self, nodes: int, context: int) -> Callable[[], object]:
        """The target's forward over the anchor and ``nodes`` nodes behind ``context`` committed rows."""


class EagerProbe:
    """The eager engine of ``decode.Run``. Keys and values are random: their content changes no time."""

    engine = "eager"

    def __init__(self, pair: Pair, contexts: Sequence[int], nodes: Sequence[int]) -> None:
        self.pair = pair
        longest = max(contexts)
        self.cache = pair.target.new_cache(longest + 1 + max(nodes))
        self.contexts = {d.config.kind: d.new_context(longest) for d in drafters(pair)}
        for cache in (self.cache, *self.contexts.values()):
            _fill(cache)

    def draft(self, kind: str, context: int) -> Callable[[], object]:
        pair, held = self.pair, self.contexts[kind]
        drafter = next(d for d in drafters(pair) if d.config.kind == kind)

        def once() -> object:
            held.length = context
            block = drafter.draft(held, 1)
            block.repair()
            if drafter.head is None:
                return block
            return drafter.head.advance(None, pair.target.embed(torch.tensor([1], device=pair.target.device)))

        return torch.inference_mode()(once)

    def verify(self, nodes: int, context: int) -> Callable[[], object]:
        target = self.pair.target
        tree = DraftTree()
        for node in range(nodes):
            tree.add(node % target.vocab_size, (node - 1) // 2 if node else -1, 0.0)  # a binary tree
        rows = torch.tensor(tree.rows(1), device=target.device) % target.vocab_size
        positions = torch.tensor(tree.positions(context), device=target.device)
        mask = tree.mask().to(target.device)

        def once() -> object:
            self.cache.length = context
            return target.verify(rows, positions, mask, self.cache)

        return once


def _fill(cache: KVCache) -> None:
    cache.k.normal_()
    cache.v.normal_()


def drafters(pair: Pair) -> list[Any]:
    """The pair's drafters, Domino first."""
    return [d for d in (pair.domino, pair.dflash) if d is not None]


def identity(pair: Pair, engine: str = EagerProbe.engine) -> dict[str, Any]:
    """What a profile of this pair on this machine must name (``cost.IDENTITY``)."""
    from dominotree.decode import machine_name

    return {
        "machine": machine_name(pair.target.device),
        "target": pair.target.name,
        "domino": pair.domino.name if pair.domino else None,
        "dflash": pair.dflash.name if pair.dflash else None,
        "dtype": str(pair.target.dtype).removeprefix("torch."),
        "engine": engine,
    }


def milliseconds(once: Callable[[], object], device: torch.device) -> float:
    """One call on an idle device, as a stage of a round is timed."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    clock = StageClock(device)
    with clock.stage("verify"):
        once()
    return clock.read()["verify"]


def measure(
    pair: Pair,
    probe: Probe,
    contexts: Sequence[int],
    nodes: Sequence[int],
    repeats: int,
    seconds: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Raw samples of every point, as ``cost.fit`` takes them.

    The first turn warms up and is not counted. ``seconds`` bounds the whole: node counts whose first turn would take
    more than a third of it are left out, and turns end when it is spent (the warm-up counts if nothing else does).
    """
    device, started = pair.target.device, time.perf_counter()
    points: list[tuple[dict[str, Any], Callable[[], object], float]] = []
    wanted: list[tuple[dict[str, Any], Callable[[], object]]] = []
    for context in contexts:
        for drafter in drafters(pair):
            kind = drafter.config.kind
            wanted.append(({"what": "draft", "kind": kind, "context": context}, probe.draft(kind, context)))
        wanted += [
            ({"what": "verify", "nodes": n, "context": context}, probe.verify(n, context)) for n in nodes
        ]
    dropped: set[int] = set()
    for row, once in wanted:
        if row.get("nodes") in dropped:
            continue
        if seconds is not None and row.get("nodes", 0) > 1 and time.perf_counter() - started > seconds / 3:
            dropped.update(n for n in nodes if n >= row["nodes"])
            continue
        points.append((row, once, milliseconds(once, device)))
    points = [p for p in points if p[0].get("nodes") not in dropped]
    samples: list[list[float]] = [[] for _ in points]
    for turn in range(repeats):
        if seconds is not None and turn and time.perf_counter() - started > seconds * turn / (turn + 1):
            break
        for k, (_, once, _) in enumerate(points):
            samples[k].append(milliseconds(once, device))
            if seconds is not None and time.perf_counter() - started > seconds:
                break
        say(f"\rturn {turn + 1} of {repeats}   ")
    say("\n")
    return [{**row, "ms": found or [first]} for (row, _, first), found in zip(points, samples, strict=True)]


def about(pair: Pair, engine: str, kind: str) -> dict[str, Any]:
    return {
        **identity(pair, engine),
        "kind": kind,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "dominotree": dominotree.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }


def full(
    pair: Pair,
    probe: Probe | None = None,
    contexts: Sequence[int] = CONTEXTS,
    max_nodes: int = NODES[-1],
    repeats: int = REPEATS,
    say: Callable[[str], None] = lambda text: None,
) -> cost.CostModel:
    """The whole profile. Contexts that the target or a drafter cannot hold are left out."""
    limit = pair.target.context_limit - 1 - max_nodes
    limit = min([limit, *(d.context_limit - d.config.block_size for d in drafters(pair))])
    fitting = sorted({c for c in contexts if 0 < c <= limit})
    if not fitting:
        raise SettingsError(
            f"none of the contexts {list(contexts)} fits; this pair allows 1 to {limit} rows."
        )
    counts = sorted({n for n in NODES if n < max_nodes} | {max_nodes})
    probe = probe or EagerProbe(pair, fitting, counts)
    raw = measure(pair, probe, fitting, counts, repeats, None, say)
    return cost.fit(about(pair, probe.engine, "full"), raw)


def quick(pair: Pair, probe: Probe | None = None, seconds: float = QUICK_SECONDS) -> cost.CostModel:
    """A profile in about ``seconds``: one context, fewer counts, as many turns as fit."""
    limit = min(
        [pair.target.context_limit - 2, *(d.context_limit - d.config.block_size for d in drafters(pair))]
    )
    contexts = sorted({max(1, min(c, limit // 2)) for c in QUICK_CONTEXTS})
    counts = [n for n in QUICK_NODES if n < pair.target.context_limit - 1 - contexts[-1]] or [0]
    probe = probe or EagerProbe(pair, contexts, counts)
    return cost.fit(about(pair, probe.engine, "quick"), measure(pair, probe, contexts, counts, 20, seconds))


def table(model: cost.CostModel) -> str:
    """Measured medians and the fit, as text."""
    import numpy as np

    found = {
        (r["context"], r["nodes"]): float(np.median(r["ms"])) for r in model.raw if r["what"] == "verify"
    }
    lines = [
        f"{'nodes':>6}" + "".join(f"{f'context {c}':>20}" for c in model.contexts) + "   ms measured / fitted"
    ]
    for k, n in enumerate(model.nodes):
        cells = [f"{found.get((c, n), float('nan')):>10.2f} /{model.verify_ms[i][k]:>8.2f}" for i, c in enumerate(model.contexts)]  # fmt: skip
        lines.append(f"{n:>6}" + "".join(cells))
    for kind, row in model.draft_ms.items():
        lines.append(f"{kind + ' draft':>6}: " + ", ".join(f"{ms:.2f}" for ms in row) + " ms")
    return "\n".join(lines)
