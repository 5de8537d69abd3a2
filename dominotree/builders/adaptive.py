"""The cost-aware stop rule: a best-first tree that ends where a further node no longer pays (CaDDTree, CondAdaptive).

CaDDTree (arXiv:2606.01813) maximises the expected tokens of a round over its time. The nodes of a best-first tree come
in order of falling path probability, so after n of them the expected number of accepted drafts is Φ(n), the sum of
their path probabilities, and the bonus token makes it 1 + Φ(n). With a convex cost the quotient has one peak, so the
build may stop at the first node that does not raise it. CondAdaptive is the same rule on DominoTree's scores.

The rule, exactly (all of it in IEEE float64; a device builder must reproduce it)::

    inputs   C[0 … cap]   C_verify(n, context) in ms for n nodes besides the anchor; context = rows committed before
                          the anchor (the anchor's position); made by cost.CostModel.verify_table
             C_draft      one scalar in ms for the same context
             g            None, or the calibration: float64 score -> float64 log-probability
    state    n = 0        nodes in the tree
             phi = 0.0
             best = (1.0 + phi) / (C_draft + C[0])

    while n < cap and the heap is not empty:
        pop the candidate with the highest cumulative score s (float64; ties: first pushed wins)
        p    = exp(s)                      or exp(g(s)) with a calibration
        rate = (1.0 + (phi + p)) / (C_draft + C[n + 1])
        if not rate > best: stop           the popped candidate does not enter the tree; equality stops
        add the node; n += 1; phi = phi + p; best = rate
        push its children

So the tree is the first n nodes of the fixed-budget best-first tree with the same scorer and children: the rule decides
how many, never which. It may be empty (n = 0): the round then verifies the anchor alone. p = 0 or NaN stops. A
calibration changes p only, never the order of pops.

g is piecewise linear: with knots x[0] < … < x[k−1] and y ascending (calibration.Calibration), g(s) = y[0] + (s − x[0])
for s < x[0]; y[k−1] for s ≥ x[k−1]; else y[i] + (s − x[i]) · ((y[i+1] − y[i]) / (x[i+1] − x[i])) with x[i] ≤ s < x[i+1].
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dominotree.builders.reference import pops
from dominotree.cost import RoundCost
from dominotree.scorers import Scorer
from dominotree.tree import DraftTree


class StopRule:
    """Says of one popped candidate after another whether it still pays; keeps n, Φ and the rate so far."""

    def __init__(self, cost: RoundCost, calibrate: Callable[[float], float] | None = None) -> None:
        self.cost, self.calibrate = cost, calibrate
        self.nodes, self.phi = 0, 0.0
        self.best = (1.0 + self.phi) / (cost.draft + cost.verify[0])

    def takes(self, score: float) -> bool:
        """Whether a node with this cumulative log-probability raises the rate; if so it counts from now on."""
        p = math.exp(score if self.calibrate is None else self.calibrate(score))
        rate = (1.0 + (self.phi + p)) / (self.cost.draft + self.cost.verify[self.nodes + 1])
        if not rate > self.best:
            return False
        self.nodes, self.phi, self.best = self.nodes + 1, self.phi + p, rate
        return True


def grow(
    scorer: Scorer,
    levels: int,
    cap: int,
    children: int,
    cost: RoundCost,
    calibrate: Callable[[float], float] | None = None,
) -> DraftTree:
    """The best-first tree of at most ``cap`` nodes that ends at the first node which does not raise the rate.

    ``cost.verify`` has at least ``cap + 1`` entries. ``calibrate`` maps a cumulative log-probability to another one.
    """
    tree = DraftTree()
    if cap <= 0:
        return tree
    rule = StopRule(cost, calibrate)
    for token, parent, score in pops(scorer, levels, children):
        if not rule.takes(score):
            break
        tree.add(token, parent, score)
        if len(tree) == cap:
            break
    return tree
