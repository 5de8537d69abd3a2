"""What a run is decoded with: engine, builder and forward, decided before anything is computed.

``auto`` takes the best that this machine, pair and dtype allow; a wish that cannot be met is one plain sentence, never
another choice made silently. The trace's header names what runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import torch

from dominotree.errors import SettingsError

if TYPE_CHECKING:
    from dominotree.decode import Settings
    from dominotree.drafter import Drafter
    from dominotree.target import Target

#: eager: step by step in torch. graph: the round as CUDA graphs. static: the graph's steps without a graph (to check).
ENGINES = ("auto", "eager", "graph", "static")
#: reference: Python heap. graph: the heap with the correction in a CUDA graph. fused: no host in the loop.
BUILDERS = ("auto", "reference", "graph", "fused")
#: Verify rows up to which a cost-aware method's rounds must fit the kernels.
LARGEST_SIZED = 129
#: static: plain torch with fixed shapes. kernels: the bf16 kernels of ``gpu/forward.py``.
FORWARDS = ("auto", "static", "kernels")


class Shape(TypedDict):
    """What the fused builder must know of a target and its drafter."""

    hidden: int
    vocab: int
    gru: int


@dataclass(frozen=True)
class Plan:
    """``builder`` is None for ``ar``; "chain" is the reference's chain inside the graph; ``forward`` may be "eager"."""

    engine: str
    builder: str | None
    forward: str

    @property
    def graph(self) -> bool:
        return self.engine == "graph"

    @property
    def host_built(self) -> bool:
        """Whether the tree is built on the host, between two graphs."""
        return self.builder in ("reference", "graph")


def plan(settings: Settings, target: Target, drafter: Drafter | None) -> Plan:
    """The plan for a run on this pair; raises SettingsError in one sentence."""
    device, spec = target.device, settings.spec
    engine = settings.engine
    if engine == "auto":
        engine = "graph" if device.type == "cuda" else "eager"
    if engine == "graph" and device.type != "cuda":
        raise SettingsError(
            f"engine 'graph' needs a CUDA device, but this pair runs on {device.type}; use engine 'auto' or 'eager', or "
            "load the pair with device 'cuda'."
        )
    if engine == "eager":
        for name, wish, fine in (
            ("builder", settings.builder, ("auto", "reference")),
            ("forward", settings.forward, ("auto",)),
        ):
            if wish not in fine:
                raise SettingsError(
                    f"{name} {wish!r} needs the captured engine, which needs a CUDA device; leave {name} at 'auto'."
                )
        return Plan(engine, None if spec.kind == "ar" else "reference", "eager")
    return Plan(engine, _builder(settings, target, drafter), _forward(settings, target, drafter))


def _builder(settings: Settings, target: Target, drafter: Drafter | None) -> str | None:
    spec, wish = settings.spec, settings.builder
    if spec.kind == "ar":
        return None
    if wish == "graph":
        if spec.kind != "tree" or spec.scorer != "conditional" or spec.adaptive:
            raise SettingsError(
                f"builder 'graph' builds the trees of method 'dominotree', not of {spec.name!r}; use 'reference' or 'fused'."
            )
        if target.device.type != "cuda":
            raise SettingsError("builder 'graph' needs a CUDA device; use 'reference'.")
        return wish
    reason = fused_unsupported(settings, target, drafter)
    if wish == "fused" and reason:
        raise SettingsError(f"builder 'fused' cannot be used here: {reason}; use 'reference'.")
    if wish != "reference" and not reason:
        return "fused"
    return "chain" if spec.kind == "chain" else "reference"


def fused_unsupported(settings: Settings, target: Target, drafter: Drafter | None) -> str | None:
    """Why the fused builder cannot build this run's trees, or None."""
    if drafter is None or target.device.type != "cuda":
        return "it needs a CUDA device"
    from dominotree.gpu.fused import why_not

    s, gru = settings, drafter.config.gru_hidden_dim
    shape = Shape(hidden=target.config.hidden_size, vocab=target.vocab_size, gru=gru)
    if s.spec.kind == "chain":
        reason = why_not(s.spec.scorer or "", budget=drafter.levels, children=1, top_m=1, **shape)
    else:
        reason = why_not(
            s.spec.scorer or "", budget=s.budget, children=s.children_per_node, top_m=s.top_m, full_row=s.full_row, **shape
        )  # fmt: skip
    return no_compiler() or reason


def precision(dtype: torch.dtype) -> str:
    """The fused builder's arithmetic for weights of a dtype: float32 where they are float32, else half products."""
    return "float32" if dtype == torch.float32 else "half"


def no_compiler() -> str | None:
    """Why own kernels cannot be compiled here, or None."""
    from dominotree.gpu.nvrtc import KernelError, bindings, include_folders

    try:
        bindings()
        include_folders()
    except KernelError as error:
        return str(error)
    return None


def _forward(settings: Settings, target: Target, drafter: Drafter | None) -> str:
    wish = settings.forward
    if wish == "static":
        return wish
    reason = kernels_unsupported(settings, target, drafter)
    if wish == "kernels" and reason:
        raise SettingsError(f"forward 'kernels' cannot be used here: {reason}; use 'static'.")
    return "static" if reason else "kernels"


def kernels_unsupported(settings: Settings, target: Target, drafter: Drafter | None) -> str | None:
    """Why the bf16 kernels cannot run this pair, or None."""
    if target.device.type != "cuda":
        return "it needs a CUDA device"
    from dominotree.gpu.forward import unsupported

    c, rows = target.config, largest_tree(settings, drafter)
    if settings.spec.adaptive:  # verified at the size of each round's tree; larger ones say so by a flag
        rows = min(rows, LARGEST_SIZED)
    reason = no_compiler() or unsupported(c, target.dtype, rows, target.device)
    if reason or drafter is None:
        return reason
    return unsupported(drafter.config.model, drafter.fc.dtype, drafter.config.block_size, target.device)


def largest_tree(settings: Settings, drafter: Drafter | None) -> int:
    """Rows of the largest verify, anchor included."""
    if drafter is None:
        return 1
    return 1 + (drafter.levels if settings.spec.kind == "chain" else settings.budget)
