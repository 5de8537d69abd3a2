"""The dataclasses of a trace, and the sums over a run that people ask for.

Conventions (engine.md §1): the *anchor* is the last committed token and the root of the round's trees; it is
not a node. Node depth = level + 1; position = anchor position + depth. τ counts the bonus token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dominotree.errors import DominoTreeError

SCHEMA = "dominotree.trace"
VERSION = 1
SCORERS = ("marginal", "static", "conditional")
#: Bits of ``Nodes.trees``: in which trees a node of the union is.
TREE_BITS = {"marginal": 1, "static": 2, "conditional": 4, "verified": 8}
STAGES = ("draft", "build", "verify", "commit")

#: Files with more bytes, before or after decompression, are refused: no trace, or a bomb.
MAX_BYTES = 64 * 2**20

Float = float | None  # None = missing (not computed); -inf is a real value


class TraceError(DominoTreeError, ValueError):
    """A trace that cannot be read, written or trusted; the message is one sentence for whoever asked."""


@dataclass
class Nodes:
    """The union of one round's trees as columns, one entry per node; parents come before children.

    All log-probabilities are natural logs. ``marginal``, ``static`` and ``conditional`` are normalised over
    the *same* top-M candidates of the node's level, so they can be compared; ``cum_*`` are the scores the
    builders really ranked by (header ``normalisation`` names their normaliser).
    """

    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)  # index of the parent in these columns, -1 = the anchor
    depth: list[int] = field(default_factory=list)  # 1 … D
    order: list[int | None] = field(
        default_factory=list
    )  # pop order (0 …) in the verified tree, None outside it
    base_logit: list[Float] = field(default_factory=list)  # L_i(token)
    delta: list[Float] = field(default_factory=list)  # ΔL_i(token | path); None where no correction applies
    marginal: list[Float] = field(default_factory=list)  # log p over M, base logits
    static: list[Float] = field(default_factory=list)  # log p over M, correction along the greedy chain
    conditional: list[Float] = field(
        default_factory=list
    )  # log p over M, correction along the node's own path
    logz_m: list[Float] = field(
        default_factory=list
    )  # log-sum-exp of the row that `conditional` uses, over M
    logz_v: list[Float] = field(default_factory=list)  # … and over the whole vocabulary
    cum_marginal: list[Float] = field(
        default_factory=list
    )  # cumulative builder score; None if path unscorable
    cum_static: list[Float] = field(default_factory=list)
    cum_conditional: list[Float] = field(default_factory=list)
    target_logprob: list[Float] = field(
        default_factory=list
    )  # target's own log p(token | path), temperature 1
    target_rank: list[int | None] = field(default_factory=list)  # 0 = the target's favourite
    trees: list[int] = field(default_factory=list)  # bit mask, see TREE_BITS
    accepted: list[bool] = field(default_factory=list)  # on the accepted path of the verified tree

    def __len__(self) -> int:
        return len(self.token)


@dataclass
class Visit:
    """One row of the verify walk: what the target wanted at a visited node (engine.md §7)."""

    node: int  # index into Nodes, -1 = the anchor row
    chosen: int  # the token that the choice rule picked here
    top: list[tuple[int, float]] = field(
        default_factory=list
    )  # target's top tokens: (id, log p at temperature 1)


@dataclass
class Pop:
    """Inside a build: one expanded prefix and its scored candidates (dominotree/pops.py)."""

    node: int  # index into Nodes of the popped node, -1 = the anchor
    token: list[int]  # top-M candidates of the next level, in base order: (value, then lower id)
    base_logit: list[float]
    delta: list[Float]  # ΔL of the method's own scorer; None where no correction applies
    score: list[float]  # log p of each candidate under the method's scorer, as the builder ranks
    offered: list[int] = field(default_factory=list)  # places in these columns of the pushed ones, best first
    place: list[int] = field(default_factory=list)  # place in base order (0 …); empty: all are listed
    left_out: int = 0  # candidates that are not listed …
    left_base: Float = None  # … log of their probability over M by base logits; None if there are none
    left_score: Float = None  # … log of their probability by score


@dataclass
class Counterfactual:
    """Longest path of one scorer's tree that matches the text the run went on to emit, at this anchor."""

    accepted: int
    censored: bool  # True when the text ends before the path could be followed to its end


@dataclass
class Round:
    """One draft → build → verify → commit round."""

    index: int  # 1, 2, …
    anchor: int  # token id of the anchor
    position: int  # absolute position of the anchor
    nodes: Nodes
    path: list[int]  # accepted nodes in order (indices into nodes)
    bonus: int  # the target's own next token
    committed: list[int]  # accepted drafts + bonus: raw, before any cut at a stop token or at max_new_tokens
    kept: int  # how many of `committed` are part of the output
    depth_reached: int  # deepest node of the verified tree
    verified_nodes: int  # nodes of the verified tree (root not counted)
    times_ms: dict[str, float]  # by stage, see STAGES
    visits: list[Visit] = field(default_factory=list)
    counterfactual: dict[str, Counterfactual] = field(
        default_factory=dict
    )  # by scorer; filled when text is known
    level_logz_m: list[Float] = field(default_factory=list)  # base logits' log-sum-exp over M, by level
    level_logz_v: list[Float] = field(default_factory=list)  # … over the whole vocabulary
    flags: list[str] = field(default_factory=list)  # "nan-draft", "drafting-off", "tree-shrunk", …
    pops: list[Pop] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """Accepted drafts, bonus not counted."""
        return len(self.path)

    @property
    def accepted_of_depth(self) -> Float:
        """Accepted drafts / depth reached by the verified tree; None where nothing was drafted."""
        return self.accepted / self.depth_reached if self.depth_reached else None

    @property
    def accepted_of_nodes(self) -> Float:
        """Accepted drafts / nodes of the verified tree; None where nothing was drafted."""
        return self.accepted / self.verified_nodes if self.verified_nodes else None


@dataclass(frozen=True)
class Counts:
    """Sums over a run. ``committed`` is raw: every accepted draft and bonus; ``kept`` is in the output."""

    rounds: int
    accepted: int  # drafts, bonus not counted
    committed: int  # accepted + one bonus a round
    kept: int  # committed tokens that are part of the output
    prefill: int  # 1 once the prefill has given its token, else 0
    depth: int  # Σ depth reached
    nodes: int  # Σ nodes of the verified trees

    @property
    def output(self) -> int:
        """Length of the output in tokens: the prefill's token and all kept ones."""
        return self.prefill + self.kept

    @property
    def tau(self) -> Float:
        """Committed tokens per round, bonus included; None before the first round."""
        return self.committed / self.rounds if self.rounds else None

    @property
    def mean_accepted(self) -> Float:
        """Accepted drafts per round, bonus not counted; None before the first round."""
        return self.accepted / self.rounds if self.rounds else None

    @property
    def accepted_of_depth(self) -> Float:
        """Share of the drafted depth that was accepted, over all rounds."""
        return self.accepted / self.depth if self.depth else None

    @property
    def accepted_of_nodes(self) -> Float:
        """Share of the drafted nodes that was accepted, over all rounds."""
        return self.accepted / self.nodes if self.nodes else None


@dataclass(frozen=True)
class DepthCount:
    """One depth: of ``offered`` rounds whose verified tree has a node there, ``accepted`` accepted one."""

    depth: int  # 1 …
    offered: int
    accepted: int


@dataclass
class Trace:
    """A run: what was asked, on which machine, every round, and what came out."""

    header: dict  # see docs/trace.md: title, created, machine, versions, pair, settings, notes …
    prompt: dict  # {"text": str, "token_ids": [int], "kind": "math" | "code" | "chat" | None}
    first_token: int | None = None  # the prefill's token: the first anchor, and the first token of the output
    rounds: list[Round] = field(default_factory=list)
    tokens: dict[int, str] = field(default_factory=dict)  # token id -> its bytes as lower-case hex
    summary: dict = field(
        default_factory=dict
    )  # tau, rounds, committed, token_ids, text, stop_reason, timings
    run_id: str = ""  # content hash of everything else, see ``content_id``

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of a token id of this trace; KeyError for an id that is not in ``tokens``."""
        return bytes.fromhex(self.tokens[token])

    def text(self, ids: Iterable[int]) -> str:
        """Text of token ids, special markers kept; bytes that form no character become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    @property
    def ended(self) -> bool:
        """False while the run goes on: its summary names no reason for stopping yet."""
        return self.summary.get("stop_reason") is not None

    @property
    def partial(self) -> bool:
        """True while the run goes on, and for good when it was cancelled or failed."""
        return not self.ended or self.summary["stop_reason"] in ("cancelled", "error")

    @property
    def counts(self) -> Counts:
        """Sums over the rounds so far."""
        return Counts(
            rounds=len(self.rounds),
            accepted=sum(this.accepted for this in self.rounds),
            committed=sum(len(this.committed) for this in self.rounds),
            kept=sum(this.kept for this in self.rounds),
            prefill=int(self.first_token is not None),
            depth=sum(this.depth_reached for this in self.rounds),
            nodes=sum(this.verified_nodes for this in self.rounds),
        )

    @property
    def tau_so_far(self) -> list[float]:
        """τ after each round: raw committed tokens of the rounds up to here / number of rounds up to here."""
        taus, committed = [], 0
        for k, this in enumerate(self.rounds, 1):
            committed += len(this.committed)
            taus.append(committed / k)
        return taus

    @property
    def acceptance_by_depth(self) -> list[DepthCount]:
        """Offered and accepted at depth 1 … deepest; ``accepted`` adds up to the run's accepted drafts."""
        deepest = max((this.depth_reached for this in self.rounds), default=0)
        return [
            DepthCount(
                depth,
                offered=sum(this.depth_reached >= depth for this in self.rounds),
                accepted=sum(this.accepted >= depth for this in self.rounds),
            )
            for depth in range(1, deepest + 1)
        ]

    @property
    def stopped(self) -> bool:
        """True when a stop token ended the text, so that nothing can follow it."""
        return self.summary.get("stop_reason") == "stop-token"

    def text_after(self, index: int) -> list[int]:
        """Token ids after the anchor of round ``index`` (1 …), as far as the run went, or to its stop token.

        A cut at the token limit takes nothing away here: what was committed beyond it is the target's text.
        """
        return [
            token
            for this in self.rounds[index - 1 :]
            for token in this.committed[: this.kept if self.stopped else None]
        ]
