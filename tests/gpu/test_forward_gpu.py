"""Whole forwards of the bf16 kernels against the model in float32, beside the model's own bf16 forward."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from dominotree.bench.shapes import TARGETS, drafter_config, random_weights
from dominotree.drafter import Drafter
from dominotree.gpu.forward import KernelForward
from dominotree.model import KVCache, ModelConfig
from dominotree.target import Target

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
SHAPES = {
    "qwen3-4b": dataclasses.replace(TARGETS["qwen3-4b"], num_layers=3, vocab_size=8192),
    "qwen3-8b": dataclasses.replace(TARGETS["qwen3-8b"], num_layers=2, vocab_size=8192),
    "smollm2": ModelConfig(49152, 576, 5, 9, 3, 64, 1536, 1e-5, 1e5, 8192, False, True),
}


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    torch.backends.cuda.matmul.allow_tf32 = False
    yield


class Models:
    """A target and a drafter of a shape in bf16, and the same weights in float32."""

    def __init__(self, name: str) -> None:
        c = SHAPES[name]
        draft = dataclasses.replace(
            drafter_config(c, 2), target_layer_ids=(0, 1), mask_token_id=5, gru_hidden_dim=64, emb_dim=32
        )
        weights = random_weights(Target.weight_shapes(c), CUDA, torch.bfloat16, 0)
        drafting = random_weights(Drafter.weight_shapes(draft), CUDA, torch.bfloat16, 1)
        for given in (weights, drafting):
            for key, tensor in given.items():
                if tensor.dim() == 1:  # norms that matter
                    given[key] = (torch.rand(tensor.shape, device=CUDA) + 0.5).bfloat16()
        self.low = Target(c, weights, (0, 1))
        self.low_drafter = Drafter(draft, drafting, self.low)
        self.high = Target(c, {k: w.float() for k, w in weights.items()}, (0, 1))
        self.high_drafter = Drafter(draft, {k: w.float() for k, w in drafting.items()}, self.high)


def distance(got: Tensor, right: Tensor) -> float:
    return ((got.float() - right.float()).norm() / right.float().norm()).item()


def tree_inputs(n: int, length: int, vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.eye(n, dtype=torch.bool)
    for i in range(1, n):
        mask[i] |= mask[int(torch.randint(0, i, (1,)))]
    positions = length + mask.sum(1) - 1
    return torch.randint(vocab, (n,)).to(CUDA), positions.to(CUDA), mask.to(CUDA)


def filled(target: Target, length: int, capacity: int) -> tuple[KVCache, Tensor]:
    """A cache with a prompt of ``length`` tokens, and the prompt's features."""
    cache = target.new_cache(capacity)
    ids = torch.randint(target.vocab_size, (length,), generator=torch.Generator().manual_seed(3)).to(CUDA)
    rows = target.prefill(ids, cache)
    assert rows is not None
    return cache, rows.features


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("n", [1, 2, 8, 16, 17, 33, 65, 129])
def test_verify_is_as_exact_as_the_model_in_bfloat16(name: str, n: int) -> None:
    """Logits, features and the keys and values written, at lengths around a bucket's parts; twice, same bits."""
    torch.manual_seed(n)
    models = Models(name)
    for length in (5, 200):
        high, _ = filled(models.high, length, 512)
        low, _ = filled(models.low, length, 512)
        mine = models.low.new_cache(512)
        mine.k.copy_(low.k)
        mine.v.copy_(low.v)
        inputs = tree_inputs(n, length, models.low.vocab_size)
        right, eager = models.high.verify(*inputs, high), models.low.verify(*inputs, low)
        forward = KernelForward(models.low, None, n)
        got = forward.verify(*inputs, torch.tensor([length], device=CUDA), mine, 512)
        for mine_, eager_, right_ in zip(
            got, (eager.logits, eager.features), (right.logits, right.features), strict=True
        ):
            error, usual = distance(mine_, right_), distance(eager_, right_)
            assert error < 1.15 * usual + 5e-4, (length, error, usual)
        rows = slice(length, length + n)
        assert distance(mine.k[:, :, rows], high.k[:, :, rows]) < 1.2 * distance(
            low.k[:, :, rows], high.k[:, :, rows]
        )
        first = got[0].clone()
        again, _ = forward.verify(*inputs, torch.tensor([length], device=CUDA), mine, 512)
        assert torch.equal(first, again)


@pytest.mark.parametrize("name", list(SHAPES))
def test_draft_and_context_are_as_exact_as_the_drafter_in_bfloat16(name: str) -> None:
    torch.manual_seed(1)
    models = Models(name)
    _, features = filled(models.low, 40, 512)
    contexts = []
    for drafter in (models.high_drafter, models.low_drafter):
        context = drafter.new_context(512)
        drafter.extend(context, features.to(drafter.fc.dtype))
        contexts.append(context)
    high, low = contexts
    mine = models.low_drafter.new_context(512)
    forward = KernelForward(models.low, models.low_drafter, 17)
    for at in range(0, 40, 17):
        path = torch.arange(at, min(at + 17, 40), device=CUDA)
        part = torch.cat((path, path.new_zeros(17 - len(path))))
        forward.extend(features, part, torch.tensor([at], device=CUDA), mine)
    for a, b, c in ((mine.k, low.k, high.k), (mine.v, low.v, high.v)):
        assert distance(a[:, :, :40], c[:, :, :40]) < 1.2 * distance(b[:, :, :40], c[:, :, :40])
    right, eager = models.high_drafter.draft(high, 7), models.low_drafter.draft(low, 7)
    z, base = forward.draft(torch.tensor([7], device=CUDA), torch.tensor([40], device=CUDA), mine, 512)
    assert distance(z, right.z) < 1.15 * distance(eager.z, right.z) + 5e-4
    assert distance(base, right.base_logits) < 1.15 * distance(eager.base_logits, right.base_logits) + 5e-4
