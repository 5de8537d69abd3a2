"""Time of tree attention per layer on this GPU: ``python -m dominotree.bench.attention``.

CUDA graphs of 72 launches, each on its own slice of a cache larger than L2. ``serial``: each launch waits for the one
before; ``overlapped``: launches may start early, as in the engine. Median of 15 replays.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from dominotree.gpu.attention import TreeAttention
from dominotree.model import KVCache, ModelConfig

LAYERS = 72
SHAPES = {
    "qwen3-4b": (32, 8, 128, True),
    "smollm2-135m": (9, 3, 64, False),
}  # heads, groups, head size, q/k norm


def median_ms(run: Callable[[], None], repeats: int = 15) -> float:
    run()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def measure(model: str, n: int, context: int) -> tuple[float, float, float]:
    """µs per layer: serial, overlapped, and what reading K and V once takes at 4.2 TB/s."""
    heads, groups, d, norm = SHAPES[model]
    device, bf16 = torch.device("cuda"), torch.bfloat16
    bucket = (context + n + 255) // 256 * 256
    config = ModelConfig(64, heads * d, LAYERS, heads, groups, d, 64, 1e-6, 1e6, bucket, norm, True)
    cache = KVCache(config, bucket, device, bf16)
    cache.k.normal_()
    cache.v.normal_()
    qkv = torch.randn(n, (heads + 2 * groups) * d, device=device, dtype=bf16)
    out = torch.empty(n, heads * d, device=device, dtype=bf16)
    q_norm, k_norm = torch.rand(2, d, device=device, dtype=bf16) if norm else (None, None)
    mask = torch.ones(n, n, device=device, dtype=torch.bool).tril()
    length = torch.tensor([context], device=device)
    positions = context + torch.arange(n, device=device)
    times = []
    for pdl in (False, True):
        attention = TreeAttention(config, n, cache, bucket, pdl)

        def launches(attention: TreeAttention = attention) -> None:
            for layer in range(LAYERS):
                attention.launch(qkv, layer, q_norm, k_norm, positions, mask, length, out)

        launches()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launches()
        times.append(median_ms(graph.replay) * 1000 / LAYERS)
    return times[0], times[1], 4 * groups * (context + n) * d / 4.2e6


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, µs per layer")
    print(f"{'model':14} {'rows':>4} {'context':>7} {'serial':>7} {'overlapped':>10} {'bytes':>6}")
    for model in SHAPES:
        for n in (1, 17, 65, 129):
            for context in (512, 2048):
                serial, overlapped, floor = measure(model, n, context)
                print(f"{model:14} {n:4} {context:7} {serial:7.2f} {overlapped:10.2f} {floor:6.2f}")


if __name__ == "__main__":
    main()
