"""The drafter as it is trained: many blocks of many sequences in one pass, float32 masters, bf16 arithmetic.

Shapes: S sequences, T context positions, A anchors a sequence, R block rows (16), D levels, h hidden size.
The engine's ``drafter.Drafter`` computes the same for one block with a KV cache; ``tests/test_train.py`` compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dominotree.train.llama import apply_rope, rope_tables


@dataclass
class DrafterShape:
    """Size of a drafter. ``domino`` adds the correction head; ``shift_label``: row i serves level i, else row i + 1.

    ``output_rows`` limits the rows of ``embed_proj.2`` that are trained to the most frequent tokens of the corpus; the
    others stay exactly zero (no correction for tokens that hardly occur), which packs to nothing.
    """

    layers: int = 4
    intermediate: int = 1152
    domino: bool = True
    shift_label: bool = True
    emb_dim: int = 192
    gru_hidden: int = 384
    output_rows: int = 16384
    block_size: int = 16
    prefix_len: int = 1
    mask_token_id: int = 16
    target_layers: tuple[int, ...] = (1, 7, 14, 20, 27)
    hidden: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    vocab: int = 49152
    eps: float = 1e-5
    rope_theta: float = 100000.0

    @property
    def levels(self) -> int:
        return self.block_size if self.shift_label else self.block_size - 1

    @property
    def first_row(self) -> int:
        """The block row that serves level 0."""
        return 0 if self.shift_label else 1

    def released_config(self, num_target_layers: int, max_positions: int) -> dict[str, Any]:
        """``config.json`` of the released layout (engine.md §2)."""
        dflash: dict[str, Any] = {
            "mask_token_id": self.mask_token_id,
            "target_layer_ids": list(self.target_layers),
        }
        if self.domino:
            dflash |= {
                "projector_type": "domino",
                "pure_draft_prefix_len": self.prefix_len,
                "emb_dim": self.emb_dim,
                "gru_hidden_dim": self.gru_hidden,
            }
        dflash["shift_label"] = self.shift_label
        return {
            "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_act": "silu", "hidden_size": self.hidden,
            "num_hidden_layers": self.layers, "intermediate_size": self.intermediate, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "vocab_size": self.vocab, "rms_norm_eps": self.eps,
            "rope_theta": self.rope_theta, "max_position_embeddings": max_positions, "attention_bias": False, "attention_dropout": 0.0,
            "layer_types": ["full_attention"] * self.layers, "sliding_window": None, "use_sliding_window": False,
            "tie_word_embeddings": True, "initializer_range": 0.02, "dtype": "bfloat16", "block_size": self.block_size,
            "num_target_layers": num_target_layers, "dflash_config": dflash,
        }  # fmt: skip

    @classmethod
    def from_released(cls, config: dict[str, Any]) -> DrafterShape:
        d = config["dflash_config"]
        domino = d.get("projector_type") == "domino"
        return cls(
            config["num_hidden_layers"], config["intermediate_size"], domino, bool(d.get("shift_label", False)), d.get("emb_dim", 0),
            d.get("gru_hidden_dim", 0), config["vocab_size"], config["block_size"], d.get("pure_draft_prefix_len", 0), d["mask_token_id"],
            tuple(d["target_layer_ids"]), config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"],
            config["head_dim"], config["vocab_size"], config["rms_norm_eps"], config["rope_theta"],
        )  # fmt: skip


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), x.shape[-1:], self.weight, self.eps).to(x.dtype)


class Linear(nn.Linear):
    """No bias; the float32 weight is cast to the dtype of the input."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


class Attention(nn.Module):
    def __init__(self, s: DrafterShape) -> None:
        super().__init__()
        self.shape = s
        self.q_proj = Linear(s.hidden, s.heads * s.head_dim)
        self.k_proj = Linear(s.hidden, s.kv_heads * s.head_dim)
        self.v_proj = Linear(s.hidden, s.kv_heads * s.head_dim)
        self.o_proj = Linear(s.heads * s.head_dim, s.hidden)
        self.q_norm = Norm(s.head_dim, s.eps)
        self.k_norm = Norm(s.head_dim, s.eps)

    def forward(
        self, x: Tensor, context: Tensor, rope: BlockRope, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """x [S, A·R, h] block rows (normed), context [S, T, h] -> [S, A·R, h]."""
        s = self.shape

        def heads(y: Tensor, count: int) -> Tensor:
            return y.unflatten(-1, (count, s.head_dim)).transpose(1, 2)

        q = apply_rope(self.q_norm(heads(self.q_proj(x), s.heads)), *rope.block)
        own = apply_rope(self.k_norm(heads(self.k_proj(x), s.kv_heads)), *rope.block)
        past = apply_rope(self.k_norm(heads(self.k_proj(context), s.kv_heads)), *rope.context)
        k = torch.cat((past, own), dim=2)
        v = torch.cat((heads(self.v_proj(context), s.kv_heads), heads(self.v_proj(x), s.kv_heads)), dim=2)
        return self.o_proj(attend(q, k, v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, s: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = Linear(s.hidden, s.intermediate)
        self.up_proj = Linear(s.hidden, s.intermediate)
        self.down_proj = Linear(s.intermediate, s.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, s: DrafterShape) -> None:
        super().__init__()
        self.input_layernorm = Norm(s.hidden, s.eps)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = Norm(s.hidden, s.eps)
        self.mlp = MLP(s)

    def forward(
        self, x: Tensor, context: Tensor, rope: BlockRope, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, rope, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


@dataclass
class BlockRope:
    """cos and sin of block rows [S, 1, A·R, d/2] and of the context [T, d/2]."""

    block: tuple[Tensor, Tensor]
    context: tuple[Tensor, Tensor]


def block_mask(anchor: Tensor, context: int, rows: int) -> Tensor:
    """Which keys a block row sees: bool [S, A·R, T + A·R]; keys are the context, then all block rows.

    Row r of the block at ``anchor`` [S, A] (a position) sees the context before the anchor and its own block, both ways.
    """
    _, count = anchor.shape
    q = torch.arange(count * rows, device=anchor.device)
    past = (
        torch.arange(context, device=anchor.device)[None, None, :]
        < anchor.repeat_interleave(rows, 1)[:, :, None]
    )
    own = (q[:, None] // rows == q[None, :] // rows)[None].expand(len(anchor), -1, -1)
    return torch.cat((past, own), dim=-1)


def dense_attention(mask: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Plain masked attention: the definition, used on the CPU and in evaluation."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])

    return attend


class TrainDrafter(nn.Module):
    """Backbone and head with the names of the released layout. ``feature_scale`` is folded into ``fc`` at export."""

    prefix_gru: nn.GRU
    embed_proj: nn.Sequential
    feature_scale: Tensor
    row_trained: Tensor

    def __init__(self, s: DrafterShape) -> None:
        super().__init__()
        self.shape = s
        self.layers = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.norm = Norm(s.hidden, s.eps)
        self.fc = Linear(len(s.target_layers) * s.hidden, s.hidden)
        self.hidden_norm = Norm(s.hidden, s.eps)
        if s.domino:
            self.prefix_gru = nn.GRU(s.hidden, s.gru_hidden, bias=False, batch_first=True)
            self.embed_proj = nn.Sequential(
                Linear(s.hidden + s.gru_hidden, s.emb_dim), nn.SiLU(), Linear(s.emb_dim, s.vocab)
            )
        self.register_buffer("feature_scale", torch.ones(len(s.target_layers) * s.hidden), persistent=True)
        self.register_buffer("row_trained", torch.ones(s.vocab), persistent=True)

    @property
    def w1(self) -> Tensor:
        """``embed_proj.0.weight`` [e, h + g]."""
        return cast(Linear, self.embed_proj[0]).weight

    @property
    def w2(self) -> Tensor:
        """``embed_proj.2.weight`` [V, e]."""
        return cast(Linear, self.embed_proj[2]).weight

    @property
    def gru_weights(self) -> tuple[Tensor, Tensor]:
        """``prefix_gru.weight_ih_l0`` [3g, h] and ``weight_hh_l0`` [3g, g], gates r, z, n."""
        return cast(Tensor, self.prefix_gru.weight_ih_l0), cast(Tensor, self.prefix_gru.weight_hh_l0)

    @torch.no_grad()
    def initialise(
        self, embedding: Tensor, final_norm: Tensor, generator: torch.Generator, counts: Tensor | None = None
    ) -> None:
        """The first weights: small normal matrices, the target's output norm halved, ``embed_proj.2`` from the embedding.

        ``counts`` [V] (tokens of the corpus) choose the trained rows of ``embed_proj.2``.
        """
        s = self.shape
        for name, p in self.named_parameters():
            if p.ndim == 2:
                std = 0.02
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= (2 * s.layers) ** 0.5
                p.copy_(torch.randn(p.shape, generator=generator) * std)
            else:
                p.fill_(1.0)
        self.norm.weight.copy_(0.5 * final_norm.float())
        if s.domino:
            table = embedding.float().cpu()
            centred = table - table.mean(0)
            _, vectors = torch.linalg.eigh(centred.T @ centred)
            projected = centred @ vectors[:, -s.emb_dim :]
            self.w2.copy_(projected * (0.08 / projected.std()))
            self.row_trained.fill_(1.0)
            if counts is not None and s.output_rows < s.vocab:
                self.row_trained.zero_()
                self.row_trained[counts.float().topk(s.output_rows).indices.to(self.row_trained.device)] = 1.0
            self.w2.mul_(self.row_trained[:, None])

    def context(self, features: Tensor) -> Tensor:
        """c = hidden_norm(fc(features)) for raw target features [..., len(target_layers)·h]."""
        return self.hidden_norm(self.fc((features.float() * self.feature_scale).to(features.dtype)))

    def backbone(
        self,
        context: Tensor,
        anchor: Tensor,
        anchor_embedding: Tensor,
        mask_embedding: Tensor,
        attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """z by level: context [S, T, h], anchor positions [S, A], their token embeddings [S, A, h] -> [S, A, D, h]."""
        s = self.shape
        count = anchor.shape[1]
        x = mask_embedding.expand(len(anchor), count, s.block_size - 1, -1)
        x = torch.cat((anchor_embedding[:, :, None], x), dim=2).flatten(1, 2)
        places = (anchor[:, :, None] + torch.arange(s.block_size, device=anchor.device)).flatten(1)
        cos, sin = rope_tables(places, s.head_dim, s.rope_theta)
        rope = BlockRope(
            (cos[:, None], sin[:, None]),
            rope_tables(torch.arange(context.shape[1], device=anchor.device), s.head_dim, s.rope_theta),
        )
        for layer in self.layers:
            x = layer(x, context, rope, attend)
        z = self.norm(x).unflatten(1, (count, s.block_size))
        return z[:, :, s.first_row : s.first_row + s.levels]

    def gru_states(self, embeddings: Tensor) -> Tensor:
        """States after each of the tokens [n, D, h] (the anchor first): float32 [n, D, g]."""
        return self.prefix_gru(embeddings.float())[0]

    def unrolled_gru_states(self, embeddings: Tensor) -> Tensor:
        """The same, written out step by step: what ``torch.compile`` fuses and a CUDA graph can hold."""
        g = self.shape.gru_hidden
        w_ih, w_hh = self.gru_weights
        read = F.linear(embeddings.float(), w_ih)
        state = torch.zeros(len(embeddings), g, device=embeddings.device)
        states = []
        for step in range(embeddings.shape[1]):
            x, h = read[:, step], F.linear(state, w_hh)
            reset, update = torch.sigmoid(x[:, : 2 * g] + h[:, : 2 * g]).chunk(2, dim=-1)
            new = torch.tanh(x[:, 2 * g :] + reset * h[:, 2 * g :])
            state = new + update * (state - new)
            states.append(state)
        return torch.stack(states, 1)

    def head_hidden(self, z: Tensor, states: Tensor) -> Tensor:
        """SiLU(W1 · [z ; s]) [n, D, e], zero at the levels before ``prefix_len`` (no correction there)."""
        hidden = self.embed_proj[1](self.embed_proj[0](torch.cat((z, states.to(z.dtype)), dim=-1)))
        level = torch.arange(z.shape[-2], device=z.device)
        return hidden * (level >= self.shape.prefix_len)[:, None]

    def released_tensors(self, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
        """Weights under their released names, feature scale folded into ``fc``, zero rows exactly zero."""
        out = {}
        for name, p in self.named_parameters():
            w = p.detach().float()
            if name == "fc.weight":
                w = w * self.feature_scale[None, :]
            if name == "embed_proj.2.weight":
                w = w * self.row_trained[:, None]
            out[name] = w.to(dtype).cpu().contiguous()
        return out

    def load_released(self, tensors: dict[str, Tensor]) -> None:
        """Load released weights (every name must match); the feature scale becomes 1."""
        state = {k: v.float() for k, v in tensors.items()}
        state["feature_scale"] = torch.ones_like(self.feature_scale)
        state["row_trained"] = torch.ones_like(self.row_trained)
        self.load_state_dict(state)


@dataclass
class ParameterCount:
    """Parameters by part, embeddings and LM head (the target's) left out."""

    parts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, model: TrainDrafter) -> ParameterCount:
        parts: dict[str, int] = {}
        for name, p in model.named_parameters():
            part = name.split(".")[0]
            size = p.numel()
            if name == "embed_proj.2.weight":
                size = int(model.row_trained.sum()) * p.shape[1]
            parts[part] = parts.get(part, 0) + size
        return cls(parts)

    def as_dict(self) -> dict[str, int]:
        return asdict(self)["parts"] | {"total": sum(self.parts.values())}
