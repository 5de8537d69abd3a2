"""The choice rule (engine.md §7): argmax at temperature 0, Gumbel-max with position-keyed noise above it.

    token = argmax_v  logits[v] + T · g(seed, position, v),     g = -log(-log u)

The noise comes from Philox4x32-10 (Salmon et al., 2011), a counter-based generator keyed by the seed, with the
absolute position and the token id as counter. So the law is exactly softmax(logits / T), no other request or round
disturbs it, no global random state is touched, and every method gives the tokens of ``ar`` for the same seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dominotree.errors import SettingsError

NEAR_TIE = 1e-4

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def _mul(constant: int, x: Tensor) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of constant · x, for x in [0, 2^32) held in int64 (the product wraps, its bits are right)."""
    product = x * constant
    return (product >> 32) & _LOW, product & _LOW


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Philox4x32-10: four int64 tensors of 32-bit words in, four out."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _mul(_M0, c0)
        high1, low1 = _mul(_M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def gumbel_noise(seed: int, position: int, vocab: int, device: torch.device | str = "cpu") -> Tensor:
    """Standard Gumbel noise for every token id at one absolute position: float64 [vocab], always finite."""
    block = torch.arange((vocab + 3) // 4, device=device)
    zero = torch.zeros_like(block)
    words = philox(
        (block, zero + (position & _LOW), zero + (position >> 32), zero), (seed & _LOW, seed >> 32)
    )
    uniform = (torch.stack(words, dim=-1).flatten()[:vocab].double() + 0.5) / 2.0**32
    return -torch.log(-torch.log(uniform))


@dataclass
class NearTie:
    """A choice whose top two scores lie closer than NEAR_TIE: another batch shape may flip it."""

    position: int
    token: int
    runner_up: int
    gap: float


@dataclass
class Chooser:
    """The target's choice at a position. ``near_ties`` collects what a different summation order could flip."""

    temperature: float
    seed: int
    near_ties: list[NearTie] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not math.isfinite(self.temperature) or self.temperature < 0:
            raise SettingsError(
                f"temperature must be a finite number from 0 upwards, not {self.temperature}; use 0 for greedy decoding."
            )

    @torch.inference_mode()
    def choose(self, logits: Tensor, position: int) -> int:
        """The token for absolute ``position`` from the target's logits [V] of the row before it."""
        scores = logits.double()
        if self.temperature > 0:
            scores = scores + self.temperature * gumbel_noise(self.seed, position, len(scores), scores.device)
        values, ids = scores.topk(min(2, len(scores)))
        top = float(values[0])
        tied = (scores == top).nonzero().flatten()
        token = int(tied[0])
        if len(ids) > 1 and top - float(values[1]) < NEAR_TIE:
            other = int(tied[1]) if len(tied) > 1 else int(ids[1])
            self.near_ties.append(NearTie(position, token, other, top - float(values[1])))
        return token
