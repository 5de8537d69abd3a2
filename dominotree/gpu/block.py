"""What lies between two attentions of a decoder as one persistent kernel (``kernels/block.cu``).

output -> gate-up -> down -> the next layer's qkv: the stream of weights never stops at a product's end, because the ring
in shared memory already fills with the next one's.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.gpu.gemm import BF16, K_BLOCK, RESIDUAL, SWIGLU, Residual, tensor_map
from dominotree.gpu.nvrtc import Kernel

CLUSTER = 2  # every multiprocessor has a partner; of larger clusters fewer fit at once
THREADS = 384  # two warpgroups that multiply, four warps that fetch
OPERAND = 64  # rows of W that one instruction takes
#: Rows of X, padded, for which tiles above 64 gates are tried: with fewer they gain nothing, more sums fill the registers.
PAIRED = range(48, 73)
LEAST_STAGES = 3
MOST_STAGES = 16
#: Counters of a launch: three products' ends and the first turn of one.
COUNTERS = 4
#: µs: what a boundary between two products takes at least, a stage's handshake, a load's way through a full memory.
BOUNDARY, HANDSHAKE, LATENCY = 6.0, 0.15, 1.4
CYCLES = 1755.0  # a µs


@dataclass(frozen=True)
class Shape:
    """A product: W [n_out, k], and what becomes of it."""

    n_out: int
    k: int
    epilogue: int


@dataclass(frozen=True)
class Cut:
    """``operands`` of ``rows`` rows of W each per tile (rows a multiple of 8); ``splits`` of the columns over a cluster.

    One operand: the two warpgroups share its columns. Two: each takes one. SwiGLU's (gates, ups) above 64 rows: each takes
    half the rows of both. ``depth``: blocks of 64 columns per stage.
    """

    rows: int
    operands: int
    splits: int
    tiles: int
    depth: int

    @property
    def height(self) -> int:
        return self.rows * self.operands

    @property
    def paired(self) -> bool:
        """Whether a gate meets its up in registers."""
        return self.rows > OPERAND

    @property
    def sums(self) -> int:
        """Floats of a token that a tile leaves in shared memory."""
        return self.rows if self.paired else 2 * self.rows

    def stage(self, ntok: int) -> int:
        """Bytes of a stage: W and X."""
        return (self.height + ntok) * self.depth * K_BLOCK * 2


@dataclass(frozen=True)
class Plan:
    """The ring's ``stages`` of ``slot`` bytes, ``inner`` blocks of 64 columns per warpgroup and stage, a cut per product."""

    slot: int
    stages: int
    inner: int
    cuts: tuple[Cut, ...]
    cost: float

    def shared(self, n: int) -> int:
        return self.stages * self.slot + _rest(n, self.cuts)


@functools.cache
def plan(n: int, shapes: tuple[Shape, ...], ctas: int, room: int) -> Plan | None:
    """The cheapest cut of all products that share a ring in ``room`` bytes, by a rough model of the time; None: no room."""
    best: Plan | None = None
    for inner in (1, 2, 3):
        choices = [_cuts(s, inner, _padded(n)) for s in shapes]
        for slot in sorted({c.stage(_padded(n)) for found in choices for c in found}):
            found = _plan(n, shapes, choices, ctas, room, slot, inner)
            if found is not None and (best is None or _better(found, best)):
                best = found
    return best


def _better(a: Plan, b: Plan) -> bool:
    """Cheaper; where the model sees no difference, more columns a stage were faster (on an H200) while six stages fit."""
    if abs(a.cost - b.cost) > 0.05:
        return a.cost < b.cost
    wide = [p.inner if p.stages >= 6 else 0 for p in (a, b)]
    return wide[0] > wide[1] or (wide[0] == wide[1] and a.stages > b.stages)


def _plan(
    n: int, shapes: Sequence[Shape], choices: Sequence[Sequence[Cut]], ctas: int, room: int, slot: int, inner: int
) -> Plan | None:  # fmt: skip
    stages = min((room - _rest(n, ())) // slot, MOST_STAGES)
    while stages >= LEAST_STAGES:
        cuts, total = [], 0.0
        for shape, found in zip(shapes, choices, strict=True):
            priced = [
                (_cost(n, shape, c, ctas, stages), i)
                for i, c in enumerate(found)
                if c.stage(_padded(n)) <= slot
            ]
            if not priced:
                return None
            cost, i = min(priced)
            cuts.append(found[i])
            total += cost
        plan = Plan(slot, stages, inner, tuple(cuts), total)
        if plan.shared(n) <= room:
            return plan
        stages -= 1
    return None


def _cuts(shape: Shape, inner: int, ntok: int) -> list[Cut]:
    blocks, found = -(-shape.k // K_BLOCK), []
    for operands in (1, 2) if shape.epilogue != SWIGLU else (2,):
        depth = inner * (1 if operands == 2 else 2)
        for rows in range(8, OPERAND + 1, 8):
            out = rows if shape.epilogue == SWIGLU else rows * operands
            tiles = -(-(shape.n_out // 2 if shape.epilogue == SWIGLU else shape.n_out) // out)
            found += [Cut(rows, operands, s, tiles, depth) for s in (1, CLUSTER) if blocks >= s * depth]
    if shape.epilogue == SWIGLU and ntok in PAIRED and blocks >= inner:
        for rows in range(OPERAND + 16, 2 * OPERAND + 1, 16):
            found.append(Cut(rows, 2, 1, -(-(shape.n_out // 2) // rows), inner))
    return found


def _cost(n: int, shape: Shape, cut: Cut, ctas: int, stages: int) -> float:
    """µs of one product: memory against the busiest CTA, and what of the boundary before it the ring does not cover."""
    ntok = _padded(n)
    blocks = -(-shape.k // K_BLOCK)
    turns = -(-cut.tiles // (ctas // cut.splits))
    stages_of_tile = -(-blocks // cut.depth)
    steps = turns * -(-stages_of_tile // cut.splits)
    weights = cut.height * cut.depth * K_BLOCK * 2
    instructions = 4 * cut.depth * (2 if cut.operands == 2 else 1) * (2 if cut.paired else 1)
    products = instructions * (2 * OPERAND * 16 + ntok * 32) / 128 / CYCLES
    step = max(HANDSHAKE + products, cut.stage(ntok) / 46e3, LATENCY / stages)
    memory, busiest = shape.n_out * shape.k * 2 / 4.3e6, steps * step
    ahead = stages * weights * ctas / 4.3e6
    hidden = min(BOUNDARY, ahead, max(0.0, memory - busiest))
    end = (0.7 + 0.5 * (cut.splits > 1)) * (1 + n / 32)  # of a tile: sums, what becomes of them
    return max(memory, busiest) + BOUNDARY - hidden + turns * end


def _padded(n: int) -> int:
    return -(-n // 8) * 8


def _pitches(cuts: Sequence[Cut]) -> tuple[int, int]:
    """Floats per token of a tile's sums, and of those that a partner sends."""
    highest = max((c.sums for c in cuts), default=0)
    halves = max((c.height // 2 for c in cuts if c.splits > 1), default=0)
    return highest + 4, halves + 4


def _rest(n: int, cuts: Sequence[Cut]) -> int:
    """The buffers of sums (a product may read past the last stage's rows) and the alignment."""
    whole, half = _pitches(cuts)
    return max(_padded(n) * (whole + 2 * half) * 4, OPERAND * K_BLOCK * 2) + 1024


def planned(ops: Sequence[Op], room: int, pdl: bool = True, traced: bool = False) -> tuple[Plan, Kernel]:
    """The plan and the kernel of a block of these products; ValueError where ``room`` holds no ring for their rows."""
    n = len(ops[0].x)
    processors = torch.cuda.get_device_properties(ops[0].x.device).multi_processor_count
    found = plan(n, tuple(op.shape for op in ops), processors // CLUSTER * CLUSTER, room)
    if found is None:
        raise ValueError(f"{room} bytes of shared memory hold no ring for {n} rows")
    return found, _kernel(_padded(n), found, pdl, traced)


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

    @property
    def shape(self) -> Shape:
        n_out, k = self.weight.shape
        return Shape(n_out, k, self.epilogue)


class Block:
    """Up to four products that follow each other. ``counters`` int32 [COUNTERS], zero before each launch.

    ``room``: bytes of shared memory that the ring may take; the rest stays free for the kernel before and after.
    ``trace`` int64 [CTAs, 4, 16], to find out where the time goes: clocks of every CTA's products (0 start, 1 first stage
    there, 2 products done, 3 partner's sums there, 4 written, 5 announced, 6 and 7 first and last load of weights, 8 rows
    complete), 9 clock at the kernel's start; nanoseconds at 10 that start, 11 the first product's, 12 a product's end.
    """

    def __init__(
        self, ops: list[Op], counters: Tensor, room: int, pdl: bool = True, trace: Tensor | None = None
    ) -> None:  # fmt: skip
        device, n = ops[0].x.device, len(ops[0].x)
        self.n, self.count, self.pdl, self.trace = n, len(ops), pdl, trace
        ntok = _padded(n)
        self.plan, self.kernel = found, _ = planned(ops, room, pdl, trace is not None)
        self.shared = found.shared(n)
        self.ctas = _resident(self.kernel, self.shared, device.index or 0)
        packed, base, self._keep = [], 0, [ops, counters]
        maps = [
            (tensor_map(op.weight, cut.rows, cut.depth), tensor_map(op.x, ntok, cut.depth))
            for op, cut in zip(ops, found.cuts, strict=True)
        ]
        self.maps = torch.stack([one for pair in maps for one in pair])
        early: tuple[Tensor | None, int, int] = None, 0, 0  # the first turn of the product before
        for i, (op, cut) in enumerate(zip(ops, found.cuts, strict=True)):
            n_out, k = op.weight.shape
            groups = self.ctas // cut.splits
            into, squares = op.into, op.normed or op.into
            if into is not None:
                into.segments = cut.tiles * cut.splits
                if into.segments > into.squares.shape[1]:
                    raise ValueError("too many segments for the buffer of squares")
            announce = counters[3:] if op.epilogue == SWIGLU and cut.tiles > groups else None
            packed.append(
                struct.pack(
                    "<12Q9if6i",
                    *(_address(t) for t in (
                        self.maps[2 * i], self.maps[2 * i + 1], into.h if into else op.out, op.normed.squares if op.normed else None,
                        into.scaled if into else None, op.next_norm, into.squares if into else None, op.features,
                        counters[i - 1 :] if i else None, counters[i:] if i + 1 < len(ops) else None,
                        early[0], announce,
                    )),
                    op.features.stride(0) if op.features is not None else 0, op.epilogue,
                    op.normed.segments if op.normed else 0, n_out, k, cut.rows, cut.splits, cut.tiles,
                    base, op.eps, cut.depth, cut.operands, early[1], early[2],
                    squares.squares.shape[1] if squares else 0, int(early[0] is not None),
                )
            )  # fmt: skip
            early = (
                (announce, groups * cut.rows // K_BLOCK, groups * cut.splits)
                if announce is not None
                else (None, 0, 0)
            )
            base = (base + cut.tiles) % groups if cut.splits == 1 else 0
        self.ops = torch.frombuffer(bytearray(b"".join(packed)), dtype=torch.uint8).to(device)

    def __call__(self) -> None:
        """Launch; may be captured."""
        extra = () if self.trace is None else (self.trace,)
        self.kernel.launch(
            self.ctas, THREADS, self.ops, self.maps, self.count, self.n, *extra, smem=self.shared, pdl=self.pdl, cluster=CLUSTER
        )  # fmt: skip


@functools.cache
def _resident(kernel: Kernel, shared: int, device: int) -> int:
    """CTAs of a launch: all must be resident at once, one per multiprocessor."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return CLUSTER * min(processors // CLUSTER, kernel.most_clusters(THREADS, shared, CLUSTER))


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


@functools.cache
def _kernel(ntok: int, shape: Plan, pdl: bool, traced: bool) -> Kernel:
    defines = {
        "NTOK": ntok, "STAGES": shape.stages, "STAGE_BYTES": shape.slot, "INNER": shape.inner, "LEAD": 2,
        "RED_PITCH": _pitches(shape.cuts)[0], "HALF_PITCH": _pitches(shape.cuts)[1],
        **({"PDL": 1} if pdl else {}), **({"TRACE": 1} if traced else {}),
    }  # fmt: skip
    return Kernel("block.cu", "block", defines)


__all__ = ["BF16", "RESIDUAL", "SWIGLU", "Block", "Cut", "Op", "Plan", "Shape", "plan"]
