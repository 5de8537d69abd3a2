"""Pairs with random weights at released shapes: for measuring speed where no checkpoint is at hand.

Weights are drawn so that hidden states stay of order one and the drafter's base logits have standard deviation 8 (a
top-1 probability of about 0.6), as in real drafts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dominotree.drafter import Drafter, DrafterConfig
from dominotree.model import ModelConfig
from dominotree.target import Target

LOGIT_STD = 8.0

TARGETS = {
    "qwen3-4b": ModelConfig(151936, 2560, 36, 32, 8, 128, 9728, 1e-6, 1e6, 40960, True, True),
    "qwen3-8b": ModelConfig(151936, 4096, 36, 32, 8, 128, 12288, 1e-6, 1e6, 40960, True, False),
}


def drafter_config(target: ModelConfig, layers: int = 5) -> DrafterConfig:
    """The released Domino drafters' shape for this target."""
    t = target
    model = ModelConfig(
        t.vocab_size, t.hidden_size, layers, t.num_heads, t.num_kv_heads, t.head_dim, t.intermediate_size,
        t.rms_norm_eps, t.rope_theta, t.max_position_embeddings, True, t.tie_word_embeddings,
    )  # fmt: skip
    return DrafterConfig(
        model=model, block_size=16, num_target_layers=t.num_layers, mask_token_id=151669,
        target_layer_ids=(1, 9, 17, 25, 33), shift_label=True, kind="domino", emb_dim=256, gru_hidden_dim=1024,
        pure_draft_prefix_len=1,
    )  # fmt: skip


def random_weights(
    shapes: dict[str, tuple[int, ...]], device: torch.device, dtype: torch.dtype, seed: int
) -> dict[str, Tensor]:
    """Normal weights with standard deviation 1/sqrt(inputs); norms are ones, tables have deviation 1."""
    generator = torch.Generator(device=device).manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            weights[name] = torch.ones(shape, device=device, dtype=dtype)
            continue
        tensor = torch.empty(shape, device=device, dtype=dtype).normal_(generator=generator)
        if "embed_tokens" not in name:
            tensor.mul_(shape[1] ** -0.5)
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor.mul_(0.2)  # the residual stream grows slowly, as in a trained model
        weights[name] = tensor
    return weights


def random_pair(
    name: str, device: torch.device | str = "cuda", dtype: torch.dtype = torch.bfloat16, seed: int = 0
) -> tuple[Target, Drafter]:
    """A target and a Domino drafter with random weights at the shapes of ``name`` ("qwen3-4b" or "qwen3-8b").

    The LM head (the embedding table where it is tied) is scaled so that logits of normed rows have deviation 8.
    """
    device = torch.device(device)
    config = TARGETS[name]
    draft = drafter_config(config)
    weights = random_weights(Target.weight_shapes(config), device, dtype, seed)
    scale = LOGIT_STD * config.hidden_size**-0.5
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    weights[head].normal_(generator=torch.Generator(device=device).manual_seed(seed + 1)).mul_(scale)
    target = Target(config, weights, draft.target_layer_ids, name=f"random {name}")
    drafter = Drafter(
        draft, random_weights(Drafter.weight_shapes(draft), device, dtype, seed + 2), target, name=f"random {name} drafter"
    )  # fmt: skip
    return target, drafter


class NumberTokenizer:
    """Names tokens by their number: runs on random weights have no text."""

    stop_ids: frozenset[int] = frozenset()

    def token_bytes(self, token: int) -> bytes:
        return f"<{token}>".encode()

    def decode(self, ids: list[int]) -> str:
        return "".join(f"<{i}>" for i in ids)

    def encode_chat(self, prompt: str) -> list[int]:
        raise NotImplementedError("random weights have no tokenizer; give prompt_ids")
