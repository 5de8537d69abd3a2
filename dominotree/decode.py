"""The round loop: draft -> build -> verify -> commit. ``Run`` is an iterator of Rounds around a growing Trace."""

from __future__ import annotations

import datetime
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import dominotree
from dominotree import calibration, cost, profile
from dominotree import record as rec
from dominotree.builders.adaptive import grow
from dominotree.builders.reference import best_first, chain
from dominotree.checkpoints import Pair
from dominotree.drafter import DraftBlock
from dominotree.errors import EngineBusyError, PromptError, SettingsError
from dominotree.gpu.plan import BUILDERS, ENGINES, FORWARDS, plan, precision
from dominotree.methods import CALIBRATED, METHODS, Method
from dominotree.model import KVCache
from dominotree.pops import record_pops
from dominotree.sampling import Chooser
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, Scorer, StaticScorer
from dominotree.timing import StageClock
from dominotree.trace import Nodes, Round, Trace, finish
from dominotree.tree import DraftTree, walk

if TYPE_CHECKING:
    from dominotree.gpu.rounds import StaticRun

MAX_BUDGET = 1024
LOW_TAU, LOW_TAU_ROUNDS = 1.2, 20


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do. Raises SettingsError (a ValueError) with one sentence that names the value.

    ``budget``: tree nodes besides the root, for cost-aware methods the most of them; left out, the method's own. ``top_m`` None means the full vocabulary; ``children`` None the method's default; ``seed`` None a fresh random
    seed; ``full_row`` normalises corrected levels over the whole vocabulary instead of the M candidates.
    ``engine``, ``builder``, ``forward``: what decodes, see ``gpu/plan.py``; "auto" takes the best that works here.
    """

    method: str = "dominotree"
    budget: int = None  # type: ignore[assignment]  # left out: filled in below
    top_m: int | None = 64
    children: int | None = None
    temperature: float = 0.0
    seed: int | None = 0
    max_new_tokens: int = 128
    full_row: bool = False
    engine: str = "auto"
    builder: str = "auto"
    forward: str = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise SettingsError(f"unknown method {self.method!r}; choose one of {', '.join(METHODS)}.")
        if self.budget is None:
            object.__setattr__(self, "budget", self.spec.budget)
        _whole("budget", self.budget, 1, MAX_BUDGET)
        if self.top_m is not None:
            _whole("top_m", self.top_m, 1, 1_000_000)
        if self.children is not None:
            _whole("children", self.children, 1, MAX_BUDGET)
        if self.seed is not None:
            _whole("seed", self.seed, 0, 2**63 - 1)
        _whole("max_new_tokens", self.max_new_tokens, 0, 1_000_000)
        for name, value, known in (
            ("engine", self.engine, ENGINES),
            ("builder", self.builder, BUILDERS),
            ("forward", self.forward, FORWARDS),
        ):
            if value not in known:
                raise SettingsError(f"unknown {name} {value!r}; choose one of {', '.join(known)}.")
        t = self.temperature
        if isinstance(t, bool) or not isinstance(t, int | float):
            raise SettingsError(f"temperature must be a number, not {t!r}.")
        try:
            Chooser(float(t), 0)
        except OverflowError:
            raise SettingsError("temperature is too large a number; use 0 for greedy decoding.") from None

    @property
    def spec(self) -> Method:
        return METHODS[self.method]

    @property
    def children_per_node(self) -> int:
        """Children offered to the heap per expanded node; never more than could enter the tree."""
        default = self.spec.children if self.spec.children is not None else self.budget
        return min(self.children if self.children is not None else default, self.budget)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SettingsError(f"{name} must be a whole number from {low} to {high}, not {value!r}.")


def machine_name(device: torch.device) -> str:
    """A short description of what the run ran on: GPU name, or processor and cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            cpu = next((ln.split(":", 1)[1].strip() for ln in lines if ln.startswith("model name")), cpu)
    except OSError:
        pass  # not Linux: the platform's own name stands
    return f"{cpu}, {torch.get_num_threads()} of {os.cpu_count()} CPU threads"


class Run:
    """One request. Iterate to decode; ``trace`` grows with every round and is complete afterwards.

    ``prompt`` goes through the chat template; ``prompt_ids`` are taken as they are. ``record`` fills the rounds with
    the other scorers' trees and the target's scores and, with ``pops``, the build pop by pop, outside the timed
    windows. ``cancel``: set it to stop within
    one round. ``cache_rows`` bounds the target's KV rows (default: what the request needs); trees shrink to fit.
    ``costs``: the cost profile of a cost-aware method (default: the pair's, the stored one, else a quick measurement).
    Raises PromptError, SettingsError or PairError before anything is computed.
    """

    def __init__(
        self,
        pair: Pair,
        prompt: str | None = None,
        settings: Settings | None = None,
        *,
        prompt_ids: list[int] | None = None,
        record: bool = True,
        pops: bool = True,
        cancel: threading.Event | None = None,
        cache_rows: int | None = None,
        costs: cost.CostModel | None = None,
        title: str = "",
        kind: str | None = None,
    ) -> None:
        self.pair = pair
        self.settings = settings or Settings()
        if self.settings.seed is None:
            self.settings = replace(self.settings, seed=secrets.randbelow(2**63))
        self.method = self.settings.spec
        self.record, self.pops = record, pops
        self.cancel = cancel or threading.Event()
        self.prompt_ids = self._prompt(prompt, prompt_ids)
        limit = pair.target.context_limit
        if len(self.prompt_ids) >= limit:
            raise PromptError(
                f"the prompt has {len(self.prompt_ids)} tokens, but the target's context holds {limit} with at least "
                "one new token; shorten the prompt."
            )
        self.drafter, self.drafter_label = pair.drafter_for(self.method)
        self.plan = plan(self.settings, pair.target, self.drafter)
        self.costs, self.calibration = self._stop_rule(costs)
        if cache_rows is not None and cache_rows <= len(self.prompt_ids):
            raise SettingsError(
                f"cache_rows {cache_rows} cannot hold the {len(self.prompt_ids)} tokens of the prompt."
            )
        rows = min(len(self.prompt_ids) + self.settings.max_new_tokens, limit) + self._largest_tree()
        self.cache_rows = rows if cache_rows is None else cache_rows
        self.chooser = Chooser(float(self.settings.temperature), self.settings.seed or 0)
        self.stop_ids = pair.tokenizer.stop_ids
        self.output: list[int] = []
        self.forced: int | None = None  # measurements on the static engine: drafts to accept each round
        self.trace = Trace(
            header=self._header(title),
            prompt={"text": prompt if prompt is not None else pair.tokenizer.decode(self.prompt_ids),
                    "token_ids": self.prompt_ids, "kind": kind},
        )  # fmt: skip
        self._name_tokens(self.prompt_ids)

    # -- set-up ----------------------------------------------------------------------------------------------

    def _prompt(self, prompt: str | None, prompt_ids: list[int] | None) -> list[int]:
        if (prompt is None) == (prompt_ids is None):
            raise PromptError("give either a prompt text or prompt token ids.")
        if prompt is not None:
            if not prompt.strip():
                raise PromptError(f"the prompt is empty ({prompt!r}); type at least one word.")
            try:
                prompt.encode()
            except UnicodeEncodeError as error:
                raise PromptError(
                    f"the prompt holds half a character at place {error.start}; type it again."
                ) from error
            return self.pair.tokenizer.encode_chat(prompt)
        assert prompt_ids is not None
        vocab = self.pair.target.vocab_size
        bad = [i for i in prompt_ids if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < vocab]
        if not prompt_ids or bad:
            raise PromptError(
                f"prompt token ids must be a non-empty list of ids from 0 to {vocab - 1}; found {bad or 'none'}."
            )
        return list(prompt_ids)

    def _stop_rule(
        self, costs: cost.CostModel | None
    ) -> tuple[cost.CostModel | None, calibration.Calibration | None]:
        """Costs and calibration of a cost-aware method; costs None: to be measured before the first round."""
        pair, found = self.pair, None
        if not self.method.adaptive:
            return None, None
        if self.method.rule == CALIBRATED:
            found = pair.calibration or calibration.find(pair.info.get("target"), pair.info.get("drafter"))
        engine = profile.engine_name(self.plan)
        return costs or pair.costs or cost.stored(profile.identity(pair, engine)), found

    def _measure_costs(self) -> None:
        """A quick profile for a run that has none, kept for the next one."""
        s = self.settings
        forward = "auto" if s.forward == "kernels" else s.forward  # the largest trees have none of their own
        self.costs = profile.quick(self.pair, {"engine": s.engine, "forward": forward})
        self.trace.header["cost_profile"] = self.costs.summary()
        try:
            self.costs.save(cost.profile_path(self.costs.about))
        except OSError as error:
            self.trace.summary.setdefault("warnings", []).append(
                f"the quick cost profile could not be kept for later runs ({error})"
            )

    def _largest_tree(self) -> int:
        """Rows of the largest verify, anchor included."""
        if self.drafter is None:
            return 1
        return 1 + (self.drafter.levels if self.method.kind == "chain" else self.settings.budget)

    def _header(self, title: str) -> dict[str, Any]:
        s, target = self.settings, self.pair.target
        return {
            "title": title,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine_name(target.device),
            "versions": {"dominotree": dominotree.__version__, "torch": str(torch.__version__), "python": platform.python_version()},
            "pair": self.pair.info,
            "settings": {
                **asdict(s), "scorer": self.method.scorer, "kind": self.method.kind, "rule": self.method.rule if self.method.kind == "tree" else None,
                "engine": self.plan.engine, "builder": self.plan.builder, "forward": self.plan.forward,
                "graph": "yes" if self.plan.graph else "no", **({"products": precision(target.dtype)} if self.plan.builder == "fused" else {}),
                "children": s.children_per_node if self.method.kind == "tree" else None,
                "normalisation": "whole vocabulary" if s.full_row else "top-M candidates (level 0: whole vocabulary)",
            },
            "drafter_label": self.drafter_label,
            **({"cost_profile": self.costs.summary()} if self.costs else {}),
            **({"calibration": self.calibration.summary()} if self.calibration else {}),
            "ar_tokens_per_second": self.pair.ar_tokens_per_second,
            "record": "full" if self.record else "rounds",
            "timing_note": "recording runs outside the timed windows; rounds keep their real stage times",
        }  # fmt: skip

    # -- decoding --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Round]:
        if self.trace.summary or self.output:
            raise RuntimeError("a Run decodes once; make a new one to decode again")
        if self.method.adaptive and self.costs is None and self.settings.max_new_tokens > 0:
            self._measure_costs()
        with self._engine():
            try:
                yield from self._rounds()
            except GeneratorExit:
                self._finish("cancelled")
                raise
            except Exception:
                self._finish("error")
                raise

    @contextmanager
    def _engine(self) -> Iterator[None]:
        """The pair for this run alone; waits for a run of another thread, refuses where waiting would never end."""
        pair = self.pair
        if not pair.lock.acquire(blocking=False):
            if pair.holder == threading.get_ident():
                raise EngineBusyError(
                    "another run of this pair is still open in this thread; iterate it to its end or close() its "
                    "iterator first."
                )
            pair.lock.acquire()
        pair.holder = threading.get_ident()
        try:
            yield
        finally:
            pair.holder = None
            pair.lock.release()

    def _rounds(self) -> Iterator[Round]:
        target, s = self.pair.target, self.settings
        if s.max_new_tokens == 0:
            return self._finish("max-new-tokens")
        spare = 3 * self._largest_tree() if self.record else 0
        static = None if self.plan.engine == "eager" else self._static_run(spare)
        cache = static.cache if static else target.new_cache(self.cache_rows + spare)
        started = time.perf_counter_ns()
        prefilled = target.prefill(
            torch.tensor(self.prompt_ids, device=target.device), cache, self.cancel.is_set
        )
        if prefilled is None:
            return self._finish("cancelled")
        context = self._new_context(prefilled.features, static.context if static else None)
        first = self.chooser.choose(prefilled.logits[0], len(self.prompt_ids))
        self.trace.summary["prefill_ms"] = (time.perf_counter_ns() - started) / 1e6
        self.trace.first_token = first
        self._name_tokens([first])
        self._take([first])
        one_round = static.begin(context) if static else lambda: self._round(cache, context)
        try:
            while (reason := self._stop_reason()) is None:
                if self.cancel.is_set():
                    reason = "cancelled"
                    break
                yield one_round()
        finally:
            if static:
                static.close()
        self._finish(reason)
        return None

    def _static_run(self, spare: int) -> StaticRun:
        """The pair's captured engine, made ready for this run."""
        from dominotree.gpu.rounds import StaticRun

        return StaticRun(self, spare)

    def _new_context(self, features: Tensor, static: KVCache | None = None) -> KVCache | None:
        """The drafter's context K/V over the prompt (``static``: the captured engine's); None when drafting is off
        from the start (fault E41)."""
        if self.drafter is None:
            return None
        room = min(self.cache_rows, self.drafter.context_limit)
        if len(features) + self.drafter.config.block_size > self.drafter.context_limit:
            return None
        context = static or self.drafter.new_context(room)
        self.drafter.extend(context, features)
        return context

    @torch.inference_mode()
    def _round(self, cache: KVCache, context: KVCache | None) -> Round:
        """One round from the anchor ``self.output[-1]``, whose target row is not computed yet."""
        target, s = self.pair.target, self.settings
        anchor, position = self.output[-1], cache.length
        clock, flags = StageClock(target.device), []
        embed = self._embed
        block: DraftBlock | None = None
        found: Candidates | None = None
        tree = DraftTree()
        room = self.cache_rows - position - 1  # rows behind the anchor
        levels, budget = self._levels(position), min(s.budget, room)

        drafting = self.drafter is not None and context is not None and context.length == position
        if drafting and position + self.drafter.config.block_size > self.drafter.context_limit:  # type: ignore[union-attr]
            drafting = False
        if self.drafter is not None and not drafting:
            flags.append("drafting-off")
        if drafting and self.drafter is not None and context is not None:
            head = self.drafter.head
            with clock.stage("draft"):
                block = self.drafter.draft(context, anchor)
                if block.repair():
                    flags.append("nan-draft")
                root = (
                    head.advance(None, embed([anchor]))
                    if head is not None and self.method.scorer != "marginal"
                    else None
                )
            if levels < block.levels or room < self._largest_tree() - 1:
                flags.append("tree-shrunk")
            with clock.stage("build"):
                tree, found = self._build(block, root, levels, budget, room, position)
        with clock.stage("build"):
            rows = torch.tensor(tree.rows(anchor), device=target.device)
            positions = torch.tensor(tree.positions(position), device=target.device)
            mask = tree.mask().to(target.device)
        with clock.stage("verify"):
            verified = target.verify(rows, positions, mask, cache)
        with clock.stage("commit"):
            walked = walk(
                tree,
                lambda row, depth: self.chooser.choose(verified.logits[row], position + depth + 1),
                self.stop_ids,
            )
            cache.commit(walked.rows)
            if drafting and self.drafter is not None and context is not None:
                self.drafter.extend(context, verified.features[walked.rows])
        committed = [tree.token[i] for i in walked.path] + [walked.bonus]
        rnd = Round(
            index=len(self.trace.rounds) + 1, anchor=anchor, position=position, nodes=Nodes(), path=walked.path,
            bonus=walked.bonus, committed=committed, kept=self._take(committed),
            depth_reached=max(tree.depth, default=0), verified_nodes=len(tree), times_ms=clock.read(), flags=flags,
        )  # fmt: skip
        if self.record:
            self._record(rnd, block, found, tree, verified.logits, cache, levels, budget)
            rnd.visits = rec.visits(walked, verified.logits)
        return self._close(rnd)

    def _close(self, rnd: Round) -> Round:
        """Name the round's tokens and append it to the trace."""
        self._name_tokens(
            [rnd.anchor, *rnd.committed, *rnd.nodes.token, *(t for v in rnd.visits for t, _ in v.top)]
        )
        self._name_tokens([token for pop in rnd.pops for token in pop.token])
        self.trace.rounds.append(rnd)
        self._watch_acceptance(rnd)
        return rnd

    def _levels(self, position: int) -> int:
        """Levels worth drafting from this anchor: the block's, cut where the target's context ends."""
        if self.drafter is None:
            return 0
        return max(0, min(self.drafter.levels, self.pair.target.context_limit - 1 - position))

    def _embed(self, ids: list[int]) -> Tensor:
        return self.pair.target.embed(torch.tensor(ids, device=self.pair.target.device))

    def _build(
        self, block: DraftBlock, root: Tensor | None, levels: int, budget: int, room: int, position: int
    ) -> tuple[DraftTree, Candidates | None]:
        """The method's chain or tree by the reference builders, and the candidates that it looked at."""
        if self.method.kind == "chain":
            head = self.drafter.head if self.drafter and self.method.scorer == "conditional" else None
            return chain(block, min(levels, room), head, self._embed), None
        scorer, found = self._scorer(block, root)
        return self._tree(scorer, levels, budget, position), found

    def _scorer(self, block: DraftBlock, root: Tensor | None) -> tuple[Scorer, Candidates | None]:
        """The method's scorer for one block."""
        s = self.settings
        if self.method.scorer == "marginal":
            return MarginalScorer(block, s.children_per_node), None
        found = Candidates.of(block, s.top_m)
        assert self.drafter is not None and self.drafter.head is not None
        if self.method.scorer == "static":
            return StaticScorer(found, self.drafter.head, self._embed, s.full_row, root), found
        return ConditionalScorer(found, self.drafter.head, self._embed, s.full_row, root), found

    def _tree(self, scorer: Scorer, levels: int, budget: int, position: int) -> DraftTree:
        """The method's tree: ``budget`` nodes, or as many of them as pay."""
        children = self.settings.children_per_node
        if self.costs is None or self.drafter is None:
            return best_first(scorer, levels, budget, children)
        costs = self.costs.round(self.drafter.config.kind, budget, position)
        return grow(scorer, levels, budget, children, costs, self.calibration)

    def _record(
        self, rnd: Round, block: DraftBlock | None, found: Candidates | None, tree: DraftTree, logits: Tensor,
        cache: KVCache, levels: int, budget: int,
    ) -> None:  # fmt: skip
        """Fill the round's nodes, level sums and target scores; leaves decoding untouched."""
        if block is None or self.drafter is None:
            return
        s, head = self.settings, self.drafter.head
        found = found or Candidates.of(block, s.top_m)
        scorers = rec.scorers_of(block, found, head, self._embed, s.budget, s.full_row)
        if self.pops and self.method.kind == "tree":
            chosen = dict(zip([-1, *rnd.path], rnd.committed, strict=True))
            own = scorers[self.method.scorer or "marginal"]
            rnd.pops = record_pops(tree, own, found, levels, budget, s.children_per_node, chosen)
        if self.method.adaptive:
            budget = len(tree)  # the scorers are compared at equal sizes
        trees = rec.trees_of(scorers, levels, budget) if self.method.kind == "tree" else {}
        if self.method.scorer in trees and (s.children is not None or self.method.adaptive):
            trees[self.method.scorer] = tree  # its own children count belongs to the method's own tree
        seen = rec.anatomy(block, found, head, self._embed, tree, trees, scorers, s.full_row)
        rnd.nodes, rnd.level_logz_m, rnd.level_logz_v = seen.nodes, seen.level_logz_m, seen.level_logz_v
        for node in rnd.path:
            rnd.nodes.accepted[node] = True
        if len(seen.union) > len(tree):
            logits = rec.union_logits(self.pair.target, cache, rnd.position, seen.union, rnd.anchor)
        rec.add_target_scores(rnd.nodes, logits)

    # -- bookkeeping -----------------------------------------------------------------------------------------

    def _take(self, tokens: list[int]) -> int:
        """Append tokens to the output up to max_new_tokens, the context limit and the first stop token; how many."""
        room = self._output_limit() - len(self.output)
        for taken, token in enumerate(tokens):
            if taken == room:
                return taken
            self.output.append(token)
            if token in self.stop_ids:
                return taken + 1
        return len(tokens)

    def _output_limit(self) -> int:
        return min(self.settings.max_new_tokens, self.pair.target.context_limit - len(self.prompt_ids))

    def _stop_reason(self) -> str | None:
        if self.output and self.output[-1] in self.stop_ids:
            return "stop-token"
        if len(self.output) >= self.settings.max_new_tokens:
            return "max-new-tokens"
        return "context" if len(self.output) >= self._output_limit() else None

    def _name_tokens(self, ids: list[int]) -> None:
        for i in ids:
            if i not in self.trace.tokens:
                self.trace.tokens[i] = self.pair.tokenizer.token_bytes(i).hex()

    def _watch_acceptance(self, rnd: Round) -> None:
        """Warn loudly when drafting hardly ever helps: drafter and target may not belong together (fault L22)."""
        drafted = [r for r in self.trace.rounds if r.verified_nodes]
        if rnd.verified_nodes == 0 or len(drafted) != LOW_TAU_ROUNDS:
            return
        tau = sum(len(r.committed) for r in drafted) / len(drafted)
        if tau < LOW_TAU:
            rnd.flags.append("low-acceptance")
            self.trace.summary.setdefault("warnings", []).append(
                f"after {len(drafted)} rounds only {tau:.2f} tokens are committed per round: the drafter does not seem to "
                "belong to this target (or its shift_label is wrong)"
            )

    def _finish(self, reason: str) -> None:
        """Fill the summary and the counterfactuals; called once, however the run ends."""
        rounds = self.trace.rounds
        committed = sum(len(r.committed) for r in rounds)
        decode_ms = sum(sum(r.times_ms.values()) for r in rounds)
        self.trace.summary |= {
            "tau": committed / len(rounds) if rounds else None,
            "rounds": len(rounds),
            "committed": committed,
            "accepted_drafts": sum(len(r.path) for r in rounds),
            "new_tokens": len(self.output),
            "token_ids": list(self.output),
            "text": self.pair.tokenizer.decode(self.output),
            "stop_reason": reason,
            "stop_token": self.output[-1] if reason == "stop-token" else None,
            "prefill_ms": self.trace.summary.get("prefill_ms"),
            "decode_ms": decode_ms,
            "tokens_per_second": 1000 * committed / decode_ms if decode_ms > 0 else None,
            "near_ties": [asdict(t) for t in self.chooser.near_ties],
        }
        self.trace.summary.setdefault("warnings", [])
        finish(self.trace)


def generate(pair: Pair, prompt: str | None = None, settings: Settings | None = None, **kwargs: Any) -> Trace:
    """Decode to the end without recording; returns the finished trace (keyword arguments as for Run)."""
    run = Run(pair, prompt, settings, **{"record": False, **kwargs})
    for _ in run:
        pass
    return run.trace


__all__ = ["MAX_BUDGET", "Run", "Settings", "generate", "machine_name"]
