"""Measure what a round costs on this machine: ``dominotree profile``, and the quick look before a cost-aware run.

A *probe* knows one engine: it gives callables, one per point (a drafter, or a number of nodes, behind a context), and
each call of one returns milliseconds, measured as that engine's rounds measure their stages. ``EagerProbe`` calls draft
and verify of the eager engine alone; ``RunProbe`` takes the stage times out of short runs of any other engine, so graphs,
buckets and padding rows are in them. Points are measured in turns, so that a slow moment of the machine touches all of
them alike, and the samples go to ``cost.fit``.
"""

from __future__ import annotations

import datetime
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

import dominotree
from dominotree import cost
from dominotree.checkpoints import Pair
from dominotree.errors import SettingsError
from dominotree.model import KVCache
from dominotree.timing import StageClock
from dominotree.tree import DraftTree

if TYPE_CHECKING:
    from dominotree.gpu.plan import Plan

NODES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONTEXTS = (64, 512, 2048)
REPEATS = 7
QUICK_NODES = (0, 1, 4, 8, 16, 32, 64, 128, 256)
QUICK_CONTEXTS = (256,)
QUICK_SECONDS = 2.5
#: A captured engine verifies at powers of two (and one more row for the anchor); each size is a graph of its own.
CAPTURED_NODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
QUICK_CAPTURED_NODES = (0, 16, 256)


Call = Callable[[], float]  # one measurement of a point, ms


class Probe(Protocol):
    """One engine's way to draft and to verify. ``turns``: measure the points in turns, else each one to its end."""

    engine: str
    turns: bool

    def draft(self, kind: str, context: int) -> Call:
        """Backbone, LM head and root state of the ``kind`` drafter behind ``context`` committed rows."""

    def verify(self, nodes: int, context: int) -> Call:
        """The target's forward over the anchor and ``nodes`` nodes behind ``context`` committed rows."""


class EagerProbe:
    """The eager engine of ``decode.Run``. Keys and values are random: their content changes no time."""

    engine = "eager"
    turns = True

    def __init__(self, pair: Pair, contexts: Sequence[int], nodes: Sequence[int]) -> None:
        self.pair = pair
        longest = max(contexts)
        self.cache = pair.target.new_cache(longest + 1 + max(nodes))
        self.contexts = {d.config.kind: d.new_context(longest) for d in drafters(pair)}
        for cache in (self.cache, *self.contexts.values()):
            _fill(cache)

    def draft(self, kind: str, context: int) -> Call:
        pair, held = self.pair, self.contexts[kind]
        drafter = next(d for d in drafters(pair) if d.config.kind == kind)

        def once() -> object:
            held.length = context
            block = drafter.draft(held, 1)
            block.repair()
            if drafter.head is None:
                return block
            return drafter.head.advance(None, pair.target.embed(torch.tensor([1], device=pair.target.device)))

        return lambda: milliseconds(torch.inference_mode()(once), pair.target.device)

    def verify(self, nodes: int, context: int) -> Call:
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

        return lambda: milliseconds(once, target.device)


class RunProbe:
    """Any engine, by short runs on a prompt of ``context`` tokens: the stage times of their rounds.

    ``asked``: the settings that choose the engine. Trees are marginal ones of the Domino drafter, whose build is cheap;
    what a verify takes does not depend on the tokens. Zero nodes is a round of ``ar``.
    """

    turns = False  # a pair keeps few graphs: going round would make them anew each time
    rounds = 12  # of one run that count; the first one (first launches) does not

    def __init__(self, pair: Pair, asked: Mapping[str, Any], engine: str) -> None:
        self.pair, self.asked, self.engine = pair, dict(asked), engine

    def draft(self, kind: str, context: int) -> Call:
        method = "dominotree" if kind == "domino" else "ddtree"
        return self._stage("draft", method, 1, context)

    def verify(self, nodes: int, context: int) -> Call:
        wide = "marginal" if self.pair.domino is not None else "ddtree"
        return self._stage("verify", wide if nodes else "ar", max(nodes, 1), context)

    def _stage(self, stage: str, method: str, budget: int, context: int) -> Call:
        from dominotree.decode import Run, Settings

        asked = {"max_new_tokens": 32 * self.rounds, **self.asked}
        settings = Settings(method=method, budget=budget, **asked)
        vocab = self.pair.target.vocab_size
        prompt = [(7919 * k + 17) % vocab for k in range(context)]

        def once() -> float:
            made = Run(self.pair, prompt_ids=prompt, settings=settings, record=False)
            made.stop_ids = frozenset()  # a measurement does not end where the text would
            run = iter(made)
            found = [rnd.times_ms[stage] for rnd, _ in zip(run, range(self.rounds + 1), strict=False)]
            run.close()  # type: ignore[attr-defined]
            return statistics.median(found[1:] or found)

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

    In turns: the first one warms up and is not counted. ``seconds`` bounds the whole: node counts whose first turn would
    take more than a third of it are left out, and turns end when it is spent (the warm-up counts if nothing else does).
    """
    points: list[tuple[dict[str, Any], Call]] = []
    if not probe.turns:  # the longest first: a cache that grows would drop every graph made so far
        contexts = sorted(contexts, reverse=True)
    for context in contexts:
        for drafter in drafters(pair):
            kind = drafter.config.kind
            points.append(({"what": "draft", "kind": kind, "context": context}, probe.draft(kind, context)))
        points += [
            ({"what": "verify", "nodes": n, "context": context}, probe.verify(n, context)) for n in nodes
        ]
    if not probe.turns:
        rows = []
        for number, (row, once) in enumerate(points):
            rows.append({**row, "ms": [once() for _ in range(repeats)]})
            say(f"\rpoint {number + 1} of {len(points)}   ")
        say("\n")
        return rows
    started = time.perf_counter()
    largest = max(nodes)
    warm: list[tuple[dict[str, Any], Call, float]] = []
    for row, once in points:
        n = row.get("nodes", 0)
        if seconds is not None and n > 1 and time.perf_counter() - started > seconds / 3:
            largest = min(largest, max(m for m in nodes if m < n))
        if n <= largest:
            warm.append((row, once, once()))
    warm = [entry for entry in warm if entry[0].get("nodes", 0) <= largest]
    samples: list[list[float]] = [[] for _ in warm]
    for turn in range(repeats):
        if seconds is not None and turn and time.perf_counter() - started > seconds * turn / (turn + 1):
            break
        for k, (_, once, _) in enumerate(warm):
            samples[k].append(once())
            if seconds is not None and time.perf_counter() - started > seconds:
                break
        say(f"\rturn {turn + 1} of {repeats}   ")
    say("\n")
    return [{**row, "ms": found or [first]} for (row, _, first), found in zip(warm, samples, strict=True)]


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


def engine_name(plan: Plan) -> str:
    """What a profile calls the engine of a run's plan: one whose forwards take other times has another name."""
    return plan.engine if plan.engine == EagerProbe.engine else f"{plan.engine}-{plan.forward}"


def engine_of(pair: Pair, asked: Mapping[str, Any]) -> str:
    """The engine that a cost-aware run with these settings gets on this pair."""
    from dominotree.decode import Settings
    from dominotree.gpu.plan import plan

    settings = Settings(method="condadaptive" if pair.domino is not None else "caddtree", **asked)
    return engine_name(plan(settings, pair.target, drafters(pair)[0]))


def full(
    pair: Pair,
    asked: Mapping[str, Any] | None = None,
    contexts: Sequence[int] = CONTEXTS,
    max_nodes: int = NODES[-1],
    repeats: int = REPEATS,
    say: Callable[[str], None] = lambda text: None,
) -> cost.CostModel:
    """The whole profile of the engine that the settings ``asked`` (engine, forward) choose.

    Contexts that the target or a drafter cannot hold are left out.
    """
    limit = pair.target.context_limit - 1 - max_nodes
    limit = min([limit, *(d.context_limit - d.config.block_size for d in drafters(pair))])
    fitting = sorted({c for c in contexts if 0 < c <= limit})
    if not fitting:
        raise SettingsError(
            f"none of the contexts {list(contexts)} fits; this pair allows 1 to {limit} rows."
        )
    engine = engine_of(pair, asked or {})
    eager = engine == EagerProbe.engine
    counts = sorted({n for n in (NODES if eager else CAPTURED_NODES) if n < max_nodes} | {max_nodes})
    probe: Probe = EagerProbe(pair, fitting, counts) if eager else RunProbe(pair, asked or {}, engine)
    raw = measure(pair, probe, fitting, counts, repeats if probe.turns else max(1, repeats // 3), None, say)
    return cost.fit(about(pair, engine, "full"), raw)


def quick(
    pair: Pair,
    asked: Mapping[str, Any] | None = None,
    seconds: float = QUICK_SECONDS,
    probe: Probe | None = None,
) -> cost.CostModel:
    """A profile in about ``seconds``: one context, fewer counts, as many turns as fit.

    A captured engine takes as long as its graphs of three sizes take to make. Not to be called while a run of the pair
    is open.
    """
    limit = min(
        [pair.target.context_limit - 2, *(d.context_limit - d.config.block_size for d in drafters(pair))]
    )
    contexts = sorted({max(1, min(c, limit // 2)) for c in QUICK_CONTEXTS})
    room = pair.target.context_limit - 1 - contexts[-1]
    engine = probe.engine if probe else engine_of(pair, asked or {})
    wanted = QUICK_NODES if probe or engine == EagerProbe.engine else QUICK_CAPTURED_NODES
    counts = [n for n in wanted if n < room] or [0]
    if probe is None:
        eager = engine == EagerProbe.engine
        probe = EagerProbe(pair, contexts, counts) if eager else RunProbe(pair, asked or {}, engine)
    raw = measure(pair, probe, contexts, counts, 20 if probe.turns else 1, seconds)
    return cost.fit(about(pair, engine, "quick"), raw)


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
