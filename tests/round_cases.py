"""What a static round must do, whatever runs it: used on the CPU (steps one by one) and on a GPU (captured)."""

from __future__ import annotations

import random

import torch
from tiny import TINY, TINY_COSTS, ByteTokenizer, drafter_config, random_weights

from dominotree.calibration import Calibration
from dominotree.checkpoints import Pair
from dominotree.decode import Run, Settings
from dominotree.drafter import Drafter, DrafterConfig
from dominotree.methods import METHODS
from dominotree.model import ModelConfig
from dominotree.target import Target
from dominotree.tree import DraftTree

ADAPTIVE = [m.name for m in METHODS.values() if m.adaptive]
METHOD_NAMES = [m.name for m in METHODS.values() if not m.adaptive]
PROMPT = [5, 9, 2, 30]


def small_pair(
    device: str, seed: int = 0, stop_ids=(), dtype: torch.dtype = torch.float32, **changes
) -> Pair:
    """A small random pair (heads of 64 dimensions, so that every attention backend of a GPU is open to it)."""
    shape = {"head_dim": 64, "hidden_size": 128, "intermediate_size": 192, "vocab_size": 320, **changes}
    config = ModelConfig.from_dict({**TINY, **shape}, "small target")

    def weights(shapes, number):
        return {k: v.to(device, dtype) for k, v in random_weights(shapes, number, 2.0).items()}

    target = Target(config, weights(Target.weight_shapes(config), seed), (0, 2), "small target")
    d = DrafterConfig.from_dict(drafter_config(**shape), "small drafter")
    drafter = Drafter(d, weights(Drafter.weight_shapes(d), seed + 1), target, "small drafter")
    return Pair(target, ByteTokenizer(stop_ids), drafter, None, {"name": "small"})


def decode(
    pair: Pair, engine: str, method: str = "dominotree", record: bool = False, prompt=None, **settings
) -> Run:
    settings.setdefault("max_new_tokens", 32)
    extra = {k: settings.pop(k) for k in ("cache_rows", "cancel") if k in settings}
    s = Settings(method=method, engine=engine, **settings)
    run = Run(pair, prompt_ids=prompt or PROMPT, settings=s, record=record, **extra)
    list(run)
    return run


def facts(run: Run) -> tuple:
    """Everything of a run but its times."""
    rounds = [
        (r.anchor, r.position, r.path, r.committed, r.kept, r.depth_reached, r.verified_nodes, own_flags(r))
        for r in run.trace.rounds
    ]
    return run.output, rounds, run.trace.summary["stop_reason"]


def own_flags(rnd) -> list[str]:
    """A round's flags without the notice of how it was built."""
    return [f for f in rnd.flags if f != "host-built"]


def check_method(pair: Pair, engine: str, method: str, temperature: float, builder: str = "auto") -> None:
    for prompt, seed in ((PROMPT, 0), ([11, 12], 7)):
        s = {"temperature": temperature, "seed": seed, "prompt": prompt}
        got, expected = decode(pair, engine, method, builder=builder, **s), decode(pair, "eager", method, **s)
        assert facts(got) == facts(expected)
        assert got.output == decode(pair, "eager", "ar", **s).output
        assert got.trace.header["settings"]["graph"] == ("yes" if engine == "graph" else "no")
        for r in got.trace.rounds:
            assert set(r.times_ms) == {"draft", "build", "verify", "commit"} and r.times_ms["verify"] > 0
            assert (r.times_ms["draft"] > 0) == (method != "ar")


def check_recorded(pair: Pair, engine: str, method: str, tolerance: float) -> None:
    got, expected = (decode(pair, e, method, record=True, max_new_tokens=24) for e in (engine, "eager"))
    assert facts(got) == facts(expected)
    for a, b in zip(got.trace.rounds, expected.trace.rounds, strict=True):
        assert (a.nodes.token, a.nodes.parent, a.nodes.trees) == (
            b.nodes.token,
            b.nodes.parent,
            b.nodes.trees,
        )
        assert a.nodes.target_rank == b.nodes.target_rank and a.nodes.accepted == b.nodes.accepted
        for name in ("base_logit", "conditional", "static", "marginal", "target_logprob", "cum_conditional"):
            for x, y in zip(getattr(a.nodes, name), getattr(b.nodes, name), strict=True):
                assert (x is None) == (y is None) and (x is None or abs(x - y) <= tolerance), name
        assert [(v.node, v.chosen) for v in a.visits] == [(v.node, v.chosen) for v in b.visits]
        assert len(a.pops) == len(b.pops)
    assert facts(decode(pair, engine, method, max_new_tokens=24)) == facts(got), "recording changes nothing"


def check_adaptive(pair: Pair, engine: str, method: str, builder: str) -> None:
    """Cost-aware trees have the size of the eager ones and are verified at a size that holds them."""
    pair.costs = TINY_COSTS
    pair.calibration = Calibration({}, (-9.0, -2.0, -0.5), (-8.0, -2.5, -0.7))
    sizes = set()
    for budget in (24, 40):
        got = decode(pair, engine, method, builder=builder, budget=budget, max_new_tokens=30)
        expected = decode(pair, "eager", method, budget=budget, max_new_tokens=30)
        assert facts(got) == facts(expected)
        sizes |= {r.verified_nodes for r in got.trace.rounds}
    assert len(sizes) > 1


def check_limits(device: str, engine: str) -> None:
    """E40, E41: trees shrink near the end of the context or the cache; past the drafter's limit drafting is off."""
    short = small_pair(device, 1, max_position_embeddings=24)
    for method in ("ar", "domino", "dominotree"):
        got, expected = (decode(short, e, method, max_new_tokens=100) for e in (engine, "eager"))
        assert facts(got) == facts(expected) and len(got.output) == 20
        assert got.trace.summary["stop_reason"] == "context"
    pair = small_pair(device, 2)
    for method in ("domino", "dominotree"):
        got, expected = (decode(pair, e, method, max_new_tokens=24, cache_rows=28) for e in (engine, "eager"))
        assert facts(got) == facts(expected) and "tree-shrunk" in got.trace.rounds[-1].flags
    limit = pair.domino.config.model.__class__(
        **{**pair.domino.config.model.__dict__, "max_position_embeddings": 32}
    )
    object.__setattr__(pair.domino.config, "model", limit)
    for prompt in (PROMPT, [(3 * i + 1) % 300 for i in range(30)]):
        got, expected = (decode(pair, e, prompt=prompt, max_new_tokens=60) for e in (engine, "eager"))
        assert facts(got) == facts(expected) and "drafting-off" in got.trace.rounds[-1].flags


def check_stops(device: str, engine: str) -> None:
    """E02, E04, E39: every stop id ends the output wherever it comes; lengths are exact."""
    pair = small_pair(device)
    text = decode(pair, "eager", "ar").output
    for stop in (text[0], text[7], text[20]):
        stopping = small_pair(device, stop_ids=[stop, 319])
        for method in ("ar", "domino", "dominotree"):
            assert facts(decode(stopping, engine, method)) == facts(decode(stopping, "eager", method))
    for n in range(10):
        for method in ("ar", "dominotree"):
            assert decode(pair, engine, method, max_new_tokens=n).output == text[:n]


def random_tree(nodes: int, levels: int, vocab: int, rng: random.Random) -> DraftTree:
    """A tree of random shape whose tokens are small numbers, so that they are often chosen."""
    tree = DraftTree()
    while len(tree) < nodes:
        parent = rng.choice([-1, *(i for i in range(len(tree)) if tree.depth[i] < levels)])
        taken = {t for t, p in zip(tree.token, tree.parent, strict=True) if p == parent}
        token = rng.choice([t for t in range(min(vocab, len(taken) + 6)) if t not in taken])
        tree.add(token, parent, 0.0)
    return tree
