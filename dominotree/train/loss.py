"""Cross-entropy of base and corrected logits over a sampled vocabulary, without keeping logits.

    loss = Σ_rows w · [λ · CE(base) + (1 − λ) · CE(base + Δ)] / Σ w,     w = exp(−level / decay) where there is a label

The label of a row is α · (the token that follows) + (1 − α) · (the target's sharpened top-k for that place).

Vocabulary: the softmax runs over C columns: the F most frequent tokens, every other label of this step, and random other
tokens whose logits are raised by log(how many tokens each stands for), so that the sum over the whole vocabulary is met
in expectation. With C = V the loss is exact.

Gradients are computed chunk by chunk in the forward pass (each chunk's logits live once) and handed out in ``backward``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Columns:
    """A sampled vocabulary: ``ids`` [C], ``raise_by`` float32 [C] (added to logits), ``place`` [V] (column of a token, or −1)."""

    ids: Tensor
    raise_by: Tensor
    place: Tensor


class VocabularySampler:
    """Chooses the columns of each step. Static shapes, no host synchronisation."""

    def __init__(self, counts: Tensor, frequent: int, size: int) -> None:
        """``counts`` [V] of tokens in the corpus; ``frequent`` columns are always there, ``size`` in all."""
        vocab = len(counts)
        self.vocab, self.size = vocab, min(size, vocab)
        self.frequent = min(frequent, self.size)
        self.always = counts.float().topk(self.frequent).indices
        self.is_always = torch.zeros(vocab, device=counts.device)
        self.is_always[self.always] = 1.0
        self.columns = torch.arange(self.size, device=counts.device)

    def __call__(self, labels: Tensor) -> Columns:
        """``labels``: any shape; negative entries are no labels."""
        present = torch.zeros_like(self.is_always)
        present.index_fill_(0, labels.flatten().clamp_min(0), 1.0)
        present = present * (1 - self.is_always)
        fill = self.size - self.frequent
        order = present * 2 + torch.rand_like(present) - self.is_always * 9
        chosen = order.topk(fill).indices
        wanted = present[chosen]
        room = (fill - wanted.sum()).clamp_min(1)
        others = self.vocab - self.frequent - present.sum()
        raise_by = torch.where(wanted > 0, 0.0, (others / room).clamp_min(1).log())
        ids = torch.cat((self.always, chosen))
        place = torch.full((self.vocab,), -1, dtype=torch.long, device=ids.device)
        place.index_copy_(0, ids, self.columns)
        return Columns(ids, torch.cat((torch.zeros_like(self.always, dtype=torch.float32), raise_by)), place)


def _chunk_gradients(
    base: Tensor,
    delta: Tensor | None,
    raise_by: Tensor,
    label: Tensor,
    soft: Tensor,
    soft_p: Tensor,
    weight: Tensor,
    lam: Tensor,
    alpha: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One chunk of n rows: base and delta [n, C]; label [n] and soft [n, K] columns (−1: none); soft_p [n, K]; weight [n].

    Returns d base (both terms) and d delta in the dtype of ``base``, losses of base and final [n], whether argmax hits [n] each.
    """
    b = base.float() + raise_by
    f = b if delta is None else b + delta.float()
    column = torch.arange(base.shape[1], device=base.device)
    q = torch.where(soft >= 0, (1 - alpha) * soft_p, 0.0)
    hard = 1 - q.sum(-1)
    wanted = hard[:, None] * (column == label[:, None])
    for k in range(soft.shape[1]):
        wanted = wanted + q[:, k, None] * (column == soft[:, k, None])
    lse_b, lse_f = b.logsumexp(-1), f.logsumexp(-1)
    loss_b, loss_f = lse_b - (wanted * b).sum(-1), lse_f - (wanted * f).sum(-1)
    at_label = column == label[:, None]
    hit_b = torch.where(at_label, b, float("-inf")).amax(-1) >= b.amax(-1)
    hit_f = torch.where(at_label, f, float("-inf")).amax(-1) >= f.amax(-1)
    d_f = ((f - lse_f[:, None]).exp() - wanted) * (weight * (1 - lam))[:, None]
    d_b = ((b - lse_b[:, None]).exp() - wanted) * (weight * lam)[:, None]
    d_final = d_f.to(base.dtype)
    return (d_b + d_f).to(base.dtype), d_final, loss_b, loss_f, hit_b, hit_f


class _DualCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, hidden: Tensor | None, output: Tensor | None, head: Tensor, rows: dict[str, Tensor], lam: Tensor, alpha: float,
                chunk: int, kernel: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        n = len(z)
        dz = torch.empty_like(z)
        dh = torch.empty_like(hidden) if hidden is not None else None
        do = torch.zeros(output.shape, device=z.device, dtype=torch.float32) if output is not None else None
        losses = torch.empty(n, 2, device=z.device)
        hits = torch.empty(n, 2, device=z.device, dtype=torch.bool)
        for start in range(0, n, chunk):
            part = slice(start, min(start + chunk, n))
            base = z[part] @ head.T
            delta = hidden[part] @ output.T if hidden is not None and output is not None else None
            d_base, d_final, loss_b, loss_f, hit_b, hit_f = kernel(
                base,
                delta,
                rows["raise_by"],
                rows["label"][part],
                rows["soft"][part],
                rows["soft_p"][part],
                rows["weight"][part],
                lam,
                alpha,
            )
            dz[part] = d_base @ head
            if hidden is not None and output is not None and dh is not None and do is not None:
                dh[part] = d_final @ output
                do += d_final.T @ hidden[part]
            losses[part, 0], losses[part, 1] = loss_b, loss_f
            hits[part, 0], hits[part, 1] = hit_b, hit_f
        ctx.save_for_backward(dz, dh, do)
        ctx.output_dtype = output.dtype if output is not None else None
        w = rows["weight"]
        total = (w * (lam * losses[:, 0] + (1 - lam) * losses[:, 1])).sum()
        ctx.mark_non_differentiable(losses, hits)
        return total, losses, hits

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        dz, dh, do = ctx.saved_tensors
        g = gradients[0]
        return (
            dz * g,
            dh * g if dh is not None else None,
            (do * g).to(ctx.output_dtype) if do is not None else None,
            None,
            None,
            None,
            None,
            None,
            None,
        )


@dataclass
class LossResult:
    """``loss`` is differentiable; ``losses`` and ``hits`` [n, 2] (base, corrected) are per row, for the log."""

    loss: Tensor
    losses: Tensor
    hits: Tensor


def dual_cross_entropy(
    z: Tensor, hidden: Tensor | None, output: Tensor | None, embedding: Tensor, labels: Tensor, soft_ids: Tensor, soft_p: Tensor, weight: Tensor,
    columns: Columns, lam: Tensor, alpha: float, chunk: int = 4096, kernel: Callable[..., tuple[Tensor, ...]] = _chunk_gradients,
) -> LossResult:  # fmt: skip
    """The loss of n rows: z [n, h]; hidden [n, e] and output [V, e] (the correction, or None); embedding [V, h] is the LM head.

    labels [n] (−1: none), soft_ids [n, K], soft_p [n, K] (sums to 1), weight [n] (0 where there is no label; sums to 1 for a mean).
    """
    head = embedding[columns.ids].to(z.dtype)
    rows = {
        "raise_by": columns.raise_by, "weight": weight, "soft_p": soft_p, "label": torch.where(labels >= 0, columns.place[labels.clamp_min(0)], -1),
        "soft": torch.where((labels >= 0)[:, None] & (soft_p > 0), columns.place[soft_ids], -1),
    }  # fmt: skip
    used = output[columns.ids].to(z.dtype) if output is not None else None
    return LossResult(*_DualCrossEntropy.apply(z, hidden, used, head, rows, lam, alpha, chunk, kernel))
