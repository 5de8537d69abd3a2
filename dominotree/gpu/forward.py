"""Whole forwards of target and drafter from own kernels: bf16, static shapes, capturable, nothing on the host.

Per decoder layer two kernels: tree attention, and a block of four products (output, gate-up with SwiGLU, down, the next
layer's qkv) through which the weights stream without a stop. Norms and residual sums are part of the products. Residual rows are bf16 with float32 statistics, as the checkpoints were
trained; logits are float32 sums that are not rounded to bf16.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor

from dominotree.gpu.attention import Cut, TreeAttention, rotary_tables
from dominotree.gpu.block import COUNTERS, Block, Op, planned
from dominotree.gpu.gemm import BF16, FLOAT, MAX_ROWS, RESIDUAL, SHARED_LIMIT, SWIGLU, Product, Residual
from dominotree.gpu.nvrtc import Kernel, compile_together
from dominotree.gpu.static_forward import VerifyBuffers
from dominotree.model import DecoderLayer, KVCache, ModelConfig

if TYPE_CHECKING:
    from dominotree.drafter import Drafter
    from dominotree.target import Target


T = TypeVar("T")


def unsupported(config: ModelConfig, dtype: torch.dtype, n: int, device: torch.device) -> str | None:
    """Why these kernels cannot run a model with n rows, or None."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] < 9:
        return "the kernels need an NVIDIA GPU of the Hopper generation or newer"
    if dtype != torch.bfloat16:
        return f"the kernels compute in bfloat16, not {str(dtype).removeprefix('torch.')}"
    if n > MAX_ROWS:
        return f"the kernels take at most {MAX_ROWS} rows (budget {MAX_ROWS - 1}), not {n}"
    if config.head_dim not in (64, 128):
        return f"the kernels take heads of 64 or 128 dimensions, not {config.head_dim}"
    if config.hidden_size % 64 or config.intermediate_size % 64 or config.hidden_size > 8192:
        return f"hidden size {config.hidden_size} and intermediate size {config.intermediate_size} do not fit the kernels"
    return None


def _launch_rows(
    n: int, h: Tensor, ids: Tensor | None, table: Tensor | None, weight: Tensor, eps: float, out: Tensor,
    squares: Tensor | None, pdl: bool,
) -> None:  # fmt: skip
    """``kernels/rows.cu``: embedding look-up (ids given) or the norm of h (not given), a CTA per row."""
    _ROWS[pdl].launch(
        n,
        256,
        h,
        ids,
        table,
        weight,
        float(eps),
        out,
        squares,
        0 if squares is None else squares.shape[1],
        h.shape[1],
        pdl=pdl,
    )


_ROWS = {pdl: Kernel("rows.cu", "rows", {"PDL": 1} if pdl else {}) for pdl in (False, True)}


class DecoderStack:
    """The layers of one decoder over n rows that lie behind ``length`` rows of a KV cache."""

    def __init__(
        self, config: ModelConfig, layers: list[DecoderLayer], final_norm: Tensor, n: int, cache: KVCache, bucket: int,
        features: Tensor | None = None, feature_layers: tuple[int, ...] = (), pdl: bool = True,
        room: int = 0, tables: tuple[Tensor, Tensor] | None = None, shape: Cut | None = None,
        traces: Tensor | None = None,
    ) -> None:  # fmt: skip
        """``features`` bf16 [n, F] receives the raw outputs of ``feature_layers``; ``tables``: see ``rotary_tables``.

        For measurements: ``room`` and ``shape`` overrule the cuts, ``traces`` int64 [layers, CTAs, 4, 16] (``Block``).
        """
        device = cache.k.device
        self.config, self.layers, self.n, self.pdl = config, layers, n, pdl
        self.attention = TreeAttention(config, n, cache, bucket, pdl=pdl, tables=tables, shape=shape)

        def empty(width: int) -> Tensor:
            return torch.zeros(n, width, device=device, dtype=torch.bfloat16)

        self.stream = stream = Residual.empty(n, config.hidden_size, device)
        self.projected = empty(layers[0].qkv.shape[0])
        self.mixed = empty(config.num_heads * config.head_dim)
        self.act = empty(config.intermediate_size)
        # The squares of the stream come in segments whose width the writer fixes: embeddings 1, products their own.
        middle, end = Residual(stream.h, stream.scaled, stream.squares), stream
        first = Residual(stream.h, stream.scaled, stream.squares, segments=1)
        eps = config.rms_norm_eps
        self.first = Product(
            layers[0].qkv, stream.scaled, BF16, self.projected, normed=first, eps=eps, pdl=pdl
        )
        self.counters = torch.zeros(len(layers), COUNTERS, device=device, dtype=torch.int32)
        products: list[list[Op]] = []
        for i, layer in enumerate(layers):
            following = layers[i + 1].input_norm if i + 1 < len(layers) else final_norm
            kept = None
            if features is not None and i in feature_layers:
                at = feature_layers.index(i) * config.hidden_size
                kept = features[:, at : at + config.hidden_size]
            ops = [
                Op(layer.o, self.mixed, RESIDUAL, into=middle, next_norm=layer.post_norm),
                Op(layer.gate_up, stream.scaled, SWIGLU, self.act, normed=middle, eps=eps),
                Op(layer.down, self.act, RESIDUAL, into=end, next_norm=following, features=kept),
            ]
            if i + 1 < len(layers):
                ops.append(Op(layers[i + 1].qkv, stream.scaled, BF16, self.projected, normed=end, eps=eps))
            products.append(ops)
        room = room or SHARED_LIMIT - 2048
        blocks = {planned(ops, room, pdl, traces is not None)[1] for ops in products}
        compile_together([self.attention.kernel, self.first.kernel, *blocks])
        self.blocks = [
            Block(ops, self.counters[i], room, pdl, None if traces is None else traces[i])
            for i, ops in enumerate(products)
        ]

    def launch(
        self, ids: Tensor, table: Tensor, positions: Tensor, mask: Tensor | None, length: Tensor
    ) -> Residual:  # fmt: skip
        """Rows ``ids`` int64 [n] at ``positions`` int64 [n] -> the stream, scaled by the final norm's weight.

        table bf16 [V, h]; mask bool [n, n] or None for all; length int64 [1].
        """
        stream, layers = self.stream, self.layers
        self.counters.zero_()
        _launch_rows(
            self.n, stream.h, ids, table, layers[0].input_norm, self.config.rms_norm_eps, stream.scaled,
            stream.squares, self.pdl,
        )  # fmt: skip
        self.first()
        for i, (layer, block) in enumerate(zip(layers, self.blocks, strict=True)):
            self.attention.launch(
                self.projected, i, layer.q_norm, layer.k_norm, positions, mask, length, self.mixed
            )
            block()
        return stream


class KernelTarget:
    """The target's verify over n rows of one cache and bucket."""

    def __init__(
        self, target: Target, n: int, cache: KVCache, bucket: int, pdl: bool = True,
        buffers: tuple[Tensor, Tensor] | None = None, tables: tuple[Tensor, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """``buffers``: logits float32 [n, V] and features bf16 [n, F] to write into (made here otherwise)."""
        c, device = target.config, target.device
        reason = unsupported(c, target.dtype, n, device)
        if reason:
            raise ValueError(reason)
        self.target, self.n = target, n
        self.logits, self.features = buffers or VerifyBuffers(target).rows(n)
        self.stack = DecoderStack(
            c, target.layers, target.norm, n, cache, bucket, self.features, target.feature_layers, pdl=pdl, tables=tables
        )  # fmt: skip
        stream = self.stack.stream
        self.head = Product(
            target.head, stream.scaled, FLOAT, self.logits, normed=stream, eps=c.rms_norm_eps, pdl=pdl
        )

    def verify(self, ids: Tensor, positions: Tensor, mask: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """ids, positions int64 [n], mask bool [n, n], length int64 [1] -> the buffers; K/V land behind ``length``."""
        self.stack.launch(ids, self.target.embedding, positions, mask, length)
        self.head()
        return self.logits, self.features


class KernelDraft:
    """The drafter's block behind its context: [anchor, mask × (block_size − 1)]."""

    def __init__(
        self, drafter: Drafter, context: KVCache, bucket: int, pdl: bool = True,
        buffers: tuple[Tensor, Tensor] | None = None, tables: tuple[Tensor, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """``buffers``: z bf16 [block_size, h] and base logits float32 [D, V] to write into (made here otherwise)."""
        config, target = drafter.config, drafter.target
        c, device, n = config.model, drafter.fc.device, config.block_size
        reason = unsupported(c, drafter.fc.dtype, n, device)
        if reason:
            raise ValueError(reason)
        self.drafter, self.pdl = drafter, pdl
        self.first = 0 if config.shift_label else 1
        self.z, self.base_logits = buffers or draft_buffers(drafter)
        self.stack = DecoderStack(c, drafter.layers, drafter.norm, n, context, bucket, pdl=pdl, tables=tables)
        self.head = Product(target.head, self.z[self.first :], FLOAT, self.base_logits, pdl=pdl)
        self.ids = torch.full((n,), config.mask_token_id, device=device, dtype=torch.int64)
        self.positions = torch.zeros(n, device=device, dtype=torch.int64)
        self.offsets = torch.arange(n, device=device)

    def draft(self, anchor: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """anchor int64 [1], length int64 [1] -> z bf16 [D, h], base logits float32 [D, V] (static buffers)."""
        drafter, target, c = self.drafter, self.drafter.target, self.drafter.config.model
        self.ids[:1].copy_(anchor)
        torch.add(self.offsets, length, out=self.positions)
        stream = self.stack.launch(self.ids, target.embedding, self.positions, None, length)
        _launch_rows(len(self.z), stream.h, None, None, drafter.norm, c.rms_norm_eps, self.z, None, self.pdl)
        self.head()
        return self.z[self.first :], self.base_logits


def draft_buffers(drafter: Drafter) -> tuple[Tensor, Tensor]:
    """z bf16 [block_size, h], base logits float32 [D, V]."""
    config, device = drafter.config, drafter.fc.device
    z = torch.zeros(config.block_size, config.model.hidden_size, device=device, dtype=torch.bfloat16)
    return z, torch.zeros(config.levels, drafter.target.vocab_size, device=device)


class KernelContext:
    """The context's growth by accepted rows: fc, hidden_norm, then every layer's keys and values in one product."""

    def __init__(
        self, drafter: Drafter, context: KVCache, rows: int, pdl: bool = True, tables: tuple[Tensor, Tensor] | None = None
    ) -> None:  # fmt: skip
        """``rows``: context rows that every call writes (anchor and deepest path)."""
        config, target = drafter.config, drafter.target
        c, device = config.model, drafter.fc.device
        reason = unsupported(c, drafter.fc.dtype, rows, device)
        if reason:
            raise ValueError(reason)
        self.norms = [layer.k_norm for layer in drafter.layers]
        width = len(target.feature_layers) * target.config.hidden_size
        self.accepted = torch.zeros(rows, width, device=device, dtype=torch.bfloat16)
        grown = Residual.empty(rows, c.hidden_size, device)
        self.fc = Product(
            _by_target_layer(drafter), self.accepted, RESIDUAL, into=grown, next_norm=drafter.hidden_norm,
            fresh=True, pdl=pdl,
        )  # fmt: skip
        weight = _context_weight(drafter)
        self.kv = torch.zeros(rows, weight.shape[0], device=device, dtype=torch.bfloat16)
        self.product = Product(weight, grown.scaled, BF16, self.kv, normed=grown, eps=c.rms_norm_eps, pdl=pdl)
        self.attention = TreeAttention(c, 1, context, min(256, context.capacity), pdl=pdl, tables=tables)

    def extend(self, features: Tensor, path: Tensor, length: Tensor) -> None:
        """Context keys and values of verify rows ``path`` int64 [rows] at positions ``length`` …; features bf16 [n, F].

        Rows beyond the accepted count are written too and never read: the next call overwrites them.
        """
        torch.index_select(features, 0, path, out=self.accepted)
        self.fc()
        self.product()
        self.attention.context_rows(self.kv, self.norms, length)


#: A drafter's key and value weights of all layers in one matrix [layers · 2 · G · d, h], made once.
_CONTEXT_WEIGHTS: weakref.WeakKeyDictionary[Drafter, Tensor] = weakref.WeakKeyDictionary()


def _context_weight(drafter: Drafter) -> Tensor:
    c = drafter.config.model
    kv = 2 * c.num_kv_heads * c.head_dim
    if drafter not in _CONTEXT_WEIGHTS:
        _CONTEXT_WEIGHTS[drafter] = torch.cat([layer.qkv[-kv:] for layer in drafter.layers])
    return _CONTEXT_WEIGHTS[drafter]


def _by_target_layer(drafter: Drafter) -> Tensor:
    """``fc`` with its columns in the order of the target's feature layers; layers that it does not read weigh zero."""
    have, want, hidden = drafter.target.feature_layers, drafter.config.target_layer_ids, drafter.fc.shape[0]
    if have == want:
        return drafter.fc
    weight = drafter.fc.new_zeros(hidden, len(have) * hidden)
    for place, layer in enumerate(want):
        to = have.index(layer) * hidden
        weight[:, to : to + hidden] = drafter.fc[:, place * hidden : (place + 1) * hidden]
    return weight


class KernelForward:
    """The ``Forward`` of captured rounds (``gpu/static_forward.py``) on these kernels: parts are made per cache and bucket.

    ``shared``: the buffers that its verifies share with others (its own otherwise).
    """

    name = "kernels"

    def __init__(
        self, target: Target, drafter: Drafter | None, rows: int, shared: VerifyBuffers | None = None
    ) -> None:
        self.target, self.drafter, self.rows = target, drafter, rows
        self.shared = shared or VerifyBuffers(target)
        self._parts: dict[tuple[object, ...], object] = {}

    def _part(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        if key not in self._parts:
            self._parts[key] = make()
        return cast(T, self._parts[key])

    def _tables(self, config: ModelConfig, cache: KVCache) -> tuple[Tensor, Tensor]:
        return self._part(
            ("rotary", id(cache)), lambda: rotary_tables(config, cache.capacity, cache.k.device)
        )

    def verify(
        self, ids: Tensor, positions: Tensor, mask: Tensor, length: Tensor, cache: KVCache, bucket: int
    ) -> tuple[Tensor, Tensor]:
        """See ``Forward.verify``."""
        target = self.target
        buffers = self.shared.rows(self.rows)
        tables = self._tables(target.config, cache)
        part = self._part(
            ("verify", id(cache), bucket),
            lambda: KernelTarget(target, self.rows, cache, bucket, buffers=buffers, tables=tables),
        )
        return part.verify(ids, positions, mask, length)

    def draft(self, anchor: Tensor, length: Tensor, context: KVCache, bucket: int) -> tuple[Tensor, Tensor]:
        """See ``Forward.draft``."""
        drafter = self._drafter()
        buffers = self._part(("draft",), lambda: draft_buffers(drafter))
        tables = self._tables(drafter.config.model, context)
        part = self._part(
            ("draft", id(context), bucket),
            lambda: KernelDraft(drafter, context, bucket, buffers=buffers, tables=tables),
        )
        return part.draft(anchor, length)

    def extend(self, features: Tensor, path: Tensor, length: Tensor, context: KVCache) -> None:
        """See ``Forward.extend``."""
        drafter = self._drafter()
        tables = self._tables(drafter.config.model, context)
        part = self._part(
            ("extend", id(context), len(path)),
            lambda: KernelContext(drafter, context, len(path), tables=tables),
        )
        part.extend(features, path, length)

    def commit(self, cache: KVCache, path: Tensor, length: Tensor) -> None:
        """See ``Forward.commit``."""
        tables = self._tables(self.target.config, cache)
        part = self._part(
            ("commit", id(cache)),
            lambda: TreeAttention(self.target.config, 1, cache, min(256, cache.capacity), tables=tables),
        )
        part.commit(path, None, length)

    def _drafter(self) -> Drafter:
        if self.drafter is None:
            raise ValueError("this forward was made without a drafter")
        return self.drafter
