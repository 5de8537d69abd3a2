"""A thin Llama/Qwen3 decoder over Hugging Face weights: the arithmetic that target and drafter share.

One token is one row; there is no batch dimension (batch 1 throughout). Shapes: n rows, H query heads, G
key/value heads, d head_dim, h hidden_size, L = cached rows + n.
Norms run in float32: an attention-sink token reaches 2.5e4 (engine.md §3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.errors import PairError

SUPPORTED_MODEL_TYPES = ("llama", "qwen3")


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a decoder. ``rope_theta`` is the base of the rotary frequencies, paired half against half."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    qk_norm: bool
    tie_word_embeddings: bool
    rope_scaling: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], what: str, drafter: bool = False) -> ModelConfig:
        """Read a Hugging Face ``config.json``. ``what`` names the model in errors.

        Raises PairError for anything this decoder does not compute exactly: another architecture, recurrent or
        sliding layers, biases, an activation other than SiLU, two different rotary bases.
        """
        model_type = config.get("model_type")
        if model_type not in SUPPORTED_MODEL_TYPES:
            raise PairError(
                f"{what}: model_type {model_type!r} is not supported; choose a model of type "
                f"{' or '.join(SUPPORTED_MODEL_TYPES)} (full attention, no recurrent layers)."
            )
        for layer_type in config.get("layer_types") or ():
            if layer_type != "full_attention":
                raise PairError(
                    f"{what}: layer type {layer_type!r} cannot be verified as a tree (its state cannot be rewound "
                    "or its window would cut the tree); choose a model with full attention only."
                )
        if config.get("use_sliding_window"):
            raise PairError(f"{what}: use_sliding_window is on; choose a model with full attention only.")
        if config.get("quantization_config") is not None:
            raise PairError(
                f"{what}: quantised weights are not supported; choose the unquantised checkpoint."
            )
        for key in ("attention_bias", "mlp_bias"):
            if config.get(key):
                raise PairError(f"{what}: {key} is on, which this decoder does not compute.")
        activation = config.get("hidden_act", "silu")
        if activation != "silu":
            raise PairError(f"{what}: hidden_act {activation!r} is not supported, only 'silu'.")
        theta, scaling = _rope(config, what)
        heads = config["num_attention_heads"]
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate_size=config["intermediate_size"],
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),
            rope_theta=theta,
            max_position_embeddings=config["max_position_embeddings"],
            qk_norm=model_type == "qwen3" or drafter,
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            rope_scaling=scaling,
        )


def _rope(config: Mapping[str, Any], what: str) -> tuple[float, tuple[tuple[str, Any], ...]]:
    """The rotary base, flat (``rope_theta``) or nested (``rope_parameters``); both and different is an error."""
    nested = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    flat, inner = config.get("rope_theta"), nested.get("rope_theta")
    if flat is not None and inner is not None and float(flat) != float(inner):
        raise PairError(
            f"{what}: rope_theta is {flat} at the top level and {inner} nested; keep only one of them."
        )
    theta = flat if flat is not None else inner
    if theta is None:
        raise PairError(f"{what}: config.json names no rope_theta; a default would silently be wrong.")
    kind = nested.get("rope_type") or nested.get("type") or "default"
    if kind == "default":
        return float(theta), ()
    if kind not in ("llama3", "linear"):
        raise PairError(f"{what}: rope type {kind!r} is not supported, only default, linear and llama3.")
    nested.pop("type", None)
    return float(theta), tuple(sorted({**nested, "rope_type": kind}.items()))


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """Rotary inverse frequencies, float32 [d/2]."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    inv = 1.0 / (config.rope_theta**half)
    scaling = dict(config.rope_scaling)
    if not scaling:
        return inv
    if scaling["rope_type"] == "linear":
        return inv / scaling["factor"]
    # llama3: long wavelengths are slowed down, short ones kept, smoothly between.
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    cycles = scaling["original_max_position_embeddings"] * inv / (2 * torch.pi)
    smooth = ((cycles - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * inv / scaling["factor"] + smooth * inv


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm in float32, weight applied in the dtype of ``x``."""
    return weight * F.rms_norm(x.float(), x.shape[-1:], eps=eps).to(x.dtype)


class Rotary:
    """Rotary embedding, half against half: dimension j turns with j + d/2 (never the interleaved pairing)."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        self.inv_freq = inverse_frequencies(config).to(device)
        self.dtype = dtype

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos, sin [n, 1, d] for integer positions [n]."""
        angle = positions.float()[:, None] * self.inv_freq[None, :]
        angle = torch.cat((angle, angle), dim=-1)[:, None, :]
        return angle.cos().to(self.dtype), angle.sin().to(self.dtype)


def rotate(x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary tables [n, 1, d] to x [n, heads, d]."""
    cos, sin = tables
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class KVCache:
    """Keys and values of committed positions, with room behind them for the rows being verified.

    ``k`` and ``v``: [layers, G, capacity, d]. ``length`` rows are committed. A forward writes its rows at
    ``length …`` without moving ``length``; ``commit`` keeps some of them, in order, and drops the rest.
    """

    def __init__(self, config: ModelConfig, capacity: int, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.num_layers, config.num_kv_heads, capacity, config.head_dim)
        self.k = torch.zeros(shape, device=device, dtype=dtype)
        self.v = torch.zeros(shape, device=device, dtype=dtype)
        self.capacity = capacity
        self.length = 0

    def room(self) -> int:
        return self.capacity - self.length

    def commit(self, rows: Tensor | list[int]) -> None:
        """Keep ``rows`` (ascending offsets behind ``length``) as the next committed positions."""
        index = torch.as_tensor(rows, device=self.k.device, dtype=torch.long)
        kept = len(index)
        if kept and int(index[-1]) != kept - 1:  # otherwise the rows already lie in place
            source = self.length + index
            span = slice(self.length, self.length + kept)
            self.k[:, :, span] = self.k[:, :, source]
            self.v[:, :, span] = self.v[:, :, source]
        self.length += kept

    def snapshot(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Copies of rows start … stop−1, to be handed to ``restore``."""
        return self.k[:, :, start:stop].clone(), self.v[:, :, start:stop].clone()

    def restore(self, start: int, rows: tuple[Tensor, Tensor]) -> None:
        stop = start + rows[0].shape[2]
        self.k[:, :, start:stop], self.v[:, :, start:stop] = rows
        self.length = stop


def attention_bias(mask: Tensor, prefix: int, dtype: torch.dtype) -> Tensor:
    """Additive bias [n, prefix + n] from a boolean mask [n, n] (True = may attend); the prefix is open to all.

    Raises TypeError for a mask that is not boolean: 0/1 numbers added to scores mask nothing.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"the tree mask must be boolean (True = may attend), not {mask.dtype}")
    n = mask.shape[0]
    bias = torch.zeros(n, prefix + n, device=mask.device, dtype=dtype)
    bias[:, prefix:].masked_fill_(~mask, float("-inf"))
    return bias


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Grouped-query attention. q [n, H, d]; k, v [G, L, d]; bias [n, L] or None -> [n, H·d].

    The H/G query heads of a group are folded into rows, so keys and values are never repeated.
    """
    n, heads, d = q.shape
    groups = k.shape[0]
    per = heads // groups
    rows = q.view(n, groups, per, d).permute(1, 2, 0, 3).reshape(groups, per * n, d)
    mask = None if bias is None else bias.repeat(per, 1)
    out = F.scaled_dot_product_attention(rows[None], k[None], v[None], attn_mask=mask)[0]
    return out.view(groups, per, n, d).permute(2, 0, 1, 3).reshape(n, heads * d)


class DecoderLayer:
    """One pre-norm block: attention with optional per-head q/k norm, then SwiGLU. Projections are fused."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], prefix: str) -> None:
        def take(name: str) -> Tensor:
            return weights[f"{prefix}.{name}.weight"]

        self.config = config
        self.input_norm = take("input_layernorm")
        self.post_norm = take("post_attention_layernorm")
        self.qkv = torch.cat([take(f"self_attn.{name}_proj") for name in "qkv"])
        self.o = take("self_attn.o_proj")
        self.gate_up = torch.cat([take("mlp.gate_proj"), take("mlp.up_proj")])
        self.down = take("mlp.down_proj")
        self.q_norm = take("self_attn.q_norm") if config.qk_norm else None
        self.k_norm = take("self_attn.k_norm") if config.qk_norm else None

    @staticmethod
    def weight_shapes(c: ModelConfig, prefix: str) -> dict[str, tuple[int, ...]]:
        """The layer's tensors by name, with their shapes."""
        h, q, kv, m = (
            c.hidden_size,
            c.num_heads * c.head_dim,
            c.num_kv_heads * c.head_dim,
            c.intermediate_size,
        )
        shapes: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj": (q, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, q), "mlp.gate_proj": (m, h), "mlp.up_proj": (m, h), "mlp.down_proj": (h, m),
            "input_layernorm": (h,), "post_attention_layernorm": (h,),
        }  # fmt: skip
        if c.qk_norm:
            shapes |= {"self_attn.q_norm": (c.head_dim,), "self_attn.k_norm": (c.head_dim,)}
        return {f"{prefix}.{name}.weight": shape for name, shape in shapes.items()}

    def project(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """q [n, H, d], k [n, G, d] (normed, rotated) and v [n, G, d] of already normed rows x [n, h]."""
        c = self.config
        q, k, v = (
            F.linear(x, self.qkv)
            .view(len(x), -1, c.head_dim)
            .split((c.num_heads, c.num_kv_heads, c.num_kv_heads), dim=1)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = rms_norm(q, self.q_norm, c.rms_norm_eps), rms_norm(k, self.k_norm, c.rms_norm_eps)
        return rotate(q, tables), rotate(k, tables), v

    def keys_values(self, x: Tensor, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """k (normed, rotated) and v of rows x [n, h] that ask nothing themselves: the drafter's context."""
        c = self.config
        rows = F.linear(x, self.qkv[c.num_heads * c.head_dim :]).view(len(x), -1, c.head_dim)
        k, v = rows.split((c.num_kv_heads, c.num_kv_heads), dim=1)
        if self.k_norm is not None:
            k = rms_norm(k, self.k_norm, c.rms_norm_eps)
        return rotate(k, tables), v

    def forward(
        self, x: Tensor, tables: tuple[Tensor, Tensor], bias: Tensor | None, cache: KVCache, index: int
    ) -> Tensor:
        """x [n, h] -> [n, h]; writes the rows' keys and values behind the cache's committed length."""
        start, stop = cache.length, cache.length + len(x)
        q, k, v = self.project(rms_norm(x, self.input_norm, self.config.rms_norm_eps), tables)
        cache.k[index, :, start:stop] = k.transpose(0, 1)
        cache.v[index, :, start:stop] = v.transpose(0, 1)
        return self.finish(x, attend(q, cache.k[index, :, :stop], cache.v[index, :, :stop], bias))

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The block after its attention: x [n, h] and the heads' mix [n, H·d] -> [n, h]."""
        x = x + F.linear(mixed, self.o)
        gate, up = F.linear(rms_norm(x, self.post_norm, self.config.rms_norm_eps), self.gate_up).chunk(
            2, dim=-1
        )
        return x + F.linear(F.silu(gate) * up, self.down)
