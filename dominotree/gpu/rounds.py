"""The captured round: draft -> build -> verify -> accept -> commit -> extend -> record, without a host in the loop.

An ``Engine`` belongs to a pair. It owns what the graphs point at: the committed length, the anchor, seed and
temperature, one KV cache, the drafters' contexts. A ``Program`` is a part of a round over static buffers; a bucket of
the cache makes it a ``Piece`` that is launched as one. Where the tree is built on the device, a round is one piece; a
host builder stands between two. The host reads one small record per round, and where nothing needs the host the next
round is launched before the record of the last one is read.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dominotree import record as rec
from dominotree.drafter import DraftBlock, Drafter
from dominotree.errors import DominoTreeError
from dominotree.gpu.accept import Accept
from dominotree.gpu.chains import ChainBuilder
from dominotree.gpu.choice import choose_rows, force_path, walk_rows
from dominotree.gpu.device_tree import DeviceTree
from dominotree.gpu.pieces import CapturedPiece, Piece, Step, elapsed
from dominotree.gpu.plan import LARGEST_SIZED, no_compiler
from dominotree.gpu.plan import precision as plan_precision
from dominotree.gpu.round_record import HEAD, RoundRecord, pack, unpack
from dominotree.gpu.static_forward import Forward, StaticForward, VerifyBuffers
from dominotree.model import KVCache
from dominotree.sampling import NEAR_TIE, NearTie
from dominotree.trace import Nodes, Round
from dominotree.tree import DraftTree, Walk

if TYPE_CHECKING:
    from dominotree.checkpoints import Pair
    from dominotree.correction import CorrectionHead
    from dominotree.decode import Run
    from dominotree.gpu.fused import FusedBuilder

#: Rows of the smallest cache bucket; each next one is twice as large.
SMALLEST_BUCKET = 256
#: Verify rows that the kernels of ``gpu/accept.py`` take.
MOST_ROWS = 1032
#: Programs kept per pair: room for every method side by side. The least recently used one goes first, with its graphs
#: and buffers.
MOST_PROGRAMS = 48


class EngineError(DominoTreeError, RuntimeError):
    """The captured engine and the host disagree, or the target's scores hold NaN."""


def bucket_for(rows: int) -> int:
    """The smallest bucket that holds ``rows`` cache rows."""
    bucket = SMALLEST_BUCKET
    while bucket < rows:
        bucket *= 2
    return bucket


class Engine:
    """The static state of a pair. ``capture`` False runs the same steps one by one, on any device."""

    def __init__(self, pair: Pair, capture: bool) -> None:
        self.pair, self.target, self.capture = pair, pair.target, capture
        self.device = device = pair.target.device
        self.length = torch.zeros(1, dtype=torch.long, device=device)
        self.anchor = torch.zeros(1, dtype=torch.long, device=device)
        self.seed = torch.zeros(1, dtype=torch.long, device=device)
        self.temperature = torch.zeros(1, dtype=torch.float64, device=device)
        self.no = torch.zeros(1, dtype=torch.int32, device=device)
        self.kernels = (
            device.type == "cuda" and no_compiler() is None
        )  # choice and walk as kernels, else in torch
        self.stop_ids = torch.tensor(sorted(pair.tokenizer.stop_ids) or [-1], device=device)
        self.capacity = 0
        self.cache: KVCache | None = None
        self.contexts: dict[str, KVCache] = {}
        self.programs: OrderedDict[tuple[Any, ...], Program] = OrderedDict()
        self.buffers = VerifyBuffers(pair.target)
        self.pool: Any = None
        self._new_pool()

    @classmethod
    def of(cls, pair: Pair, capture: bool) -> Engine:
        """The pair's engine, made at first use."""
        name = "graph" if capture else "static"
        if name not in pair.engines:
            pair.engines[name] = cls(pair, capture)
        return pair.engines[name]

    def reserve(self, rows: int) -> KVCache:
        """The target's cache with room for ``rows``, empty. A larger one drops every graph that knew the old one."""
        if rows > self.capacity:
            self.drop()
            self.contexts.clear()
            self.cache = None
            self.capacity = bucket_for(rows)
            self.cache = self.target.new_cache(self.capacity)
        assert self.cache is not None
        return _emptied(self.cache)

    def context(self, drafter: Drafter) -> KVCache:
        """The drafter's context K/V, as long as the cache, empty."""
        kind = drafter.config.kind
        if kind not in self.contexts:
            self.contexts[kind] = drafter.new_context(self.capacity)
        return _emptied(self.contexts[kind])

    def program(self, key: tuple[Any, ...], make: Callable[[], Program]) -> Program:
        """The program under ``key``, the most recently used one from now on."""
        if key not in self.programs:
            self.programs[key] = make()
            while len(self.programs) > MOST_PROGRAMS:
                self.programs.popitem(last=False)[1].pieces.clear()
            if not any(p.pieces for p in self.programs.values()):
                self._new_pool()
        self.programs.move_to_end(key)
        return self.programs[key]

    def drop(self) -> None:
        """Forget every program. Their pieces know them in turn, so the rings are cut: graph memory goes at once."""
        for program in self.programs.values():
            program.pieces.clear()
        self.programs.clear()
        self._new_pool()

    def _new_pool(self) -> None:
        """The memory pool that all graphs share; one that its last graph has left cannot be used again."""
        self.pool = torch.cuda.graph_pool_handle() if self.capture else None

    def forward(self, which: str, drafter: Drafter | None, rows: int) -> Forward:
        """The forward that a plan names, with verify buffers for ``rows``."""
        if which == "kernels":
            from dominotree.gpu.forward import KernelForward

            return KernelForward(self.target, drafter, rows, self.buffers)
        return StaticForward(self.target, drafter, rows, self.buffers)


def _emptied(cache: KVCache) -> KVCache:
    """The cache as new: a masked row counts zero times its value, and zero times what is not finite is NaN."""
    cache.k.zero_()
    cache.v.zero_()
    cache.length = 0
    return cache


class Program:
    """A part of a round over static buffers; ``piece`` makes it launchable for one bucket."""

    _numbers = itertools.count()

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.number = next(self._numbers)
        self.pieces: dict[tuple[int, int], tuple[Piece, Tensor]] = {}

    def steps(self, bucket: int, landing: Tensor) -> list[Step]:
        raise NotImplementedError

    def record_size(self) -> int:
        return 0

    def piece(self, bucket: int, turn: int) -> tuple[Piece, Tensor]:
        """The piece and the host tensor in which its record lands; two ``turn``s keep two rounds apart."""
        if (bucket, turn) not in self.pieces:
            engine = self.engine
            landing = torch.zeros(self.record_size(), dtype=torch.long)
            if engine.device.type == "cuda":
                landing = landing.pin_memory()
            steps = self.steps(bucket, landing)
            if not engine.capture:
                self.pieces[bucket, turn] = Piece(steps, engine.device), landing
            else:
                length, anchor = engine.length.clone(), engine.anchor.clone()

                def undo() -> None:
                    engine.length.copy_(length)
                    engine.anchor.copy_(anchor)

                self.pieces[bucket, turn] = CapturedPiece(steps, engine.device, engine.pool, undo), landing
        return self.pieces[bucket, turn]


class Draft(Program):
    """The drafter's pass: z, base logits without NaN, and the root's GRU state where the method reads it."""

    def __init__(self, engine: Engine, drafter: Drafter, which: str, rooted: bool) -> None:
        super().__init__(engine)
        self.drafter = drafter
        self.forward = engine.forward(which, drafter, 1)
        self.context = engine.contexts[drafter.config.kind]
        self.head = drafter.head if rooted else None
        self.z: Tensor | None = None
        self.base_logits: Tensor | None = None
        self.repaired = torch.zeros(1, dtype=torch.int32, device=engine.device)
        self.root: Tensor | None = None
        if self.head is not None:
            self.root = torch.zeros(1, self.head.w_hh.shape[1], device=engine.device)

    def steps(self, bucket: int, landing: Tensor) -> list[Step]:
        engine = self.engine

        def draft() -> None:
            _, base_logits = self.drafted(bucket)
            self.repaired.copy_(repair(base_logits))
            if self.head is not None and self.root is not None:
                embedding = F.embedding(engine.anchor, engine.target.embedding)
                self.root.copy_(self.head.advance(None, embedding))

        return [("draft", draft)]

    def drafted(self, bucket: int) -> tuple[Tensor, Tensor]:
        """Launch the backbone and the LM head alone: z [D, h], base logits float32 [D, V]."""
        engine = self.engine
        self.z, self.base_logits = self.forward.draft(engine.anchor, engine.length, self.context, bucket)
        return self.z, self.base_logits

    def block(self, anchor: int) -> DraftBlock:
        """What was drafted, in the buffers themselves: to be used before the next draft."""
        assert self.z is not None and self.base_logits is not None
        return DraftBlock(self.z, self.base_logits, anchor)


class Verify(Program):
    """Verify, choose, walk, commit, extend and record for trees of up to ``rows`` − 1 nodes and ``levels`` levels."""

    def __init__(
        self, engine: Engine, drafter: Drafter | None, which: str, rows: int, levels: int, sampled: bool,
        repaired: Tensor | None = None, forced: int | None = None, source: Any = None,
    ) -> None:  # fmt: skip
        """``source``: a device builder's larger tree, to be copied from before every verify."""
        super().__init__(engine)
        self.source = source
        self.forward = engine.forward(which, drafter, rows)
        self.context = engine.contexts[drafter.config.kind] if drafter else None
        self.tree = DeviceTree(rows, engine.device)
        if rows == 1:
            self.tree.follow_anchor(engine.anchor, engine.length)
        self.rows, self.levels, self.sampled, self.forced = rows, levels, sampled, forced
        self.longest = min(levels, rows - 1) + 1
        self.repaired = engine.no if repaired is None else repaired
        self.accept: Accept | None = None
        if engine.kernels and rows <= MOST_ROWS:
            vocab = engine.target.vocab_size
            self.accept = Accept(rows, vocab, self.longest, sampled, engine.device, forced)
        self.logits: Tensor | None = None
        self.features: Tensor | None = None

    def record_size(self) -> int:
        return len(HEAD) + 4 * self.longest

    def steps(self, bucket: int, landing: Tensor) -> list[Step]:
        engine, tree = self.engine, self.tree
        assert engine.cache is not None
        cache = engine.cache

        def build() -> None:
            if self.source is not None:
                tree.take(self.source)
            else:
                tree.assemble(engine.anchor, engine.length)

        def verify() -> None:
            self.logits, self.features = self.forward.verify(
                tree.ids, tree.positions, tree.mask, engine.length, cache, bucket
            )

        def commit() -> None:
            if self.accept is None:
                return commit_in_torch()
            assert self.logits is not None and self.features is not None
            rows = self.accept.walk(self.logits, tree, engine, self.repaired, landing)
            self.forward.commit(cache, rows, engine.length)
            if self.context is not None:
                self.forward.extend(self.features, rows, engine.length, self.context)
            return self.accept.advance(engine)

        def commit_in_torch() -> None:
            assert self.logits is not None and self.features is not None
            choices = choose_rows(
                self.logits, tree.row_depth, self.longest - 1, engine.length, engine.seed,
                engine.temperature if self.sampled else None,
            )  # fmt: skip
            if self.forced is not None:
                force_path(choices.token, tree, self.forced)
            walked = walk_rows(
                choices.token, tree.ids, tree.parent, tree.row_depth, tree.mask, tree.nodes, engine.stop_ids, self.longest
            )  # fmt: skip
            self.forward.commit(cache, walked.rows, engine.length)
            if self.context is not None:
                self.forward.extend(self.features, walked.rows, engine.length, self.context)
            deepest = tree.row_depth.amax(0, keepdim=True)
            record = pack(engine.length, engine.anchor, tree.nodes, deepest, self.repaired, walked, choices)
            landing.copy_(record, non_blocking=True)
            engine.length.add_(walked.count)
            engine.anchor.copy_(walked.bonus.clamp(max=engine.target.vocab_size - 1))

        return [("build", build), ("verify", verify), ("commit", commit)]


class Whole(Program):
    """A whole round as one piece: a draft, a builder on the device, a verify."""

    def __init__(self, draft: Draft, verify: Verify) -> None:
        super().__init__(verify.engine)
        self.draft, self.verify = draft, verify

    def build(self, z: Tensor, base_logits: Tensor, root: Tensor | None) -> None:
        """Fill ``verify.tree`` from what was drafted."""
        raise NotImplementedError

    def record_size(self) -> int:
        return self.verify.record_size()

    def steps(self, bucket: int, landing: Tensor) -> list[Step]:
        draft, (assemble, *rest) = self.draft, self.verify.steps(bucket, landing)

        def build() -> None:
            assert draft.z is not None and draft.base_logits is not None
            self.build(draft.z, draft.base_logits, draft.root)
            assemble[1]()

        return [*draft.steps(bucket, landing), ("build", build), *rest]


class ChainRound(Whole):
    """The whole round of a chain method; ``head`` None: base logits only."""

    def __init__(self, draft: Draft, verify: Verify, head: CorrectionHead | None) -> None:
        super().__init__(draft, verify)
        table = verify.engine.target.embedding
        self.build = ChainBuilder(verify.tree, draft.drafter.levels, head, table).build  # type: ignore[method-assign]


class FusedRound(Whole):
    """The whole round of a tree method under the fused builder."""

    def __init__(self, draft: Draft, verify: Verify, builder: FusedBuilder) -> None:
        super().__init__(draft, verify)
        self.builder = builder
        verify.tree.follow(builder.tree)
        verify.repaired = builder.tree.nan

    def steps(self, bucket: int, landing: Tensor) -> list[Step]:
        engine = self.engine

        def build() -> None:
            launch_fused(self.draft, self.builder)
            if self.verify.accept is None:  # the kernels read depths off the positions
                self.verify.tree.assemble(engine.anchor, engine.length)

        draft: Step = ("draft", lambda: draft_for_fused(self.draft, self.builder, bucket))
        return [draft, ("build", build), *self.verify.steps(bucket, landing)[1:]]


class FusedDraft(Program):
    """Draft and fused build as one piece, for a verify whose size the host picks: the node count is the record."""

    def __init__(self, draft: Draft, builder: FusedBuilder) -> None:
        super().__init__(draft.engine)
        self.draft, self.builder = draft, builder

    def record_size(self) -> int:
        return 1

    def steps(self, bucket: int, landing: Tensor) -> list[Step]:
        def build() -> None:
            launch_fused(self.draft, self.builder)
            landing.copy_(self.builder.tree.count.long(), non_blocking=True)

        return [("draft", lambda: draft_for_fused(self.draft, self.builder, bucket)), ("build", build)]

    def set_costs(self, draft_ms: float, verify_ms: Sequence[float]) -> None:
        """The cost table of the coming build: C_draft, then C_verify of 0 … budget nodes."""
        costs = self.builder.costs
        assert costs is not None
        costs.copy_(torch.tensor([draft_ms, *verify_ms[: len(costs) - 1]], dtype=torch.float64))


def draft_for_fused(draft: Draft, builder: FusedBuilder, bucket: int) -> None:
    """The draft stage under the fused builder, which mends NaN itself and keeps the root's state."""
    draft.drafted(bucket)
    if draft.head is not None:
        builder.read_anchor(draft.engine.anchor)


def launch_fused(draft: Draft, builder: FusedBuilder) -> None:
    """The build itself."""
    assert draft.base_logits is not None
    z = draft.z if draft.head is not None else None
    builder.build(z, draft.base_logits, draft.engine.anchor, draft.engine.length)


def repair(base_logits: Tensor) -> Tensor:
    """``DraftBlock.repair`` without a host: NaN becomes -inf, a row without a finite entry uniform; int64 [1], 1 = any."""
    wrong = base_logits.isnan()
    row = wrong.any(-1, keepdim=True)
    base_logits.masked_fill_(wrong, float("-inf"))
    base_logits.masked_fill_(row & ~base_logits.isfinite().any(-1, keepdim=True), 0.0)
    return row.any().view(1).long()


@dataclass
class Launched:
    """A round under way: its pieces in order, where its record lands, what was known when it was launched."""

    pieces: list[Piece]
    landing: Tensor
    done: Any
    verify: Verify
    draft: Draft | None
    flags: list[str]
    tree: DraftTree | None = None  # built on the host
    shape: tuple[int, int] = (0, 0)  # levels, budget

    def wait(self) -> RoundRecord:
        if self.done is not None:
            self.done.synchronize()
        return unpack(self.landing)

    def times(self) -> dict[str, float]:
        """Milliseconds by stage; what the host does between two pieces is building."""
        total = dict.fromkeys(("draft", "build", "verify", "commit"), 0.0)
        for piece in self.pieces:
            for name, ms in piece.milliseconds():
                total[name] += ms
        for before, after in zip(self.pieces, self.pieces[1:], strict=False):
            total["build"] += elapsed(before.stamps[-1], after.stamps[0])
        return total


class StaticRun:
    """One Run on the static engine. ``ahead``: launch the next round before the record of the last one is read."""

    def __init__(self, run: Run, spare: int, ahead: bool = True) -> None:
        self.run, self.plan = run, run.plan
        self.engine = engine = Engine.of(run.pair, run.plan.graph)
        drafter = run.drafter
        self.rows = run._largest_tree()
        block = drafter.config.block_size if drafter else 0
        self.reach = max(
            self.rows, block, (drafter.levels if drafter else 0) + 1
        )  # rows behind the length in a round
        self.cache = engine.reserve(run.cache_rows + spare + 3 * self.reach)
        self.context = engine.context(drafter) if drafter else None
        self.ahead = ahead and engine.capture and not run.record and not run.method.adaptive
        self.next: Launched | None = None
        self.turn = 0
        self.host_builder: Any = None

    def begin(self, context: KVCache | None) -> Callable[[], Round]:
        """Set the device's state to the run's first anchor; returns the function that makes the next round.

        ``context`` None: drafting is off from the start.
        """
        run, engine = self.run, self.engine
        if context is None:
            self.context = None
        engine.length.fill_(self.cache.length)
        engine.anchor.fill_(run.output[-1])
        engine.seed.fill_(run.chooser.seed)
        engine.temperature.fill_(run.chooser.temperature)
        return self.round

    def close(self) -> None:
        """Let a round that was launched ahead end before anybody else uses the buffers."""
        if self.next is not None and self.next.done is not None:
            self.next.done.synchronize()
        self.next = None

    @torch.inference_mode()
    def round(self) -> Round:
        run = self.run
        position = self.cache.length
        launched = self.next or self._launch(position)
        self.next = self._launch_ahead(position)
        record = launched.wait()
        return self._round(launched, record, launched.times(), run.output[-1], position)

    # -- launching -------------------------------------------------------------------------------------------

    def _drafting(self, position: int) -> bool:
        drafter = self.run.drafter
        if drafter is None or self.context is None:
            return False
        return position + drafter.config.block_size <= drafter.context_limit

    def _shrunk(self, position: int) -> bool:
        """Whether the tree must be smaller or shallower than the method's, near the end of a cache or context."""
        run, drafter = self.run, self.run.drafter
        room = run.cache_rows - position - 1
        return drafter is not None and (run._levels(position) < drafter.levels or room < self.rows - 1)

    def _launch_ahead(self, position: int) -> Launched | None:
        """The round after the one from ``position``, if it needs nothing that the host does not know yet."""
        run = self.run
        furthest = position + self.reach
        drafting = self._drafting(position)
        if not self.ahead or len(run.output) + 1 >= run._output_limit():
            return None
        if drafting and (self.plan.host_built or self._shrunk(furthest) or not self._drafting(furthest)):
            return None
        return self._launch(furthest)

    def _launch(self, position: int) -> Launched:
        """Launch a round from ``position`` (or from somewhere before it, when it is launched ahead)."""
        run, plan = self.run, self.plan
        bucket, self.turn = bucket_for(position + self.reach), 1 - self.turn
        flags: list[str] = []
        if not self._drafting(position):
            if run.drafter is not None:
                flags.append("drafting-off")
            plain = self._verify(None)
            return self._launched([plain.piece(bucket, self.turn)], plain, None, flags)
        drafter = run.drafter
        assert drafter is not None
        draft = self._draft(drafter)
        shrunk = self._shrunk(position)
        if shrunk:
            flags.append("tree-shrunk")
        if plan.host_built or shrunk:
            if not plan.host_built:
                flags.append("host-built")
            return self._launch_host_built(draft, bucket, position, flags)
        if run.method.adaptive:
            return self._launch_sized(draft, position, flags)
        whole = self._whole(draft)
        return self._launched([whole.piece(bucket, self.turn)], whole.verify, draft, flags)

    def _launched(
        self, pieces: list[tuple[Piece, Tensor]], verify: Verify, draft: Draft | None, flags: list[str]
    ) -> Launched:
        for piece, _ in pieces:
            piece.launch()
        return self._note([p for p, _ in pieces], pieces[-1][1], verify, draft, flags)

    def _note(
        self, pieces: list[Piece], landing: Tensor, verify: Verify, draft: Draft | None, flags: list[str]
    ) -> Launched:
        done = None
        if self.engine.device.type == "cuda":
            done = torch.cuda.Event()
            done.record()
        return Launched(pieces, landing, done, verify, draft, flags)

    def _launch_host_built(self, draft: Draft, bucket: int, position: int, flags: list[str]) -> Launched:
        """Draft, build on the host, verify: two pieces. The trees may be smaller than the method's."""
        run = self.run
        front, _ = draft.piece(bucket, 0)
        front.launch()
        block = draft.block(run.output[-1])
        room = run.cache_rows - position - 1
        levels, budget = run._levels(position), min(run.settings.budget, room)
        if self.plan.builder == "graph":
            tree = self._graph_builder().build(block, draft.root, levels, budget)
        else:
            tree, _ = run._build(block, draft.root, levels, budget, room, position)
        verify = self._verify(draft, self._rows_for(len(tree)))
        if self._made(verify, bucket):
            return self._launch_host_built(draft, bucket, position, flags)
        flags += self._other_forward(verify)
        verify.tree.load(tree)
        back, landing = verify.piece(bucket, 0)
        back.launch()
        launched = self._note([front, back], landing, verify, draft, flags)
        launched.tree, launched.shape = tree, (levels, budget)
        return launched

    def _launch_sized(self, draft: Draft, position: int, flags: list[str]) -> Launched:
        """Draft and build on the device, let the host read how many nodes there are, verify at that size.

        Buckets hold what these nodes need, not what the cap would.
        """
        run = self.run
        assert run.costs is not None and run.drafter is not None
        least = max(run.drafter.config.block_size, run.drafter.levels + 1)
        fused = self._fused_draft(draft)
        costs = run.costs.round(run.drafter.config.kind, run.settings.budget, position)
        fused.set_costs(costs.draft, costs.verify)
        front, count = fused.piece(bucket_for(position + least), 0)
        front.launch()
        if self.engine.device.type == "cuda":  # from here to the launch below the device waits for the host
            torch.cuda.current_stream(self.engine.device).synchronize()
        rows = self._rows_for(int(count))
        bucket = bucket_for(position + max(rows, least))
        verify = self._verify(draft, rows, ("sized", fused.number), source=fused.builder.tree)
        if self._made(verify, bucket):
            return self._launch_sized(draft, position, flags)
        flags += self._other_forward(verify)
        back, landing = verify.piece(bucket, 0)
        back.launch()
        return self._note([front, back], landing, verify, draft, flags)

    def _made(self, verify: Verify, bucket: int) -> bool:
        """Make the verify's graph where it is missing. The round then begins anew: drafting and building again change
        nothing, and what making it took does not count as building."""
        if not self.engine.capture or (bucket, 0) in verify.pieces:
            return False
        verify.piece(bucket, 0)
        return True

    def _other_forward(self, verify: Verify) -> list[str]:
        """The flag of a round whose verify is too large for the forward that the plan names."""
        return [] if verify.forward.name == self.plan.forward else ["static-forward"]

    def _rows_for(self, nodes: int) -> int:
        """Verify rows for a host-built tree: the method's, or a power of two where its size changes by the round."""
        if not self.run.method.adaptive:
            return self.rows
        size = 1
        while size < nodes:
            size *= 2
        return min(size + 1, self.rows)

    # -- programs --------------------------------------------------------------------------------------------

    def _draft(self, drafter: Drafter) -> Draft:
        rooted = self.run.method.scorer != "marginal"
        key = ("draft", drafter.config.kind, self.plan.forward, rooted)
        made = self.engine.program(key, lambda: Draft(self.engine, drafter, self.plan.forward, rooted))
        assert isinstance(made, Draft)
        return made

    def _verify(
        self, draft: Draft | None, rows: int | None = None, owner: tuple[Any, ...] = (), source: Any = None
    ) -> Verify:
        """A verify behind a draft, or of the anchor alone. ``owner``: the method whose tree buffers it holds."""
        run, engine, plan = self.run, self.engine, self.plan
        rows = 1 if draft is None else rows or self.rows
        levels = draft.drafter.levels if draft else 0
        kind = draft.drafter.config.kind if draft else None
        sampled, forced = run.chooser.temperature > 0, run.forced
        rooted = draft is not None and draft.head is not None
        which = "static" if run.method.adaptive and rows > LARGEST_SIZED else plan.forward
        made_by = draft.number if draft else None
        key = ("verify", kind, rooted, which, rows, levels, sampled, forced, made_by, owner)

        def make() -> Verify:
            drafter, repaired = (draft.drafter, draft.repaired) if draft else (None, None)
            if source is not None:
                repaired = source.nan
            return Verify(engine, drafter, which, rows, levels, sampled, repaired, forced, source)

        made = engine.program(key, make)
        assert isinstance(made, Verify)
        return made

    def _whole(self, draft: Draft) -> Whole:
        """The round of a method whose builder runs on the device."""
        engine, owner = self.engine, self._owner()
        verify = self._verify(draft, owner=owner)

        def make() -> Whole:
            if self.plan.builder == "fused":
                return FusedRound(draft, verify, self._fused_builder(draft.drafter))
            return ChainRound(draft, verify, draft.head)

        made = engine.program(("whole", verify.number, draft.number), make)
        assert isinstance(made, Whole)
        return made

    def _owner(self) -> tuple[Any, ...]:
        """What a builder's tree buffers depend on."""
        run, s = self.run, self.run.settings
        owner: tuple[Any, ...] = (run.method.kind, run.method.scorer, run.method.rule, self.plan.builder)
        if run.method.kind == "tree":
            owner += (s.budget, s.top_m, s.children_per_node, s.full_row)
        if run.calibration is not None:
            owner += (run.calibration.x, run.calibration.y)
        return owner

    def _fused_builder(self, drafter: Drafter) -> FusedBuilder:
        from dominotree.gpu.fused import FusedBuilder

        run, s, target = self.run, self.run.settings, self.engine.target
        builder = FusedBuilder(
            scorer=run.method.scorer or "", kind=run.method.kind, levels=drafter.levels, vocab=target.vocab_size,
            budget=s.budget, children=s.children_per_node, top_m=s.top_m,
            head=drafter.head if run.method.scorer != "marginal" else None, embedding=target.embedding,
            precision=plan_precision(target.dtype), adaptive=run.method.adaptive, z_dtype=drafter.fc.dtype,
            device=self.engine.device,
        )  # fmt: skip
        if run.calibration is not None:
            knots = [run.calibration.x, run.calibration.y]
            builder.calibration = torch.tensor(knots, dtype=torch.float64, device=self.engine.device)
        return builder

    def _fused_draft(self, draft: Draft) -> FusedDraft:
        key = ("fused-draft", draft.number, *self._owner())
        made = self.engine.program(key, lambda: FusedDraft(draft, self._fused_builder(draft.drafter)))
        assert isinstance(made, FusedDraft)
        return made

    def _graph_builder(self) -> Any:
        if self.host_builder is None:
            from dominotree.gpu.graph_builder import GraphBuilder

            run, s = self.run, self.run.settings
            assert run.drafter is not None and run.drafter.head is not None
            builders = self.engine.__dict__.setdefault("graph_builders", {})
            key = (s.budget, s.children_per_node, s.top_m, s.full_row)
            if key not in builders:
                builders[key] = GraphBuilder(
                    run.drafter.head, self.engine.target.embedding, run.drafter.levels, *key,
                    dtype=run.drafter.fc.dtype,
                )  # fmt: skip
            self.host_builder = builders[key]
        return self.host_builder

    # -- the round as the host sees it -----------------------------------------------------------------------

    def _round(
        self, launched: Launched, record: RoundRecord, times: dict[str, float], anchor: int, position: int
    ) -> Round:
        run = self.run
        if (record.position, record.anchor) != (position, anchor):
            raise EngineError(
                f"the device is at position {record.position} with token {record.anchor}, the host at {position} with "
                f"{anchor}; this is a fault of the captured engine."
            )
        if max(record.chosen) >= run.pair.target.vocab_size:
            raise EngineError(f"the target's scores at position {position + len(record.rows)} hold NaN.")
        flags = (["nan-draft"] if record.repaired else []) + launched.flags
        self.cache.length = position + len(record.rows)
        if self.context is not None and launched.draft is not None:
            self.context.length = self.cache.length
        for step, (token, other, gap) in enumerate(
            zip(record.chosen, record.runner_up, record.gap, strict=True)
        ):
            if gap < NEAR_TIE:
                run.chooser.near_ties.append(NearTie(position + step + 1, token, other, gap))
        path = [row - 1 for row in record.rows[1:]]
        rnd = Round(
            index=len(run.trace.rounds) + 1, anchor=anchor, position=position, nodes=Nodes(), path=path,
            bonus=record.chosen[-1], committed=record.chosen, kept=run._take(record.chosen),
            depth_reached=record.deepest, verified_nodes=record.nodes, times_ms=times, flags=flags,
        )  # fmt: skip
        if run.record:
            self._record(rnd, launched, record)
        return run._close(rnd)

    def _record(self, rnd: Round, launched: Launched, record: RoundRecord) -> None:
        """The recorder's work on copies of the static buffers, after the timed path; the next launch is still to come."""
        run, verify = self.run, launched.verify
        assert verify.logits is not None
        logits = verify.logits.clone()
        tree = launched.tree or verify.tree.read()
        block = None
        if launched.draft is not None:
            drafted = launched.draft.block(rnd.anchor)
            block = DraftBlock(drafted.z.clone(), drafted.base_logits.clone(), rnd.anchor)
        room = run.cache_rows - rnd.position - 1
        budget = min(run.settings.budget, room)
        run._record(rnd, block, None, tree, logits, self.cache, run._levels(rnd.position), budget)
        walked = Walk(rnd.path, rnd.bonus, list(zip(record.rows, record.chosen, strict=True)))
        rnd.visits = rec.visits(walked, logits)
