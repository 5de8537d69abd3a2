"""Skinny products Y[n, N] = X[n, K] · W[N, K]ᵀ in bf16 (``kernels/gemm.cu``), bound to their buffers at construction.

A plan says how one product is cut over the multiprocessors. Sums run in an order that the plan alone fixes: the same
input gives the same bits.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.gpu.nvrtc import Kernel, bindings, check

BF16, FLOAT, RESIDUAL, SWIGLU = range(4)  # what is done with the product: the EPI define of the kernel
SHARED_LIMIT = 227 * 1024  # bytes of shared memory that one multiprocessor offers to kernels
MAX_ROWS = 136
K_BLOCK = 64


@dataclass(frozen=True)
class Plan:
    """How one product is cut.

    ``ntok``: rows of X, padded; ``wg``: warpgroups of 64 rows of W; ``c``: CTAs of a cluster, which split the columns;
    ``stages`` of the ring; ``ctas`` that fit on a multiprocessor at once; ``grid``: all CTAs; ``cost``: modelled µs;
    ``lead``: loads that a CTA still has to issue when the successor may start.
    """

    ntok: int
    wg: int
    c: int
    stages: int
    ctas: int
    grid: int
    cost: float
    lead: int = 4

    @property
    def threads(self) -> int:
        return self.wg * 128 + 32

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: ring, reduction buffer, alignment."""
        return 1024 + self.stages * _stage(self.ntok, self.wg) + _reduction(self.ntok, self.wg)

    def segment(self, epilogue: int) -> int:
        """Columns that one sum of squares covers."""
        return min(32, (64 if epilogue == SWIGLU else 64 * self.wg) // self.c)


def _stage(ntok: int, wg: int) -> int:
    return (64 * wg + ntok) * K_BLOCK * 2


def _reduction(ntok: int, wg: int) -> int:
    return ntok * (64 * wg + 4) * 4


@functools.cache
def plan(n: int, rows: int, columns: int, epilogue: int, processors: int) -> Plan:
    """The cut of an [n, columns] × [rows, columns]ᵀ product over ``processors`` multiprocessors.

    Raises ValueError for shapes that the kernel does not take.
    """
    return candidates(n, rows, columns, epilogue, processors)[0]


def candidates(n: int, rows: int, columns: int, epilogue: int, processors: int) -> list[Plan]:
    """Every cut that fits, cheapest first by a model of the time that was fitted to measurements on an H200."""
    if not 1 <= n <= MAX_ROWS:
        raise ValueError(f"the product takes 1 to {MAX_ROWS} rows, not {n}")
    if columns % K_BLOCK or (epilogue == SWIGLU and rows % 128):
        raise ValueError(f"{rows} x {columns} weights: columns must divide by {K_BLOCK} (SwiGLU rows by 128)")
    ntok, found = -(-n // 8) * 8, []
    for wg in (2,) if epilogue == SWIGLU else (1, 2):
        for c in (1, 2, 4, 8):
            if columns // K_BLOCK < c:
                continue
            for ctas in (1, 2):
                room = SHARED_LIMIT // ctas - 2048 - _reduction(ntok, wg)
                stages = min(room // _stage(ntok, wg), 12)
                if stages < 3:
                    continue
                tiles = -(-rows // (64 * wg))
                capacity = processors * ctas // c
                turns = -(-tiles // capacity)
                clusters = -(-tiles // turns)
                per_processor = -(-clusters * c // processors)
                k_blocks = -(-columns // K_BLOCK // c)
                through = per_processor * turns * k_blocks * _stage(ntok, wg)
                cost = (
                    max(rows * columns * 2 / 4.3e6, through / 60e3)
                    + 2.0
                    + 0.3 * (c > 1) * turns
                    + 0.1 * turns
                    + 0.02 * (ctas == 1)
                )
                found.append(Plan(ntok, wg, c, stages, ctas, clusters * c, cost))
    if not found:
        raise ValueError(f"no cut of a {n} x {rows} x {columns} product fits")
    return sorted(found, key=lambda p: p.cost)


def tensor_map(matrix: Tensor, box_rows: int, depth: int = 0) -> Tensor:
    """A TMA descriptor (128 bytes on the device) of a bf16 matrix [rows, K], boxes of ``box_rows`` × 64 columns.

    With ``depth`` the map is [K / 64, rows, 64] and a box holds ``depth`` blocks of 64 columns one after the other.
    """
    driver, _ = bindings()
    rows, columns = matrix.shape
    u64, u32 = driver.cuuint64_t, driver.cuuint32_t
    pitch, block = matrix.stride(0) * 2, K_BLOCK * 2
    sizes, strides, box = [columns, rows], [pitch], [K_BLOCK, box_rows]
    if depth:
        sizes, strides, box = [K_BLOCK, rows, columns // K_BLOCK], [pitch, block], [K_BLOCK, box_rows, depth]
    encoded = check(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            len(sizes),
            matrix.data_ptr(),
            [u64(x) for x in sizes],
            [u64(x) for x in strides],
            [u32(x) for x in box],
            [u32(1) for _ in box],
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    raw = ctypes.string_at(int(encoded.getPtr()), 128)
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(matrix.device)


@dataclass
class Residual:
    """The residual stream of n rows: h bf16 [n, hidden], and what the next product needs of it.

    ``scaled`` = h ∘ (weight of the next norm); ``squares`` float32 [n, segments at most]: sums of h² over column segments.
    """

    h: Tensor
    scaled: Tensor
    squares: Tensor
    segments: int = 1

    @classmethod
    def empty(cls, n: int, hidden: int, device: torch.device) -> Residual:
        h = torch.zeros(n, hidden, device=device, dtype=torch.bfloat16)
        return cls(h, torch.zeros_like(h), torch.zeros(n, -(-hidden // 8), device=device))


class Product:
    """One weight matrix and the buffers of n rows that it is multiplied with. May be launched within a capture."""

    def __init__(
        self, weight: Tensor, x: Tensor, epilogue: int, out: Tensor | None = None, *, normed: Residual | None = None,
        into: Residual | None = None, next_norm: Tensor | None = None, fresh: bool = False,
        features: Tensor | None = None, eps: float = 0.0, cut: Plan | None = None, pdl: bool = True,
    ) -> None:  # fmt: skip
        """Bind weight bf16 [N, K] (SWIGLU: gates, then ups) and x bf16 [n, K].

        ``out``: bf16 or float32 [n, N], SWIGLU bf16 [n, N/2]. ``normed``: x is this stream's ``scaled``, so multiply by
        1/rms of its h. RESIDUAL: ``into`` receives h += y (h = y when ``fresh``), scaled by ``next_norm`` bf16 [N], and
        ``features``, a view with its own row pitch, a copy of h.
        """
        if weight.dtype != torch.bfloat16 or x.dtype != torch.bfloat16 or not weight.is_contiguous():
            raise ValueError("weights (contiguous) and rows must be bf16")
        (rows, columns), n = weight.shape, len(x)
        processors = torch.cuda.get_device_properties(weight.device).multi_processor_count
        self.plan = p = cut or plan(n, rows, columns, epilogue, processors)
        self.kernel = _kernel(defines(p, epilogue, normed is not None, pdl))
        self.pdl = pdl
        self._maps = tensor_map(weight, 64), tensor_map(x, p.ntok)
        self._normed, self._into = normed, into
        self._keep = weight, x, out, next_norm, features
        if epilogue == RESIDUAL:
            assert into is not None
            into.segments = rows // p.segment(epilogue)
            out = into.h
        self._tail = (
            into.scaled if into else None, next_norm, into.squares if into else None, features,
            features.stride(0) if features is not None else 0, int(fresh), n, rows, columns,
        )  # fmt: skip
        self._out, self._eps = out, float(eps)
        self._segments = normed.segments if normed else 0
        self._pitch = next((r.squares.shape[1] for r in (normed, into) if r is not None), 0)

    def __call__(self) -> None:
        """Launch; may be captured."""
        p = self.plan
        self.kernel.launch(
            p.grid, p.threads, *self._maps, self._out, self._normed.squares if self._normed else None,
            self._segments, self._pitch, self._eps, *self._tail,
            smem=p.shared, pdl=self.pdl, cluster=p.c,
        )  # fmt: skip


def defines(p: Plan, epilogue: int, normed: bool, pdl: bool) -> tuple[tuple[str, int], ...]:
    """The kernel's defines for a plan."""
    given = {
        "NTOK": p.ntok, "WG": p.wg, "C": p.c, "STAGES": p.stages, "MIN_CTAS": p.ctas, "SCALE": int(normed),
        "EPI": epilogue, "LEAD": p.lead,
    }  # fmt: skip
    return tuple(sorted({**given, **({"PDL": 1} if pdl else {})}.items()))


@functools.cache
def _kernel(given: tuple[tuple[str, int], ...]) -> Kernel:
    return Kernel("gemm.cu", "skinny", dict(given))
