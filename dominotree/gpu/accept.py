"""Choice, walk and record as three kernels (``kernels/choice.cu``): what ``choice.py`` says in torch operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dominotree.gpu.device_tree import DeviceTree
from dominotree.gpu.nvrtc import Kernel

if TYPE_CHECKING:
    from dominotree.gpu.rounds import Engine

SPLITS = 32  # slices of a row of logits


class Accept:
    """For trees of ``rows`` verify rows and paths of up to ``longest`` of them. ``forced``: see ``choice.force_path``."""

    def __init__(
        self, rows: int, vocab: int, longest: int, sampled: bool, device: torch.device, forced: int | None = None
    ) -> None:  # fmt: skip
        self.n, self.longest, self.forced = rows, longest, -1 if forced is None else forced
        self.sampled = sampled
        defines = {"VOCAB": vocab, "SPLITS": SPLITS, "SAMPLED": int(sampled)}
        self._best, self._walk = (
            Kernel("choice.cu", "best_two", defines),
            Kernel("choice.cu", "walk", defines),
        )
        self._advance = Kernel("choice.cu", "advance", defines)
        self.parts = torch.zeros(rows * SPLITS, 3, dtype=torch.float64, device=device)
        self.rows = torch.zeros(longest, dtype=torch.long, device=device)
        self.count = torch.ones(1, dtype=torch.long, device=device)
        self.bonus = torch.zeros(1, dtype=torch.long, device=device)

    def walk(
        self, logits: Tensor, tree: DeviceTree, engine: Engine, repaired: Tensor, landing: Tensor
    ) -> Tensor:
        """logits float32 [n, V] -> accepted verify rows int64 [longest]; the record goes straight to ``landing``."""
        seed, temperature = (engine.seed, engine.temperature) if self.sampled else (None, None)
        self._best.launch((SPLITS, self.n), 256, logits, tree.positions, seed, temperature, self.parts)
        self._walk.launch(
            1, 1024, self.parts, self.n, tree.ids, tree.parent, tree.positions, tree.nodes, engine.stop_ids,
            len(engine.stop_ids), engine.length, engine.anchor, repaired, self.longest, self.forced,
            self.rows, self.count, self.bonus, landing,
        )  # fmt: skip
        return self.rows

    def advance(self, engine: Engine) -> None:
        """Move the committed length and the anchor on: the last thing of a round."""
        self._advance.launch(1, 1, engine.length, engine.anchor, self.count, self.bonus)
