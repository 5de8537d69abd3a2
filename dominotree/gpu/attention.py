"""Tree attention, the drafter's context rows and the commit, as own kernels (``kernels/attention.cu``, ``cache_rows.cu``).

n verify rows attend to the committed prefix and to each other through the tree mask; the same kernel norms and rotates
queries and keys and writes the rows' K and V behind the committed length. bf16 in and out, float32 sums.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
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
        units = (bucket + 15) // 16
        return min(self.stages * self.tile, -(-units // self.splits) * 16)

    def shared_bytes(self, n: int, per: int, d: int, bucket: int) -> int:
        """Dynamic shared memory of the kernel, in the order of its pieces."""
        rows, share = self.mt * 16, -(-n * per // self.shares)
        staged = (rows + 2 * self.room(bucket)) * (d + 8) * 2 + rows * (self.tile + 8) * 2
        received = -(-share // self.splits) * self.splits * ((d + 8) * 4 + 8) if self.cluster else 0
        nodes = (share + per - 2) // per + 1
        return staged + 2 * self.ks * rows * 4 + received + nodes * n + 24

    def fits(self, n: int, per: int, d: int, bucket: int) -> bool:
        """Whether the kernel takes n rows of ``per`` query heads per key/value head of size d in this cut."""
        share = -(-n * per // self.shares)
        return (
            share <= self.mt * 16
            and (self.shares - 1) * share < n * per
            and d % (self.ks * 16) == 0
            and self.threads <= 512
            and -(-((n + 30) // 16) // self.splits) <= self.stages * self.ks * self.un
            and self.shared_bytes(n, per, d, bucket) <= SHARED_LIMIT
            and (not self.cluster or self.splits <= MAX_CLUSTER)
        )


def clusters_at_once(size: int, processors: int) -> int:
    """Clusters of ``size`` CTAs, one a multiprocessor, that surely run together.

    A cluster stays within one graphics processing cluster of about 16 multiprocessors, the last of which may be
    smaller; an H200 (132) takes 15 clusters of 8, 16 of 6 and no 24 of 5.
    """
    whole = max(0, processors // 16 - 1)
    return whole * (16 // size) + max(0, processors - 16 * whole - 8) // size


@functools.cache
def cut(n: int, heads: int, groups: int, d: int, bucket: int, processors: int, cluster: bool) -> Cut:
    """A cut whose CTAs all run at once on ``processors`` multiprocessors: a second wave would double the time.

    Raises ValueError for shapes that do not fit.
    """
    per = heads // groups
    tiles = -(-n * per // 16)
    most = clusters_at_once(2, processors) if cluster else processors // 2
    shares = min(-(-tiles // 3), max(1, most // groups))
    mt = min(5, -(-tiles // shares))
    shares = -(-tiles // mt)
    ks = min(8 if mt == 1 else 4 if mt <= 3 else 2, d // 16)
    if cluster:
        sizes = range(PORTABLE_CLUSTER, 1, -1)
        splits = next((s for s in sizes if groups * shares <= clusters_at_once(s, processors)), 2)
    else:
        splits = next((s for s in (16, 8, 4, 2) if groups * shares * s <= processors), 2)
    units = -(-((bucket + 15) // 16) // splits)
    if mt == 1:  # all keys of a CTA in one tile where they fit, a ring of small tiles otherwise
        whole = -(-units // ks)
        tries = [(whole, 1)] * (whole <= 3) + [(1, 3), (1, 2), (1, 1)]
    else:
        tries = [(u, stages) for u in ((4, 3, 2, 1) if ks == 2 else (2, 1)) for stages in (2, 1)]
    for un, stages in tries:
        found = Cut(mt, ks, un, stages, splits, shares, cluster)
        if found.fits(n, per, d, bucket):
            return found
    raise ValueError(f"tree attention does not take {n} rows of {heads} heads in {groups} groups of size {d}")


class TreeAttention:
    """Attention of ``rows`` rows in every layer of one model, and the moves of its key/value cache.

    ``cache``: the target's cache or the drafter's context; ``bucket`` bounds length + rows; ``pdl``: launches may overlap
    with their predecessor. ``tables``: ``rotary_tables`` for every position in play (made here otherwise).
    Raises ValueError where the kernel does not fit.
    """

    def __init__(
        self, config: ModelConfig, rows: int, cache: KVCache, bucket: int, pdl: bool = True,
        tables: tuple[Tensor, Tensor] | None = None, shape: Cut | None = None,
    ) -> None:  # fmt: skip
        c, device = config, cache.k.device
        self.config, self.rows, self.cache, self.bucket = config, rows, cache, bucket
        self.tables = tables or rotary_tables(config, cache.capacity, device)
        hopper = torch.cuda.get_device_capability(device)[0] >= 9
        self.pdl = pdl and hopper
        self.per = c.num_heads // c.num_kv_heads
        properties = torch.cuda.get_device_properties(device)
        processors = properties.multi_processor_count
        limit = getattr(properties, "shared_memory_per_block_optin", SHARED_LIMIT)
        self.cut = shape or cut(rows, c.num_heads, c.num_kv_heads, c.head_dim, bucket, processors, hopper)
        self.shared = self.cut.shared_bytes(rows, self.per, c.head_dim, bucket)
        if not self.cut.fits(rows, self.per, c.head_dim, bucket) or self.shared > limit:
            raise ValueError(f"{self.cut} does not fit {rows} rows and a bucket of {bucket} on this device")
        self.scale = math.log2(math.e) / math.sqrt(c.head_dim)
        self.kernel, self._combine = attention_kernels(self.cut, config, rows, self.pdl)
        moves = {"D": c.head_dim, **({"PDL": 1} if self.pdl else {})}
        self._context = Kernel("cache_rows.cu", "context_rows", moves)
        self._commit = Kernel("cache_rows.cu", "commit_rows", moves)
        self._k_norms: Tensor | None = None
        self.part: Tensor | None = None
        self.stat: Tensor | None = None
        if not self.cut.cluster:
            parts = c.num_kv_heads * self.cut.shares * self.cut.splits * self.cut.mt * 16
            self.part = torch.empty(parts, c.head_dim, device=device)
            self.stat = torch.empty(parts, 2, device=device)

    def launch(
        self, qkv: Tensor, layer: int, q_norm: Tensor | None, k_norm: Tensor | None, positions: Tensor,
        mask: Tensor | None, length: Tensor, out: Tensor,
    ) -> None:  # fmt: skip
        """qkv bf16 [n, (H + 2G) · d] -> out bf16 [n, H · d]; K and V go to the layer's rows length … length + n − 1.

        q_norm, k_norm bf16 [d] (None without q/k norm); positions int64 [n]; mask bool [n, n] (True = may attend) or
        None for all; length int64 [1].
        When launches overlap, only ``qkv`` may come from a kernel that lets its successor start early: the cache's
        committed rows, length, positions and mask are read before this kernel's predecessor has ended.
        """
        c, s = self.config, self.cut
        if mask is not None and (mask.dtype != torch.bool or mask.data_ptr() % 4 or not mask.is_contiguous()):
            raise TypeError(
                f"the tree mask must be boolean, contiguous and start at a multiple of 4 bytes, not {mask.dtype}"
            )
        grid = (s.splits, c.num_kv_heads, s.shares)
        self.kernel.launch(
            grid, s.threads, qkv, q_norm, k_norm, float(c.rms_norm_eps), *self.tables, positions, length, mask,
            self.cache.k[layer], self.cache.v[layer], self.cache.capacity, out, self.scale,
            s.room(self.bucket), self.part, self.stat,
            smem=self.shared, pdl=self.pdl, cluster=s.splits if s.cluster else 1,
        )  # fmt: skip
        if self._combine is not None:
            blocks = -(-self.rows * c.num_heads // 4)
            self._combine.launch(blocks, 128, self.part, self.stat, out, pdl=self.pdl)

    def context_rows(self, kv: Tensor, k_norms: Sequence[Tensor | None], length: Tensor) -> None:
        """kv bf16 [R, layers · 2 · G · d] -> rows length … length + R − 1 of every layer of the cache.

        Per layer: the G key heads, then the G value heads. ``k_norms``: each layer's bf16 [d], or None for all;
        length int64 [1]. Row r gets the rotary of position length + r.
        """
        c = self.config
        norms = [w for w in k_norms if w is not None]
        if norms and self._k_norms is None:
            self._k_norms = torch.stack(norms)
        self._context.launch(
            (len(kv), c.num_layers), min(256, 2 * c.num_kv_heads * c.head_dim // 8), kv, self._k_norms,
            float(c.rms_norm_eps), *self.tables, length, self.cache.k, self.cache.v, c.num_kv_heads,
            self.cache.capacity, pdl=self.pdl,
        )  # fmt: skip

    def commit(self, path: Tensor, count: Tensor | None, length: Tensor) -> None:
        """Move rows length + path[i] to length + i for i < count, in place, in k and v of all layers.

        path int64 [R], strictly ascending as far as count; count int64 or int32 [1] (None: all R); length int64 [1].
        """
        c = self.config
        heads = c.num_layers * c.num_kv_heads
        self._commit.launch(
            (-(-heads * (c.head_dim // 8) // 256), 2), 256, self.cache.k, self.cache.v, path, count,
            int(count is not None and count.dtype == torch.int64), len(path), length, heads, self.cache.capacity,
            pdl=self.pdl,
        )  # fmt: skip


@functools.cache
def attention_kernels(shape: Cut, config: ModelConfig, rows: int, pdl: bool) -> tuple[Kernel, Kernel | None]:
    """The compiled pair (attention, combination of the splits or None)."""
    defines = kernel_defines(shape, config, rows, pdl)
    attend = Kernel("attention.cu", "tree_attention", defines)
    return attend, None if shape.cluster else Kernel("attention.cu", "combine_splits", defines)


def kernel_defines(shape: Cut, config: ModelConfig, rows: int, pdl: bool) -> dict[str, int | str]:
    c = config
    return {
        "D": c.head_dim, "PER": c.num_heads // c.num_kv_heads, "GROUPS": c.num_kv_heads, "N": rows, "MT": shape.mt,
        "KS": shape.ks, "UN": shape.un, "STAGES": shape.stages, "SPLITS": shape.splits, "SHARES": shape.shares,
        "NORM": int(c.qk_norm), "CLUSTER": int(shape.cluster), **({"PDL": 1} if pdl else {}),
    }  # fmt: skip
