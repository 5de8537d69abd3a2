"""Tiny models for tests: random weights at a size that runs in milliseconds, and scripted stubs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dominotree.calibration import Calibration
from dominotree.checkpoints import Pair
from dominotree.cost import CostModel
from dominotree.decode import Run
from dominotree.drafter import DraftBlock, Drafter, DrafterConfig
from dominotree.model import KVCache, ModelConfig
from dominotree.target import Target, TargetRows

VOCAB = 64
TINY = {
    "model_type": "qwen3", "vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "max_position_embeddings": 256, "tie_word_embeddings": True, "hidden_act": "silu",
}  # fmt: skip
TINY_DRAFTER = {
    **TINY, "num_hidden_layers": 2, "block_size": 8, "num_target_layers": 4,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2], "projector_type": "domino", "emb_dim": 12,
                      "gru_hidden_dim": 10, "pure_draft_prefix_len": 1, "shift_label": True},
}  # fmt: skip


#: Costs under which a cost-aware tree on tiny models has some nodes, but fewer than its cap.
TINY_COSTS = CostModel(
    {"machine": "none", "target": "tiny target", "domino": None, "dflash": None, "dtype": "float32", "engine": "eager"},
    (16, 64), (0, 4, 12), (4.0, 4.4), ((0.2, 0.4), (0.2, 0.4)), {"domino": (1.0, 1.2), "dflash": (0.5, 0.6)},
)  # fmt: skip
TINY_CALIBRATION = Calibration({}, (-6.0, -2.0, -0.1), (-5.0, -1.8, -0.2))


class ByteTokenizer:
    """Token i is the character chr(i): enough for runs on tiny vocabularies."""

    def __init__(self, stop_ids: Sequence[int] = ()) -> None:
        self.stop_ids = frozenset(stop_ids)

    def encode_chat(self, prompt: str, system: str | None = None) -> list[int]:
        return [1, *(ord(c) % VOCAB for c in prompt)]

    def token_bytes(self, token: int) -> bytes:
        return chr(token + 32).encode()

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(i + 32) for i in ids)


def tiny_config(**changes) -> dict:
    return {**TINY, **changes}


def drafter_config(dflash: dict | None = None, **changes) -> dict:
    config = {**TINY_DRAFTER, **changes}
    config["dflash_config"] = {**TINY_DRAFTER["dflash_config"], **(dflash or {})}
    return config


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int, scale: float = 0.5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        out[name] = 1 + 0.1 * noise if len(shape) == 1 else noise * scale / shape[-1] ** 0.5
    return out


def tiny_target(seed: int = 0, layers: Sequence[int] = (0, 2), scale: float = 2.0, **changes) -> Target:
    config = ModelConfig.from_dict(tiny_config(**changes), "tiny target")
    return Target(config, random_weights(Target.weight_shapes(config), seed, scale), layers, "tiny target")


def tiny_drafter(target: Target, seed: int = 1, dflash: dict | None = None, **changes) -> Drafter:
    config = DrafterConfig.from_dict(drafter_config(dflash, **changes), "tiny drafter")
    return Drafter(config, random_weights(Drafter.weight_shapes(config), seed, 2.0), target, "tiny drafter")


def tiny_pair(seed: int = 0, stop_ids: Sequence[int] = (), target: Target | None = None, **drafter) -> Pair:
    target = target or tiny_target(seed)
    return Pair(
        target, ByteTokenizer(stop_ids), tiny_drafter(target, seed + 1, **drafter), None, {"name": "tiny"},
        costs=TINY_COSTS, calibration=TINY_CALIBRATION,
    )  # fmt: skip


def path_reference(target: Target, prefix: list[int], tokens: list[int], parents: list[int]) -> Tensor:
    """PATH-REF: each row's logits from a fresh, cache-free forward of prefix + root-to-row tokens. Row 0 = root."""
    out = []
    for row in range(len(tokens)):
        path, at = [], row
        while at >= 0:
            path.append(tokens[at])
            at = parents[at]
        ids = torch.tensor(prefix + path[::-1])
        out.append(target.prefill(ids, target.new_cache(len(ids))).logits[0])
    return torch.stack(out)


class ScriptTarget(Target):
    """A stub target: the next token is a function of the whole token prefix (SCRIPT of the fault log)."""

    def __init__(self, script: Callable[[list[int]], int], vocab: int = VOCAB, context: int = 256) -> None:
        base = tiny_target(0, vocab_size=vocab, max_position_embeddings=context)
        self.__dict__.update(base.__dict__)
        self.script = script
        self.run: Run | None = None
        self.calls = 0

    def _row(self, prefix: list[int]) -> Tensor:
        row = torch.zeros(self.vocab_size)
        row[self.script(prefix)] = 10.0
        return row

    def prefill(self, ids: Tensor, cache: KVCache, cancelled=lambda: False) -> TargetRows:
        rows = super().prefill(ids, cache)
        return TargetRows(self._row(ids.tolist())[None], rows.features)

    def verify(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: KVCache) -> TargetRows:
        self.calls += 1
        rows = super().verify(ids, positions, mask, cache)
        tokens = ids.tolist()
        committed = self.tokens_of(cache)
        logits = [
            self._row(committed + [tokens[j] for j in mask[i].nonzero().flatten().tolist()])
            for i in range(len(tokens))
        ]
        return TargetRows(torch.stack(logits), rows.features)

    def tokens_of(self, cache: KVCache) -> list[int]:
        """The committed tokens: prompt, then the output of ``self.run`` (set by the test)."""
        return (self.run.prompt_ids + self.run.output)[: cache.length]


class OneHotDrafter:
    """A stub drafter whose base logits at each level are given by a function of (position, level)."""

    head = None
    name = "stub drafter"

    def __init__(
        self, target: Target, guess: Callable[[int, int], Sequence[int]], levels: int = 7, limit: int = 10**6
    ) -> None:
        self.target, self.guess, self._levels, self.context_limit = target, guess, levels, limit
        self.config = DrafterConfig.from_dict(
            drafter_config({"projector_type": None}, block_size=levels + 1), "stub"
        )
        self.anchors: list[int] = []

    @property
    def levels(self) -> int:
        return self._levels

    def new_context(self, capacity: int) -> KVCache:
        return KVCache(
            self.config.model, capacity + self.config.block_size, torch.device("cpu"), torch.float32
        )

    def extend(self, context: KVCache, features: Tensor) -> None:
        context.length += len(features)

    def draft(self, context: KVCache, anchor: int) -> DraftBlock:
        self.anchors.append(anchor)
        logits = torch.zeros(self._levels, self.target.vocab_size)
        for level in range(self._levels):
            for rank, token in enumerate(self.guess(context.length, level)):
                logits[level, token] = 20.0 - rank
        return DraftBlock(torch.zeros(self._levels, 32), logits, anchor)
