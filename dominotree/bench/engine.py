"""``dominotree bench engine``: how fast the engine is on this GPU, beside what its memory traffic would allow.

Random weights at the Qwen3-4B and 8B shapes, bf16, batch 1, base-logit deviation 8. Builders alone (cold L2), then whole
rounds through the captured pipeline with acceptance forced to seven tokens a round by the device's own walk; medians of
the rounds after the tenth. ``floor_ms``: the bytes that must be read once, at the bandwidth measured in the same run.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dominotree import __version__
from dominotree.bench.build import BUDGETS, BUILDERS, build_times
from dominotree.bench.shapes import NumberTokenizer, random_pair
from dominotree.checkpoints import Pair
from dominotree.decode import Run, Settings, machine_name
from dominotree.drafter import Drafter
from dominotree.errors import SettingsError
from dominotree.model import DecoderLayer
from dominotree.target import Target

MODELS, CONTEXTS = ("qwen3-4b", "qwen3-8b"), (512, 2048)
FORCED_DRAFTS = 6  # accepted drafts of a round; with the bonus seven tokens
STAGES = ("draft", "build", "verify", "commit")


def bandwidth(device: torch.device) -> float:
    """Bytes per second of reading device memory: the best of ten sums over 4 GiB."""
    data = torch.ones(2**30, device=device)
    best = 0.0
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        data.sum()
        end.record()
        torch.cuda.synchronize()
        best = max(best, data.numel() * 4 / (begin.elapsed_time(end) / 1e3))
    return best


def layer_bytes(layer: DecoderLayer) -> int:
    """Bytes of a layer's matrices."""
    return sum(w.numel() * w.element_size() for w in (layer.qkv, layer.o, layer.gate_up, layer.down))


def _row_bytes(target: Target) -> int:
    """Bytes of one cache row of one layer."""
    c = target.config
    return 2 * c.num_kv_heads * c.head_dim * target.embedding.element_size()


def floors(target: Target, drafter: Drafter, context: int, speed: float) -> dict[str, float]:
    """Milliseconds that reading each weight and each context key and value once takes, by stage."""
    head = target.head.numel() * target.head.element_size()

    def cache(layers: int, groups: int, d: int) -> int:
        return 2 * layers * groups * d * context * 2

    t, d = target.config, drafter.config.model
    verify = sum(map(layer_bytes, target.layers)) + head + cache(t.num_layers, t.num_kv_heads, t.head_dim)
    draft = sum(map(layer_bytes, drafter.layers)) + head + cache(d.num_layers, d.num_kv_heads, d.head_dim)
    kv = 2 * d.num_kv_heads * d.head_dim * d.hidden_size * 2 * d.num_layers
    commit = drafter.fc.numel() * drafter.fc.element_size() + kv
    found = {"verify": verify, "draft": draft, "commit": commit}
    ms = {name: amount / speed * 1e3 for name, amount in found.items()}
    return {**ms, "ar": ms["verify"], "round": sum(ms.values())}


def rounds(
    pair: Pair, method: str, budget: int, context: int, count: int, forced: int | None
) -> tuple[dict[str, float], dict[str, Any]]:
    """Median milliseconds by stage and of the whole, and what else is worth keeping, of ``count`` captured rounds."""
    generator = torch.Generator().manual_seed(context)
    prompt = torch.randint(0, pair.target.vocab_size, (context,), generator=generator).tolist()
    tokens = count * (1 + (forced or 0))
    for warm in (True, False):  # the first run captures the graphs
        settings = Settings(
            method=method, budget=budget, max_new_tokens=min(tokens, 40) if warm else tokens, engine="graph"
        )
        run = Run(pair, prompt_ids=prompt, settings=settings, record=False)
        run.forced = forced
        ends = [time.perf_counter() for _ in run]
    wall = statistics.median(b - a for a, b in itertools.pairwise(ends))
    kept = run.trace.rounds[10:]
    ms = {name: statistics.median(r.times_ms.get(name, 0.0) for r in kept) for name in STAGES}
    whole = [sum(r.times_ms.values()) for r in kept]
    ms["round"] = statistics.median(whole)
    chosen = run.trace.header["settings"]
    tenth = max(1, len(whole) // 10)
    return ms, {
        "builder": chosen["builder"], "forward": chosen["forward"], "rounds": len(run.trace.rounds),
        "tokens_per_round": run.trace.summary["tau"], "mean_depth": statistics.mean(r.depth_reached for r in kept),
        "wall_ms_per_round": wall * 1e3,
        "first_ms": statistics.median(whole[:tenth]), "last_ms": statistics.median(whole[-tenth:]),
    }  # fmt: skip


def measure(
    models: list[str],
    contexts: list[int],
    budgets: list[int],
    count: int,
    builders: list[str],
    keep: Callable[[dict[str, Any]], None] = lambda result: None,
    say: Any = print,
) -> dict[str, Any]:
    """The whole result: a header and rows (model, context, what, budget, ms, floor_ms, ratio and notes).

    ``keep`` gets what there is after every model, so that an interrupted run is not lost.
    """
    device = torch.device("cuda")
    speed = bandwidth(device)
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    say(f"{machine_name(device)}: {speed / 1e12:.2f} TB/s read")

    def result() -> dict[str, Any]:
        return {
            "bench": "engine",
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine_name(device),
            "bandwidth_tb_s": speed / 1e12,
            "seconds": round(time.perf_counter() - started, 1),
            "versions": {
                "dominotree": __version__,
                "torch": str(torch.__version__),
                "cuda": str(torch.version.cuda),
            },
            "rows": rows,
        }

    def note(row: dict[str, Any]) -> None:
        floor = row.get("floor_ms")
        row["ratio"] = row["ms"] / floor if floor else None
        rows.append(row)
        extra = f"floor {floor:7.3f}  ratio {row['ratio']:5.2f}" if floor else ""
        where = (
            f"{row['model']:9} {row.get('context') or '':>5} {row['what']:20} {row.get('budget') or '':>4}"
        )
        say(f"{where} {row['ms']:8.3f} ms  {extra}")

    for name in models:
        if builders:
            for row in build_times(name, budgets, inputs=8, builders=builders, repeats=3):
                note({"context": None, **row})
            torch.cuda.empty_cache()
        target, drafter = random_pair(name, device)
        pair = Pair(target, NumberTokenizer(), drafter, None, {"name": f"random {name}"})  # type: ignore[arg-type]
        weights = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()  # making the weights took more than keeping them
        for context in contexts:
            floor = floors(target, drafter, context, speed)
            ms, more = rounds(pair, "ar", 16, context, 60, None)
            note({"model": name, "context": context, "what": "ar", "budget": None, "ms": ms["round"],
                  "floor_ms": floor["ar"], **more})  # fmt: skip
            for budget in budgets:
                long = budget == min(budgets) and context == min(contexts)
                ms, more = rounds(pair, "dominotree", budget, context, 200 if long else count, FORCED_DRAFTS)
                for stage in STAGES:
                    note({"model": name, "context": context, "what": stage, "budget": budget, "ms": ms[stage],
                          "floor_ms": floor.get(stage)})  # fmt: skip
                note({"model": name, "context": context, "what": "round", "budget": budget, "ms": ms["round"],
                      "floor_ms": floor["round"], **more})  # fmt: skip
        used = torch.cuda.max_memory_allocated() - weights
        cache = (
            pair.engines["graph"].capacity * pair.target.config.num_layers * _row_bytes(pair.target) / 2**30
        )
        say(
            f"{name}: {used / 2**30:.2f} GiB over the weights at most, {cache:.2f} of them the target's cache"
        )
        rows.append(
            {
                "model": name,
                "what": "memory",
                "ms": None,
                "gib_over_weights": used / 2**30,
                "gib_cache": cache,
            }
        )
        del pair, target, drafter
        torch.cuda.empty_cache()
        keep(result())
    return result()


def main(argv: list[str]) -> int:
    """Options of ``dominotree bench engine``. Raises SettingsError where there is no GPU."""
    parser = argparse.ArgumentParser(prog="dominotree bench engine", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--contexts", nargs="+", type=int, default=list(CONTEXTS))
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--rounds", type=int, default=40, help="measured rounds per row (200 for the first)")
    parser.add_argument(
        "--builders", nargs="*", default=list(BUILDERS), choices=BUILDERS, help="builders to time alone"
    )
    parser.add_argument("--json", type=Path, help="write the result there")
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        raise SettingsError("bench engine measures a CUDA GPU, and there is none here.")

    def keep(result: dict[str, Any]) -> None:
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    keep(measure(args.models, args.contexts, args.budgets, args.rounds, args.builders, keep))
    return 0
