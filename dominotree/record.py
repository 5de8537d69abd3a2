"""Fill a Round: the union of the three scorers' trees at one anchor, scored by every scorer and by the target.

Runs outside the timed windows and changes nothing that decoding depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dominotree.builders.reference import best_first
from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock
from dominotree.methods import METHODS
from dominotree.model import KVCache
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, Scorer, StaticScorer
from dominotree.target import Target
from dominotree.trace import TREE_BITS, Nodes, Visit
from dominotree.tree import DraftTree, Walk

TOP_TOKENS = 8
#: Default children per node of each scorer's own tree method.
CHILDREN = {
    m.scorer: m.children
    for m in METHODS.values()
    if m.kind == "tree" and not m.adaptive and m.name != "ddtree"
}


@dataclass
class Anatomy:
    """What a round's draft looked like from every scorer's side."""

    nodes: Nodes
    union: DraftTree
    level_logz_m: list[float | None]
    level_logz_v: list[float | None]


def scorers_of(
    block: DraftBlock, found: Candidates, head: CorrectionHead | None, embed: Any, budget: int, full_row: bool
) -> dict[str, Scorer]:
    """Every scorer that this draft allows, by name: marginal only without a correction head."""
    scorers: dict[str, Scorer] = {"marginal": MarginalScorer(block, CHILDREN["marginal"] or budget)}
    if head is not None:
        scorers["static"] = StaticScorer(found, head, embed, full_row)
        scorers["conditional"] = ConditionalScorer(found, head, embed, full_row)
    return scorers


def trees_of(scorers: dict[str, Scorer], levels: int, budget: int) -> dict[str, DraftTree]:
    """The tree that each scorer builds from the same hidden states with its own default children per node."""
    return {
        name: best_first(scorer, levels, budget, min(CHILDREN[name] or budget, budget))
        for name, scorer in scorers.items()
    }


@torch.inference_mode()
def anatomy(
    block: DraftBlock, found: Candidates, head: CorrectionHead | None, embed: Any,
    verified: DraftTree, trees: dict[str, DraftTree], scorers: dict[str, Scorer], full_row: bool,
) -> Anatomy:  # fmt: skip
    """Merge the verified tree (first, in pop order) with the scorers' trees and score every node under each of them."""
    union = DraftTree()
    index: dict[tuple[int, int], int] = {}
    bits: list[int] = []
    own: dict[str, dict[int, float]] = {name: {} for name in trees}
    for name, tree in {"verified": verified, **trees}.items():
        place: list[int] = []
        for node in range(len(tree)):
            parent = -1 if tree.parent[node] < 0 else place[tree.parent[node]]
            key = (parent, tree.token[node])
            if key not in index:
                index[key] = union.add(tree.token[node], parent, tree.score[node])
                bits.append(0)
            place.append(index[key])
            bits[index[key]] |= TREE_BITS[name]
            if name in own:
                own[name][index[key]] = tree.score[node]

    count = len(union)
    nodes = Nodes(token=list(union.token), parent=list(union.parent), depth=list(union.depth), trees=bits)
    nodes.order = [i if i < len(verified) else None for i in range(count)]
    base = [float(block.base_logits[d - 1, t]) for t, d in zip(union.token, union.depth, strict=True)]
    logz_m, logz_v = found.logz_m.tolist(), found.logz_v.tolist()
    where = _candidate_index(found, union)
    blank: list[float | None] = [None] * count
    nodes.base_logit = list(base)
    nodes.marginal = [
        None if w is None else b - logz_m[d - 1] for b, d, w in zip(base, union.depth, where, strict=True)
    ]
    nodes.delta, nodes.static, nodes.conditional = list(blank), list(blank), list(blank)
    nodes.logz_m = [logz_m[d - 1] for d in union.depth]
    nodes.logz_v = [logz_v[d - 1] for d in union.depth]
    steps: dict[str, list[float | None]] = {
        "marginal": [b - logz_v[d - 1] for b, d in zip(base, union.depth, strict=True)]
    }
    if head is not None and count:
        _score_conditional(nodes, block, found, head, embed, where)
        static = scorers["static"]
        assert isinstance(static, StaticScorer)
        at = list(zip(where, union.depth, strict=True))
        over_m = [None if w is None else float(static.over_m[d - 1][w]) for w, d in at]
        nodes.static = [
            m if d <= head.prefix_len else s
            for m, s, d in zip(nodes.marginal, over_m, union.depth, strict=True)
        ]
        steps["static"] = [None if w is None else float(static.rows[d - 1][w]) for w, d in at]
        steps["conditional"] = [
            _builder_step(nodes, i, nodes.conditional, head.prefix_len, full_row) for i in range(count)
        ]
    for name in ("marginal", "static", "conditional"):
        setattr(nodes, f"cum_{name}", _cumulate(union, steps.get(name), own.get(name, {})))
    nodes.accepted = [False] * count
    nodes.target_logprob, nodes.target_rank = list(blank), [None] * count
    return Anatomy(nodes, union, logz_m, logz_v)


def _builder_step(
    nodes: Nodes, i: int, column: list[float | None], prefix_len: int, full_row: bool
) -> float | None:
    """One node's own log-probability with the normaliser that the builder uses at its level."""
    value = column[i]
    if value is None or (nodes.depth[i] > prefix_len and not full_row):
        return value
    logz_m, logz_v = nodes.logz_m[i], nodes.logz_v[i]
    assert logz_m is not None and logz_v is not None
    return value + logz_m - logz_v


def _candidate_index(found: Candidates, union: DraftTree) -> list[int | None]:
    """Each node's place among its level's top-M candidates, or None."""
    tables = [{t: i for i, t in enumerate(row)} for row in found.ids[: max(union.depth, default=0)].tolist()]
    return [tables[d - 1].get(t) for t, d in zip(union.token, union.depth, strict=True)]


def _score_conditional(
    nodes: Nodes,
    block: DraftBlock,
    found: Candidates,
    head: CorrectionHead,
    embed: Any,
    where: list[int | None],
) -> None:
    """ΔL and the conditional log-probability of every node for its own path, one batch per depth."""
    parts = head.level_part(block.z)
    whole = head.output_rows()
    state_of: dict[int, Tensor] = {-1: head.advance(None, embed([block.anchor]))}
    has_children = set(nodes.parent)
    for depth in range(1, max(nodes.depth) + 1):
        level = depth - 1
        here = [i for i, d in enumerate(nodes.depth) if d == depth]
        parents = sorted({nodes.parent[i] for i in here})
        states = torch.cat([state_of[p] for p in parents])
        row_of = {p: r for r, p in enumerate(parents)}
        if level >= head.prefix_len:
            delta = head.delta(parts[level], states, whole)
            row = delta + block.base_logits[level]
            logz_v, logz_m = row.logsumexp(-1), row[:, found.ids[level]].logsumexp(-1)
            for i in here:
                r = row_of[nodes.parent[i]]
                nodes.delta[i] = float(delta[r, nodes.token[i]])
                nodes.logz_m[i], nodes.logz_v[i] = float(logz_m[r]), float(logz_v[r])
                if where[i] is not None:
                    nodes.conditional[i] = float(row[r, nodes.token[i]] - logz_m[r])
        else:
            for i in here:
                nodes.conditional[i] = nodes.marginal[i]
        inner = [i for i in here if i in has_children]
        if inner:
            before = torch.cat([state_of[nodes.parent[i]] for i in inner])
            after = head.advance(before, embed([nodes.token[i] for i in inner]))
            state_of.update((i, after[k : k + 1]) for k, i in enumerate(inner))


def _cumulate(union: DraftTree, steps: list[Any] | None, own: dict[int, float]) -> list[float | None]:
    """Cumulative scores: the builder's own for nodes of its tree, else the path's sum, None where it is unscorable."""
    out: list[float | None] = []
    for i, parent in enumerate(union.parent):
        above = 0.0 if parent < 0 else out[parent]
        step = None if steps is None else steps[i]
        out.append(own[i] if i in own else None if above is None or step is None else above + step)
    return out


@torch.inference_mode()
def add_target_scores(nodes: Nodes, logits: Tensor) -> None:
    """Target log-probability and rank of every node from the logits [n + 1, V] of the union's verify rows."""
    if not len(nodes):
        return
    rows = torch.tensor([p + 1 for p in nodes.parent], device=logits.device)
    tokens = torch.tensor(nodes.token, device=logits.device)
    log_z = logits.logsumexp(-1)
    own = logits[rows, tokens]
    nodes.target_logprob = (own - log_z[rows]).tolist()
    ranks = []
    ids = torch.arange(logits.shape[-1], device=logits.device)
    for row, token, value in zip(rows.tolist(), nodes.token, own, strict=True):
        line = logits[row]
        ranks.append(int(((line > value) | ((line == value) & (ids < token))).sum()))
    nodes.target_rank = list(ranks)


@torch.inference_mode()
def visits(walked: Walk, logits: Tensor) -> list[Visit]:
    """The target's top tokens at every visited row; log-probabilities at temperature 1."""
    out = []
    for row, chosen in walked.chosen:
        log_p = logits[row].log_softmax(-1)
        values, ids = log_p.topk(min(TOP_TOKENS, len(log_p)))
        top = list(zip(ids.tolist(), values.tolist(), strict=True))
        if chosen not in [t for t, _ in top]:
            top.append((chosen, float(log_p[chosen])))
        out.append(Visit(node=row - 1, chosen=chosen, top=top))
    return out


@torch.inference_mode()
def union_logits(target: Target, cache: KVCache, start: int, union: DraftTree, anchor: int) -> Tensor:
    """One extra forward over the union, as if the round had not been committed; the cache is left as it was."""
    device = target.device
    stop = cache.length
    kept = cache.snapshot(start, stop)
    cache.length = start
    try:
        return target.verify(
            torch.tensor(union.rows(anchor), device=device),
            torch.tensor(union.positions(start), device=device),
            union.mask().to(device),
            cache,
        ).logits
    finally:
        cache.restore(start, kept)
