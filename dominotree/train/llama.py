"""The target for whole batches: features of many sequences at once, and generation with a static KV cache.

The engine's ``target.Target`` runs one sequence; this is the same Llama over the same weights for thousands of rows.
Shapes: B sequences, T positions, H query heads, G key/value heads, d head size, h hidden size, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor


@dataclass(frozen=True)
class LlamaShape:
    """What the batched target needs of ``config.json``."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> LlamaShape:
        if config["model_type"] != "llama" or not config.get("tie_word_embeddings"):
            raise ValueError(
                f"training needs a Llama target with tied embeddings, not {config['model_type']!r}"
            )
        heads = config["num_attention_heads"]
        return cls(
            config["vocab_size"], config["hidden_size"], config["num_hidden_layers"], heads, config["num_key_value_heads"],
            config.get("head_dim") or config["hidden_size"] // heads, config["rms_norm_eps"], config["rope_theta"],
        )  # fmt: skip


def rope_tables(positions: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [..., d/2], at integer positions [...]."""
    half = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angle = positions.float()[..., None] * theta**-half
    return angle.cos(), angle.sin()


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [..., d], half against half; cos and sin [..., d/2] broadcast."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def _before_attention(
    x: Tensor, norm: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """x [..., h] -> q [..., H, d], k and v [..., G, d]; cos and sin [..., d/2]."""
    n = F.rms_norm(x.float(), x.shape[-1:], norm.float(), eps).to(x.dtype)
    y = F.linear(n, qkv).unflatten(-1, (heads + 2 * kv, -1))
    turned = apply_rope(y[..., : heads + kv, :], cos[..., None, :], sin[..., None, :])
    return turned[..., :heads, :], turned[..., heads:, :], y[..., heads + kv :, :]


def _after_attention(
    x: Tensor, attention: Tensor, o: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float
) -> Tensor:
    """x [..., h], attention [..., H·d] -> the layer's output [..., h]."""
    x = x + F.linear(attention, o)
    n = F.rms_norm(x.float(), x.shape[-1:], norm.float(), eps).to(x.dtype)
    gate, up = F.linear(n, gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, down)


class BatchedTarget:
    """A Llama checkpoint folder for batches. ``compile`` fuses the elementwise parts of a layer (CUDA)."""

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, compile: bool = False) -> None:
        self.shape = s = LlamaShape.from_dict(
            json.loads((folder / "config.json").read_text(encoding="utf-8"))
        )
        self.device, self.dtype = device, dtype
        w = {k: v.to(device, dtype) for k, v in load_file(folder / "model.safetensors").items()}
        self.embedding = w["model.embed_tokens.weight"]
        self.final_norm = w["model.norm.weight"]
        self.layers = []
        for i in range(s.num_layers):
            p = f"model.layers.{i}."
            self.layers.append((
                w[p + "input_layernorm.weight"], torch.cat([w[p + f"self_attn.{n}_proj.weight"] for n in "qkv"]),
                w[p + "self_attn.o_proj.weight"], w[p + "post_attention_layernorm.weight"],
                torch.cat([w[p + "mlp.gate_proj.weight"], w[p + "mlp.up_proj.weight"]]), w[p + "mlp.down_proj.weight"],
            ))  # fmt: skip
        self._before: Callable[..., tuple[Tensor, Tensor, Tensor]] = _before_attention
        self._after: Callable[..., Tensor] = _after_attention
        if compile:
            self._before = torch.compile(_before_attention, dynamic=True)
            self._after = torch.compile(_after_attention, dynamic=True)

    def _qkv(self, layer: int, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        norm, qkv = self.layers[layer][:2]
        return self._before(
            x, norm, qkv, cos, sin, self.shape.num_heads, self.shape.num_kv_heads, self.shape.eps
        )

    def _finish(self, layer: int, x: Tensor, attention: Tensor) -> Tensor:
        return self._after(x, attention, *self.layers[layer][2:], self.shape.eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """LM head on raw last-layer states [n, h]: float32 [n, V]."""
        n = F.rms_norm(hidden.float(), hidden.shape[-1:], self.final_norm.float(), self.shape.eps).to(
            self.dtype
        )
        if self.device.type == "cuda" and self.dtype == torch.bfloat16:
            return torch.mm(n, self.embedding.T, out_dtype=torch.float32)
        return F.linear(n, self.embedding).float()

    @torch.no_grad()
    def features(self, ids: Tensor, layer_ids: Sequence[int]) -> Tensor:
        """States after each layer of ``layer_ids``, concatenated: [B, T, len(layer_ids)·h].

        ids [B, T] are right-padded; what padding gives is garbage that no earlier position sees.
        """
        x = F.embedding(ids, self.embedding)
        cos, sin = rope_tables(
            torch.arange(ids.shape[1], device=ids.device), self.shape.head_dim, self.shape.rope_theta
        )
        found = []
        for layer in range(max(layer_ids) + 1):
            q, k, v = self._qkv(layer, x, cos, sin)
            a = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
            )
            x = self._finish(layer, x, a.transpose(1, 2).flatten(2))
            if layer in layer_ids:
                found.append(x)
        return torch.cat(found, dim=-1)

    # ---- generation: one batch of prompts of nearly equal length, left-padded

    @torch.no_grad()
    def start(self, ids: Tensor, pad: Tensor, room: int) -> tuple[GenerationState, Tensor]:
        """Prefill left-padded prompts ids [B, T] (``pad`` [B] places of padding); logits [B, V] of the next token."""
        rows, length = ids.shape
        s = self.shape
        places = (
            -(-(length + room) // 8) * 8
        )  # aligned for the attention bias; zeros, since 0 · garbage may be NaN
        state = GenerationState(
            [torch.zeros(rows, places, s.num_kv_heads, s.head_dim, device=self.device, dtype=self.dtype) for _ in self.layers],
            [torch.zeros(rows, places, s.num_kv_heads, s.head_dim, device=self.device, dtype=self.dtype) for _ in self.layers],
            pad, length, bool((pad > 0).any()),
        )  # fmt: skip
        last = torch.empty(rows, s.hidden_size, device=self.device, dtype=self.dtype)
        for part in torch.arange(rows, device=self.device).split(max(1, 131072 // length)):
            x = F.embedding(ids[part], self.embedding)
            slots = torch.arange(length, device=self.device)
            cos, sin = rope_tables((slots - pad[part][:, None]).clamp_min(0), s.head_dim, s.rope_theta)
            mask = None
            if state.padded:
                seen = (slots[None, :] >= pad[part][:, None])[:, None, None, :] & (
                    slots[:, None] >= slots[None, :]
                )
                mask = seen | torch.eye(length, dtype=torch.bool, device=self.device)
            for layer in range(s.num_layers):
                q, k, v = self._qkv(layer, x, cos, sin)
                state.keys[layer][part, :length], state.values[layer][part, :length] = k, v
                a = F.scaled_dot_product_attention(
                    q.transpose(1, 2),
                    k.transpose(1, 2),
                    v.transpose(1, 2),
                    attn_mask=mask,
                    is_causal=mask is None,
                    enable_gqa=True,
                )
                x = self._finish(layer, x, a.transpose(1, 2).flatten(2))
            last[part] = x[:, -1]
        return state, self.logits(last)

    @torch.no_grad()
    def step(self, state: GenerationState, ids: Tensor) -> Tensor:
        """Append one token to every row: ids [B] -> logits [B, V]."""
        s = self.shape
        x = F.embedding(ids, self.embedding)
        cos, sin = rope_tables(state.length - state.pad, s.head_dim, s.rope_theta)
        end = state.length + 1
        mask = None
        if state.padded:
            width = -(-end // 8) * 8  # the attention kernel wants aligned mask rows
            mask = torch.zeros(len(ids), 1, 1, width, device=self.device, dtype=self.dtype)
            places = torch.arange(width, device=self.device)
            mask.masked_fill_((places[None, :] < state.pad[:, None])[:, None, None, :], float("-inf"))
            mask = mask[..., :end].expand(-1, s.num_kv_heads, s.num_heads // s.num_kv_heads, -1)
        for layer in range(s.num_layers):
            q, k, v = self._qkv(layer, x, cos, sin)
            state.keys[layer][:, state.length], state.values[layer][:, state.length] = k, v
            # The heads of one key/value group become rows of one query, so keys and values are read once, not copied.
            a = F.scaled_dot_product_attention(
                q.unflatten(1, (s.num_kv_heads, -1)),
                state.keys[layer][:, :end].transpose(1, 2),
                state.values[layer][:, :end].transpose(1, 2),
                attn_mask=mask,
            )
            x = self._finish(layer, x, a.flatten(1))
        state.length = end
        return self.logits(x)


class GraphDecoder:
    """``BatchedTarget.step`` as one CUDA graph: all places of the cache are read, a bias hides those not filled yet."""

    def __init__(self, target: BatchedTarget, state: GenerationState) -> None:
        self.target, self.state = target, state
        rows, places = state.keys[0].shape[:2]
        slot = torch.arange(places, device=target.device)
        hidden = (slot[None, :] < state.pad[:, None]) | (slot >= state.length)[None, :]
        self.bias = torch.zeros(rows, 1, 1, places, device=target.device, dtype=target.dtype).masked_fill_(
            hidden[:, None, None, :], float("-inf")
        )
        self.ids = torch.zeros(rows, dtype=torch.long, device=target.device)
        self.place = torch.full((1,), state.length, dtype=torch.long, device=target.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.logits: Tensor | None = None

    def _body(self) -> Tensor:
        t, s = self.target, self.target.shape
        x = F.embedding(self.ids, t.embedding)
        cos, sin = rope_tables(self.place - self.state.pad, s.head_dim, s.rope_theta)
        self.bias.index_fill_(3, self.place, 0.0)
        mask = self.bias.expand(-1, s.num_kv_heads, s.num_heads // s.num_kv_heads, -1)
        for layer in range(s.num_layers):
            norm, qkv = t.layers[layer][:2]
            q, k, v = t._before(x, norm, qkv, cos, sin, s.num_heads, s.num_kv_heads, s.eps)
            self.state.keys[layer].index_copy_(1, self.place, k[:, None])
            self.state.values[layer].index_copy_(1, self.place, v[:, None])
            a = F.scaled_dot_product_attention(
                q.unflatten(1, (s.num_kv_heads, -1)),
                self.state.keys[layer].transpose(1, 2),
                self.state.values[layer].transpose(1, 2),
                attn_mask=mask,
            )
            x = t._after(x, a.flatten(1), *t.layers[layer][2:], s.eps)
        self.place += 1
        return t.logits(x)

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Append one token to every row: ids [B] -> logits [B, V] (valid until the next call)."""
        self.ids.copy_(ids)
        if self.logits is None:
            self.logits = self._body()  # the first step warms up
            return self.logits
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.logits = self._body()
        self.graph.replay()
        return self.logits


@dataclass
class GenerationState:
    """KV cache of one batch: per layer [B, places, G, d]; ``length`` places are filled."""

    keys: list[Tensor]
    values: list[Tensor]
    pad: Tensor
    length: int
    padded: bool

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (indices [n])."""
        for cache in (self.keys, self.values):
            for layer, full in enumerate(cache):
                kept = torch.empty(len(rows), *full.shape[1:], device=full.device, dtype=full.dtype)
                kept[:, : self.length] = full[rows, : self.length]
                cache[layer] = kept
        self.pad = self.pad[rows]
