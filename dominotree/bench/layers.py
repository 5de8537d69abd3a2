"""Where a decoder layer's time goes on this GPU: ``python -m dominotree.bench.layers``.

A stack of layers at a released shape, random weights, captured as one CUDA graph: µs per layer, the weights' floor beside
it, and the steps between (``--trace``: clocks of every multiprocessor: least, mean and most over them, means over layers).
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import torch
from torch import Tensor

from dominotree.bench.attention import median_ms
from dominotree.bench.engine import bandwidth, layer_bytes
from dominotree.bench.shapes import TARGETS, random_weights
from dominotree.gpu.attention import Cut
from dominotree.gpu.forward import DecoderStack
from dominotree.gpu.gemm import SHARED_LIMIT
from dominotree.model import KVCache
from dominotree.target import Target

CONTEXT = 512
PRODUCTS = ("output", "gate-up", "down", "qkv")
STEPS = (
    "start", "first stage", "products", "partner", "written", "announced", "weights from", "weights to", "rows complete",
)  # fmt: skip


def cycles_per_us(clocks: Tensor) -> float:
    """The clock that a trace ran at, which is not the nominal one: cycles over nanoseconds from a block's rows to its last
    announcement, both stamped one after the other by each multiprocessor. float64 [layers, multiprocessors, 4, 16]; those
    that did nothing in the last product are left out."""
    cycles, ns = clocks[:, :, 3, 5] - clocks[:, :, 0, 0], clocks[:, :, 3, 12] - clocks[:, :, 0, 11]
    worked = (clocks[:, :, 3, 5] > 0) & (clocks[:, :, 0, 11] > 0)
    return (cycles[worked].sum() / ns[worked].sum() * 1e3).item()


class Stack:
    """``layers`` decoder layers of a shape with random weights, n rows behind CONTEXT rows of cache."""

    def __init__(self, model: str, layers: int) -> None:
        self.config = dataclasses.replace(TARGETS[model], num_layers=layers, vocab_size=1024)
        device, bf16 = torch.device("cuda"), torch.bfloat16
        target = Target(
            self.config,
            random_weights(Target.weight_shapes(self.config), device, bf16, 0),
            tuple(range(layers)),
        )
        self.target, self.layers = target, target.layers
        self.bytes = sum(map(layer_bytes, self.layers))

    def prepare(self, n: int, **options: Any) -> tuple[DecoderStack, Any]:
        """A stack and the function that launches it."""
        device = torch.device("cuda")
        cache = KVCache(self.config, 1024, device, torch.bfloat16)
        stack = DecoderStack(self.config, self.layers, self.target.norm, n, cache, 1024, **options)
        ids = torch.randint(1024, (n,), device=device)
        positions = CONTEXT + torch.arange(n, device=device)
        mask = torch.ones(n, n, device=device, dtype=torch.bool).tril()
        length = torch.tensor([CONTEXT], device=device)
        return stack, lambda: stack.launch(ids, self.target.embedding, positions, mask, length)

    def time(self, n: int, **options: Any) -> tuple[DecoderStack, float]:
        """µs per layer of a captured launch."""
        stack, launch = self.prepare(n, **options)
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        return stack, median_ms(graph.replay, 20) * 1e3 / len(self.layers)

    def trace(self, n: int, **options: Any) -> tuple[list[tuple[str, str, Tensor]], dict[str, float]]:
        """(product, step, µs since the block's rows were there: least, mean, most over the multiprocessors); and in µs:
        a block's time from there, the gap to the next block's, its start before them. Means over the layers."""
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        clocks = torch.zeros(len(self.layers), processors, 4, 16, device="cuda", dtype=torch.long)
        _, launch = self.prepare(n, traces=clocks, **options)
        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        inner = clocks[1:-1].double()
        clock = cycles_per_us(inner)
        since = (inner - inner[:, :, :1, :1]) / clock
        found = []
        for i, name in enumerate(PRODUCTS):
            for step, label in enumerate(STEPS):
                there = inner[:, :, i, step] > 0
                of = since[:, :, i, step]
                least = of.masked_fill(~there, float("inf")).amin(1).mean()
                most = of.masked_fill(~there, float("-inf")).amax(1).mean()
                found.append((name, label, torch.stack([least, of[there].mean(), most])))
        started, ready = inner[:, :, 0, 10].mean(1) / 1e3, inner[:, :, 0, 11].mean(1) / 1e3
        ended = inner[:, :, 3, 12].mean(1) / 1e3
        whole = {
            "block": (ended - ready).mean().item(), "gap": (ready[1:] - ended[:-1]).mean().item(),
            "ahead": (ready - started).mean().item(), "clock": clock,
        }  # fmt: skip
        return found, whole


def variants(stack: DecoderStack) -> list[tuple[str, dict[str, Any]]]:
    """Other cuts of attention, and rooms of the ring, that are worth a comparison."""
    own: Cut = stack.attention.cut
    c, n = stack.config, stack.n
    found: list[tuple[str, dict[str, Any]]] = [("as planned", {})]
    for un, stages in dict.fromkeys(((own.un, own.stages), (1, 2), (1, 1))):
        shape = dataclasses.replace(own, un=un, stages=stages)
        shared = shape.shared_bytes(n, c.num_heads // c.num_kv_heads, c.head_dim, 1024)
        for name, room in (("alone", SHARED_LIMIT - 2048), ("beside", SHARED_LIMIT - shared - 3072)):
            found.append((f"attention {un} x {stages}, ring {name}", {"shape": shape, "room": room}))
    return found


def main() -> None:
    """Print a table per model and number of rows."""
    parser = argparse.ArgumentParser(prog="python -m dominotree.bench.layers", description=__doc__)
    parser.add_argument("--models", nargs="+", default=["qwen3-4b"], choices=sorted(TARGETS))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 17, 65])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--variants", action="store_true")
    args = parser.parse_args()
    speed = bandwidth(torch.device("cuda"))
    print(f"{torch.cuda.get_device_name()}, {speed / 1e12:.2f} TB/s")
    for model in args.models:
        stack = Stack(model, args.layers)
        floor = stack.bytes / speed * 1e6 / args.layers
        for n in args.rows:
            made, _ = stack.prepare(n)
            for name, options in variants(made) if args.variants else [("as planned", {})]:
                try:
                    made, us = stack.time(n, **options)
                except ValueError as error:
                    print(f"{model} {n:4} {name:36} {error}")
                    continue
                p = made.blocks[0].plan
                print(
                    f"{model} {n:4} {name:36} {us:7.2f} µs a layer, floor {floor:.2f}, ratio {us / floor:.2f}; ring "
                    f"{p.stages} x {p.slot}, inner {p.inner}, model {p.cost:.1f}, attention {made.attention.shared}"
                )
            if args.trace:
                for cut in stack.prepare(n)[0].blocks[0].plan.cuts:
                    print("    ", cut)
                steps, whole = stack.trace(n)
                print("     ", "  ".join(f"{k} {v:.2f}" for k, v in whole.items()))
                for product in PRODUCTS:
                    text = "  ".join(
                        f"{step} {'/'.join(f'{x:.1f}' for x in us.tolist())}"
                        for of, step, us in steps
                        if of == product
                    )
                    print(f"     {product:8} {text}")
            del made


if __name__ == "__main__":
    main()
