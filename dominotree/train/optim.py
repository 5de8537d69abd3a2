"""Muon for the backbone's matrices, AdamW for everything else.

Muon orthogonalises the momentum of a matrix with a few Newton-Schulz steps; its step is scaled by 0.2·√(larger side), so
that its entries are as large as AdamW's and both share one learning rate scale (Liu et al. 2025, arXiv:2502.16982).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


def orthogonalise(m: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrices of m [n, r, c], roughly (singular values in 0.7 … 1.2): Newton-Schulz in bf16."""
    x = m.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(steps):
        g = x @ x.mT
        x = a * x + (b * g + c * (g @ g)) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Matrices only. Those of one shape are orthogonalised together."""

    def __init__(
        self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(list(params), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append(p)
            for shape, params in by_shape.items():
                grads = [p.grad for p in params if p.grad is not None]
                buffers = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in params]
                torch._foreach_mul_(buffers, group["momentum"])
                torch._foreach_add_(buffers, grads)
                nesterov = torch._foreach_add(grads, buffers, alpha=group["momentum"])
                update = orthogonalise(torch.stack(nesterov)).to(params[0].dtype)
                torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(
                    params, list((update * (group["lr"] * (-0.2 * max(shape) ** 0.5))).unbind())
                )


class Both:
    """Muon and AdamW behind one face; learning rates follow one schedule factor.

    On a GPU the rates are tensors, so that a captured step reads them anew on each replay.
    """

    def __init__(
        self, model: nn.Module, muon_lr: float, adam_lr: float, weight_decay: float, use_muon: bool = True
    ) -> None:
        matrices, dense, plain = [], [], []
        for name, p in model.named_parameters():
            if p.ndim < 2:
                plain.append(p)
            elif use_muon and (name.startswith("layers.") or name == "fc.weight"):
                matrices.append(p)
            else:
                dense.append(p)
        groups: list[dict[str, Any]] = [
            {"params": dense, "weight_decay": 0.01},
            {"params": plain, "weight_decay": 0.0},
        ]
        device = next(model.parameters()).device
        gpu = device.type == "cuda"

        def rate(value: float) -> Any:
            return torch.tensor(value, device=device) if gpu else value

        for group in groups:
            group["lr"] = rate(adam_lr)
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                [g for g in groups if g["params"]],
                lr=rate(adam_lr),
                betas=(0.9, 0.95),
                eps=1e-8,
                fused=gpu,
                capturable=gpu,
            )
        ]
        self.base = [[adam_lr] * len(self.parts[0].param_groups)]
        if matrices:
            self.parts.append(Muon(matrices, rate(muon_lr), weight_decay=weight_decay))
            self.base.append([muon_lr])

    def set_factor(self, factor: float) -> None:
        for part, base in zip(self.parts, self.base, strict=True):
            for group, lr in zip(part.param_groups, base, strict=True):
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(lr * factor)
                else:
                    group["lr"] = lr * factor

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)
