"""The DFlash/Domino backbone: target features + anchor -> one DraftBlock per round (engine.md §3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.correction import CorrectionHead
from dominotree.errors import PairError
from dominotree.model import DecoderLayer, KVCache, ModelConfig, Rotary, rms_norm
from dominotree.target import Target

DOMINO_PROJECTORS = ("domino", "causal_v5")


@dataclass(frozen=True)
class DrafterConfig:
    """A drafter's ``config.json``: the backbone's shape and the DFlash/Domino settings (engine.md §2)."""

    model: ModelConfig
    block_size: int
    num_target_layers: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    shift_label: bool
    kind: str  # "domino" (with a correction head) or "dflash" (without)
    emb_dim: int = 0
    gru_hidden_dim: int = 0
    pure_draft_prefix_len: int = 0

    @property
    def levels(self) -> int:
        """Drafted levels per block: 16 with ``shift_label`` (row i serves level i), 15 without (row i + 1)."""
        return self.block_size if self.shift_label else self.block_size - 1

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], what: str) -> DrafterConfig:
        """Read ``config.json``; raises PairError naming the missing or unsupported key."""
        dflash = config.get("dflash_config")
        if not isinstance(dflash, Mapping):
            raise PairError(
                f"{what}: config.json has no 'dflash_config', so this is not a DFlash or Domino drafter."
            )

        def need(key: str, *places: Mapping[str, Any]) -> Any:
            for place in places:
                if place.get(key) is not None:
                    return place[key]
            raise PairError(f"{what}: config.json names no {key!r}; it is never guessed.")

        for variant in ("use_bias_norm", "use_bias_gate"):
            if dflash.get(variant) or config.get(variant):
                raise PairError(
                    f"{what}: the drafter was trained with {variant}, a variant that is not supported here."
                )
        projector = dflash.get("projector_type")
        if projector not in (None, "", "none", *DOMINO_PROJECTORS):
            raise PairError(
                f"{what}: projector_type {projector!r} is not supported, only 'domino' (or none, for DFlash)."
            )
        domino = projector in DOMINO_PROJECTORS
        return cls(
            model=ModelConfig.from_dict(config, what, drafter=True),
            block_size=int(need("block_size", config, dflash)),
            num_target_layers=int(need("num_target_layers", config, dflash)),
            mask_token_id=int(need("mask_token_id", dflash, config)),
            target_layer_ids=tuple(int(i) for i in need("target_layer_ids", dflash, config)),
            shift_label=bool(dflash.get("shift_label", config.get("shift_label", False))),
            kind="domino" if domino else "dflash",
            emb_dim=int(need("emb_dim", dflash, config)) if domino else 0,
            gru_hidden_dim=int(need("gru_hidden_dim", dflash, config)) if domino else 0,
            pure_draft_prefix_len=int(need("pure_draft_prefix_len", dflash, config)) if domino else 0,
        )


@dataclass
class DraftBlock:
    """One backbone pass, by level: z [D, h] and base logits float32 [D, V]; level i is depth i + 1."""

    z: Tensor
    base_logits: Tensor
    anchor: int

    @property
    def levels(self) -> int:
        return len(self.base_logits)

    def repair(self) -> bool:
        """Take NaN out of the base logits, in place; True where there was any (fault N03).

        A NaN entry becomes -inf; a row without any finite entry becomes uniform.
        """
        bad = self.base_logits.isnan().any(dim=-1)
        if not bool(bad.any()):
            return False
        self.base_logits.nan_to_num_(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
        self.base_logits[bad & ~self.base_logits.isfinite().any(dim=-1)] = 0.0
        return True


class Drafter:
    """The block-diffusion backbone; shares the target's embeddings and LM head. ``head`` is None for DFlash."""

    def __init__(
        self, config: DrafterConfig, weights: Mapping[str, Tensor], target: Target, name: str = "drafter"
    ) -> None:
        self.config = config
        self.name = name
        self.target = target
        self.check(config, target, name)
        self.fc = weights["fc.weight"]
        self.hidden_norm = weights["hidden_norm.weight"]
        self.norm = weights["norm.weight"]
        self.layers = [
            DecoderLayer(config.model, weights, f"layers.{i}") for i in range(config.model.num_layers)
        ]
        self.rotary = Rotary(config.model, self.fc.device, self.fc.dtype)
        self.head: CorrectionHead | None = None
        if config.kind == "domino":
            self.head = CorrectionHead(
                w_ih=weights["prefix_gru.weight_ih_l0"],
                w_hh=weights["prefix_gru.weight_hh_l0"],
                w1=weights["embed_proj.0.weight"],
                w2=weights["embed_proj.2.weight"][
                    : target.vocab_size
                ],  # rows padded beyond the target's table: L11
                prefix_len=config.pure_draft_prefix_len,
            )
        block = [config.mask_token_id] * config.block_size
        self._block_ids = torch.tensor(block, device=self.fc.device)

    @staticmethod
    def weight_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
        """Every tensor that the checkpoint must hold, and no other, with its shape."""
        m = config.model
        h = m.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (h, h * len(config.target_layer_ids)),
            "hidden_norm.weight": (h,),
            "norm.weight": (h,),
        }
        for i in range(m.num_layers):
            shapes |= DecoderLayer.weight_shapes(m, f"layers.{i}")
        if config.kind == "domino":
            g, e = config.gru_hidden_dim, config.emb_dim
            shapes |= {
                "prefix_gru.weight_ih_l0": (3 * g, h),
                "prefix_gru.weight_hh_l0": (3 * g, g),
                "embed_proj.0.weight": (e, h + g),
                "embed_proj.2.weight": (m.vocab_size, e),
            }
        return shapes

    @staticmethod
    def check(config: DrafterConfig, target: Target, name: str) -> None:
        """Refuse a drafter that was made for another target; errors name both values (faults L11, L12, L22)."""
        t = target.config
        for what, ours, theirs in (
            ("hidden size", config.model.hidden_size, t.hidden_size),
            ("number of target layers", config.num_target_layers, t.num_layers),
        ):
            if ours != theirs:
                raise PairError(
                    f"{name} was trained for another target: its {what} is {ours}, {target.name}'s is {theirs}; "
                    "choose the drafter that belongs to this target."
                )
        if config.model.vocab_size < t.vocab_size:
            raise PairError(
                f"{name} has a vocabulary of {config.model.vocab_size}, {target.name} one of {t.vocab_size}; "
                "a drafter with a smaller vocabulary needs a token map, which is not supported."
            )
        if not 0 <= config.mask_token_id < t.vocab_size:
            raise PairError(
                f"{name}: mask_token_id {config.mask_token_id} is outside {target.name}'s embedding table "
                f"of {t.vocab_size} rows."
            )
        bad = [i for i in config.target_layer_ids if not 0 <= i < t.num_layers]
        if bad:
            raise PairError(
                f"{name}: target_layer_ids {bad} are outside {target.name}'s layers 0 to {t.num_layers - 1}."
            )
        if config.block_size < 2:
            raise PairError(
                f"{name}: block_size {config.block_size} is too small; at least 2 rows are needed."
            )

    @property
    def levels(self) -> int:
        return self.config.levels

    @property
    def context_limit(self) -> int:
        """Positions that the backbone was built for; past it, drafting is off (fault E41)."""
        return self.config.model.max_position_embeddings

    def new_context(self, capacity: int) -> KVCache:
        """Context K/V for ``capacity`` committed positions, with scratch room for one block behind them."""
        return KVCache(self.config.model, capacity + self.config.block_size, self.fc.device, self.fc.dtype)

    @torch.inference_mode()
    def extend(self, context: KVCache, features: Tensor) -> None:
        """Append target features [n, F] of the next n committed positions to the context.

        c = hidden_norm(fc(features)), the same for every layer and not passed through ``input_layernorm``.
        """
        n = len(features)
        positions = torch.arange(context.length, context.length + n, device=self.fc.device)
        tables = self.rotary.tables(positions)
        features = self._pick(features).to(self.fc.dtype)
        c = rms_norm(F.linear(features, self.fc), self.hidden_norm, self.config.model.rms_norm_eps)
        span = slice(context.length, context.length + n)
        for i, layer in enumerate(self.layers):
            k, v = layer.keys_values(c, tables)
            context.k[i, :, span], context.v[i, :, span] = k.transpose(0, 1), v.transpose(0, 1)
        context.length += n

    def _pick(self, features: Tensor) -> Tensor:
        """This drafter's layers, in its own order, out of the target's feature columns."""
        have, want = self.target.feature_layers, self.config.target_layer_ids
        if have == want:
            return features
        by_layer = dict(zip(have, features.split(self.target.config.hidden_size, dim=-1), strict=True))
        return torch.cat([by_layer[i] for i in want], dim=-1)

    @torch.inference_mode()
    def draft(self, context: KVCache, anchor: int) -> DraftBlock:
        """One pass over [anchor, mask × (block_size − 1)] at positions ``context.length …``.

        Attention inside the block is bidirectional. The block's own keys and values use the scratch rows behind the
        context and are never committed (fault E31).
        """
        block = self._block_ids.clone()
        block[0] = anchor
        x = self.target.embed(block).to(self.fc.dtype)
        positions = torch.arange(context.length, context.length + len(block), device=self.fc.device)
        tables = self.rotary.tables(positions)
        for i, layer in enumerate(self.layers):
            x = layer.forward(x, tables, None, context, i)
        first = 0 if self.config.shift_label else 1
        z = rms_norm(x, self.norm, self.config.model.rms_norm_eps)[first:]
        return DraftBlock(z=z, base_logits=self.target.lm_head(z.to(self.target.dtype)), anchor=anchor)
