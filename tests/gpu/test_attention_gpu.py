"""The attention kernels against ``dominotree.model`` in float32 on the same bf16 inputs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.gpu.attention import Cut, TreeAttention, cut
from dominotree.model import KVCache, ModelConfig, Rotary, attend, attention_bias, rms_norm, rotate

pytestmark = pytest.mark.gpu
BUCKET = 2304
ROWS = (1, 2, 16, 17, 33, 65, 129)
LENGTHS = (0, 1, 5, 127, 128, 129, 500, 2047)


def config(heads: int, groups: int, d: int, norm: bool, layers: int = 1) -> ModelConfig:
    return ModelConfig(64, heads * d, layers, heads, groups, d, 64, 1e-6, 1e6, 1 << 22, norm, True)


QWEN, SMOL = config(32, 8, 128, True), config(9, 3, 64, False)


def random_tree(n: int, padding: int) -> Tensor:
    """Ancestor mask bool [n, n] of a random tree; the last ``padding`` rows see only themselves."""
    mask = torch.eye(n, dtype=torch.bool)
    for i in range(1, n - padding):
        mask[i] |= mask[int(torch.randint(0, i, (1,)))]
    return mask


def empty_cache(c: ModelConfig, capacity: int) -> KVCache:
    cache = KVCache(c, capacity, torch.device("cuda"), torch.bfloat16)
    cache.k.fill_(float("nan"))
    cache.v.fill_(float("nan"))
    return cache


class Case:
    """Random bf16 inputs of one launch; the cache behind the committed rows holds NaN."""

    def __init__(
        self,
        c: ModelConfig,
        n: int,
        length: int,
        mask: Tensor | None,
        scale: float = 1.0,
        capacity: int = BUCKET,
    ) -> None:
        g, d, device = c.num_kv_heads, c.head_dim, "cuda"
        self.c, self.n, self.length, self.mask = c, n, length, None if mask is None else mask.to(device)
        self.qkv = (torch.randn(n, (c.num_heads + 2 * g) * d, device=device) * scale).bfloat16()
        self.q_norm = self.k_norm = None
        if c.qk_norm:
            self.q_norm, self.k_norm = (torch.rand(2, d, device=device) * 2 + 0.2).bfloat16()
        depth = torch.arange(n) if mask is None else mask.sum(1) - 1
        self.positions = (length + depth).to(device)
        self.cache = empty_cache(c, capacity)
        self.k, self.v = self.cache.k[0], self.cache.v[0]
        self.k[:, :length] = torch.randn(g, length, d, device=device)
        self.v[:, :length] = torch.randn(g, length, d, device=device)
        self.prefix = self.k[:, :length].clone(), self.v[:, :length].clone()
        self.length_on_device = torch.tensor([length], device=device)
        self.out = torch.full((n, c.num_heads * d), float("nan"), device=device, dtype=torch.bfloat16)

    def launch(self, shape: Cut | None = None, pdl: bool = True) -> None:
        attention = TreeAttention(self.c, self.n, self.cache, BUCKET, pdl, shape=shape)
        attention.launch(
            self.qkv, 0, self.q_norm, self.k_norm, self.positions, self.mask, self.length_on_device, self.out
        )

    def project(self, dtype: torch.dtype, as_kernel: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """q [n, H, d], k, v [n, G, d] as ``DecoderLayer.project`` makes them, in ``dtype``.

        ``as_kernel``: norms in bf16, rotary in float32 and one rounding, as the kernel does it.
        """
        c = self.c
        first = torch.bfloat16 if as_kernel else dtype
        heads = (c.num_heads, c.num_kv_heads, c.num_kv_heads)
        q, k, v = self.qkv.to(first).view(self.n, -1, c.head_dim).split(heads, dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q = rms_norm(q, self.q_norm.to(first), c.rms_norm_eps)
            k = rms_norm(k, self.k_norm.to(first), c.rms_norm_eps)
        tables = Rotary(c, self.qkv.device, dtype).tables(self.positions)
        q, k = rotate(q.to(dtype), tables), rotate(k.to(dtype), tables)
        if as_kernel:
            q, k = q.bfloat16().to(dtype), k.bfloat16().to(dtype)
        return q, k, v.to(dtype)

    def reference(self, dtype: torch.dtype, as_kernel: bool = False) -> Tensor:
        """[n, H·d] by ``dominotree.model`` in ``dtype``."""
        q, k, v = self.project(dtype, as_kernel)
        keys = torch.cat((self.prefix[0].to(dtype), k.transpose(0, 1)), dim=1)
        values = torch.cat((self.prefix[1].to(dtype), v.transpose(0, 1)), dim=1)
        mask = torch.ones(self.n, self.n, dtype=torch.bool, device="cuda") if self.mask is None else self.mask
        return attend(q, keys, values, attention_bias(mask, self.length, dtype))

    def check(self, moderate: bool = True) -> None:
        """Output, written rows and untouched rows.

        Against float32 attention over the same rounded q and k only bf16 rounding of P and of the output remains.
        Against float32 throughout (where scores are ``moderate``) the error may not exceed that of the model in bf16.
        """
        assert not self.out.isnan().any()
        error = distance(self.out, self.reference(torch.float32, as_kernel=True))
        assert error < 4e-3, error
        if moderate:
            right = self.reference(torch.float32)
            error, eager = distance(self.out, right), distance(self.reference(torch.bfloat16), right)
            assert error < 1.1 * max(eager, 3e-3), (error, eager)
        _, k, v = self.project(torch.float32)
        rows = slice(self.length, self.length + self.n)
        assert distance(self.k[:, rows], k.transpose(0, 1)) < 5e-3
        assert torch.equal(self.v[:, rows].float(), v.transpose(0, 1))
        assert torch.equal(self.k[:, : self.length], self.prefix[0])
        assert torch.equal(self.v[:, : self.length], self.prefix[1])
        behind = slice(self.length + self.n, self.length + self.n + 300)
        assert self.k[:, behind].isnan().all() and self.v[:, behind].isnan().all()


def distance(got: Tensor, right: Tensor) -> float:
    return ((got.float() - right.float()).norm() / right.float().norm()).item()


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    yield


@pytest.mark.parametrize("c", [QWEN, SMOL], ids=["qwen", "smol"])
@pytest.mark.parametrize("n", ROWS)
def test_matches_the_model_at_every_length(c: ModelConfig, n: int) -> None:
    """Random trees with padded rows, which attend to themselves only and give no NaN (fault N04)."""
    for length in LENGTHS:
        case = Case(c, n, length, random_tree(n, padding=min(3, n // 4)))
        case.launch()
        case.check()


@pytest.mark.parametrize("c", [QWEN, SMOL], ids=["qwen", "smol"])
def test_no_mask_means_that_all_rows_see_each_other(c: ModelConfig) -> None:
    """The drafter's block."""
    for length in (0, 100, 2000):
        case = Case(c, 16, length, None)
        case.launch()
        case.check()


def test_large_queries_stay_finite() -> None:
    """Scores of several thousand: the maximum is taken out before the exponential."""
    case = Case(SMOL, 17, 300, random_tree(17, 0), scale=60.0)
    case.launch()
    case.check(moderate=False)


def test_same_inputs_give_the_same_bits() -> None:
    case = Case(QWEN, 17, 777, random_tree(17, 2))
    case.launch()
    first = case.out.clone()
    for _ in range(5):
        case.out.fill_(float("nan"))
        case.launch()
        assert torch.equal(case.out, first)


def test_splits_added_by_a_second_kernel_agree() -> None:
    """The way without clusters, for devices before sm_90."""
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    for c, n in ((QWEN, 17), (QWEN, 1), (SMOL, 33)):
        shape = cut(n, c.num_heads, c.num_kv_heads, c.head_dim, BUCKET, processors, False)
        for length in (0, 129, 1500):
            case = Case(c, n, length, random_tree(n, 0))
            case.launch(shape, pdl=False)
            case.check()


def test_captured_graph_follows_the_length_on_the_device() -> None:
    """One graph serves every length in the bucket: the length is read on the device."""
    case = Case(QWEN, 17, 500, random_tree(17, 0))
    attention = TreeAttention(QWEN, 17, case.cache, BUCKET)

    def launch() -> None:
        attention.launch(
            case.qkv, 0, case.q_norm, case.k_norm, case.positions, case.mask, case.length_on_device, case.out
        )

    launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for length in (0, 64, 1111):
        other = Case(QWEN, 17, length, random_tree(17, 0))
        for name in ("qkv", "q_norm", "k_norm", "mask", "positions", "k", "v", "length_on_device"):
            getattr(case, name).copy_(getattr(other, name))
        case.length, case.prefix = length, other.prefix
        case.out.fill_(float("nan"))
        graph.replay()
        case.check()


def test_offsets_beyond_32_bits() -> None:
    """A cache of more than 2³¹ elements (fault N14)."""
    capacity = 2_150_000
    case = Case(QWEN, 17, 400, random_tree(17, 0), capacity=capacity)
    assert case.k.numel() > 2**31
    case.launch()
    case.check()
    length = capacity - 32
    case.k[:, length:] = torch.randn(8, 32, 128, device="cuda")
    rows = case.k[:, [length, length + 3, length + 9]].clone()
    path = torch.tensor([0, 3, 9, 0], device="cuda")
    attention = TreeAttention(QWEN, 1, case.cache, BUCKET)
    attention.commit(path, torch.tensor([3], device="cuda"), torch.tensor([length], device="cuda"))
    assert torch.equal(case.k[:, length : length + 3], rows)


@pytest.mark.parametrize("count_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("c", [config(32, 8, 128, True, 3), config(9, 3, 64, False, 5)], ids=["qwen", "smol"])
def test_commit_matches_the_cache(c: ModelConfig, count_dtype: torch.dtype) -> None:
    """Rows outside the kept ones stay as they are; entries of the path beyond count are never used."""
    for length in (0, 7, 300):
        for count in (0, 1, 2, 8, 9, 17):
            cache = KVCache(c, 512, torch.device("cuda"), torch.bfloat16)
            cache.k.normal_()
            cache.v.normal_()
            cache.length = length
            before = cache.k.clone(), cache.v.clone()
            kept = [0, *sorted(torch.randperm(64)[: count - 1].add(1).tolist())][:count]
            path = torch.tensor(kept + [0] * (17 - count), device="cuda")
            on_device = torch.tensor([length], device="cuda")
            attention = TreeAttention(c, 1, cache, 512)
            attention.commit(path, torch.tensor([count], device="cuda", dtype=count_dtype), on_device)
            got = cache.k.clone(), cache.v.clone()
            cache.k.copy_(before[0])
            cache.v.copy_(before[1])
            cache.commit(kept)
            assert torch.equal(got[0], cache.k) and torch.equal(got[1], cache.v)


@pytest.mark.parametrize("c", [config(32, 8, 128, True, 5), config(9, 3, 64, True, 2)], ids=["qwen", "smol"])
def test_context_rows_match_the_model(c: ModelConfig) -> None:
    g, d, layers = c.num_kv_heads, c.head_dim, c.num_layers
    for length, count in ((0, 17), (333, 5), (1000, 16)):
        kv = torch.randn(count, layers * 2 * g * d, device="cuda").bfloat16()
        k_norm = (torch.rand(layers, d, device="cuda") + 0.3).bfloat16()
        cache = KVCache(c, 1024, torch.device("cuda"), torch.bfloat16)
        attention = TreeAttention(c, 16, cache, 1024)
        attention.context_rows(kv, list(k_norm), torch.tensor([length], device="cuda"))
        positions = length + torch.arange(count, device="cuda")
        tables = Rotary(c, kv.device, torch.float32).tables(positions)
        for layer, part in enumerate(kv.float().view(count, layers, 2, g, d).unbind(1)):
            normed = F.rms_norm(part[:, 0], (d,), eps=c.rms_norm_eps) * k_norm[layer].float()
            right = rotate(normed, tables).transpose(0, 1)
            at = slice(length, length + count)
            assert distance(cache.k[layer, :, at], right) < 5e-3
            assert torch.equal(cache.v[layer, :, at].float(), part[:, 1].transpose(0, 1))
        assert not cache.k[:, :, :length].any() and not cache.k[:, :, length + count :].any()
