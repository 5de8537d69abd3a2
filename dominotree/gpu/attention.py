"""Tree attention, the drafter's context rows and the commit, as own kernels (``kernels/attention.cu``, ``cache_rows.cu``).

n verify rows attend to the committed prefix and to each other through the tree mask; the same kernel norms and rotates
queries and keys and writes the rows' K and V behind the committed length. bf16 in and out, float32 sums.
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dominotree.gpu.nvrtc import Kernel
from dominotree.model import KVCache, ModelConfig, inverse_frequencies

SHARED_LIMIT = 227 * 1024
PORTABLE_CLUSTER = 8
MAX_CLUSTER = 16


def rotary_tables(config: ModelConfig, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [positions, d/2] each, of positions 0 … positions − 1."""
    angle = torch.arange(positions, device=device).float()[:, None] * inverse_frequencies(config).to(device)
    return angle.cos().contiguous(), angle.sin().contiguous()


@dataclass(frozen=True)
class Cut:
    """How the work is shared out. The n · H/G rows of a key/value head go to ``shares`` CTAs, the keys to ``splits``.

    A CTA has ``mt`` tiles of 16 rows and ``ks`` warps for each; a tile of keys is ks · ``un`` · 16 keys, of which
    ``stages`` lie in shared memory. ``cluster``: the splits are added within a thread-block cluster (sm_90), otherwise
    by a second kernel.
    """

    mt: int
    ks: int
    un: int
    stages: int
    splits: int
    shares: int
    cluster: bool

    @property
    def tile(self) -> int:
        return self.ks * self.un * 16

    @property
    def threads(self) -> int:
        return self.mt * self.ks * 32

    def room(self, bucket: int) -> int:
        """Rows of K staged in shared memory."""
        return min(self.stages * self.tile, _up(-(-bucket // self.splits), 16))

    def shared_bytes(self, n: int, per: int, d: int, bucket: int) -> int:
        rows = self.mt * 16
        staged = (rows + 2 * self.room(bucket)) * (d + 8) * 2 + rows * (self.tile + 8) * 2
        received = self.splits * -(-rows // self.splits) * ((d + 8) * 4 + 8) if self.cluster else 0
        nodes, words = (-(-n * per // self.shares) - 1) // per + 2, n // 32 + 2
        return staged + 2 * self.ks * rows * 4 + received + nodes * words * 4

    def fits(self, n: int, per: int, d: int, bucket: int) -> bool:
        chunk = _up(-(-bucket // self.splits), 16)
        return (
            self.shares * self.mt * 16 >= n * per
            and -(-n * per // self.shares) <= self.mt * 16
            and d % (self.ks * 16) == 0
            and self.threads <= 512
            and self.stages * self.tile >= min(chunk, n + 15)
            and self.shared_bytes(n, per, d, bucket) <= SHARED_LIMIT
            and (not self.cluster or self.splits <= MAX_CLUSTER)
        )


def _up(x: int, unit: int) -> int:
    return -(-x // unit) * unit


@functools.cache
def cut(n: int, heads: int, groups: int, d: int, bucket: int, processors: int, cluster: bool) -> Cut:
    """A cut that fills ``processors`` multiprocessors about once. Raises ValueError for shapes that do not fit."""
    per = heads // groups
    tiles = -(-n * per // 16)
    shares = -(-tiles // 3)
    mt = -(-tiles // shares)
    ks = min(8 if mt == 1 else 4, d // 16)
    limit = PORTABLE_CLUSTER if cluster else 16
    splits = next((s for s in (16, 8, 4, 2) if s <= limit and groups * shares * s <= processors), 2)
    for un in (2, 1):
        for stages in (3, 2, 4, 6, 1):
            found = Cut(mt, ks, un, stages, splits, shares, cluster)
            if found.fits(n, per, d, bucket):
                return found
    raise ValueError(f"tree attention does not take {n} rows of {heads} heads in {groups} groups of size {d}")


class TreeAttention:
    """Attention of ``rows`` verify rows for all layers of one model; ``bucket`` bounds length + rows.

    ``tables``: ``rotary_tables`` for every position in play. Raises ValueError where the kernel does not fit.
    """

    def __init__(
        self, config: ModelConfig, rows: int, bucket: int, tables: tuple[Tensor, Tensor],
        pdl: bool = True, shape: Cut | None = None,
    ) -> None:  # fmt: skip
        c = config
        self.config, self.rows, self.tables = config, rows, tables
        device = tables[0].device
        hopper = torch.cuda.get_device_capability(device)[0] >= 9
        self.pdl = pdl and hopper
        self.per = c.num_heads // c.num_kv_heads
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        self.cut = shape or cut(rows, c.num_heads, c.num_kv_heads, c.head_dim, bucket, processors, hopper)
        if not self.cut.fits(rows, self.per, c.head_dim, bucket):
            raise ValueError(f"{self.cut} does not fit {rows} rows and a bucket of {bucket}")
        self.bucket = bucket
        self.shared = self.cut.shared_bytes(rows, self.per, c.head_dim, bucket)
        self.scale = math.log2(math.e) / math.sqrt(c.head_dim)
        self.attend, self.combine = attention_kernels(self.cut, c.head_dim, self.per, c.qk_norm, self.pdl)
        self.part: Tensor | None = None
        self.stat: Tensor | None = None
        if not self.cut.cluster:
            parts = c.num_kv_heads * self.cut.shares * self.cut.splits * self.cut.mt * 16
            self.part = torch.empty(parts, c.head_dim, device=device)
            self.stat = torch.empty(parts, 2, device=device)

    def launch(
        self, qkv: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, positions: Tensor, length: Tensor,
        mask: Tensor | None, k: Tensor, v: Tensor, out: Tensor,
        next_weight: Tensor | None = None, next_bytes: int = 0,
    ) -> None:  # fmt: skip
        """qkv bf16 [n, (H + 2G) · d] -> out bf16 [n, H · d]; K and V rows go to cache rows length … length + n − 1.

        q_norm, k_norm bf16 [d] (None without q/k norm); positions int64 [n]; length int64 [1]; mask bool [n, n]
        (True = may attend) or None for all; k, v bf16 [G, capacity, d], one layer of the cache. With ``next_weight``
        its first ``next_bytes`` are asked into L2 at the end. Only ``qkv`` may come from the kernel just before when
        launches overlap (``pdl``): the rest is read earlier.
        """
        c, s = self.config, self.cut
        grid = (s.splits, c.num_kv_heads, s.shares)
        self.attend.launch(
            grid, s.threads, qkv, q_norm, k_norm, float(c.rms_norm_eps), *self.tables, positions, length, mask,
            self.rows, k, v, k.shape[1], out, self.scale, s.room(self.bucket), self.part, self.stat, next_weight,
            ctypes.c_longlong(next_bytes),
            smem=self.shared, pdl=self.pdl, cluster=s.splits if s.cluster else 1,
        )  # fmt: skip
        if self.combine is not None:
            blocks = -(-self.rows * c.num_heads // 4)
            self.combine.launch(
                blocks, 128, self.part, self.stat, out, self.rows, c.num_kv_heads, s.shares, pdl=self.pdl
            )


@functools.cache
def attention_kernels(shape: Cut, d: int, per: int, norm: bool, pdl: bool) -> tuple[Kernel, Kernel | None]:
    """The compiled pair (attention, combination of the splits or None)."""
    defines = {
        "D": d, "PER": per, "MT": shape.mt, "KS": shape.ks, "UN": shape.un, "STAGES": shape.stages,
        "SPLITS": shape.splits, "NORM": int(norm), "CLUSTER": int(shape.cluster), **({"PDL": 1} if pdl else {}),
    }  # fmt: skip
    attend = Kernel("attention.cu", "tree_attention", defines)
    return attend, None if shape.cluster else Kernel("attention.cu", "combine_splits", defines)


class CacheRows:
    """Moves in key/value caches of one model: the drafter's context rows and the commit of accepted rows."""

    def __init__(self, config: ModelConfig, tables: tuple[Tensor, Tensor] | None = None) -> None:
        self.config, self.tables = config, tables
        defines = {"D": config.head_dim}
        self._context = Kernel("cache_rows.cu", "context_rows", defines)
        self._commit = Kernel("cache_rows.cu", "commit_rows", defines)

    def context(self, kv: Tensor, k_norm: Tensor | None, length: Tensor, cache: KVCache) -> None:
        """kv bf16 [R, layers · 2 · G · d] -> rows length … length + R − 1 of every layer of ``cache``.

        Per layer: the G key heads, then the G value heads. k_norm bf16 [layers, d]; length int64 [1]. Row r gets the
        rotary of position length + r.
        """
        c = self.config
        if self.tables is None:
            raise ValueError("context rows need rotary tables")
        self._context.launch(
            (len(kv), c.num_layers), min(256, 2 * c.num_kv_heads * c.head_dim // 8), kv, k_norm,
            float(c.rms_norm_eps), *self.tables, length, cache.k, cache.v, c.num_kv_heads, cache.capacity,
        )  # fmt: skip

    def commit(self, cache: KVCache, path: Tensor, count: Tensor, length: Tensor) -> None:
        """Move rows length + path[i] to length + i for i < count, in place, in k and v of all layers.

        path int64 [R], strictly ascending as far as count; count int64 or int32 [1]; length int64 [1].
        """
        c = self.config
        heads = c.num_layers * c.num_kv_heads
        self._commit.launch(
            (-(-heads * (c.head_dim // 8) // 256), 2), 256, cache.k, cache.v, path, count,
            int(count.dtype == torch.int64), len(path), length, heads, cache.capacity,
        )  # fmt: skip
