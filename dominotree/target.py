"""The target model: embeddings, LM head, prefill, and one forward over a whole draft tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.errors import PairError
from dominotree.model import DecoderLayer, KVCache, ModelConfig, Rotary, attention_bias, rms_norm

PREFILL_CHUNK = 256


@dataclass
class TargetRows:
    """What a forward gives for its n rows: logits float32 [n, V] and drafter features [n, F]."""

    logits: Tensor
    features: Tensor


class Target:
    """A Llama or Qwen3 decoder with tree attention.

    ``feature_layers`` lists the layers whose raw outputs (before the final norm) the drafters read; layer i means
    the hidden state *after* block i, entry i + 1 of a Hugging Face hidden-state list (engine.md §2).
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        feature_layers: Sequence[int] = (),
        name: str = "target",
    ) -> None:
        self.config = config
        self.name = name
        for layer in feature_layers:
            if not 0 <= layer < config.num_layers:
                raise PairError(
                    f"{name}: the drafter reads target layer {layer}, but the target has layers 0 to "
                    f"{config.num_layers - 1}; use the drafter that was trained for this target."
                )
        self.feature_layers = tuple(feature_layers)
        self.embedding = weights["model.embed_tokens.weight"]
        self.head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.norm = weights["model.norm.weight"]
        self.layers = [DecoderLayer(config, weights, f"model.layers.{i}") for i in range(config.num_layers)]
        self.rotary = Rotary(config, self.device, self.dtype)

    @staticmethod
    def weight_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
        """Every tensor that the checkpoint must hold, and no other, with its shape."""
        shapes = {
            "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
            "model.norm.weight": (c.hidden_size,),
        }
        if not c.tie_word_embeddings:
            shapes["lm_head.weight"] = (c.vocab_size, c.hidden_size)
        for i in range(c.num_layers):
            shapes |= DecoderLayer.weight_shapes(c, f"model.layers.{i}")
        return shapes

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def context_limit(self) -> int:
        """Tokens (prompt and output together) that the model was built for."""
        return self.config.max_position_embeddings

    def embed(self, ids: Tensor) -> Tensor:
        """ids [n] -> [n, h]."""
        return F.embedding(ids, self.embedding)

    def lm_head(self, hidden: Tensor) -> Tensor:
        """Normed hidden states [n, h] -> float32 logits [n, V]."""
        return F.linear(hidden, self.head).float()

    def new_cache(self, capacity: int) -> KVCache:
        return KVCache(self.config, capacity, self.device, self.dtype)

    def _blocks(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: KVCache) -> tuple[Tensor, Tensor]:
        if len(ids) > cache.room():
            raise ValueError(
                f"{len(ids)} rows do not fit behind {cache.length} of {cache.capacity} cache rows"
            )
        x = self.embed(ids)
        tables = self.rotary.tables(positions)
        bias = None if len(ids) == 1 else attention_bias(mask, cache.length, self.dtype)
        kept: dict[int, Tensor] = {}
        for i, layer in enumerate(self.layers):
            x = layer.forward(x, tables, bias, cache, i)
            if i in self.feature_layers:
                kept[i] = x
        features = torch.cat([kept[i] for i in self.feature_layers], dim=-1) if kept else x[:, :0]
        return x, features

    @torch.inference_mode()
    def prefill(
        self, ids: Tensor, cache: KVCache, cancelled: Callable[[], bool] = lambda: False
    ) -> TargetRows | None:
        """Run the prompt ids [n] into an empty cache, in chunks. Logits of the last row only: [1, V].

        Features are those of every prompt position, [n, F]. Returns None when ``cancelled`` said so between chunks.
        """
        features: Tensor | None = None
        hidden = None
        for chunk in ids.split(PREFILL_CHUNK):
            if cancelled():
                return None
            positions = torch.arange(cache.length, cache.length + len(chunk), device=self.device)
            causal = torch.ones(len(chunk), len(chunk), dtype=torch.bool, device=self.device).tril()
            hidden, rows = self._blocks(chunk, positions, causal, cache)
            if features is None:  # the whole prompt's at once: parts and their union would be twice as much
                features = rows.new_empty(len(ids), rows.shape[1])
            features[cache.length : cache.length + len(chunk)] = rows
            cache.commit(range(len(chunk)))  # type: ignore[arg-type]
        if hidden is None or features is None:
            raise ValueError("prefill needs at least one token")
        last = rms_norm(hidden[-1:], self.norm, self.config.rms_norm_eps)
        return TargetRows(self.lm_head(last), features)

    @torch.inference_mode()
    def verify(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: KVCache) -> TargetRows:
        """One forward over the anchor and the tree's nodes.

        ids, positions: int64 [n]; mask: bool [n, n], row = who looks, column = at whom (itself and its ancestors).
        Every row sees the whole committed prefix. Keys and values land behind ``cache.length``; commit them after.
        """
        hidden, features = self._blocks(ids, positions, mask, cache)
        return TargetRows(self.lm_head(rms_norm(hidden, self.norm, self.config.rms_norm_eps)), features)

    def probe_tree_mask(self, tolerance: float = 1e-3) -> None:
        """Swap a sibling's token and require that only the sibling's own branch moves (faults E10, E43, L20).

        Raises PairError when the tree mask does not reach the attention on this machine.
        """
        v = self.vocab_size
        tokens = torch.tensor([1, 2, 3, 4, 5], device=self.device) % v
        swapped = tokens.clone()
        swapped[2] = 7 % v
        parents = [-1, 0, 0, 1, 2]
        mask = torch.eye(5, dtype=torch.bool, device=self.device)
        for row, parent in enumerate(parents):
            if parent >= 0:
                mask[row] |= mask[parent]
        positions = torch.tensor([3, 4, 4, 5, 5], device=self.device)
        cache = self.new_cache(8)
        self.prefill(torch.tensor([1, 2, 3], device=self.device) % v, cache)
        before = self.verify(tokens, positions, mask, cache).logits
        after = self.verify(swapped, positions, mask, cache).logits
        moved = (before - after).abs().amax(dim=-1) / before.abs().amax(dim=-1).clamp_min(1e-6)
        others, own = moved[[0, 1, 3]].max().item(), moved[[2, 4]].min().item()
        if others > tolerance or own == 0.0:
            raise PairError(
                f"{self.name}: the tree mask does not take effect with torch {torch.__version__} on {self.device} "
                f"(a sibling's swap moved other branches by {others:.2g}, its own by {own:.2g}); "
                "tree methods would not be lossless here, so they are refused."
            )
