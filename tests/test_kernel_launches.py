"""The forwards' launches on a machine without a GPU: each gives its kernel as many arguments as the source declares."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dominotree.bench.layers import cycles_per_us
from dominotree.bench.shapes import TARGETS, drafter_config, random_weights
from dominotree.drafter import Drafter
from dominotree.gpu import block, forward, gemm, nvrtc
from dominotree.gpu.nvrtc import Kernel, KernelError
from dominotree.model import ModelConfig
from dominotree.target import Target


def parameters(kernel: Kernel) -> list[str]:
    """The declared parameters of a kernel's entry, defines left as they are."""
    source = kernel.source.read_text(encoding="utf-8")
    found = re.search(rf"\b{kernel.entry}\(([^{{]*)\)\s*{{", source)
    assert found, f"{kernel.source.name} has no {kernel.entry}"
    text = re.sub(r"//[^\n]*", "", found[1]).replace(" TRACE_ARG", "")
    return [p.strip() for p in text.split(",")]


def test_every_launch_gives_what_its_kernel_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {}

    def launch(self: Kernel, grid: Any, threads: int, *args: Any, **options: Any) -> None:
        wanted = parameters(self)
        assert len(args) == len(wanted), (self.source.name, self.entry, wanted)
        for value, parameter in zip(args, wanted, strict=True):
            if isinstance(value, float):
                assert parameter.startswith("float "), (self.entry, parameter)
            elif isinstance(value, torch.Tensor | None):
                assert "*" in parameter, (self.entry, parameter)
            elif isinstance(value, int):
                assert "*" not in parameter and not parameter.startswith("float"), (self.entry, parameter)
        seen[self.entry] = seen.get(self.entry, 0) + 1

    monkeypatch.setattr(Kernel, "launch", launch)
    monkeypatch.setattr(Kernel, "most_clusters", lambda *a: 66)
    for module in (gemm, block):
        monkeypatch.setattr(module, "tensor_map", lambda *a: torch.zeros(128, dtype=torch.uint8))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda d: SimpleNamespace(multi_processor_count=132)
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *a: (9, 0))
    monkeypatch.setattr(forward, "unsupported", lambda *a: None)
    together: list[set[str]] = []
    monkeypatch.setattr(
        forward, "compile_together", lambda kernels: together.append({k.entry for k in kernels})
    )

    config = ModelConfig(512, 128, 2, 4, 2, 64, 256, 1e-6, 1e4, 512, True, True)
    draft = drafter_config(config, 2)
    draft = type(draft)(**{**vars(draft), "target_layer_ids": (0, 1), "mask_token_id": 5})
    cpu, bf16 = torch.device("cpu"), torch.bfloat16
    target = Target(config, random_weights(Target.weight_shapes(config), cpu, bf16, 0), (0, 1))
    drafter = Drafter(draft, random_weights(Drafter.weight_shapes(draft), cpu, bf16, 1), target)
    whole = forward.KernelForward(target, drafter, 17)
    cache, context = target.new_cache(256), drafter.new_context(256)
    rows, length = torch.arange(17), torch.tensor([3])
    logits, features = whole.verify(rows, rows, torch.eye(17, dtype=torch.bool), length, cache, 256)
    z, base = whole.draft(rows[:1], length, context, 256)
    whole.extend(features, rows[:17], length, context)
    whole.commit(cache, rows[:17], length)
    assert logits.shape == (17, 512) and z.shape == (16, 128) and base.shape == (16, 512)
    assert seen == {
        "rows": 3,
        "skinny": 6,
        "tree_attention": 4,
        "block": 4,
        "context_rows": 1,
        "commit_rows": 1,
    }
    assert together == [{"tree_attention", "skinny", "block"}] * 2  # of the target and of the drafter


def test_kernels_are_compiled_side_by_side_and_an_error_comes_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = threading.Barrier(2, timeout=20)  # broken unless two of them compile at once
    seen: list[int] = []

    def compiled(source: Path, defines: dict[str, int], arch: str) -> bytes:
        assert source.name == "block.cu" and arch == "sm_90a"
        if defines["NTOK"] == 24:
            raise KernelError("block.cu does not compile")
        both.wait()
        seen.append(defines["NTOK"])
        return b""

    monkeypatch.setattr(nvrtc, "compile_source", compiled)
    monkeypatch.setattr(nvrtc, "architecture", lambda device: "sm_90a")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(nvrtc.os, "cpu_count", lambda: 2)
    one, other = (Kernel("block.cu", "block", {"NTOK": n}) for n in (8, 16))
    nvrtc.compile_together([one, other, one])
    assert sorted(seen) == [8, 16]
    with pytest.raises(KernelError, match="does not compile"):
        nvrtc.compile_together([Kernel("block.cu", "block", {"NTOK": 24})])


@pytest.mark.parametrize("name", ["qwen3-4b", "qwen3-8b"])
@pytest.mark.parametrize("n", [1, 17, 33, 41, 65, 72, 73, 129])
def test_a_plan_covers_its_products_and_fits_a_multiprocessor(name: str, n: int) -> None:
    c = TARGETS[name]
    q, kv = c.num_heads * c.head_dim, 2 * c.num_kv_heads * c.head_dim
    shapes = (
        block.Shape(c.hidden_size, q, gemm.RESIDUAL),
        block.Shape(2 * c.intermediate_size, c.hidden_size, gemm.SWIGLU),
        block.Shape(c.hidden_size, c.intermediate_size, gemm.RESIDUAL),
        block.Shape(q + kv, c.hidden_size, gemm.BF16),
    )
    plan = block.plan(n, shapes, 132, gemm.SHARED_LIMIT - 2048)
    assert plan is not None and plan.shared(n) <= gemm.SHARED_LIMIT - 2048
    padded = -(-n // 8) * 8
    for shape, cut in zip(shapes, plan.cuts, strict=True):
        gates = shape.epilogue == gemm.SWIGLU
        out = cut.rows if gates else cut.height
        wanted = shape.n_out // 2 if gates else shape.n_out
        assert cut.tiles * out >= wanted > (cut.tiles - 1) * out
        assert cut.stage(padded) <= plan.slot
        assert cut.depth == plan.inner * (1 if cut.operands == 2 else 2)
        halves = 2 if cut.paired else 1  # of an operand, one a warpgroup
        assert cut.rows % (8 * halves) == 0 and cut.rows // halves <= block.OPERAND
        assert cut.splits == 1 or not cut.paired
    # tall tiles of gates and ups only where a warpgroup's registers hold the sums of both
    assert plan.cuts[1].paired == (41 <= n <= 72)


def test_a_trace_tells_its_clock_itself() -> None:
    """Two layers, two multiprocessors at 1800 cycles a µs, 50 and 40 µs a block; a third multiprocessor did nothing."""
    clocks = torch.zeros(2, 3, 4, 16, dtype=torch.float64)
    for processor, us in ((0, 50), (1, 40)):
        clocks[:, processor, 0, 0], clocks[:, processor, 0, 11] = 1000 + processor, 5e9
        clocks[:, processor, 3, 5] = 1000 + processor + 1800 * us
        clocks[:, processor, 3, 12] = 5e9 + 1000 * us
    assert cycles_per_us(clocks) == pytest.approx(1800)
