"""Inside a build: which prefix was popped, which candidates its children had, what the scorer made of them.

The tree is walked once more after it was built and verified, one prefix at a time and with the builder's own calls, so
the scores have the builder's bits. Runs outside the timed windows and changes nothing that decoding depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, Scorer, StaticScorer
from dominotree.trace import Pop
from dominotree.tree import DraftTree

#: Candidates of a round (pops times M) up to which all of them are kept; 17 pops of 64 are 32 KB of JSON.
WHOLE = 17 * 64
#: Beyond that a pop keeps the best by base logit and by score, this many each, …
BEST = 16
#: … what it pushed (at most so many, best first), and what the target chose there.
PUSHED = 64
#: Pops kept of one round: the anchor and the first nodes of the tree.
POPS = 64


@torch.inference_mode()
def record_pops(
    tree: DraftTree,
    scorer: Scorer,
    found: Candidates,
    levels: int,
    budget: int,
    children: int,
    chosen: Mapping[int, int] | None = None,
) -> list[Pop]:
    """The build of ``tree``, pop by pop: the anchor, then every node that was expanded, in pop order.

    Args:
        tree: what the best-first builder made with ``scorer``, at most ``levels`` deep.
        scorer: the method's own: marginal, static or conditional.
        found: the top-M candidates of every level.
        budget: nodes at which the builder stops.
        children: children that the builder pushed per expanded prefix.
        chosen: the target's choice at visited nodes (-1 = the anchor): kept wherever it is a candidate.

    Returns:
        at most ``POPS`` of them. The node that fills the budget is not expanded, nor is one at the last level.
    """
    if not len(tree):
        return []
    if isinstance(scorer, MarginalScorer) and children > found.ids.shape[-1]:
        found = Candidates.of(found.block, children)  # DDTree pushes as many as its budget
    expanded = list(_expanded(tree, scorer, levels, budget))
    whole = len(expanded) * found.ids.shape[-1] <= WHOLE
    ranked = [_Level(found, level) for level in range(max(level for _, level, _ in expanded) + 1)]
    return [
        _pop(
            node,
            ranked[level],
            *_row(scorer, found, state, level),
            children,
            whole,
            (chosen or {}).get(node),
        )
        for node, level, state in expanded
    ]


class _Level:
    """One level's candidates in base order; its lists are shared by all pops of the level.

    ``order`` int64 [M]: places of the candidates (ascending by id) in ``found``; ``token``, ``base`` in base order.
    """

    def __init__(self, found: Candidates, level: int) -> None:
        base = found.base[level]
        self.order = base.sort(descending=True, stable=True).indices  # stable: ties to the lower id
        self.place = self.order.argsort()
        self.token: list[int] = found.ids[level][self.order].tolist()
        self.rest = base[self.order] - found.logz_m[level]
        self.base: list[float] = base[self.order].tolist()


def _expanded(tree: DraftTree, scorer: Scorer, levels: int, budget: int) -> Iterator[tuple[int, int, Any]]:
    """The first ``POPS`` expanded prefixes: node (-1 = the anchor), the level of its children, its state."""
    root = scorer.root()
    yield -1, 0, root
    states: list[Any] = []
    count = 1
    for node in range(min(len(tree), budget - 1)):
        if count == POPS:
            return
        parent, level = tree.parent[node], tree.depth[node]
        if level >= levels:
            states.append(None)
            continue
        states.append(scorer.step(states[parent] if parent >= 0 else root, tree.token[node]))
        yield node, level, states[node]
        count += 1


def _row(scorer: Scorer, found: Candidates, state: Any, level: int) -> tuple[Tensor | None, Tensor]:
    """ΔL (None where there is none) and the builder's log-probability of a level's candidates: float32 [M]."""
    if isinstance(scorer, ConditionalScorer):
        corrected = scorer.corrected(state, level) if level >= scorer.head.prefix_len else None
        return None if corrected is None else corrected - found.base[level], scorer.log_probs(state, level)
    if isinstance(scorer, StaticScorer):
        corrected = scorer.corrected[level]
        return None if corrected is None else corrected - found.base[level], scorer.rows[level]
    return None, found.base[level] - found.logz_v[level]


def _pop(
    node: int,
    level: _Level,
    delta: Tensor | None,
    score: Tensor,
    children: int,
    whole: bool,
    chosen: int | None,
) -> Pop:
    """One expanded prefix; ``delta`` and ``score`` are aligned with ``found.ids``."""
    count = len(level.token)
    ranked = level.place[score.sort(descending=True, stable=True).indices].tolist()
    pushed = ranked[: min(children, PUSHED)]
    scores = score[level.order]
    deltas: list[float | None] = [None] * count if delta is None else delta[level.order].tolist()
    if whole:
        return Pop(node, level.token, level.base, deltas, scores.tolist(), offered=pushed)
    kept = {*range(min(BEST, count)), *ranked[:BEST], *pushed}
    kept.update(p for p, token in enumerate(level.token) if token == chosen)
    place = sorted(kept)
    left = [p for p in range(count) if p not in kept]
    at = {p: k for k, p in enumerate(place)}
    return Pop(
        node,
        [level.token[p] for p in place],
        [level.base[p] for p in place],
        [deltas[p] for p in place],
        scores[place].tolist(),
        offered=[at[p] for p in pushed],
        place=place if left else [],
        left_out=len(left),
        left_base=float(level.rest[left].logsumexp(-1)) if left else None,
        left_score=float(scores[left].logsumexp(-1)) if left else None,
    )
