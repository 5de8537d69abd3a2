"""The lesson on the adaptive budget: what the cost-aware rule did in recorded runs, and whether its promise was kept.

The words follow the data: whether the rule ran to its cap, whether its path probabilities promised too much, and what
the calibrated control did under the same costs. Nothing of that is assumed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from math import exp

from dominotree import trace as tr
from dominotree.calibration import Calibration
from dominotree.cost import CostModel, RoundCost
from dominotree.methods import METHODS
from viz.lessons.runs import Lesson, Missing, Runs, claim, found, kind_name, mean_ms, picture, step, total
from viz.lessons.text import Fields, cell, spans, table
from viz.library import Recorded

RULE, CONTROL = "condadaptive", "condadaptive-calibrated"
#: Path probabilities of the table's rows: from each to the next.
BINS = (0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0)
#: The rule "runs to its cap" if it does so in this share of rounds.
OFTEN = 0.9
#: A promise is called wrong where the mean difference over the rounds exceeds this many of its standard errors.
ERRORS = 2.0


@dataclass
class Seen:
    """One recorded run of the rule: its costs, and by round the nodes in pop order with their path probabilities."""

    run: Recorded
    trace: tr.Trace
    costs: CostModel
    calibrate: Callable[[float], float] | None
    order: list[list[int]]

    @classmethod
    def of(cls, runs: Runs, run: Recorded) -> Seen:
        trace = runs.trace(run)
        header = trace.header
        if "cost_profile" not in header:
            raise Missing(f"the cost profile of {run.file}")
        g = Calibration.from_dict(header["calibration"]) if "calibration" in header else None
        order = [
            [k for _, k in sorted((o, k) for k, o in enumerate(this.nodes.order) if o is not None)]
            for this in trace.rounds
        ]
        return cls(run, trace, CostModel.from_dict(header["cost_profile"]), g, order)

    @property
    def cap(self) -> int:
        return int(self.trace.header["settings"]["budget"])

    @property
    def sizes(self) -> list[int]:
        return [this.verified_nodes for this in self.trace.rounds]

    @property
    def at_cap(self) -> int:
        return self.sizes.count(self.cap)

    @property
    def saturates(self) -> bool:
        return self.at_cap >= OFTEN * len(self.sizes)

    def probabilities(self, index: int, calibrated: bool = True) -> list[float]:
        """Path probabilities of a round's nodes in pop order, as the rule saw them."""
        nodes = self.trace.rounds[index].nodes
        scores = [total(nodes.cum_conditional, [k]) for k in self.order[index]]
        g = self.calibrate if calibrated else None
        return [exp(s if g is None else g(s)) for s in scores]

    def cost(self, index: int) -> RoundCost:
        return self.costs.round("domino", self.cap, self.trace.rounds[index].position)

    def obeys(self, index: int) -> bool:
        """Whether every node of the round raised expected tokens over time."""
        cost, phi = self.cost(index), 0.0
        best = 1.0 / (cost.draft + cost.verify[0])
        for n, p in enumerate(self.probabilities(index), 1):
            phi += p
            rate = (1.0 + phi) / (cost.draft + cost.verify[n])
            if rate <= best:
                return False
            best = rate
        return True

    def needed(self, index: int, node: int) -> float:
        """The path probability above which a node pays as number ``node`` (0 …) of the round's tree."""
        cost = self.cost(index)
        phi = sum(self.probabilities(index)[:node])
        return (1.0 + phi) * (cost.verify[node + 1] - cost.verify[node]) / (cost.draft + cost.verify[node])

    @property
    def promised(self) -> list[float]:
        """Accepted drafts that the rule expected of each round: Φ."""
        return [sum(self.probabilities(k)) for k in range(len(self.sizes))]

    @property
    def rate(self) -> float:
        """Tokens per second over the stages that were timed."""
        rate = self.trace.summary["tokens_per_second"]
        claim(bool(rate), f"the rounds of {self.run.file} were timed")
        return float(rate)

    @property
    def accepted(self) -> float:
        return statistics.fmean(this.accepted for this in self.trace.rounds)

    @property
    def steep(self) -> float:
        """C_verify at the cap over that of the anchor alone."""
        verify = self.cost(0).verify
        return verify[self.cap] / verify[0]


def pairs(runs: Runs) -> list[tuple[Seen, Seen]]:
    """Recorded runs of the rule with a control of the same prompt, temperature, machine and costs."""
    held = runs.library.runs
    out = []
    for a in held:
        for b in held:
            if (a.method, b.method, a.group) == (RULE, CONTROL, b.group):
                one, other = Seen.of(runs, a), Seen.of(runs, b)
                if one.costs.hash == other.costs.hash and one.cap == other.cap:
                    out.append((one, other))
    return out


def reliability(seen: Seen, g: Callable[[float], float]) -> list[list[float]]:
    """[low, high, nodes, predicted, accepted, calibrated] by bins of the predicted path probability; full bins only."""
    rows: list[list[tuple[float, bool, float]]] = [[] for _ in BINS[1:]]
    for index, this in enumerate(seen.trace.rounds):
        for k, p in zip(seen.order[index], seen.probabilities(index, False), strict=True):
            place = next(i for i, high in enumerate(BINS[1:]) if p < high or high == BINS[-1])
            score = total(this.nodes.cum_conditional, [k])
            rows[place].append((p, this.nodes.accepted[k], exp(g(score))))
    return [
        [BINS[i], BINS[i + 1], len(row), *(statistics.fmean(column) for column in zip(*row, strict=True))]
        for i, row in enumerate(rows)
        if row
    ]


def _histogram(*runs: list[int]) -> str:
    """Rounds of each run by number of nodes, in at most eight equal steps: "20 – 29: 3 and 5"."""
    low, high = min(map(min, runs)), max(map(max, runs))
    width = next(w for w in (1, 2, 5, 10, 20, 50, 100) if high // w - low // w < 8)
    steps = range(low // width, high // width + 1)
    counts = [[sum(n // width == k for n in sizes) for sizes in runs] for k in steps]
    return "; ".join(
        f"{k * width}{f' – {(k + 1) * width - 1}' if width > 1 else ''}: {' and '.join(map(str, count))}"
        for k, count in zip(steps, counts, strict=True)
    )


def fastest_fixed(runs: Runs, run: Recorded) -> Recorded:
    """The fastest recorded DominoTree run of a fixed budget with the run's prompt, temperature and machine."""
    fixed = [r for r in runs.library.runs if (r.method, r.group) == ("dominotree", run.group)]
    found(fixed, f"a recorded DominoTree run beside {run.file}")
    return max(fixed, key=lambda r: runs.trace(r).summary["tokens_per_second"] or 0.0)


def adaptive(runs: Runs) -> Lesson:
    """The runs under the flattest costs; there the round with the most nodes, or at the cap the fewest accepted."""
    options = pairs(runs)
    found(options, "a recorded CondAdaptive run with its calibrated control")
    seen, control = min(options, key=lambda x: x[0].steep)
    rounds = seen.trace.rounds
    index = max(
        range(len(rounds)),
        key=lambda k: -rounds[k].accepted if seen.saturates else rounds[k].verified_nodes,
    )
    this, g = rounds[index], control.calibrate
    assert g is not None
    last = len(seen.order[index]) - 1
    claim(last >= 0, "a tree has nodes")
    expected, accepted = statistics.fmean(seen.promised), seen.accepted
    best = fastest_fixed(runs, seen.run)
    fixed = runs.trace(best)
    fields: Fields = {
        "title_run": METHODS[RULE].title,
        "machine": seen.trace.header["machine"],
        "kind": kind_name(seen.run),
        "cap": seen.cap,
        "rounds": len(rounds),
        "at_cap": seen.at_cap,
        "low": min(seen.sizes),
        "high": max(seen.sizes),
        "median": statistics.median(seen.sizes),
        "steep": seen.steep,
        "histogram": _histogram(seen.sizes, control.sizes),
        "expected": expected,
        "accepted": accepted,
        "off": abs(expected / accepted - 1) if accepted else 0.0,
        "c_at_cap": control.at_cap,
        "c_rounds": len(control.sizes),
        "c_low": min(control.sizes),
        "c_high": max(control.sizes),
        "c_median": statistics.median(control.sizes),
        "c_nodes": control.trace.header["calibration"]["about"]["nodes"],
        "c_prompts": control.trace.header["calibration"]["about"]["prompts"],
        "rate": seen.rate,
        "build": mean_ms(seen.trace, "build"),
        "verify": mean_ms(seen.trace, "verify"),
        "mean": statistics.fmean(seen.sizes),
        "fixed_verify": mean_ms(fixed, "verify"),
        "fixed": best.budget,
        "fixed_rate": fixed.summary["tokens_per_second"],
        "fixed_build": mean_ms(fixed, "build"),
        "round": this.index,
        "nodes": this.verified_nodes,
        "here": this.accepted,
        "p_last": seen.probabilities(index)[last],
        "p_needed": seen.needed(index, last),
    }
    claim(all(map(seen.obeys, range(len(rounds)))), "every node raised expected tokens over time")
    claim(all(map(control.obeys, range(len(control.sizes)))), "the control's nodes did, too")
    claim(
        seen.trace.summary["token_ids"] == control.trace.summary["token_ids"], "both runs write the same text"
    )
    claim(fields["p_last"] > fields["p_needed"], "the last node paid for its row")
    return {
        "title": "Why the adaptive budget fails" if seen.saturates else "A budget that follows the cost",
        "fields": fields,
        "claim": _claim(seen),
        "body": [
            "CaDDTree adds a node only while the tokens that the round may expect, divided by the time of draft and verify, "
            "still grow. What may be expected is the sum of the path probabilities, and the bonus. CondAdaptive is this rule on "
            "DominoTree's scores. In the paper it ran to its cap on nearly every round, and path probabilities that promise "
            "too much are named as the reason; so DominoTree's own budget is fixed.",
            "Rounds by their number of nodes, rule and control: {histogram}.",
            f"Here the trees promised {{expected:.2f}} accepted drafts a round and {{accepted:.2f}} came: {_promise(seen)}.",
            "The control has the same costs and cap, and probabilities calibrated on {c_nodes} nodes of {c_prompts} other prompts. It built "
            f"{{c_low}} to {{c_high}} nodes, {{c_median:g}} at the median, and stood at the cap in {{c_at_cap}} of {{c_rounds:#round}}. "
            f"{_verdict(seen, control)}",
            "On {machine} this run made {rate:.0f} tokens a second, DominoTree with {fixed:#node} in every round {fixed_rate:.0f}. "
            f"Building took {{build:.2f}} and {{fixed_build:.2f}} ms a round.{_building(seen)}",
        ],
        "table": table(
            "Nodes of these trees by the probability of their path",
            ["predicted", "nodes", "mean", "accepted", "calibrated"],
            [
                [cell(f"{low:g} – {high:g}"), cell(int(n)), cell(p, "p"), cell(hit, "p"), cell(after, "p")]
                for low, high, n, p, hit, after in reliability(seen, g)
            ],
        ),
        "picture": picture(seen.run, this, None, seen.order[index][last], "node", "walk", "tall"),
        "try": "Round {round} has {nodes:#node} and got {here} of them accepted. Selected is the node added last: its path had probability {p_last:p}, and it paid above {p_needed:p}.",
        "actions": [
            step(
                spans("The last of {nodes:#node}", fields),
                round=this.index,
                scoring=None,
                node=seen.order[index][last],
            ),
            step(
                [["text", "The control beside it"]],
                round=this.index,
                beside=control.run.run_id,
                by="position",
            ),
            step(
                spans("The run of {fixed:#node} beside it", fields),
                round=this.index,
                beside=best.run_id,
                by="position",
            ),
        ],
        "question": "What does the rule do on a machine where a verify takes the same time whatever its size?",
        "answer": [
            "It never stops: every further node promises something, if ever so little, and costs nothing. It ends at the cap "
            "or when no path is left, however well the probabilities are calibrated.",
            "On this machine a verify of {cap} nodes takes {steep:.1f} times as long as one of the anchor alone. The flatter that "
            "curve, the closer the rule comes to its cap, and the less a budget per round can save. Building the tree takes "
            "time as well, and the rule does not count it.",
        ],
        "source": f"Costs: profile {seen.costs.hash} of {seen.costs.about['machine']}, {str(seen.costs.about['created'])[:10]}.",
    }


def _building(seen: Seen) -> str:
    """What a cost-aware round waits for on a GPU, and what its verify takes: see ``gpu/rounds.py``."""
    if seen.trace.header["settings"].get("builder") != "fused":
        return ""
    return (
        " With the rule, building holds a wait: the host reads how many nodes there are before it launches a verify of that "
        "size. That verify took {verify:.2f} ms in the mean, of {mean:.0f} nodes; the fixed "
        "tree's {fixed_verify:.2f}, of {fixed:#node}."
    )


def _claim(seen: Seen) -> str:
    if seen.saturates:
        return "The rule ran to its cap of {cap} nodes in {at_cap} of {rounds:#round}: here a verify of that size takes only {steep:.2f} times as long as one of the anchor alone."
    return "On our {kind} prompt the rule stopped at {low} to {high} nodes, {median:g} at the median, of the {cap} that it may have: here a verify of {cap} nodes takes {steep:.1f} times as long as one of the anchor alone."


def _promise(seen: Seen) -> str:
    gaps = [p - this.accepted for p, this in zip(seen.promised, seen.trace.rounds, strict=True)]
    mean = statistics.fmean(gaps)
    error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("inf")
    if abs(mean) <= ERRORS * error:
        return "a difference that chance alone can make in {rounds:#round}"
    return f"the scores promise too {'much' if mean > 0 else 'little'}, by {{off:%}}"


def _verdict(seen: Seen, control: Seen) -> str:
    if seen.saturates and control.saturates:
        return "So it is not the calibration that fills the tree here, it is the flat cost."
    if seen.saturates:
        return "So it is the promise that fills the tree here, not the cost."
    if control.saturates:
        return "So here the calibrated rule fills the tree and the raw one does not."
    return "Neither fills the tree: what decides here is the cost."
