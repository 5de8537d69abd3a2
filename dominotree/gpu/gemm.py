"""Skinny products Y[n, N] = X[n, K] · W[N, K]ᵀ in bf16 (``kernels/gemm.cu``): one plan per shape, launched by address.

A plan splits the work so that every streaming multiprocessor reads about the same share of W and X fits in shared
memory. Sums run in an order that the plan alone fixes, so the same inputs give the same bits every time.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.gpu.nvrtc import Kernel

BF16, FLOAT, PARTIAL, SWIGLU = range(4)  # what is written: the EPI define of the kernel
SHARED_LIMIT = 224 * 1024
REGISTERS = 200  # accumulators, weights in flight and one row of X, per thread
MAX_ROWS = 136


@dataclass(frozen=True)
class Plan:
    """How one product is cut: warps over rows (rw) and columns (kw), 16-row blocks per warp (rbw), splits of K over CTAs.

    ``ahead``: steps of 32 columns in flight per warp; ``ks``: columns of X staged at once; ``grid``: CTAs per split.
    """

    nt: int
    rw: int
    kw: int
    rbw: int
    ahead: int
    splits: int
    k_range: int
    ks: int
    grid: int
    buffers: int
    cost: float

    @property
    def threads(self) -> int:
        return self.rw * self.kw * 32

    def shared(self, n: int) -> tuple[int, int]:
        """(offset of the reduction buffer, all bytes of shared memory)."""
        at = (self.buffers * n * (self.ks * 2 + 64) + 127) // 128 * 128
        pitch = self.rw * self.rbw * 16 + 4
        return at, at + self.kw * self.nt * 8 * pitch * 4


@functools.cache
def plan(n: int, rows: int, columns: int, epilogue: int, processors: int) -> Plan:
    """The cheapest cut of an [n, columns] × [rows, columns]ᵀ product over ``processors`` multiprocessors.

    The cost (µs) is a rough model: bytes through the busiest multiprocessor at 50 GB/s, device memory at 4.2 TB/s,
    partial sums at 4 TB/s. Raises ValueError for shapes that the kernel does not take.
    """
    if not 1 <= n <= MAX_ROWS:
        raise ValueError(f"the product takes 1 to {MAX_ROWS} rows, not {n}")
    if columns % 32 or (epilogue == SWIGLU and rows % 16):
        raise ValueError(f"{rows} x {columns} weights: columns must divide by 32 (SwiGLU rows by 16)")
    nt, blocks = (n + 7) // 8, (rows + 15) // 16
    best: Plan | None = None
    for splits in (1, 2, 3, 4, 5, 6, 8) if epilogue == PARTIAL else (1,):
        k_range = -(-columns // (32 * splits)) * 32
        if (splits - 1) * k_range >= columns:
            continue
        for rw in (1, 2, 3, 4, 5, 6, 8):
            for kw in (1, 2, 4, 8):
                if not 4 <= rw * kw <= 10:
                    continue
                for rbw in (1, 2, 3, 4, 5, 6):
                    candidate = _candidate(
                        n, nt, rows, columns, blocks, splits, k_range, rw, kw, rbw, epilogue, processors
                    )
                    if candidate is not None and (best is None or candidate.cost < best.cost):
                        best = candidate
    if best is None:
        raise ValueError(f"no cut of a {n} x {rows} x {columns} product fits")
    return best


def _candidate(
    n: int, nt: int, rows: int, columns: int, blocks: int, splits: int, k_range: int,
    rw: int, kw: int, rbw: int, epilogue: int, processors: int,
) -> Plan | None:  # fmt: skip
    accumulators = rbw * nt * 4
    ahead = next(
        (a for a in (8, 6, 4, 3, 2) if rbw * a * 8 <= 96 and rbw * a * 8 + accumulators <= REGISTERS - 60), 0
    )
    if ahead == 0:
        return None
    tile = rw * rbw * 16
    reduction = kw * nt * 8 * (tile + 4) * 4
    step = 32 * kw
    whole = -(-k_range // step) * step
    if n * (whole * 2 + 64) + reduction <= SHARED_LIMIT:
        ks, buffers = whole, 1
    else:
        unit = step * ahead
        room = (SHARED_LIMIT - reduction - 256) // (2 * n) - 64
        ks, buffers = room // 2 // unit * unit, 2
        if ks <= 0:
            return None
        ks = min(ks, -(-k_range // unit) * unit)
    groups = -(-blocks // (rw * rbw))
    per_split = max(1, processors // splits)
    grid = min(groups, per_split)
    turns = -(-groups // grid)
    grid = -(-groups // turns)
    staged = turns if buffers == 2 else 1
    width = -(-k_range // ks) * ks
    cta = turns * tile * width * 2 + staged * n * k_range * 2
    memory = rows * columns * 2 / 4.2e6
    partial = splits * n * rows * 4 * 2 / 4e6 if epilogue == PARTIAL else 0.0
    idle = 1.0 if rw * kw * rbw * ahead >= 64 else 64 / (rw * kw * rbw * ahead)  # too little in flight
    cost = max(memory * idle, cta / 50e3 * idle) + partial + 0.25 * turns + 0.1 * (width // ks) + 0.02 * kw
    return Plan(nt, rw, kw, rbw, ahead, splits, k_range, ks, grid, buffers, cost)


class Product:
    """One weight matrix ready to be multiplied with n rows. Launch it as often as wanted; it may be captured."""

    def __init__(
        self, weight: Tensor, n: int, epilogue: int, cut: Plan | None = None, pdl: bool = True
    ) -> None:
        """``weight``: contiguous bf16 [N, K]; SWIGLU takes gates first, then ups."""
        if weight.dtype != torch.bfloat16 or not weight.is_contiguous():
            raise ValueError("weights must be contiguous and bf16")
        self.weight, self.n, self.epilogue, self.pdl = weight, n, epilogue, pdl
        rows, columns = weight.shape
        processors = torch.cuda.get_device_properties(weight.device).multi_processor_count
        self.plan = cut or plan(n, rows, columns, epilogue, processors)
        p = self.plan
        defines = {"NT": p.nt, "RW": p.rw, "KW": p.kw, "RBW": p.rbw, "AHEAD": p.ahead, "EPI": epilogue}
        self.kernel = _kernel(tuple(sorted(defines.items())), pdl)

    @property
    def splits(self) -> int:
        return self.plan.splits

    def __call__(
        self,
        x: Tensor,
        out: Tensor,
        rows: Tensor | None = None,
        next_weight: Tensor | None = None,
        next_bytes: int = 0,
    ) -> None:
        """x bf16 [·, K] -> out: bf16 or float32 [n, N], float32 [splits, n, N], or bf16 [n, N/2].

        ``rows`` int64 [n] picks rows of x; ``next_weight``: its first ``next_bytes`` are asked into L2 meanwhile.
        """
        p = self.plan
        at, shared = p.shared(self.n)
        self.kernel.launch(
            (p.grid, p.splits), p.threads, x, x.stride(0), rows, self.weight, out, self.n, self.weight.shape[0],
            self.weight.shape[1], p.k_range, p.ks, at, next_weight, ctypes.c_longlong(next_bytes),
            smem=shared, pdl=self.pdl,
        )  # fmt: skip


@functools.cache
def _kernel(defines: tuple[tuple[str, int], ...], pdl: bool) -> Kernel:
    return Kernel("gemm.cu", "skinny", {**dict(defines), **({"PDL": 1} if pdl else {})})
