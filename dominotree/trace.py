"""What one decoding run did, as plain numbers and strings: ``Trace`` and its ``Round`` s.

A trace can be saved, sent to a browser, read by pandas and replayed. Nothing here imports torch.
Both a live run and a recorded run are seen only through this module.

Conventions (engine.md §1): the *anchor* is the last committed token and the root of the round's trees; it is
not a node. Node depth = level + 1; position = anchor position + depth. τ counts the bonus token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SCHEMA = "dominotree.trace"
VERSION = 1
SCORERS = ("marginal", "static", "conditional")
#: Bits of ``Nodes.trees``: in which trees a node of the union is.
TREE_BITS = {"marginal": 1, "static": 2, "conditional": 4, "verified": 8}
STAGES = ("draft", "build", "verify", "commit")

Float = float | None  # None = missing (not computed); -inf is a real value


@dataclass
class Nodes:
    """The union of one round's trees as columns, one entry per node; parents come before children.

    All log-probabilities are natural logs. ``marginal``, ``static`` and ``conditional`` are normalised over the
    *same* top-M candidates of the node's level, so they can be compared; ``cum_*`` are the scores the builders
    really ranked by (header ``normalisation`` names their normaliser).
    """

    token: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)  # index of the parent in these columns, -1 = the anchor
    depth: list[int] = field(default_factory=list)  # 1 … D
    order: list[int | None] = field(default_factory=list)  # pop order (0 …) in the verified tree, None outside it
    base_logit: list[Float] = field(default_factory=list)  # L_i(token)
    delta: list[Float] = field(default_factory=list)  # ΔL_i(token | path); None where no correction applies
    marginal: list[Float] = field(default_factory=list)  # log p over M, base logits
    static: list[Float] = field(default_factory=list)  # log p over M, correction along the greedy chain
    conditional: list[Float] = field(default_factory=list)  # log p over M, correction along the node's own path
    logz_m: list[Float] = field(default_factory=list)  # log-sum-exp of the row that `conditional` uses, over M
    logz_v: list[Float] = field(default_factory=list)  # … and over the whole vocabulary
    cum_marginal: list[Float] = field(default_factory=list)  # cumulative builder score; None if path unscorable
    cum_static: list[Float] = field(default_factory=list)
    cum_conditional: list[Float] = field(default_factory=list)
    target_logprob: list[Float] = field(default_factory=list)  # target's own log p(token | path), temperature 1
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
    top: list[tuple[int, float]] = field(default_factory=list)  # target's top tokens: (id, log p at temperature 1)


@dataclass
class Pop:
    """Inside a build: one popped prefix and its scored candidates (recorded only on request)."""

    node: int  # index into Nodes of the popped node, -1 = the anchor
    token: list[int] = field(default_factory=list)  # top-M candidates of the next level, in base order
    base_logit: list[float] = field(default_factory=list)
    delta: list[Float] = field(default_factory=list)
    score: list[float] = field(default_factory=list)  # log p of each candidate under the method's scorer


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
    counterfactual: dict[str, Counterfactual] = field(default_factory=dict)  # by scorer; filled when text is known
    level_logz_m: list[Float] = field(default_factory=list)  # base logits' log-sum-exp over M, by level
    level_logz_v: list[Float] = field(default_factory=list)  # … over the whole vocabulary
    flags: list[str] = field(default_factory=list)  # "nan-draft", "drafting-off", "tree-shrunk", …
    pops: list[Pop] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """Accepted drafts, bonus not counted."""
        return len(self.path)


@dataclass
class Trace:
    """A run: what was asked, on which machine, every round, and what came out."""

    header: dict  # see docs/trace.md: title, created, machine, versions, pair, settings, notes …
    prompt: dict  # {"text": str, "token_ids": [int], "kind": "math" | "code" | "chat" | None}
    first_token: int | None = None  # the prefill's token: the first anchor, and the first token of the output
    rounds: list[Round] = field(default_factory=list)
    tokens: dict[int, str] = field(default_factory=dict)  # token id -> its bytes as lower-case hex
    summary: dict = field(default_factory=dict)  # tau, rounds, committed, token_ids, text, stop_reason, timings
    run_id: str = ""  # content hash of everything else (first 16 hex digits of sha256)
