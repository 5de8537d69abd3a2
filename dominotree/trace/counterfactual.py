"""What another scorer's tree would have got accepted at the same anchor (engine.md §7)."""

from __future__ import annotations

from collections.abc import Sequence

from dominotree.trace.jsonform import content_id
from dominotree.trace.schema import SCORERS, TREE_BITS, Counterfactual, Round, Trace


def counterfactual_path(
    this: Round, scorer: str, text_after: Sequence[int], stopped: bool = False
) -> tuple[list[int], bool]:
    """The longest path of one recorded tree that matches the text.

    ``scorer`` is a key of ``TREE_BITS``; ``text_after`` are the token ids that follow the round's anchor;
    ``stopped``: their last one is a stop token, below which nothing is ever accepted. Returns the matched
    nodes in order (indices into ``this.nodes``) and whether the match is *censored*: the text ended at a node
    from which the tree goes on, so the path might have been longer.
    """
    bit, nodes = TREE_BITS[scorer], this.nodes
    children = {
        (parent, token): k
        for k, (parent, token, trees) in enumerate(zip(nodes.parent, nodes.token, nodes.trees, strict=True))
        if trees & bit
    }
    path: list[int] = []
    at = -1
    for token in text_after:
        if (at, token) not in children:
            return path, False
        at = children[at, token]
        path.append(at)
    return path, not stopped and any(parent == at for parent, _ in children)


def finish(trace: Trace) -> Trace:
    """Fill in what is known only at the end: the counterfactuals of every recorded tree, and the run id.

    The text is the raw committed one up to a stop token, so that a cut at the token limit hides nothing.
    Changes ``trace`` and returns it; may be called again, and should be after a later change of the header.
    """
    text = trace.text_after(1)
    start = 0
    for this in trace.rounds:
        reach = max(this.nodes.depth, default=0)
        this.counterfactual = {}
        for scorer in SCORERS:
            if any(trees & TREE_BITS[scorer] for trees in this.nodes.trees):
                ends = trace.stopped and start + reach >= len(text)
                path, censored = counterfactual_path(this, scorer, text[start : start + reach], ends)
                this.counterfactual[scorer] = Counterfactual(len(path), censored)
        start += len(this.committed)
    trace.run_id = content_id(trace)
    return trace
