"""Lessons on reading results: losslessness, counts per anchor, where the method does not win."""

from __future__ import annotations

from math import exp
from typing import Any

from dominotree import trace as tr
from viz.benchmarks import DATASETS, OURS, TREES
from viz.lessons.runs import (
    DEFAULT_BUDGET,
    PAPER,
    Lesson,
    Runs,
    claim,
    found,
    full,
    held,
    kind_name,
    lead,
    mean,
    picture,
    step,
    word,
)
from viz.lessons.text import Fields, cell, shown, table
from viz.library import Recorded

CODE = ("humaneval", "mbpp", "livecodebench")


def lossless(runs: Runs) -> Lesson:
    """Above temperature 0: the round in which the least likely of the sampled tokens that were drafted was accepted."""
    groups: dict[str, list[Recorded]] = {}
    for run in runs.runs:
        groups.setdefault(run.group, []).append(run)
    cold = [g for g in groups.values() if not g[0].temperature]
    hot = [
        g
        for g in groups.values()
        if g[0].temperature and len({r.method for r in g}) > 1 and _of(g, "dominotree")
    ]
    found(cold and hot, "runs of several methods at temperature 0 and above")
    for group in (*cold, *hot):
        texts = {tuple(runs.trace(run).summary["token_ids"]) for run in group}
        seeds = {runs.trace(run).header["settings"]["seed"] for run in group}
        claim(
            len(texts) == 1 and len(seeds) == 1,
            f"all runs of {group[0].group_title(False)} write the same tokens",
        )
    claim(all(_of(group, "ar") for group in cold), "plain decoding is among the runs at temperature 0")
    plain = [runs.trace(_of(group, "ar")[0]) for group in cold]
    drafted_runs = [runs.trace(run) for group in cold for run in group if run.method != "ar"]
    warm = hot[0]
    run = _of(warm, "dominotree")[0]
    other = next(r for r in warm if r.method != "dominotree")
    trace = runs.trace(run)
    surprises = [
        (log_p, this, visit)
        for this in trace.rounds
        for visit in this.visits
        for token, log_p in visit.top
        if token == visit.chosen and visit.chosen != visit.top[0][0]
    ]
    drafted = [(log_p, this, visit) for log_p, this, visit in surprises if _child(this, visit) >= 0]
    found(drafted, "an accepted token that is not the target's favourite")
    log_p, this, visit = min(drafted, key=lambda x: x[0])
    settings, label = trace.header["settings"], _label(runs.trace(other))
    fields: Fields = {
        "methods": min(len({r.method for r in group} - {"ar"}) for group in cold),
        "prompts": len(cold),
        "tokens": sum(t.summary["new_tokens"] for t in plain),
        "most": max(len(t.rounds) for t in drafted_runs),
        "least": min(len(t.rounds) for t in drafted_runs),
        "plain": max(len(t.rounds) for t in plain),
        "ties": sum(len(t.summary.get("near_ties") or []) for t in (*plain, *drafted_runs)),
        "temperature": settings["temperature"],
        "seed": settings["seed"],
        "hot_tokens": trace.summary["new_tokens"],
        "hot_rounds": len(trace.rounds),
        "other": other.method_title + (f" (on {label})" if label else ""),
        "other_rounds": len(runs.trace(other).rounds),
        "surprises": len(surprises),
        "choices": sum(len(r.visits) for r in trace.rounds),
        "chosen": word(trace, visit.chosen),
        "p_chosen": exp(log_p),
        "favourite": word(trace, visit.top[0][0]),
        "p_favourite": exp(visit.top[0][1]),
        "round": this.index,
    }
    claim(
        fields["least"] < fields["most"] < fields["plain"],
        "every method needs fewer rounds than plain decoding",
    )
    claim(fields["p_chosen"] < fields["p_favourite"], "a sampled token can be less likely than the favourite")
    child = _child(this, visit)
    return {
        "title": "The draft changes the speed, never the text",
        "fields": fields,
        "claim": "On {prompts:#prompt}, {methods} methods wrote exactly what plain decoding writes, {tokens:#token} in all. They took {least} to {most} rounds a prompt, plain decoding up to {plain}.",
        "body": [
            "The tree only proposes. At temperature 0 the target takes its own argmax at every visited node, so a drafted "
            "token survives only if plain decoding would have written it.",
            "At higher temperatures it takes the argmax of logits / T + noise, where the noise depends on seed and position alone. "
            "That samples exactly from the target's distribution, whatever was drafted. At temperature {temperature:g} "
            "with seed {seed}, DominoTree and {other} wrote the same {hot_tokens:#token} in {hot_rounds} and "
            "{other_rounds} rounds.",
        ],
        "picture": picture(run, this, None, child, "walk", "text"),
        "try": "In round {round} the target sampled {chosen} ({p_chosen:p}) over its favourite {favourite} ({p_favourite:p}), and it was drafted. Put the other run beside it: other trees, same text.",
        "actions": [
            step(
                [["text", f"{other.method_title} beside it"]],
                round=this.index,
                beside=other.run_id,
                by="position",
            ),
            step([["text", "DominoTree alone"]], round=this.index, scoring=None, node=child),
        ],
        "question": "{surprises} of {choices} choices in this run are not the target's favourite. Why did both runs sample the same ones?",
        "answer": [
            "The noise at a position is a function of seed and position, not of the method, so each position has one "
            "answer. There is no second draw for rejected tokens and nothing to correct afterwards.",
            "The limit is floating point: where two logits nearly tie, a batched forward may round differently from a "
            "single one. Such near-ties are listed in each run; in the greedy ones there are {ties}.",
        ],
    }


def _label(trace: tr.Trace) -> str:
    """How to name the drafter where it is not the method's own, as "Domino base logits"; else ""."""
    label = str(trace.header.get("drafter_label") or "")
    return "" if label == trace.header["pair"].get("drafter") else label


def _of(group: list[Recorded], method: str) -> list[Recorded]:
    return [run for run in group if run.method == method and run.budget in (None, DEFAULT_BUDGET)]


def _child(this: tr.Round, visit: tr.Visit) -> int:
    """The accepted node that a visit led to, or -2, the bonus."""
    n = this.nodes
    return next((k for k in this.path if n.parent[k] == visit.node and n.token[k] == visit.chosen), -2)


def anchors(runs: Runs) -> Lesson:
    """The prompt on which the tally at another run's anchors misjudges the marginal run's τ most."""
    options = []
    for run in runs.all("dominotree"):
        other = runs.find(run.kind, "marginal")
        trace = runs.trace(run)
        guess = held(trace, "marginal") / len(trace.rounds) + 1
        options.append((abs(guess - (runs.trace(other).counts.tau or 0)), run, other, guess))
    found(options, "a marginal run")
    _, run, other, guess = max(options, key=lambda x: x[0])
    trace, real = runs.trace(run), runs.trace(other)
    found(full(trace), "a round with the trees of all three scorers")
    this = max(full(trace), key=lead)
    starts = [r.position for r in trace.rounds]
    shared = len(set(starts) & {r.position for r in real.rounds})
    fields: Fields = {
        "rounds": len(trace.rounds),
        "marginal": held(trace, "marginal"),
        "conditional": held(trace, "conditional"),
        "guess": guess,
        "real": real.counts.tau,
        "real_rounds": len(real.rounds),
        "tau": trace.counts.tau,
        "shared": shared,
        "more": "less" if guess > (real.counts.tau or 0) else "more",
        "round": this.index,
        "here": this.counterfactual["marginal"].accepted,
        "own": this.counterfactual["conditional"].accepted,
    }
    claim(round(guess, 2) != round(fields["real"], 2), "the tally at these anchors is not the other run's τ")
    claim(shared < len(real.rounds), "the two runs have different anchors")
    claim(fields["own"] == this.accepted, "the verified tree holds exactly what was accepted")
    return {
        "title": "A count per anchor is not a run",
        "fields": fields,
        "claim": "At this run's {rounds:#anchor} the marginal trees hold {marginal} of the coming tokens. Read as a run that would be τ = {guess:.2f}; the marginal run itself has {real:.2f}, {more} than that.",
        "body": [
            "The text does not depend on the drafter. So what another scorer's tree would have got accepted at this anchor is "
            "a fact: the longest of its paths [that the text follows](holds). The counts under the scoring buttons are these "
            "facts.",
            "But after a different round the other run would stand somewhere else, with a fresh backbone pass from its own "
            "anchor. Of its {real_rounds:#anchor} only {shared} are also anchors of this run. A run's anchors are where its own "
            "trees gave out, so another tree is judged at places that it did not choose.",
        ],
        "picture": picture(run, this, "conditional", None, "text"),
        "try": "Put the marginal run beside this one and step by text position: watch the anchors part and meet.",
        "actions": [
            step([["text", "Marginal run beside it"]], round=this.index, beside=other.run_id, by="position"),
            step([["text", "This run alone"]], round=this.index, scoring="conditional", node=None),
        ],
        "question": "In round {round} the conditional tree holds {own} of the coming tokens, the marginal tree {here}. How many tokens does the marginal run lose there?",
        "answer": [
            "That cannot be read off. It would commit its {here} and a bonus, then draft again from there, perhaps well. "
            "Counts per anchor compare trees; only runs compare methods: τ = {tau:.2f} against {real:.2f} here.",
        ],
    }


def limits(runs: Runs) -> Lesson:
    """The prompt on which DominoTree leads the marginal run least; there the anchor that is worst for it."""
    margins = []
    for one in runs.all("dominotree"):
        ratio = (runs.trace(one).counts.tau or 0) / (
            runs.trace(runs.find(one.kind, "marginal")).counts.tau or 1
        )
        margins.append((ratio, one))
    found(margins, "a marginal run")
    ratio, run = min(margins, key=lambda x: x[0])
    trace = runs.trace(run)
    found(full(trace), "a round with the trees of all three scorers")
    this = min(full(trace), key=lead)
    leads = [lead(r) for r in full(trace)]
    methods = [m for m in ("dominotree", "static", "marginal") if runs.find(run.kind, m)]
    taus = {m: runs.trace(runs.find(run.kind, m)).counts.tau or 0.0 for m in methods}
    cells: dict[tuple[str, float, str], dict[str, dict[str, Any]]] = {}
    for row in runs.table("speedup_tau.csv"):
        cells.setdefault((row["target"], row["temperature"], row["dataset"]), {})[row["method"]] = row
    lost = {
        at: methods
        for at, methods in cells.items()
        if methods[OURS]["speedup_over_ar"] < max(methods[t]["speedup_over_ar"] for t in TREES)
    }
    longer = sum(methods[OURS]["tau"] > max(methods[t]["tau"] for t in TREES) for methods in lost.values())
    ladder = [r for r in runs.table("conditioning_ladder.csv") if r["setting"] == "best_builder"]
    build = {
        m: mean([r for r in ladder if r["method"] == m], "build_ms") for m in ("dominotree@16", "marg@16")
    }
    fields: Fields = {
        "lost": len(lost),
        "cells": len(cells),
        "longer": longer,
        "code": sum(dataset in CODE for _, _, dataset in lost),
        "kind": kind_name(run),
        "tau": taus["dominotree"],
        "static": taus["static"],
        "marginal": taus["marginal"],
        "more": sum(x > 0 for x in leads),
        "same": sum(x == 0 for x in leads),
        "fewer": sum(x < 0 for x in leads),
        "rounds": len(leads),
        "static_rounds": len(runs.trace(runs.find(run.kind, "static")).rounds),
        "marginal_rounds": len(runs.trace(runs.find(run.kind, "marginal")).rounds),
        "verdict": _verdict(taus),
        "round": this.index,
        "conditional_here": this.counterfactual["conditional"].accepted,
        "marginal_here": this.counterfactual["marginal"].accepted,
        "build_conditional": build["dominotree@16"],
        "build_marginal": build["marg@16"],
    }
    claim(0 < len(lost) < len(cells), "DominoTree wins some published cells and loses others")
    claim(2 * fields["code"] > len(lost), "most of the lost cells are code")
    claim(longer > 0, "in some of the lost cells its τ is the higher one")
    claim(
        fields["more"] < fields["rounds"], "there are anchors where the conditional tree does not hold more"
    )
    claim(
        build["dominotree@16"] > build["marg@16"], "the conditional build takes longer than the marginal one"
    )
    rows = []
    for target, heat in dict.fromkeys((t, h) for t, h, _ in cells):
        names = [DATASETS.get(d, d) for t, h, d in lost if (t, h) == (target, heat)]
        every = sum((t, h) == (target, heat) for t, h, _ in cells)
        rows.append(
            [cell(target), cell(heat, "g"), cell(f"{len(names)} of {every}"), cell(", ".join(names) or "–")]
        )
    return {
        "title": "Where it does not win",
        "fields": fields,
        "claim": "DominoTree's published speed-up is below the better of DDTree and CaDDTree in {lost} of {cells} cells. On our {kind} prompt {verdict}.",
        "body": [
            "Those two rivals draft with their own DFlash drafter. {code} of the {lost} lost cells are code; in {longer} DominoTree's "
            "[τ](tau) is the higher one and it is still slower.",
            "On our {kind} prompt τ is {tau:.2f} for DominoTree ({rounds:#round}), {static:.2f} for the static-corrected tree "
            "({static_rounds}) and {marginal:.2f} for the marginal one ({marginal_rounds}). At its anchors the conditional tree holds more than the marginal tree "
            "at {more}, as many at {same}, fewer at {fewer}. One prompt is an anecdote; it shows only that the gain is not a law.",
        ],
        "table": table("Published cells lost on speed", ["target", "T", "lost", "on"], rows, words=(0, 3)),
        "picture": picture(run, this, "marginal", None, "node", "walk"),
        "try": "Round {round} is the worst for the correction: its tree holds {conditional_here}, the marginal tree {marginal_here} of the coming tokens. What did each spend its nodes on?",
        "actions": [
            step([["text", "Marginal tree"]], round=this.index, scoring="marginal", node=None),
            step([["text", "Conditional tree"]], round=this.index, scoring="conditional", node=None),
        ],
        "question": "How can the method with the higher τ be the slower one?",
        "answer": [
            "Speed is tokens per round over time per round. The conditional build costs {build_conditional:.2f} ms a round "
            "against {build_marginal:.2f} ms for marginals on the same drafter, each with its best builder. Where the text is hard to "
            "guess, or hardly depends on the path, the extra tokens do not pay for it. And each method is timed with its "
            "own drafter, which differs in more than the scores.",
        ],
        "source": f"Published: {PAPER}; speed-up over each method's own plain decoding.",
    }


def _verdict(taus: dict[str, float]) -> str:
    ours, best = taus["dominotree"], max((m for m in taus if m != "dominotree"), key=lambda m: taus[m])
    name = {"static": "the static-corrected tree", "marginal": "the marginal tree"}[best]
    if round(ours, 2) == round(taus[best], 2):
        return f"it is level with {name} in τ"
    verdict, side = ("it loses, too", "below") if ours < taus[best] else ("it does win", "above")
    return f"{verdict}: its τ is {shown(abs(ours / taus[best] - 1), '.1%')} {side} that of {name}"
