"""The Domino head: a GRU over the realised tokens of a path and the correction ΔL it gives (engine.md §4).

    s_i = GRU(s_{i-1}, emb(t_i)),   s_0 = GRU(0, emb(anchor))
    ΔL_i(path) = W2 · SiLU(W1 · [z_i ; s_i])        for level i >= prefix_len, else none

The backbone runs once per round; only this head is per node. W1·[z; s] is split into a per-level and a per-state part.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class CorrectionHead:
    """Weights: w_ih [3g, h], w_hh [3g, g] (gate order r, z, n; no bias), w1 [e, h + g], w2 [V, e]. float32 inside."""

    def __init__(self, w_ih: Tensor, w_hh: Tensor, w1: Tensor, w2: Tensor, prefix_len: int) -> None:
        hidden = w_ih.shape[1]
        self.w_ih, self.w_hh = w_ih.float(), w_hh.float()
        self.w1_z, self.w1_s = w1[:, :hidden].float().contiguous(), w1[:, hidden:].float().contiguous()
        self.w2 = w2.float()
        self.prefix_len = prefix_len

    @torch.inference_mode()
    def advance(self, state: Tensor | None, embedding: Tensor) -> Tensor:
        """GRU states [n, g] after reading token embeddings [n, h]; ``state`` None means the zero state."""
        x = embedding.float()
        if state is None:
            state = x.new_zeros(len(x), self.w_hh.shape[1])
        return torch.gru_cell(x, state, self.w_ih, self.w_hh)

    @torch.inference_mode()
    def level_part(self, z: Tensor) -> Tensor:
        """The part of W1·[z; s] that depends on the level only: z [D, h] -> [D, e]."""
        return F.linear(z.float(), self.w1_z)

    @torch.inference_mode()
    def output_rows(self, candidates: Tensor | None = None) -> Tensor:
        """The rows of W2 at ``candidates`` [M] (all V rows for None): [M, e]. Gather them once per level."""
        return self.w2 if candidates is None else self.w2[candidates]

    @torch.inference_mode()
    def delta(self, level_part: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        """ΔL for states [n, g] at levels whose parts are [n, e] or [e], over ``rows`` of W2 [M, e]: float32 [n, M]."""
        return F.linear(F.silu(level_part + F.linear(state, self.w1_s)), rows)
