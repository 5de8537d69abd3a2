"""Lessons on building the tree: best first and its budget, the top-M, the CUDA graph."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from math import exp

from dominotree import trace as tr
from viz.benchmarks import DATASETS, listed
from viz.lessons.runs import (
    DEFAULT_BUDGET,
    PAPER,
    Lesson,
    Runs,
    claim,
    found,
    is_graph,
    kind_name,
    mean,
    mean_ms,
    picture,
    step,
    stop_step,
    word,
)
from viz.lessons.text import Fields, cell, spans, table


def _by_order(this: tr.Round, count: int) -> int:
    """Accepted drafts of the tree that stops after its first ``count`` nodes."""
    accepted = 0
    for k in this.path:
        order = this.nodes.order[k]
        if order is None or order >= count:
            break
        accepted += 1
    return accepted


def waiting(this: tr.Round, scores: Sequence[float | None]) -> list[float]:
    """Cumulative scores of the paths that were pushed and never popped, best first; ``scores`` of the nodes.

    Empty where the pops were not recorded.
    """
    nodes = {
        (parent, token)
        for parent, token, order in zip(this.nodes.parent, this.nodes.token, this.nodes.order, strict=True)
        if order is not None
    }
    left = []
    for pop in this.pops:
        above = 0.0 if pop.node < 0 else scores[pop.node] or 0.0
        left += [above + pop.score[k] for k in pop.offered if (pop.node, pop.token[k]) not in nodes]
    return sorted(left, reverse=True)


def budget(runs: Runs) -> Lesson:
    """The large-budget run whose first nodes hold least of what the whole trees hold; there the widest gap."""
    big, small = 4 * DEFAULT_BUDGET, DEFAULT_BUDGET
    options = [
        (run, this) for run in runs.all("dominotree", big) for this in runs.trace(run).rounds if this.path
    ]
    found(options, "a round of a large tree")
    run, this = max(options, key=lambda x: x[1].accepted - _by_order(x[1], small))
    trace, other = runs.trace(run), runs.trace(runs.find(run.kind, "dominotree"))
    sizes = [1 << k for k in range(big.bit_length())]
    sums = [sum(_by_order(r, size) for r in trace.rounds) for size in sizes]
    last = _by_order(this, small)
    inside, beyond = this.path[max(0, last - 1)], this.path[min(last, len(this.path) - 1)]
    rounds = len(trace.rounds)
    fields: Fields = {
        "rounds": rounds,
        "small": small,
        "big": big,
        "times": big // small,
        "few": sums[sizes.index(small)],
        "all": sums[-1],
        "ratio": sums[-1] / max(1, sums[sizes.index(small)]) - 1,
        "tau_small": other.counts.tau,
        "tau_big": trace.counts.tau,
        "share_small": sums[sizes.index(small)] / (rounds * small),
        "share_big": sums[-1] / (rounds * big),
        "inside": word(trace, this.nodes.token[inside]),
        "beyond": word(trace, this.nodes.token[beyond]),
        "round": this.index,
        "here": this.accepted,
        "here_small": last,
        "second": sums[-1] - sums[-2],
        "half": sizes[-1] - sizes[-2],
    }
    popped = sorted((o, k) for k, o in enumerate(this.nodes.order) if o is not None)
    scores = [this.nodes.cum_conditional[k] or 0 for _, k in popped]
    claim(
        all(a >= b - 1e-4 for a, b in itertools.pairwise(scores)),
        "nodes are added in order of their scores",
    )
    left = waiting(this, this.nodes.cum_conditional)
    heap = []
    if left:
        fields |= {"left": len(left), "p_left": exp(left[0]), "p_last": exp(scores[-1])}
        claim(
            fields["p_left"] <= 1.001 * fields["p_last"],
            "no path left on the heap is likelier than the last node",
        )
        heap = [
            "In round {round} the last of {big} nodes has a path probability of {p_last:p}; {left:#path} stay on the "
            "[heap](heap), none likelier than {p_left:p}."
        ]
    claim(fields["all"] > fields["few"], "more nodes hold more of the coming tokens")
    claim(fields["all"] < fields["times"] * fields["few"], "the gain is smaller than the budget's growth")
    claim(fields["tau_big"] > fields["tau_small"], "the run with the larger budget has the larger τ")
    claim(fields["tau_big"] < fields["times"] * fields["tau_small"], "its τ grows less than its budget")
    gains = [b - a for a, b in zip([0, *sums], sums, strict=False)]
    added = [b - a for a, b in zip([0, *sizes], sizes, strict=False)]
    rows = [
        [cell(size), cell(total_), cell(gain / new / rounds, "p")]
        for size, total_, gain, new in zip(sizes, sums, gains, added, strict=True)
    ]
    return {
        "title": "Best first, and when to stop",
        "fields": fields,
        "claim": "At these {rounds:#anchor} the first {small} nodes hold {few} of the coming tokens, all {big} hold {all}: {times} times the nodes, {ratio:+%} tokens.",
        "body": [
            "The builder keeps a heap of paths. It pops the likeliest, adds it to the tree and pushes its children, "
            "until the budget is spent. So a large tree begins with exactly the small one, and every further node is, "
            "by the drafter's scores, less likely than all before it.",
            *heap,
            "As runs of their own: [τ](tau) = {tau_small:.2f} with {small} nodes, {tau_big:.2f} with {big}.",
        ],
        "table": table(
            "Coming tokens held by the first nodes of each tree",
            ["nodes", "tokens held", "of the added nodes, accepted"],
            rows,
            [sizes.index(small), len(sizes) - 1],
        ),
        "picture": picture(run, this, None, beyond, "node", "walk", "tall"),
        "try": "Watch the build of round {round}: each step pops the likeliest path off the heap. {here_small} of its {here} accepted drafts are among the first {small} nodes.",
        "actions": [
            step([["text", "The build, pop by pop"]], round=this.index, scoring=None, inside=0),
            step(spans("Where a tree of {small} ends", fields), round=this.index, scoring=None, inside=small),
            step(
                spans("Last one that {small} nodes have: {inside}", fields),
                round=this.index,
                scoring=None,
                node=inside,
            ),
            step(
                spans("First one that they lack: {beyond}", fields),
                round=this.index,
                scoring=None,
                node=beyond,
            ),
        ],
        "question": "Then why not spend a thousand nodes?",
        "answer": [
            "Every node is a row in the target's forward pass, and most are thrown away: of the first {small} nodes "
            "{share_small:p} are accepted, of all {big} only {share_big:p}. The last {half} nodes of each tree brought "
            "{second:#token} in {rounds:#round}. A GPU verifies some more rows at little cost, a CPU hardly any; which "
            "budget is fastest depends on the machine, not on τ alone.",
        ],
    }


def _coverage(this: tr.Round) -> list[float]:
    """Share of the base probability that the top-M candidates of each level carry."""
    pairs = zip(this.level_logz_m, this.level_logz_v, strict=True)
    return [exp(m - v) for m, v in pairs if m is not None and v is not None]


def top_m(runs: Runs) -> Lesson:
    """The prompt whose candidates cover least in the end; there the round that stopped where they cover least."""
    rows = []
    for one in runs.all("dominotree"):
        levels = zip(*(c for c in map(_coverage, runs.trace(one).rounds) if c), strict=False)
        rows.append((one, [statistics.fmean(level) for level in levels]))
    found([shares for _, shares in rows if shares], "the log-sums of the levels")
    run, mine = min(rows, key=lambda x: x[1][-1])
    depths = [d for d in (1, 2, 4, 8, 16) if d <= min(len(shares) for _, shares in rows)]
    trace = runs.trace(run)
    options = [r for r in trace.rounds if 0 < r.accepted < len(_coverage(r))]
    found(options, "a round that stopped inside the block")
    this = min(options, key=lambda r: _coverage(r)[r.accepted])
    pair, m = trace.header["pair"], trace.header["settings"]["top_m"]
    widths = runs.table("candidate_width.csv")
    tau = {(r["dataset"], str(r["top_m"]).removesuffix(".0")): r for r in widths}
    sets = [
        d for d in dict.fromkeys(r["dataset"] for r in widths) if (d, str(m)) in tau and (d, "full") in tau
    ]
    found(sets, "a published candidate width")
    change = [tau[d, "full"]["tau"] / tau[d, str(m)]["tau"] - 1 for d in sets]
    slower = [tau[d, "full"]["build_ms"] / tau[d, str(m)]["build_ms"] - 1 for d in sets]
    fields: Fields = {
        "m": m,
        "vocabulary": pair["vocab_size"],
        "share": m / pair["vocab_size"],
        "first": mine[0],
        "last": mine[-1],
        "deepest": len(mine),
        "kind": kind_name(run),
        "depth": this.accepted + 1,
        "here": _coverage(this)[this.accepted],
        "bonus": word(trace, this.bonus),
        "low": min(change),
        "high": max(change),
        "slower": min(slower),
        "sets": listed([DATASETS.get(d, d) for d in sets]),
    }
    claim(fields["first"] > 0.5, "the candidates carry most of the base probability at depth 1")
    claim(all(shares[0] > shares[-1] for _, shares in rows), "they carry less the deeper the drafter guesses")
    claim(
        max(map(abs, change)) < 0.05 < min(slower),
        "scoring the whole vocabulary hardly changes τ and takes longer",
    )
    return {
        "title": "Correct a few candidates, not the vocabulary",
        "fields": fields,
        "claim": "On our {kind} prompt {m} of {vocabulary} tokens, {share:p}, carry {first:p} of the base probability at depth 1, and still {last:p} at depth {deepest}.",
        "body": [
            "ΔL for the whole vocabulary would be the costliest part of the head, at every node. DominoTree corrects only "
            "the [top-M](topm) candidates of a depth by base logit, chosen once per round.",
            "Deep in the block the drafter knows less, and the M candidates cover less. "
            "Published for Qwen3-4B ({sets}): with the whole vocabulary τ changes by {low:+.1%} to {high:+.1%}, while the "
            "build takes at least {slower:%} longer.",
        ],
        "table": table(
            f"Base probability carried by the {m} candidates, mean over each run",
            ["prompt", *(f"depth {d}" for d in depths)],
            [[cell(kind_name(one)), *(cell(shares[d - 1], "p") for d in depths)] for one, shares in rows],
            [next(k for k, (one, _) in enumerate(rows) if one is run)],
        ),
        "picture": picture(run, this, "conditional", -2, "node", "walk"),
        "try": "The walk stopped at depth {depth}, where the candidates carry {here:p}. The target wanted {bonus}: look at its alternatives in the verify walk.",
        "actions": [
            step(spans("The bonus {bonus}", fields), round=this.index, scoring="conditional", node=-2),
            step([["text", "The anchor"]], round=this.index, scoring="conditional", node=-1),
            step(
                spans("Why {bonus} was not drafted", fields),
                round=this.index,
                scoring="conditional",
                inside=stop_step(this),
            ),
        ],
        "question": "A token that L ranks below place M would win after the correction. What happens?",
        "answer": [
            "It is never scored, so it cannot be drafted: the candidates are chosen by L, before the correction. The "
            "round ends there at the latest and the target supplies the token as bonus. The text is the same; only the "
            "round is shorter.",
        ],
        "source": f"Published: {PAPER}.",
    }


def _jumps(this: tr.Round) -> int:
    """Pops of a round that do not continue the path popped just before."""
    popped = [k for _, k in sorted((o, k) for k, o in enumerate(this.nodes.order) if o is not None)]
    return sum(this.nodes.parent[b] != a for a, b in itertools.pairwise(popped))


def graph(runs: Runs) -> Lesson:
    """The round whose build most often does both: go on along a path, and turn to another one."""
    options = [(run, this) for run in runs.all("dominotree") for this in runs.trace(run).rounds]
    found(options, "a round")
    run, this = max(options, key=lambda x: min(_jumps(x[1]), x[1].verified_nodes - 1 - _jumps(x[1])))
    trace = runs.trace(run)
    stages = runs.table("stage_times_4b.csv")
    python, native = ([r for r in stages if is_graph(r, s)] for s in ("python_builder", "gpu_native"))
    found(python and native, "published stage times of both builders")
    names = ("draft", "build", "verify", "commit")
    before, after = ({n: mean(rows, f"{n}_ms") for n in names} for rows in (python, native))
    popped = [k for _, k in sorted((o, k) for k, o in enumerate(this.nodes.order) if o is not None)]
    fields: Fields = {
        "python": before["build"],
        "graph": after["build"],
        "faster": 1 - after["build"] / before["build"],
        "round_python": sum(before.values()),
        "round_graph": sum(after.values()),
        "gain": 1 - sum(after.values()) / sum(before.values()),
        "verify": after["verify"],
        "tau": mean(native, "tau"),
        "sets": len(native),
        "jumps": _jumps(this),
        "steps": len(popped) - 1,
    }
    same = {r["dataset"]: r["tau"] for r in python}
    claim(fields["graph"] < fields["python"], "the CUDA graph builds faster than Python")
    claim(
        all(abs(r["tau"] - same[r["dataset"]]) < 5e-4 for r in native),
        "both builders have the same τ on every data set",
    )
    claim(0 < fields["gain"] < fields["faster"], "the round gains less than the build")
    claim(0 < fields["jumps"] < fields["steps"], "the build goes back and forth between paths")
    return {
        "title": "The CUDA graph: the same tree, less waiting",
        "fields": fields,
        "claim": "Published for Qwen3-4B: the build takes {python:.2f} ms a round from Python and {graph:.2f} ms as a CUDA graph, at the same τ = {tau:.2f}.",
        "body": [
            "Best-first is sequential: which path comes next depends on the scores just computed. In the round shown, "
            "{jumps} of {steps:#step} turn to another path than the one just extended. On a GPU each step is a handful of tiny "
            "kernels, and launching them from Python takes longer than running them.",
            "DominoTree captures the work of one step as a CUDA graph and replays it. The heap stays on the host and the "
            "arithmetic is the same, so the tree is bit-identical.",
        ],
        "bars": {
            "caption": f"Milliseconds a round, mean of {len(native)} data sets at temperature 0",
            "names": list(names),
            "rows": [
                {"label": "Python", "values": [round(before[n], 3) for n in names]},
                {"label": "CUDA graph", "values": [round(after[n], 3) for n in names]},
            ],
        },
        "picture": picture(run, this, "conditional", popped[0], "node", "walk"),
        "try": "Select the nodes one by one in the order in which they were added, and see the build jump.",
        "actions": [
            step(
                [["text", "Next node in build order"]], round=this.index, scoring="conditional", cycle=popped
            )
        ],
        "question": "The build gets {faster:%} shorter. How much shorter does a round get?",
        "answer": [
            "{round_python:.1f} ms become {round_graph:.1f} ms: {gain:%}. The target's forward pass alone takes "
            "{verify:.1f} ms. This is why the accepted length matters more than any single stage, and why a builder must "
            "stay cheap: its milliseconds come on top in every round.",
        ],
        "source": f"Published: {PAPER}, RTX 5080. {_ours(trace)}",
    }


def _ours(trace: tr.Trace) -> str:
    """How the run shown was built, since it is not how the published ones were."""
    header, ms = trace.header, mean_ms(trace, "build")
    how = {
        "fused": "by one kernel without the host",
        "graph": "with the CUDA graph",
        "reference": "in Python",
    }
    builder = header["settings"]["builder"]
    return f"The run shown was built {how.get(builder, builder)} on {header['machine']}: {ms:.2f} ms a round."
