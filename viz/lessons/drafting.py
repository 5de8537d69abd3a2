"""Lessons on drafting: a round, the marginals, the correction, the head."""

from __future__ import annotations

from math import exp

from dominotree import trace as tr
from viz.lessons.runs import (
    PAPER,
    ClaimFails,
    Lesson,
    Missing,
    Runs,
    claim,
    found,
    full,
    held,
    is_graph,
    lead,
    mean,
    path_to,
    picture,
    pop_step,
    spine,
    step,
    total,
    word,
)
from viz.lessons.text import Fields, cell, spans, table
from viz.library import Recorded


def one_round(runs: Runs) -> Lesson:
    """The round with the most accepted drafts among those that used at most half of their nodes."""
    options = [
        (run, this)
        for run in runs.all("dominotree")
        for this in runs.trace(run).rounds
        if 2 * this.accepted <= this.verified_nodes
    ]
    found(options, "a round")
    run, this = max(options, key=lambda x: x[1].accepted)
    trace = runs.trace(run)
    weak = min(trace.rounds, key=lambda r: r.accepted)
    counts = trace.counts
    fields: Fields = {
        "round": this.index,
        "accepted": this.accepted,
        "tokens": len(this.committed),
        "text": word(trace, *this.committed),
        "nodes": this.verified_nodes,
        "committed": counts.committed,
        "rounds": counts.rounds,
        "tau": counts.tau,
        "weak": weak.index,
        "weak_accepted": weak.accepted,
    }
    claim(this.accepted + 1 == len(this.committed), "a round commits its accepted drafts and one bonus")
    claim(this.accepted > 1 and this.accepted > weak.accepted, "rounds differ in how many drafts they accept")
    return {
        "title": "One forward pass, several tokens",
        "fields": fields,
        "claim": "In round {round} the large model, the target, ran once, and {tokens:#token} were settled: {accepted:#draft} + 1 bonus.",
        "body": [
            "A small drafter proposes a tree of {nodes:#node} after the [anchor](anchor). The target [checks](verify) all "
            "of them in one forward pass, then walks along the tokens that it would have chosen itself. "
            "Where no drafted token fits, its own choice is the [bonus](bonus), and the next round starts there.",
            "Over this run, {committed:#token} came in {rounds:#round}: [τ](tau) = {tau:.2f}. Plain decoding would have "
            "needed a forward for each token.",
        ],
        "picture": picture(run, this, None, None, "node", "walk", "text"),
        "try": "Step with ← and → and watch the blue line. Round {weak} was one of the poorest.",
        "actions": [step(spans("Go to round {weak}", fields), round=weak.index, scoring=None, node=None)],
        "question": "Why can τ never fall below 1, however bad the drafter is?",
        "answer": [
            "Because of the bonus. The check of a wrong tree still gives the target's own next token after the anchor. "
            "In round {weak}, {weak_accepted:#draft} + 1 bonus came out. A bad drafter costs time, never correctness.",
        ],
    }


def marginals(runs: Runs) -> Lesson:
    """The anchor at which the conditional tree holds most more of the coming tokens than the marginal one."""
    options = [(run, this) for run in runs.all("dominotree") for this in full(runs.trace(run))]
    found(options, "a round with all three trees")
    run, this = max(options, key=lambda x: lead(x[1]))
    trace, nodes = runs.trace(run), this.nodes
    path, short = spine(trace, this, "conditional"), len(spine(trace, this, "marginal"))
    claim(len(path) > short, "at some anchor the conditional tree holds more of the coming tokens")
    upto = path[: short + 1]
    missed = upto[-1]
    p_marginal, p_conditional = exp(total(nodes.marginal, upto)), exp(total(nodes.conditional, upto))
    claim(
        p_marginal < p_conditional,
        "the marginals make the text that came out less likely than the conditional scores do",
    )
    fields: Fields = {
        "marginal": short,
        "conditional": len(path),
        "text": word(trace, *(nodes.token[i] for i in upto)),
        "missed": word(trace, nodes.token[missed]),
        "p_marginal": p_marginal,
        "p_conditional": p_conditional,
        "sum_marginal": held(trace, "marginal"),
        "sum_conditional": held(trace, "conditional"),
        "rounds": len(trace.rounds),
    }
    claim(
        fields["sum_conditional"] > fields["sum_marginal"],
        "the conditional trees hold more over the whole run",
    )
    rows = [
        [
            cell(word(trace, nodes.token[i])),
            cell(exp(nodes.marginal[i] or 0), "p"),
            cell(exp(nodes.conditional[i] or 0), "p"),
        ]
        for i in upto
    ]
    return {
        "title": "Likely words do not make a likely phrase",
        "fields": fields,
        "claim": "From the same hidden states, the marginal tree holds {marginal} of the coming tokens, the conditional tree {conditional}.",
        "body": [
            "The drafter writes all depths in one pass. Its base logits give one distribution per depth, the "
            "[marginal](marginal), blind to what came before. Where the text can go on in several ways, every depth "
            "mixes them, and a tree built from marginals joins words of different continuations.",
            "The text went on with {text}. Along this path the marginals multiply to {p_marginal:p}; with each token "
            "scored for the tokens before it, the [product](cumulative) is {p_conditional:p}. {missed} did not make it "
            "into the marginal tree.",
        ],
        "table": table(
            "Probability of each token on this path, over the same top-M candidates",
            ["token", "marginal", "conditional"],
            rows,
            [len(rows) - 1],
        ),
        "picture": picture(run, this, "marginal", missed, "node", "walk"),
        "try": "Switch the tree (or press s). Nothing moves; a diamond marks what only this tree has.",
        "actions": [
            step([["text", "Marginal"]], round=this.index, scoring="marginal", node=missed),
            step([["text", "Static-corrected"]], round=this.index, scoring="static", node=missed),
            step([["text", "Conditional"]], round=this.index, scoring="conditional", node=missed),
        ],
        "question": "Suppose the marginal of every depth were exactly right. Could the tree still be poor?",
        "answer": [
            "Yes. The product of the marginals treats depths as independent. It spends probability on mixtures that "
            "nobody would write, and so the real phrase competes with them for places in the tree.",
            "At the {rounds:#anchor} of this run the marginal trees hold {sum_marginal} of the coming tokens, the "
            "conditional trees {sum_conditional}.",
        ],
    }


def _siblings(nodes: tr.Nodes, node: int) -> list[int]:
    """Recorded children of the same parent, best base logit first."""
    same = [
        k
        for k in range(len(nodes))
        if nodes.parent[k] == nodes.parent[node] and nodes.base_logit[k] is not None
    ]
    return sorted(same, key=lambda k: -(nodes.base_logit[k] or 0))


def correction(runs: Runs) -> Lesson:
    """The accepted token that climbs most places to the first among its recorded siblings; on a tie, gains most."""
    best: tuple[tuple[int, float], Recorded, tr.Round, int] | None = None
    for run in runs.all("dominotree"):
        for this in runs.trace(run).rounds:
            n = this.nodes
            for node in this.path:
                group = _siblings(n, node)
                if (
                    any(n.delta[k] is None for k in group)
                    or n.conditional[node] is None
                    or n.marginal[node] is None
                ):
                    continue
                after = sorted(group, key=lambda k: -_corrected(n, k))
                if after[0] != node or group[0] == node:
                    continue
                worth = (group.index(node), (n.conditional[node] or 0) - (n.marginal[node] or 0))
                if best is None or worth > best[0]:
                    best = worth, run, this, node
    if best is None:
        raise ClaimFails("no accepted token became the first of its siblings through its correction")
    (places, _), run, this, node = best
    trace, n = runs.trace(run), this.nodes
    group = _siblings(n, node)
    after = sorted(group, key=lambda k: -_corrected(n, k))
    rival, above = group[0], path_to(n, node)[:-1]
    fields: Fields = {
        "path": word(trace, this.anchor, *(n.token[k] for k in above)),
        "token": word(trace, n.token[node]),
        "rival": word(trace, n.token[rival]),
        "candidates": len(group),
        "before": places + 1,
        "L": n.base_logit[node],
        "delta": n.delta[node],
        "rival_L": n.base_logit[rival],
        "rival_delta": n.delta[rival],
        "p_before": exp(n.marginal[node] or 0),
        "p_after": exp(n.conditional[node] or 0),
        "p_target": exp(n.target_logprob[node] or 0),
        "first": min(d for d, x in zip(n.depth, n.delta, strict=True) if x is not None),
    }
    claim(fields["rival_L"] > fields["L"], "the base logits prefer the rival")
    claim(
        fields["L"] + fields["delta"] > fields["rival_L"] + fields["rival_delta"],
        "the corrected logits prefer the token",
    )
    claim(fields["p_after"] > fields["p_before"], "the correction makes the accepted token more likely")
    claim(fields["first"] > 1, "the first depth has no correction")
    rows = [
        [
            cell(word(trace, n.token[k])),
            cell(n.base_logit[k], ".2f"),
            cell(n.delta[k], "+.2f"),
            cell(_corrected(n, k), ".2f"),
            [["text", f"{group.index(k) + 1} → {after.index(k) + 1}"]],
        ]
        for k in group
    ]
    return {
        "title": "What the correction adds",
        "fields": fields,
        "claim": "After {path}, the base logits put {rival} first and {token} in place {before}. Corrected for the path, {token} is first, and the target chose it.",
        "body": [
            "A small GRU reads the path's tokens. From its state, the head adds [ΔL](delta) to the base logit [L](logit) "
            "of each candidate of the next depth; the score is the log-softmax of L + ΔL. Only differences count: the "
            "same amount added to every candidate changes nothing.",
            "The probability of {token} rises from {p_before:p} to {p_after:p}. The target itself gives it {p_target:p}.",
        ],
        "table": table(
            f"The {len(group)} candidates recorded after this path",
            ["token", "L", "ΔL", "L + ΔL", "place"],
            rows,
            [group.index(node)],
        ),
        "picture": picture(run, this, "conditional", node, "node", "walk"),
        "try": "Select the two tokens and compare L, ΔL and the three probabilities; then see what the correction does to all candidates.",
        "actions": [
            step(spans("{rival}", fields), round=this.index, scoring="conditional", node=rival),
            step(spans("{token}", fields), round=this.index, scoring="conditional", node=node),
            step(
                [["text", "All candidates, before and after"]],
                round=this.index,
                scoring="conditional",
                inside=pop_step(this, n.parent[node]),
            ),
        ],
        "question": "This pair corrects from depth {first} on. Why is the missing correction at depth 1 no loss?",
        "answer": [
            "The path to depth 1 is the anchor alone, and the backbone has read the anchor. Its base logits there "
            "already depend on everything there is; only from the next depth on does the path hold tokens that the "
            "backbone has not seen.",
        ],
    }


def _corrected(n: tr.Nodes, k: int) -> float:
    return (n.base_logit[k] or 0) + (n.delta[k] or 0)


def head_only(runs: Runs) -> Lesson:
    """The accepted token that also stands, with the most different probability, on another path."""
    best: tuple[float, Recorded, tr.Round, int, int] | None = None
    for run in runs.all("dominotree"):
        for this in runs.trace(run).rounds:
            n = this.nodes
            groups: dict[tuple[int, int], list[int]] = {}
            for k in range(len(n)):
                if n.delta[k] is not None and n.conditional[k] is not None:
                    groups.setdefault((n.depth[k], n.token[k]), []).append(k)
            for group in groups.values():
                low, high = (pick(group, key=lambda k: n.conditional[k] or 0) for pick in (min, max))
                spread = exp(n.conditional[high] or 0) - exp(n.conditional[low] or 0)
                if n.accepted[high] and (best is None or spread > best[0]):
                    best = spread, run, this, low, high
    if best is None:
        raise Missing("an accepted token that stands on two paths")
    spread, run, this, low, high = best
    trace, n = runs.trace(run), this.nodes
    stages = [r for r in runs.table("stage_times_4b.csv") if is_graph(r)]
    found(stages, "published stage times")
    budget = trace.header["settings"]["budget"]
    fields: Fields = {
        "token": word(trace, n.token[low]),
        "depth": n.depth[low],
        "path_low": word(trace, *(n.token[k] for k in path_to(n, low)[:-1])),
        "path_high": word(trace, *(n.token[k] for k in path_to(n, high)[:-1])),
        "L": n.base_logit[low],
        "low": n.delta[low],
        "high": n.delta[high],
        "p_low": exp(n.conditional[low] or 0),
        "p_high": exp(n.conditional[high] or 0),
        "levels": trace.header["pair"].get("levels") or len(this.level_logz_m),
        "budget": budget,
        "draft_ms": mean(stages, "draft_ms"),
        "build_ms": mean(stages, "build_ms"),
        "verify_ms": mean(stages, "verify_ms"),
        "sets": len(stages),
    }
    fields["again_ms"] = budget * fields["draft_ms"]
    ladder = [r for r in runs.table("conditioning_ladder.csv") if r["setting"] == "matched_builder"]
    for name, method in (
        ("marginal", "marg@16"),
        ("static", "condstatic@16"),
        ("conditional", "dominotree@16"),
    ):
        fields[f"tau_{name}"] = mean([r for r in ladder if r["method"] == method], "tau")
    claim(
        fields["tau_marginal"] < fields["tau_static"] < fields["tau_conditional"],
        "each step of the ladder raises the published τ",
    )
    claim(n.base_logit[low] == n.base_logit[high], "a token has the same base logit on every path of a depth")
    claim(fields["low"] != fields["high"] and spread > 0, "its correction differs between paths")
    claim(
        fields["again_ms"] > fields["verify_ms"],
        "a backbone pass for every node would cost more than the verify",
    )
    return {
        "title": "Only the head runs once per node",
        "fields": fields,
        "claim": "{token} stands at depth {depth} after {path_low} and after {path_high}: one L = {L:.2f}, but ΔL = {low:.2f} and {high:.2f}, and so {p_low:p} and {p_high:p}.",
        "body": [
            "The backbone runs once a round and gives hidden states for all {levels} depths. They do not depend on the "
            "path, so every node of a depth shares [L](logit). What knows the path is the GRU state, one small step per "
            "token, and the head that reads it: only these run again for each node that is expanded.",
            "The [static-corrected](static) tree saves even that: one correction per depth, that of the greedy path. "
            "Published [τ](tau) for Qwen3-4B: {tau_marginal:.2f} with marginals, {tau_static:.2f} static, "
            "{tau_conditional:.2f} conditional.",
        ],
        "picture": picture(run, this, "conditional", high, "node", "walk"),
        "try": "Select both places of {token}. In the panel L stays, ΔL and the conditional probability change.",
        "actions": [
            step(
                spans("{token} after {path_low}", fields), round=this.index, scoring="conditional", node=low
            ),
            step(
                spans("{token} after {path_high}", fields), round=this.index, scoring="conditional", node=high
            ),
        ],
        "question": "Why not run the whole drafter again for each node and be exact?",
        "answer": [
            "That is an autoregressive drafter, and it waits for itself. On Qwen3-4B a backbone pass takes "
            "{draft_ms:.1f} ms; {budget} of them in a row, one per node, would be {again_ms:.0f} ms, more than the "
            "target's verify with its {verify_ms:.1f} ms. The whole conditional tree takes {build_ms:.1f} ms.",
        ],
        "source": f"Published: {PAPER}, RTX 5080, temperature 0, means of {len(stages)} data sets.",
    }
