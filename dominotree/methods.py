"""The registry of decoding methods (engine.md §8). Each names its scorer, the shape it drafts and the drafter it wants."""

from __future__ import annotations

from dataclasses import dataclass

FIXED, COST_AWARE, CALIBRATED = "fixed", "cost-aware", "calibrated cost-aware"


@dataclass(frozen=True)
class Method:
    """One way to draft. ``children``: default children per node (None: the budget).

    ``rule``: FIXED spends ``budget`` nodes each round; COST_AWARE stops earlier where a further node no longer pays
    (builders/adaptive.py) and ``budget`` is its cap; CALIBRATED does so on calibrated path probabilities.
    """

    name: str
    title: str
    kind: str  # "ar", "chain" or "tree"
    drafter: str | None  # "domino", "dflash" or None: the kind it wants
    scorer: str | None  # trees: the scorer; chains: "marginal" (base logits) or "conditional" (corrected)
    children: int | None
    description: str
    rule: str = FIXED
    budget: int = 16  # default nodes besides the root, or the cap

    @property
    def adaptive(self) -> bool:
        """Whether the number of nodes is decided round by round."""
        return self.rule != FIXED


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("ar", "Autoregressive", "ar", None, None, 0, "One target forward per token; the yardstick."),
        Method("dflash", "DFlash chain", "chain", "dflash", "marginal", 1, "The drafter's best token at every level, blind to the path."),
        Method("domino", "Domino chain", "chain", "domino", "conditional", 1, "One chain; the GRU corrects each level for the tokens before it."),
        Method("ddtree", "DDTree", "tree", "dflash", "marginal", None, "Best-first tree on independent per-level marginals."),
        Method("caddtree", "CaDDTree", "tree", "dflash", "marginal", None, "DDTree that stops where a further node no longer pays for its verification.", COST_AWARE, 256),
        Method("marginal", "Marginal tree", "tree", "domino", "marginal", 64, "Control: DominoTree's drafter and builder, correction ignored."),
        Method("static", "Static-corrected tree", "tree", "domino", "static", 64, "Control: the correction of the greedy chain, shared by all nodes of a level."),
        Method("dominotree", "DominoTree", "tree", "domino", "conditional", 8, "Best-first tree; every node's children corrected for its own path."),
        Method("condadaptive", "CondAdaptive", "tree", "domino", "conditional", 8, "DominoTree with CaDDTree's stop rule.", COST_AWARE, 256),
        Method("condadaptive-calibrated", "CondAdaptive, calibrated", "tree", "domino", "conditional", 8, "Control: CondAdaptive whose path probabilities were calibrated on other text.", CALIBRATED, 256),
    )
}  # fmt: skip
