"""The correction head's weights as the kernels of ``grow.cu`` read them, made once per head and shared by builders.

Block b of that kernel owns GRU units 8b … 8b + 7 and a few columns of W1. The GRU is padded with zeros to a multiple
of 32 units and W1's output to a multiple of 8; padded units stay zero.
"""

from __future__ import annotations

import weakref

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree.correction import CorrectionHead
from dominotree.errors import SettingsError

HALF_MAX = 65504.0
ROWS_AT_ONCE = 8192  # of the vocabulary, while the table is made

_made: weakref.WeakKeyDictionary[CorrectionHead, dict[tuple[int, bool, bool], HeadWeights]] = (
    weakref.WeakKeyDictionary()
)


class HeadWeights:
    """Sizes after padding, and the tensors. ``half``: float16 weights; else float32.

    gru_w1: half [blocks, gru / 32, tiles, 8, 4, 8], tensor-core fragments of (8 rows of r, of z, of n, columns of W1);
    float32 [blocks, 24 + columns, gru]. w1_z float32 [width, h]. w2 [V, width]. inputs: W_ih·emb of every token
    [V, blocks, 3, 8], or W_ih itself, float32 [blocks, 3, 8, h].
    """

    def __init__(self, head: CorrectionHead, embedding: Tensor, half: bool, table: bool) -> None:
        vocab, hidden = embedding.shape
        own, emb = head.w_hh.shape[1], head.w1_s.shape[0]
        self.own = own
        self.gru, self.width = _up(own, 32), _up(emb, 8)
        self.blocks = blocks = self.gru // 8
        self.columns = columns = -(-self.width // blocks)
        self.half, self.table = half, table
        if half:
            for what, weight in (("W_hh", head.w_hh), ("W1", head.w1_s), ("W2", head.w2)):
                if float(weight.abs().max()) > HALF_MAX:
                    raise SettingsError(f"{what} holds numbers beyond float16; use precision 'float32'.")
        gru = self.gru
        hh = _padded(head.w_hh.view(3, own, own), 3, gru, gru).view(3, blocks, 8, gru).transpose(0, 1)
        w1 = _padded(head.w1_s, blocks * columns, gru).view(blocks, columns, gru)
        rows = torch.cat((hh.flatten(1, 2), w1), 1)
        if half:
            tiles = 3 + -(-columns // 8)
            rows = _padded(rows, blocks, tiles * 8, gru).view(blocks, tiles, 8, gru // 32, 4, 8)
            rows = rows.permute(0, 3, 1, 2, 4, 5).half()
        self.gru_w1 = rows.contiguous()
        self.w1_z = _padded(head.w1_z, self.width, hidden)
        if half:
            self.w2 = _padded(head.w2.half(), vocab, self.width)
        else:
            self.w2 = head.w2 if self.width == emb else _padded(head.w2, vocab, self.width)
        w_ih = (
            _padded(head.w_ih.view(3, own, hidden), 3, gru, hidden).view(3, blocks, 8, hidden).transpose(0, 1)
        )
        self.inputs = self._table(w_ih.flatten(0, 2), embedding) if table else w_ih.contiguous()

    def _table(self, w_ih: Tensor, embedding: Tensor) -> Tensor:
        dtype = torch.float16 if self.half else torch.float32
        out = torch.empty(len(embedding), self.blocks, 3, 8, dtype=dtype, device=embedding.device)
        for first in range(0, len(embedding), ROWS_AT_ONCE):
            part = F.linear(embedding[first : first + ROWS_AT_ONCE].float(), w_ih)
            if self.half:
                part = part.clamp(-HALF_MAX, HALF_MAX)
            out[first : first + ROWS_AT_ONCE] = part.view(-1, self.blocks, 3, 8)
        return out

    @classmethod
    @torch.no_grad()
    def of(cls, head: CorrectionHead, embedding: Tensor, half: bool, table: bool) -> HeadWeights:
        """The head's weights in this form; kept as long as the head lives."""
        made = _made.setdefault(head, {})
        key = (embedding.data_ptr(), half, table)
        if key not in made:
            made[key] = cls(head, embedding, half, table)
        return made[key]


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def _padded(weight: Tensor, *shape: int) -> Tensor:
    """``weight`` in the corner of a zero tensor; itself where it has the shape already."""
    if weight.shape == torch.Size(shape):
        return weight.contiguous()
    out = weight.new_zeros(shape)
    out[tuple(slice(n) for n in weight.shape)] = weight
    return out
