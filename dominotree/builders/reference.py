"""The reference builders: best-first with a Python heap, and the greedy chain. Readable, runs anywhere, the definition."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import torch

from dominotree.correction import CorrectionHead
from dominotree.drafter import DraftBlock
from dominotree.scorers import Scorer, argmax_low
from dominotree.tree import DraftTree


def pops(scorer: Scorer, levels: int, children: int) -> Iterator[tuple[int, int, float]]:
    """Prefixes in the order in which the best-first heap pops them: (token, parent, cumulative log-probability).

    ``parent`` counts the pops before, -1 = the anchor. A popped prefix is expanded, and its scorer state made, only when
    the next one is asked for: whoever stops here pays for nothing that is not used.
    """
    heap: list[tuple[float, int, int, int]] = []  # (-score, push number, parent node, token)
    states: list[Any] = []
    depths: list[int] = []
    pushed = 0

    def push(state: Any, level: int, parent: int, score: float) -> None:
        nonlocal pushed
        if level >= levels:
            return
        for token, log_prob in zip(*scorer.children(state, level, children), strict=True):
            heapq.heappush(heap, (-(score + log_prob), pushed, parent, token))
            pushed += 1

    push(root := scorer.root(), 0, -1, 0.0)
    while heap:
        negative, _, parent, token = heapq.heappop(heap)
        yield token, parent, -negative
        depths.append(1 if parent < 0 else depths[parent] + 1)
        if depths[-1] < levels:
            states.append(scorer.step(states[parent] if parent >= 0 else root, token))
            push(states[-1], depths[-1], len(depths) - 1, -negative)
        else:
            states.append(None)


def best_first(scorer: Scorer, levels: int, budget: int, children: int) -> DraftTree:
    """DDTree's best-first heap under any scorer (DominoTree, Algorithm 1).

    Pop the prefix with the highest cumulative log-probability, add it to the tree, push its children, until
    ``budget`` nodes or an empty heap. A child never scores above its parent, so the result is the top-``budget``
    of everything offered and closed under ancestors. Ties: first pushed wins; children are pushed in rank order.
    Cumulative scores in float64. A node's state is made only once the node is expanded.
    """
    tree = DraftTree()
    if budget <= 0:
        return tree
    for token, parent, score in pops(scorer, levels, children):
        tree.add(token, parent, score)
        if len(tree) == budget:
            break
    return tree


@torch.inference_mode()
def chain(block: DraftBlock, levels: int, head: CorrectionHead | None, embed: Any) -> DraftTree:
    """The greedy chain over the whole vocabulary: DFlash's on base logits (no head), Domino's with the correction.

    Scores are full-vocabulary log-probabilities, accumulated.
    """
    tree = DraftTree()
    score = 0.0
    state = head.advance(None, embed([block.anchor])) if head else None
    parts = head.level_part(block.z) if head else None
    for level in range(levels):
        row = block.base_logits[level]
        if head is not None and parts is not None and state is not None and level >= head.prefix_len:
            row = row + head.delta(parts[level], state, head.output_rows())[0]
        token = argmax_low(row)
        score += float(row[token] - row.logsumexp(-1))
        tree.add(token, level - 1, score)
        if head is not None and level + 1 < levels:
            state = head.advance(state, embed([token]))
    return tree
