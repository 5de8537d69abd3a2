"""Training of a drafter on a corpus of the target's responses.

A step: S sequences of near length → target features (one forward, no gradient) → A anchors a sequence, stratified over
the response → backbone over S·A blocks → GRU and head, teacher-forced → dual cross-entropy → Muon + AdamW.

Time is the schedule: with ``limit_s`` progress = elapsed / limit, so learning rate and λ end on time on any machine.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from dominotree.train.drafter import DrafterShape, ParameterCount, TrainDrafter, block_mask, dense_attention
from dominotree.train.llama import BatchedTarget
from dominotree.train.loss import LossResult, VocabularySampler, _chunk_gradients, dual_cross_entropy
from dominotree.train.optim import Both


@dataclass
class TrainSettings:
    """One training run. ``hard_share`` is α of the labels; λ falls from 1 to ``lambda_floor`` at ``lambda_end`` of the run."""

    shape: DrafterShape = field(default_factory=DrafterShape)
    sequences: int = 48
    anchors: int = 64
    max_total: int = 384
    columns: int = 12288
    frequent: int = 8192
    hard_share: float = 0.5
    decay: float = 7.0
    lambda_floor: float = 0.15
    lambda_end: float = 0.85
    use_muon: bool = True
    muon_lr: float = 2e-3
    adam_lr: float = 1e-3
    weight_decay: float = 0.05
    clip: float = 1.0
    warmup_steps: int = 150
    hold: float = 0.2
    final_lr: float = 0.01
    limit_s: float | None = None
    steps: int | None = None
    evaluate_at: tuple[float, ...] = (0.25, 0.5, 0.75)
    checkpoint_every_s: float = 150.0
    log_every: int = 100
    chunk: int = 4096
    seed: int = 0
    compile: bool = False
    flex: bool = False
    graph: bool = False

    def lam(self, progress: float) -> float:
        """λ: weight of the base loss. A drafter without a head has only that."""
        if not self.shape.domino:
            return 1.0
        return max(self.lambda_floor, 1 - (1 - self.lambda_floor) * progress / self.lambda_end)

    def lr_factor(self, progress: float, step: int) -> float:
        """Warm-up, constant for ``hold`` of the run, then linear down to ``final_lr``."""
        warm = min(1.0, (step + 1) / max(self.warmup_steps, 1))
        fall = (
            1.0
            if progress <= self.hold
            else 1 - (1 - self.final_lr) * (progress - self.hold) / (1 - self.hold)
        )
        return warm * max(fall, self.final_lr)


class Corpus:
    """A corpus folder (or several), flat on the device. Sequences are right-padded on the way out."""

    def __init__(self, folders: list[Path], device: torch.device) -> None:
        load = {
            name: [np.load(f / f"{name}.npy") for f in folders]
            for name in ("ids", "offsets", "prompt_len", "soft_ids", "soft_p", "kind")
        }
        shift = np.cumsum([0] + [len(x) for x in load["ids"]])
        starts = np.concatenate([o[:-1] + s for o, s in zip(load["offsets"], shift, strict=False)])
        self.length = np.concatenate([np.diff(o) for o in load["offsets"]])
        self.kind = np.concatenate(load["kind"])
        prompt = np.concatenate(load["prompt_len"])
        self.device = device
        self.ids = torch.from_numpy(np.concatenate(load["ids"]).astype(np.int32)).to(device)
        self.soft_ids = torch.from_numpy(np.concatenate(load["soft_ids"]).astype(np.int32)).to(device)
        self.soft_p = torch.from_numpy(np.concatenate(load["soft_p"])).to(device)
        self.start = torch.from_numpy(starts).to(device)
        self.size = torch.from_numpy(self.length).to(device)
        self.prompt = torch.from_numpy(prompt.astype(np.int64)).to(device)
        self.response_tokens = int(self.length.sum() - prompt.sum())

    def __len__(self) -> int:
        return len(self.length)

    def counts(self, vocab: int) -> Tensor:
        """How often each token occurs [V]."""
        return torch.bincount(self.ids.long(), minlength=vocab)

    def sequences(self, rows: Tensor, width: int) -> Tensor:
        """Token ids int64 [len(rows), width], zero past the end."""
        place = torch.arange(width, device=self.device)
        inside = place[None, :] < self.size[rows][:, None]
        return torch.where(
            inside, self.ids[(self.start[rows][:, None] + place).clamp_max(len(self.ids) - 1)].long(), 0
        )

    def batches(self, count: int, seed: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """(epoch, number in the epoch, rows) for ever: sequences of near length together, batches in random order."""
        epoch = 0
        while True:
            r = np.random.default_rng((seed, epoch))
            order = np.argsort(self.length + r.uniform(0, 12, len(self)), kind="stable")
            whole = order[: len(order) // count * count].reshape(-1, count)
            for number, index in enumerate(r.permutation(len(whole))):
                yield epoch, number, whole[index]
            epoch += 1


@dataclass
class Blocks:
    """A batch of anchors. anchor [S, A]; labels, read, soft_ids, soft_p [S, A, D(, K)]; weight [S, A, D] sums to 1."""

    ids: Tensor
    anchor: Tensor
    labels: Tensor
    read: Tensor
    soft_ids: Tensor
    soft_p: Tensor
    weight: Tensor


def choose_blocks(
    corpus: Corpus,
    rows: Tensor,
    width: int,
    anchors: int,
    levels: int,
    decay: float,
    generator: torch.Generator | None = None,
) -> Blocks:
    """Stratified anchors over each response, labels by level. ``read`` are the tokens the GRU reads: anchor, t_1, …"""
    device = corpus.device
    ids = corpus.sequences(rows, width)
    size, prompt = corpus.size[rows], corpus.prompt[rows]
    room = (size - 1 - prompt).clamp_min(1)
    u = (
        torch.arange(anchors, device=device)
        + torch.rand(len(rows), anchors, device=device, generator=generator)
    ) / anchors
    anchor = prompt[:, None] + torch.minimum((u * room[:, None]).long(), room[:, None] - 1)
    fresh = torch.ones_like(anchor, dtype=torch.bool)
    fresh[:, 1:] = anchor[:, 1:] != anchor[:, :-1]
    step = torch.arange(levels, device=device)
    place = anchor[..., None] + 1 + step
    inside = (place < size[:, None, None]) & fresh[..., None]
    spread = ids[:, None, :].expand(-1, anchors, -1)
    labels = torch.where(inside, spread.gather(2, place.clamp_max(width - 1)), -1)
    read = spread.gather(2, (place - 1).clamp_max(width - 1))
    flat = (corpus.start[rows][:, None, None] + place).clamp_max(len(corpus.ids) - 1)
    soft_ids = corpus.soft_ids[flat].long()
    soft_p = corpus.soft_p[flat].float()
    soft_p = soft_p / soft_p.sum(-1, keepdim=True).clamp_min(1)
    weight = torch.exp(-step / decay) * inside
    return Blocks(ids, anchor, labels, read, soft_ids, soft_p, weight / weight.sum().clamp_min(1e-9))


class FlexAttention:
    """Block attention by ``flex_attention``: 128 × 128 tiles, only those that can hold a visible pair.

    A query tile (128 / R blocks) looks at the context tiles of the batch and at its own tile; the mask inside a tile is
    that of ``block_mask``. All tensors are filled in place, so one compilation serves every step.
    """

    TILE = 128

    def __init__(self, anchors: int, rows: int, context: int, sequences: int, device: torch.device) -> None:
        from torch.nn.attention.flex_attention import BlockMask, flex_attention

        if anchors * rows % self.TILE or context % self.TILE:
            raise ValueError(f"anchors · {rows} and the context must be multiples of {self.TILE}")
        self.flex = flex_attention
        self.past, self.own = context // self.TILE, anchors * rows // self.TILE
        self.anchor = torch.zeros(sequences, anchors, dtype=torch.int32, device=device)
        tiles = self.past + self.own
        kv = torch.zeros(self.own, tiles, dtype=torch.int32)
        for i in range(self.own):
            mine = self.past + i
            kv[i] = torch.tensor(
                [mine, *range(self.past), *(t for t in range(self.past, tiles) if t != mine)]
            )
        q = torch.zeros(tiles, self.own, dtype=torch.int32)
        for t in range(tiles):
            i = t - self.past
            q[t] = (
                torch.arange(self.own)
                if i < 0
                else torch.tensor([i, *(j for j in range(self.own) if j != i)])
            )
        self.kv_count = torch.full((1, 1, self.own), 1 + self.past, dtype=torch.int32, device=device)
        self.q_count = torch.ones(1, 1, tiles, dtype=torch.int32, device=device)
        self.q_count[..., : self.past] = self.own
        anchor = self.anchor

        def visible(b: Tensor, h: Tensor, q_index: Tensor, kv_index: Tensor) -> Tensor:
            before = (kv_index < context) & (kv_index < anchor[b, q_index // rows])
            return before | ((kv_index >= context) & ((kv_index - context) // rows == q_index // rows))

        self.mask = BlockMask(
            seq_lengths=(anchors * rows, context + anchors * rows), kv_num_blocks=self.kv_count, kv_indices=kv[None, None].to(device),
            full_kv_num_blocks=None, full_kv_indices=None, q_num_blocks=self.q_count, q_indices=q[None, None].to(device),
            full_q_num_blocks=None, full_q_indices=None, BLOCK_SIZE=(self.TILE, self.TILE), mask_mod=visible,
        )  # fmt: skip

    def set(self, anchor: Tensor, width: int) -> None:
        """Anchors of this step and how much of the context is filled."""
        used = -(-width // self.TILE)
        self.anchor.copy_(anchor)
        self.kv_count.fill_(1 + used)
        self.q_count[..., : self.past] = 0
        self.q_count[..., :used] = self.own

    def attend(self, mask: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The attention of this step; the mask is handed in so that a compiled caller takes it as an input."""

        def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return self.flex(q, k, v, block_mask=mask, enable_gqa=True)

        return attention


class Trainer:
    """Holds model, optimiser and schedules; ``run`` trains, ``save`` and ``resume`` make it restartable."""

    def __init__(self, settings: TrainSettings, target: BatchedTarget, folder: Path) -> None:
        self.settings, self.target, self.folder = settings, target, folder
        self.device = target.device
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(settings.seed)
        s = settings.shape
        self.model = TrainDrafter(s).to(self.device)
        self.restart(settings)
        self.dtype = target.dtype
        self.embedding = target.embedding
        self.float_embedding = target.embedding.float()
        self.static = settings.flex or settings.compile
        self.features = torch.zeros(
            settings.sequences,
            settings.max_total,
            len(s.target_layers) * s.hidden,
            device=self.device,
            dtype=self.dtype,
        )
        self.flex = (
            FlexAttention(settings.anchors, s.block_size, settings.max_total, settings.sequences, self.device)
            if settings.flex
            else None
        )
        self.kernel: Callable[..., tuple[Tensor, ...]] = (
            torch.compile(_chunk_gradients, dynamic=False) if settings.compile else _chunk_gradients
        )
        self.forward: Callable[..., Tensor] = (
            torch.compile(self._backbone, dynamic=False) if settings.compile else self._backbone
        )
        gru = self.model.unrolled_gru_states if settings.compile else self.model.gru_states
        self.gru: Callable[..., Tensor] = (
            torch.compile(gru, dynamic=False) if settings.compile and s.domino else gru
        )
        self.rows = torch.zeros(settings.sequences, dtype=torch.long, device=self.device)
        self.lam = torch.ones((), device=self.device)
        self.head: Callable[..., Tensor] = (
            torch.compile(self.model.head_hidden, dynamic=False)
            if settings.compile and s.domino
            else self.model.head_hidden
        )
        self.sampler: VocabularySampler | None = None

    def restart(self, settings: TrainSettings) -> None:
        """A fresh optimiser and counters; shapes and batch sizes stay what was compiled. ``prepare`` gives fresh weights."""
        self.settings = settings
        self.optimiser = Both(
            self.model, settings.muon_lr, settings.adam_lr, settings.weight_decay, settings.use_muon
        )
        self.step_number, self.elapsed, self.position = 0, 0.0, 0
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.widths: set[int] = set()
        self.tally = Tally(settings.shape.levels, self.device)

    # ---- data-dependent start

    @torch.no_grad()
    def prepare(self, corpus: Corpus, feature_batches: int = 24) -> None:
        """Initialise the weights, the feature scale (1 / rms per feature, first token left out) and the columns."""
        s = self.settings
        counts = corpus.counts(s.shape.vocab)
        generator = torch.Generator().manual_seed(s.seed)
        fresh = TrainDrafter(s.shape)
        fresh.initialise(self.embedding, self.target.final_norm.cpu(), generator, counts.cpu())
        self.model.load_state_dict(fresh.state_dict())
        squares = torch.zeros(self.features.shape[-1], device=self.device, dtype=torch.float64)
        total = 0
        r = np.random.default_rng(s.seed + 77)
        for _ in range(feature_batches):
            rows = r.choice(len(corpus), min(s.sequences, len(corpus)), replace=False)
            width = int(corpus.length[rows].max())
            rows_t = torch.from_numpy(rows).to(self.device)
            found = self.target.features(corpus.sequences(rows_t, width), s.shape.target_layers).float()
            inside = torch.arange(width, device=self.device)[None, :] < corpus.size[rows_t][:, None]
            inside[:, 0] = False
            squares += found[inside].double().square().sum(0)
            total += int(inside.sum())
        self.model.feature_scale.copy_((squares / total).rsqrt().float())
        self.sampler = VocabularySampler(counts, s.frequent, s.columns)

    # ---- one step

    def _backbone(
        self, features: Tensor, anchor: Tensor, anchor_embedding: Tensor, mask_embedding: Tensor, mask: Any
    ) -> Tensor:
        attend = self.flex.attend(mask) if self.flex is not None else dense_attention(mask)
        return self.model.backbone(
            self.model.context(features), anchor, anchor_embedding, mask_embedding, attend
        )

    def width(self, corpus: Corpus, rows: np.ndarray) -> int:
        """Context of this batch: its longest sequence, up to a multiple of 64."""
        return min(-(-int(corpus.length[rows].max()) // 64) * 64, self.settings.max_total)

    def loss(self, corpus: Corpus, rows: Tensor, width: int, lam: Tensor) -> tuple[LossResult, Blocks]:
        """Forward pass and loss of one batch of sequence numbers, rows [S] on the device. No host synchronisation."""
        s = self.settings
        shape = s.shape
        blocks = choose_blocks(corpus, rows, width, s.anchors, shape.levels, s.decay)
        found = self.target.features(blocks.ids, shape.target_layers)
        if self.static:
            self.features[:, :width] = found
            found = self.features
        if self.flex is not None:
            self.flex.set(blocks.anchor, width)
            mask: Any = self.flex.mask
        else:
            mask = block_mask(blocks.anchor, found.shape[1], shape.block_size)
        anchor_token = blocks.ids.gather(1, blocks.anchor)
        z = self.forward(
            found, blocks.anchor, self.embedding[anchor_token], self.embedding[shape.mask_token_id], mask
        ).flatten(0, 1)
        hidden = output = None
        if shape.domino:
            states = self.gru(F.embedding(blocks.read.flatten(0, 1), self.float_embedding))
            hidden = self.head(z, states).flatten(0, 1)
            output = self.model.w2
        columns = self.sampler(blocks.labels)  # type: ignore[misc]
        result = dual_cross_entropy(
            z.flatten(0, 1), hidden, output, self.embedding, blocks.labels.flatten(), blocks.soft_ids.flatten(0, 2), blocks.soft_p.flatten(0, 2),
            blocks.weight.flatten(), columns, lam, s.hard_share, s.chunk, self.kernel,
        )  # fmt: skip
        return result, blocks

    def _step(self, corpus: Corpus, width: int) -> None:
        """One update from ``self.rows`` and ``self.lam``; what a CUDA graph captures."""
        for p in self.model.parameters():
            p.grad = None
        result, blocks = self.loss(corpus, self.rows, width, self.lam)
        result.loss.backward()
        if self.settings.shape.domino:
            self.model.w2.grad.mul_(self.model.row_trained[:, None])  # type: ignore[union-attr]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip, foreach=True)
        self.optimiser.step()
        self.tally.add(result, blocks)

    def train_step(self, corpus: Corpus, rows: np.ndarray, progress: float) -> None:
        """One update; on a GPU with ``graph`` the step of each width is captured once and replayed."""
        s = self.settings
        self.rows.copy_(torch.from_numpy(rows))
        self.lam.fill_(s.lam(progress))
        self.optimiser.set_factor(s.lr_factor(progress, self.step_number))
        width = self.width(corpus, rows)
        self.step_number += 1
        if not s.graph:
            self._step(corpus, width)
        elif width not in self.widths:  # the first time as it is: compiles, and creates the optimiser's state
            self.widths.add(width)
            stream = torch.cuda.Stream(self.device)
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                self._step(corpus, width)
            torch.cuda.current_stream(self.device).wait_stream(stream)
        else:
            if width not in self.graphs:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self._step(corpus, width)
                self.graphs[width] = graph
            self.graphs[width].replay()

    # ---- the run

    def progress(self) -> float:
        s = self.settings
        done = [self.step_number / s.steps] if s.steps else []
        done += [self.elapsed / s.limit_s] if s.limit_s else []
        return min(1.0, max(done)) if done else 0.0

    def warm_up(self, corpus: Corpus) -> float:
        """Compile, capture and replay on a few batches of other widths, then forget the steps; seconds it took."""
        began = time.monotonic()
        batches = corpus.batches(self.settings.sequences, 999)
        for _ in range(4):
            rows = next(batches)[2]
            for _ in range(3):
                self.train_step(corpus, rows, 0.0)
        self._sync()
        took = time.monotonic() - began
        for _ in range(10):
            self.train_step(corpus, rows, 0.0)
        self._sync()
        print(f"{(time.monotonic() - began - took) * 100:.1f} ms a step", flush=True)
        self.restart(self.settings)
        return took

    def run(
        self,
        corpus: Corpus,
        evaluate: Callable[[TrainDrafter], dict[str, Any]] | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Train until the limit; writes ``log.jsonl`` and checkpoints. ``deadline`` (monotonic) shortens ``limit_s``.

        Time spent in evaluation counts. Returns the summary that the model card quotes.
        """
        s = self.settings
        if deadline is not None:
            s.limit_s = max(1.0, deadline - time.monotonic()) + self.elapsed
        began = time.monotonic() - self.elapsed
        pending = [p for p in s.evaluate_at if p > self.progress()]
        batches = corpus.batches(s.sequences, s.seed)
        for _ in range(self.position):
            next(batches)
        last_save = mark = time.monotonic()
        marked = self.step_number
        bar = tqdm(total=1000, desc="Training", unit="‰", mininterval=5)
        log = (self.folder / "log.jsonl").open("a", encoding="utf-8")
        with log, bar:
            while self.progress() < 1.0:
                progress = self.progress()
                epoch, _, rows = next(batches)
                self.position += 1
                self.train_step(corpus, rows, progress)
                if self.step_number % s.log_every == 0:
                    self._sync()
                    now = time.monotonic()
                    entry = {"step": self.step_number, "seconds": round(now - began, 2), "progress": round(progress, 4), "epoch": epoch, "lambda": round(s.lam(progress), 4),
                             "lr_factor": round(s.lr_factor(progress, self.step_number), 5), "steps_per_second": round((self.step_number - marked) / (now - mark), 2), **self.tally.take()}  # fmt: skip
                    if not math.isfinite(entry["base_loss"]):
                        raise FloatingPointError(
                            f"the loss is {entry['base_loss']} at step {self.step_number}"
                        )
                    log.write(json.dumps(entry) + "\n")
                    log.flush()
                    mark, marked = now, self.step_number
                    bar.n = int(1000 * progress)
                    bar.set_postfix_str(
                        f"step {self.step_number}, base {entry['base_loss']:.3f}, final {entry['final_loss']:.3f}, {entry['steps_per_second']}/s"
                    )
                if pending and progress >= pending[0] and evaluate is not None:
                    pending.pop(0)
                    log.write(
                        json.dumps(
                            {
                                "step": self.step_number,
                                "progress": round(progress, 4),
                                "evaluation": evaluate(self.model),
                            }
                        )
                        + "\n"
                    )
                    log.flush()
                    mark, marked = time.monotonic(), self.step_number
                if time.monotonic() - last_save > s.checkpoint_every_s:
                    self.save()
                    last_save = time.monotonic()
                self.elapsed = time.monotonic() - began
        self._sync()
        self.save()
        per_step = s.sequences * s.anchors
        return {"steps": self.step_number, "seconds": round(self.elapsed, 1), "blocks": self.step_number * per_step,
                "blocks_per_second": round(self.step_number * per_step / max(self.elapsed, 1e-9)), "epochs": round(self.position * s.sequences / len(corpus), 2),
                "parameters": ParameterCount.of(self.model).as_dict()}  # fmt: skip

    def _sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # ---- checkpoints

    def save(self) -> None:
        """Write ``checkpoint.pt`` (tensors and plain numbers only), replacing the last one in one move."""
        path = self.folder / "checkpoint.pt"
        state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "step": self.step_number, "elapsed": self.elapsed,
                 "position": self.position, "shape": asdict(self.settings.shape)}  # fmt: skip
        torch.save(state, path.with_suffix(".partial"))
        path.with_suffix(".partial").replace(path)

    def resume(self) -> bool:
        """Continue from ``checkpoint.pt`` if it is there. Call after ``prepare``."""
        path = self.folder / "checkpoint.pt"
        if not path.is_file():
            return False
        state = torch.load(path, map_location=self.device, weights_only=True)
        if dict(state["shape"]) != asdict(self.settings.shape):
            raise ValueError(f"{path} was made for another drafter shape")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.step_number, self.elapsed, self.position = state["step"], state["elapsed"], state["position"]
        return True


class Tally:
    """Sums of losses and hits by level on the device, read once per log line."""

    def __init__(self, levels: int, device: torch.device) -> None:
        self.sums = torch.zeros(levels, 5, device=device)

    def add(self, result: LossResult, blocks: Blocks) -> None:
        levels = len(self.sums)
        real = (blocks.labels >= 0).flatten().float()
        table = torch.stack(
            [
                result.losses[:, 0] * real,
                result.losses[:, 1] * real,
                result.hits[:, 0] * real,
                result.hits[:, 1] * real,
                real,
            ],
            -1,
        )
        self.sums += table.view(-1, levels, 5).sum(0)

    def take(self) -> dict[str, Any]:
        rows = self.sums.double().cpu()
        self.sums.zero_()
        mean = rows[:, :4] / rows[:, 4:].clamp_min(1)
        weight = torch.exp(-torch.arange(len(rows)) / 7.0).double()
        weight /= weight.sum()
        return {"base_loss": round(float(mean[:, 0] @ weight), 4), "final_loss": round(float(mean[:, 1] @ weight), 4),
                "base_accuracy": [round(x, 4) for x in mean[:, 2].tolist()], "final_accuracy": [round(x, 4) for x in mean[:, 3].tolist()]}  # fmt: skip
