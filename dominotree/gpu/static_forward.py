"""Target and drafter forwards with fixed shapes, in plain torch: what a CUDA graph can capture, in any dtype.

The arithmetic is that of ``Target`` and ``Drafter``; what differs is where the numbers come from. The committed length
is a device tensor, attention reads a whole ``bucket`` of the cache with everything behind the rows in play masked, and
results land in buffers whose addresses never change. Nothing here waits for the device.

bf16 runs prefer the kernels of ``gpu/forward.py``; this is the float32 path and the fallback.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.drafter import Drafter
from dominotree.model import DecoderLayer, KVCache, rms_norm
from dominotree.target import Target

#: Verify rows that share one pair of buffers: the anchor and the largest tree of the kernels.
SHARED_ROWS = 129


class Forward(Protocol):
    """What a captured round asks of the models. ``length`` int64 [1] = committed rows; ``bucket`` bounds the reads."""

    name: str

    def verify(
        self, ids: Tensor, positions: Tensor, mask: Tensor, length: Tensor, cache: KVCache, bucket: int
    ) -> tuple[Tensor, Tensor]:
        """ids, positions int64 [n], mask bool [n, n] -> logits float32 [n, V], features [n, F]; K/V at ``length …``."""

    def draft(self, anchor: Tensor, length: Tensor, context: KVCache, bucket: int) -> tuple[Tensor, Tensor]:
        """anchor int64 [1] -> z [D, h], base logits float32 [D, V]."""

    def extend(self, features: Tensor, path: Tensor, length: Tensor, context: KVCache) -> None:
        """Context K/V of the verify rows ``path`` int64 [R] at ``length … length + R − 1``."""

    def commit(self, cache: KVCache, path: Tensor, length: Tensor) -> None:
        """Move the target's rows ``length + path[i]`` to ``length + i``, in place."""


class VerifyBuffers:
    """Where verifies leave logits float32 [n, V] and features [n, F].

    Rounds take turns, so verifies of all methods and sizes share them: a single row has its own, all trees of up to 128
    nodes share one pair, larger ones one pair for each power of two.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def rows(self, n: int) -> tuple[Tensor, Tensor]:
        """The first ``n`` rows of the buffers for that size; what they hold lasts until the next verify."""
        target, most = self.target, 1
        if n > 1:
            most = SHARED_ROWS
            while most < n:
                most = 2 * most - 1
        if most not in self._made:
            width = len(target.feature_layers) * target.config.hidden_size
            logits = torch.zeros(most, target.vocab_size, device=target.device)
            features = torch.zeros(most, width, device=target.device, dtype=target.dtype)
            self._made[most] = logits, features
        logits, features = self._made[most]
        return logits[:n], features[:n]


class StaticForward:
    """Plain torch. ``rows``: verify rows n; its buffers are made once and reused by every bucket's graph.

    ``shared``: the buffers that it shares with other verifies (its own otherwise).
    """

    name = "static"

    def __init__(
        self, target: Target, drafter: Drafter | None, rows: int, shared: VerifyBuffers | None = None
    ) -> None:
        self.target, self.drafter, self.rows = target, drafter, rows
        self.shared = shared or VerifyBuffers(target)
        self._buffers: dict[str, Tensor] = {}
        device, width = target.device, target.config.hidden_size
        self.row_index = torch.arange(rows, device=device)
        if drafter is not None:
            self.block_ids = torch.full(
                (drafter.config.block_size,), drafter.config.mask_token_id, device=device
            )
            self.block_index = torch.arange(drafter.config.block_size, device=device)
            wanted, have = drafter.config.target_layer_ids, target.feature_layers
            columns = [torch.arange(width) + width * have.index(i) for i in wanted]
            same = wanted == have
            self.columns = None if same else torch.cat(columns).to(device)  # this drafter's feature columns

    def _buffer(self, name: str, rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """A result buffer, made at the first call (the warm-up before a capture) and never moved."""
        if name not in self._buffers:
            self._buffers[name] = torch.zeros(rows, width, device=self.target.device, dtype=dtype)
        return self._buffers[name]

    def verify(
        self, ids: Tensor, positions: Tensor, mask: Tensor, length: Tensor, cache: KVCache, bucket: int
    ) -> tuple[Tensor, Tensor]:
        target, width = self.target, self.target.config.hidden_size
        if mask.dtype != torch.bool:
            raise TypeError(f"the tree mask must be boolean (True = may attend), not {mask.dtype}")
        logits, features = self.shared.rows(self.rows)
        x = target.embed(ids)
        tables = target.rotary.tables(positions)
        bias = tree_bias(mask, length, bucket, target.dtype)
        bias = bias.repeat(target.config.num_heads // target.config.num_kv_heads, 1)
        slots = length + self.row_index
        for i, layer in enumerate(target.layers):
            x = layer_rows(layer, i, x, tables, bias, cache, slots, bucket)
            if i in target.feature_layers:
                at = target.feature_layers.index(i) * width
                features[:, at : at + width].copy_(x)
        head_into(logits, rms_norm(x, target.norm, target.config.rms_norm_eps), target.head)
        return logits, features

    def draft(self, anchor: Tensor, length: Tensor, context: KVCache, bucket: int) -> tuple[Tensor, Tensor]:
        drafter, target = self._drafter(), self.target
        c, n = drafter.config.model, drafter.config.block_size
        z = self._buffer("z", drafter.levels, c.hidden_size, drafter.fc.dtype)
        base_logits = self._buffer("base_logits", drafter.levels, target.vocab_size, torch.float32)
        self.block_ids[:1].copy_(anchor)
        x = target.embed(self.block_ids).to(drafter.fc.dtype)
        slots = length + self.block_index
        tables = drafter.rotary.tables(slots)
        seen = torch.arange(bucket, device=length.device) < length + n
        bias = torch.zeros(bucket, device=length.device, dtype=x.dtype).masked_fill_(~seen, float("-inf"))
        bias = bias.expand(n * (c.num_heads // c.num_kv_heads), bucket)
        for i, layer in enumerate(drafter.layers):
            x = layer_rows(layer, i, x, tables, bias, context, slots, bucket)
        first = 0 if drafter.config.shift_label else 1
        z.copy_(rms_norm(x, drafter.norm, c.rms_norm_eps)[first:])
        head_into(base_logits, z.to(target.dtype), target.head)
        return z, base_logits

    def extend(self, features: Tensor, path: Tensor, length: Tensor, context: KVCache) -> None:
        drafter = self._drafter()
        rows = features.index_select(0, path)
        if self.columns is not None:
            rows = rows.index_select(1, self.columns)
        slots = length + torch.arange(len(path), device=length.device)
        tables = drafter.rotary.tables(slots)
        c = rms_norm(
            F.linear(rows.to(drafter.fc.dtype), drafter.fc),
            drafter.hidden_norm,
            drafter.config.model.rms_norm_eps,
        )
        for i, layer in enumerate(drafter.layers):
            store(context, i, slots, *layer.keys_values(c, tables))

    def commit(self, cache: KVCache, path: Tensor, length: Tensor) -> None:
        source, into = length + path, length + torch.arange(len(path), device=length.device)
        cache.k.index_copy_(2, into, cache.k.index_select(2, source))
        cache.v.index_copy_(2, into, cache.v.index_select(2, source))

    def _drafter(self) -> Drafter:
        if self.drafter is None:
            raise ValueError("this forward was made without a drafter")
        return self.drafter


def tree_bias(mask: Tensor, length: Tensor, bucket: int, dtype: torch.dtype) -> Tensor:
    """Additive bias [n, bucket]: the prefix is open, column length + j follows mask[:, j], the rest is closed."""
    n = mask.shape[0]
    offset = torch.arange(bucket, device=mask.device) - length
    inside = mask.index_select(1, offset.clamp(0, n - 1)) & (offset < n)
    bias = torch.zeros(n, bucket, device=mask.device, dtype=dtype)
    return bias.masked_fill_(~(inside | (offset < 0)), float("-inf"))


def layer_rows(
    layer: DecoderLayer, index: int, x: Tensor, tables: tuple[Tensor, Tensor], bias: Tensor, cache: KVCache,
    slots: Tensor, bucket: int,
) -> Tensor:  # fmt: skip
    """One block over rows x [n, h] whose keys and values go to the cache rows ``slots`` int64 [n]."""
    q, k, v = layer.project(rms_norm(x, layer.input_norm, layer.config.rms_norm_eps), tables)
    store(cache, index, slots, k, v)
    return layer.finish(x, attend_bucket(q, cache.k[index, :, :bucket], cache.v[index, :, :bucket], bias))


def store(cache: KVCache, index: int, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Write k, v [n, G, d] of one layer to cache rows ``slots``."""
    cache.k[index].index_copy_(1, slots, k.transpose(0, 1))
    cache.v[index].index_copy_(1, slots, v.transpose(0, 1))


def attend_bucket(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Grouped-query attention of q [n, H, d] over k, v [G, bucket, d] with bias [H/G · n, bucket] -> [n, H·d].

    The H/G query heads of a group are folded into rows, so keys and values are never repeated.
    """
    n, heads, d = q.shape
    groups = k.shape[0]
    per = heads // groups
    rows = q.view(n, groups, per, d).permute(1, 2, 0, 3).reshape(groups, per * n, d)
    out = F.scaled_dot_product_attention(rows[None], k[None], v[None], attn_mask=bias)[0]
    return out.view(groups, per, n, d).permute(2, 0, 1, 3).reshape(n, heads * d)


def head_into(out: Tensor, hidden: Tensor, weight: Tensor) -> None:
    """Logits float32 [n, V] of normed rows [n, h], written to ``out``; the product runs in the weights' dtype."""
    if hidden.dtype == out.dtype:
        torch.mm(hidden, weight.t(), out=out)
    else:
        out.copy_(F.linear(hidden, weight))
