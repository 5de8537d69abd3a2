"""What lies between two attentions of a decoder as one persistent kernel (``kernels/block.cu``).

output -> gate-up -> down -> the next layer's qkv: the stream of weights never stops at a product's end, because the ring
in shared memory already fills with the next one's.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.gpu.gemm import BF16, K_BLOCK, RESIDUAL, SWIGLU, Residual, tensor_map
from dominotree.gpu.nvrtc import Kernel

CLUSTER = 2  # every multiprocessor has a partner; of larger clusters fewer fit at once
DEPTH = 2  # blocks of 64 columns per stage
THREADS = 384  # two warpgroups that multiply, four warps that fetch
LEAST_STAGES = 3
ROWS_PER_STAGE = 80  # rows of W in one stage of the ring: two warpgroups of up to 40


@dataclass(frozen=True)
class Cut:
    """``rows`` of W per warpgroup and tile (a multiple of 8), ``splits`` of the columns over a cluster (1 or CLUSTER)."""

    rows: int
    splits: int
    tiles: int


@functools.cache
def cut(n: int, n_out: int, k: int, epilogue: int, ctas: int) -> Cut:
    """The tile height and split that keep ``ctas`` CTAs about equally busy; by a rough model of the time."""
    best, least = None, float("inf")
    for splits in (1, CLUSTER):
        if k // K_BLOCK < splits:
            continue
        for rows in range(8, ROWS_PER_STAGE // 2 + 1, 8):
            tiles = -(
                -(n_out // 2 if epilogue == SWIGLU else n_out) // (rows if epilogue == SWIGLU else 2 * rows)
            )
            turns = -(-tiles // (ctas // splits))
            through = turns * (2 * rows + n) * (k // splits) * 2 / 55e3
            handshakes = turns * (k / splits / K_BLOCK / DEPTH) * 0.35  # µs that a stage takes at least
            cost = max(through, n_out * k * 2 / 4.3e6, handshakes) + turns * (2.0 if splits > 1 else 1.0)
            if cost < least:
                best, least = Cut(rows, splits, tiles), cost
    assert best is not None
    return best


def ring_stages(n: int, room: int) -> int:
    """Stages of the ring for n rows in ``room`` bytes of shared memory; below LEAST_STAGES there is no ring."""
    ntok = -(-n // 8) * 8
    return min((room - _rest(ntok)) // _stage(ntok), 16)


def _stage(ntok: int) -> int:
    return (ROWS_PER_STAGE + ntok) * K_BLOCK * 2 * DEPTH


def _rest(ntok: int) -> int:
    """The reduction buffer (a product may read past the last stage's rows) and the alignment."""
    return max(ntok * (ROWS_PER_STAGE + 4) * 4, 16384) + 2048


@dataclass
class Op:
    """One product of a block: weight bf16 [N, K], x bf16 [n, K], what becomes of it (see ``gemm.Product``)."""

    weight: Tensor
    x: Tensor
    epilogue: int
    out: Tensor | None = None
    normed: Residual | None = None
    into: Residual | None = None
    next_norm: Tensor | None = None
    features: Tensor | None = None
    eps: float = 0.0


class Block:
    """Up to four products that follow each other. ``counters`` int32 [3], zero before each launch.

    ``room``: bytes of shared memory that the ring may take; the rest stays free for the kernel before and after.
    """

    def __init__(self, ops: list[Op], counters: Tensor, room: int, pdl: bool = True) -> None:
        device, n = ops[0].x.device, len(ops[0].x)
        self.n, self.count, self.pdl = n, len(ops), pdl
        ntok = -(-n // 8) * 8
        stages = ring_stages(n, room)
        if stages < LEAST_STAGES:
            raise ValueError(f"{room} bytes of shared memory hold no ring for {n} rows")
        self.shared = stages * _stage(ntok) + _rest(ntok)
        self.kernel = _kernel(ntok, stages, pdl)
        self.ctas = _resident(self.kernel, self.shared, device.index or 0)
        packed, base, self._keep = [], 0, [ops, counters]
        for i, op in enumerate(ops):
            n_out, k = op.weight.shape
            shape = cut(n, n_out, k, op.epilogue, self.ctas)
            maps = tensor_map(op.weight, shape.rows, DEPTH), tensor_map(op.x, ntok, DEPTH)
            self._keep.append(maps)
            into = op.into
            if into is not None:
                into.segments = shape.tiles * shape.splits
                if into.segments > len(into.squares):
                    raise ValueError("too many segments for the buffer of squares")
            packed.append(
                struct.pack(
                    "<10Q9if2i",
                    *(_address(t) for t in (
                        *maps, into.h if into else op.out, op.normed.squares if op.normed else None,
                        into.scaled if into else None, op.next_norm, into.squares if into else None, op.features,
                        counters[i - 1 :] if i else None, counters[i:] if i + 1 < len(ops) else None,
                    )),
                    op.features.stride(0) if op.features is not None else 0, op.epilogue,
                    op.normed.segments if op.normed else 0, n_out, k, shape.rows, shape.splits, shape.tiles,
                    base, op.eps, 0, 0,
                )
            )  # fmt: skip
            groups = self.ctas // shape.splits
            base = (base + shape.tiles) % groups if shape.splits == 1 else 0
        self.ops = torch.frombuffer(bytearray(b"".join(packed)), dtype=torch.uint8).to(device)

    def __call__(self) -> None:
        """Launch; may be captured."""
        self.kernel.launch(
            self.ctas, THREADS, self.ops, self.count, self.n, smem=self.shared, pdl=self.pdl, cluster=CLUSTER
        )  # fmt: skip


@functools.cache
def _resident(kernel: Kernel, shared: int, device: int) -> int:
    """CTAs of a launch: all must be resident at once, one per multiprocessor."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return CLUSTER * min(processors // CLUSTER, kernel.most_clusters(THREADS, shared, CLUSTER))


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


@functools.cache
def _kernel(ntok: int, stages: int, pdl: bool) -> Kernel:
    defines = {
        "NTOK": ntok, "STAGES": stages, "C": CLUSTER, "LEAD": 2, "MAX_ROWS_W": ROWS_PER_STAGE,
        **({"PDL": 1} if pdl else {}),
    }  # fmt: skip
    return Kernel("block.cu", "block", defines)


__all__ = ["BF16", "RESIDUAL", "SWIGLU", "Block", "Op", "cut"]
