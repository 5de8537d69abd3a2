"""The cost-aware budget, measured: does CondAdaptive run to its cap, and would it if its probabilities were calibrated?

    dominotree bench adaptive --fit                # make assets/calibration/<drafter>.json anew
    dominotree bench adaptive                      # along the texts and on the engine, with this machine's profile
    dominotree bench adaptive --parts along --profile h200.json

Three parts on the evaluation prompts:

* **fit**: a monotone map from path score to acceptance, on the nodes of 256-node DominoTree trees along the stored texts
  of the prompts with even numbers.
* **along**: rounds of every rule along the stored texts of the prompts with odd numbers, under the profile's costs. The
  text is known, so no target forward is needed (as in ``bench accepted``), and a rule's tree is the beginning of the
  256-node tree of its anchor: one tree per anchor serves every rule and every fixed budget. Gives τ, budgets,
  reliability, and the rate that the cost model predicts for each.
* **engine**: real runs on some of those prompts beside fixed budgets and ``ar``, methods in turns: τ, tokens a second,
  stage times.

The results are one entry per profiled machine, precision and engine in ``docs/performance/adaptive.json``; the tables of
``docs/performance.md`` are made from that file.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dominotree import calibration, cost, profile
from dominotree.bench import EVAL, eval_file, header
from dominotree.builders.adaptive import StopRule
from dominotree.builders.reference import best_first
from dominotree.calibration import Calibration
from dominotree.checkpoints import Pair
from dominotree.cost import CostModel
from dominotree.decode import Settings, generate
from dominotree.scorers import Candidates, ConditionalScorer, MarginalScorer, Scorer

CAP = 256
FIXED = (16, 32, 64, 128, 256)
FIXED_ALONG = (4, 8, *FIXED)
RESULTS = EVAL.parents[1] / "docs" / "performance" / "adaptive.json"
#: C_verify at the cap over that of one row, for the computed what-if.
STEEPNESS = (1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
#: Edges of the reliability diagram: finer where most nodes are.
EDGES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
#: Edges of the histogram of nodes per round.
SIZES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 257)


@dataclass
class Anchor:
    """The largest tree at one anchor: scores in pop order, and which of its nodes the text followed."""

    scores: list[float]
    depths: list[int]
    path: list[int]  # nodes of the longest path that the text follows, ascending
    rest: int  # tokens of the text behind the anchor

    def accepted(self, nodes: int) -> int:
        """Accepted drafts of the tree's first ``nodes`` nodes."""
        return sum(node < nodes for node in self.path)


class Text:
    """One stored text: its anchors' trees, built when a rule first comes there."""

    def __init__(self, pair: Pair, entry: dict[str, Any], settings: Settings) -> None:
        self.pair, self.settings = pair, settings
        self.prompt, self.text = entry["prompt_ids"], entry["response_ids"]
        self.anchors: dict[int, Anchor] = {}
        found, _ = pair.drafter_for(settings.spec)
        assert found is not None
        self.drafter = found
        self.whole = torch.tensor(self.prompt + self.text, device=pair.target.device)
        seen = pair.target.prefill(self.whole, pair.target.new_cache(len(self.whole)))
        assert seen is not None
        self.context = found.new_context(len(self.whole))
        found.extend(self.context, seen.features)

    @torch.inference_mode()
    def at(self, start: int) -> Anchor:
        """The tree behind token ``start`` of the text."""
        if start not in self.anchors:
            context, position = self.context, len(self.prompt) + start
            end = min(position + self.drafter.config.block_size, len(self.whole))
            kept = context.snapshot(position, end)
            context.length = position
            block = self.drafter.draft(context, self.text[start])
            scorer = _scorer(self.pair, self.drafter, block, self.settings)
            s = self.settings
            tree = best_first(scorer, block.levels, s.budget, s.children_per_node)
            context.restore(position, kept)
            rest = self.text[start + 1 :]
            path = tree.longest_match(rest)
            self.anchors[start] = Anchor(tree.score, tree.depth, path, len(rest))
        return self.anchors[start]


def _scorer(pair: Pair, drafter: Any, block: Any, s: Settings) -> Scorer:
    def embed(ids: list[int]) -> torch.Tensor:
        return pair.target.embed(torch.tensor(ids, device=pair.target.device))

    if s.spec.scorer == "marginal":
        return MarginalScorer(block, s.children_per_node)
    return ConditionalScorer(Candidates.of(block, s.top_m), drafter.head, embed, s.full_row)


@dataclass
class Along:
    """What one rule does along the texts: per round, and per node of its trees whose fate the text decides."""

    nodes: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)  # C_draft + C_verify of the round
    scores: list[float] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)  # Φ of rounds that end inside the text …
    observed: list[int] = field(default_factory=list)  # … and their accepted drafts

    def add(self, anchor: Anchor, nodes: int, ms: float, calibrate: Calibration | None) -> int:
        """One round with the first ``nodes`` nodes; returns the tokens that it commits."""
        path = {node for node in anchor.path if node < nodes}
        for node in range(nodes):
            if anchor.depths[node] <= anchor.rest:
                self.scores.append(anchor.scores[node])
                self.accepted.append(node in path)
        step = min(len(path) + 1, anchor.rest)
        self.nodes.append(nodes)
        self.committed.append(step)
        self.ms.append(ms)
        if max(anchor.depths[:nodes], default=0) <= anchor.rest:
            scores = anchor.scores[:nodes] if calibrate is None else map(calibrate, anchor.scores[:nodes])
            self.expected.append(sum(map(math.exp, scores)))
            self.observed.append(len(path))
        return step


Size = Callable[[Anchor, int], int]  # anchor, position -> nodes


def walk(
    texts: Sequence[Text], size: Size, costs: CostModel | None, calibrate: Calibration | None = None
) -> Along:
    """Rounds of a rule along the texts."""
    out = Along()
    for text in texts:
        start, kind = 0, text.drafter.config.kind
        while start < len(text.text) - 1:
            anchor, position = text.at(start), len(text.prompt) + start
            nodes = size(anchor, position)
            ms = 0.0
            if costs is not None:
                ms = costs.draft(kind, position) + costs.verify_table(nodes, position)[nodes]
            start += out.add(anchor, nodes, ms, calibrate)
    return out


def fixed(budget: int) -> Size:
    return lambda anchor, position: min(budget, len(anchor.scores))


def ruled(costs: CostModel, kind: str, cap: int, calibrate: Calibration | None = None) -> Size:
    """The size that the stop rule gives a tree, from its scores in pop order."""

    def size(anchor: Anchor, position: int) -> int:
        rule = StopRule(costs.round(kind, cap, position), calibrate)
        for score in anchor.scores[:cap]:
            if not rule.takes(score):
                break
        return rule.nodes

    return size


def entries(numbers: str, count: int | None = None) -> list[dict[str, Any]]:
    """Stored texts of the evaluation prompts with "even" numbers (fit) or "odd" ones; ``count`` of them, spread."""
    stored = json.loads(eval_file("eval_texts.json").read_text(encoding="utf-8"))
    found = [e for e in stored if e["prompt_number"] % 2 == (numbers == "odd")]
    return found if count is None else found[:: max(1, len(found) // count)][:count]


def fit_calibration(pair: Pair, say: Callable[[str], None]) -> Calibration:
    """The calibration of the pair's Domino drafter, from the prompts with even numbers."""
    chosen = Settings(method="dominotree", budget=CAP)
    out = Along()
    chosen_entries = entries("even")
    for number, entry in enumerate(chosen_entries):
        say(f"\rfit: text {number + 1} of {len(chosen_entries)}   ")
        part = walk([Text(pair, entry, chosen)], fixed(CAP), None)
        out.nodes += part.nodes
        out.scores += part.scores
        out.accepted += part.accepted
    say("\n")
    made = header(pair)
    about = {
        "target": pair.info["target"], "drafter": pair.info["drafter"], "scorer": "conditional",
        "top_m": chosen.top_m, "children": chosen.children_per_node, "full_row": chosen.full_row, "nodes_per_tree": CAP,
        "texts": "stored texts of the evaluation prompts with even numbers, at the anchors of 256-node trees",
        "prompts": len(chosen_entries), "rounds": len(out.nodes), "nodes": len(out.scores),
        "accepted": sum(out.accepted), "date": made["date"], "machine": made["machine"],
    }  # fmt: skip
    return calibration.fit(about, out.scores, out.accepted)


def summary(found: Along, calibrate: Calibration | None, draws: int = 1000) -> dict[str, Any]:
    """One rule's figures: τ, nodes, what it expected and got, and the cost model's rate in tokens a second."""
    nodes = np.array(found.nodes)
    expected, observed = np.array(found.expected), np.array(found.observed)
    counts, _ = np.histogram(nodes, SIZES)
    return {
        "rounds": len(nodes),
        "tau": sum(found.committed) / len(nodes),
        "model_tokens_per_second": 1e3 * sum(found.committed) / sum(found.ms) if sum(found.ms) else None,
        "nodes_mean": float(nodes.mean()),
        "nodes_median": float(np.median(nodes)),
        "nodes_low": int(np.quantile(nodes, 0.05)),
        "nodes_high": int(np.quantile(nodes, 0.95)),
        "at_cap": float((nodes == CAP).mean()),
        "histogram": [[a, b - 1, int(n)] for a, b, n in zip(SIZES, SIZES[1:], counts.tolist(), strict=False)],
        "expected_accepted": float(expected.mean()) if len(expected) else None,
        "observed_accepted": float(observed.mean()) if len(observed) else None,
    }


def reliability(found: Along, calibrate: Calibration | None = None) -> list[dict[str, float]]:
    scores = np.array(found.scores) if calibrate is None else np.array([calibrate(s) for s in found.scores])
    return calibration.reliability(np.exp(scores).tolist(), found.accepted, EDGES)


def steepness(
    texts: Sequence[Text], costs: CostModel, kind: str, calibrate: Calibration
) -> list[dict[str, Any]]:
    """What the rule would do on machines of other steepness: computed, not measured.

    The cost of a verify rises in a straight line to ``STEEPNESS`` times that of one row at the cap; C_draft has the
    share of one row that it has in ``costs``.
    """
    share = costs.draft(kind, costs.contexts[0]) / costs.verify_table(0, costs.contexts[0])[0]
    rows = []
    for ratio in STEEPNESS:
        model = CostModel({}, (0,), (0, CAP), (1.0,), (((ratio - 1.0) / CAP,),), {kind: (share,)})
        row: dict[str, Any] = {"ratio": ratio, "draft_share": share}
        for name, g in (("raw", None), ("calibrated", calibrate)):
            found = np.array(walk(texts, ruled(model, kind, CAP, g), model, g).nodes)
            row[name] = {"nodes_median": float(np.median(found)), "at_cap": float((found == CAP).mean())}
        rows.append(row)
    return rows


def part_along(
    pair: Pair,
    models: Sequence[CostModel],
    calibrate: Calibration,
    count: int | None,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Every rule and fixed budget along the texts of the prompts with odd numbers, under each cost model in turn."""
    chosen = entries("odd", count)
    out: list[dict[str, Any]] = [
        {**_where(pair), "texts": len(chosen), "cap": CAP, "rules": {}, "reliability": {}} for _ in models
    ]
    for method in ("dominotree", "caddtree"):
        made = []
        for number, entry in enumerate(chosen):
            say(f"\r{method}: text {number + 1} of {len(chosen)}   ")
            made.append(Text(pair, entry, Settings(method=method, budget=CAP)))
            walk(made[-1:], fixed(CAP), None)
        say("\n")
        kind = made[0].drafter.config.kind
        for costs, part in zip(models, out, strict=True):
            rows = part["rules"]
            fixed_name = "dominotree" if method == "dominotree" else "ddtree"
            for budget in FIXED_ALONG if method == "dominotree" else (16, 64):
                rows[f"{fixed_name}@{budget}"] = summary(walk(made, fixed(budget), costs), None)
            if method == "caddtree":
                rows["caddtree"] = summary(walk(made, ruled(costs, kind, CAP), costs), None)
                continue
            largest = walk(made, fixed(CAP), costs)
            part["reliability"] = {"raw": reliability(largest), "calibrated": reliability(largest, calibrate)}
            for name, g in (("condadaptive", None), ("condadaptive-calibrated", calibrate)):
                rows[name] = summary(walk(made, ruled(costs, kind, CAP, g), costs, g), g)
            part["steepness"] = steepness(made, costs, kind, calibrate)
    return out


def part_engine(
    pair: Pair, costs: CostModel, calibrate: Calibration, prompts: int, tokens: int, budgets: Sequence[int],
    common: dict[str, Any], say: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """Real runs, methods in turns prompt by prompt. ``common``: further settings, such as the engine."""
    pair.costs, pair.calibration = costs, calibrate
    numbers = [e["prompt_number"] for e in entries("odd")]
    numbers = numbers[:: max(1, len(numbers) // prompts)][:prompts]
    ids = {e["prompt_number"]: e["prompt_ids"] for e in entries("odd")}
    asked = [("ar", None), *(("dominotree", b) for b in budgets)]
    asked += [("condadaptive", None), ("condadaptive-calibrated", None), ("caddtree", None)]
    made = {
        (m, b): replace(Settings(method=m, budget=b, max_new_tokens=tokens), **common)  # type: ignore[arg-type]
        for m, b in asked
    }
    for chosen in made.values():  # warm-up, not counted
        generate(pair, prompt_ids=ids[numbers[0]], settings=replace(chosen, max_new_tokens=12))
    totals: dict[tuple[str, int | None], list[Any]] = {key: [] for key in made}
    texts: dict[int, list[int]] = {}
    same = dict.fromkeys(made, True)
    for number in numbers:
        for key, chosen in made.items():
            say(f"\rprompt {number}: {key[0]} {key[1] or ''}            ")
            trace = generate(pair, prompt_ids=ids[number], settings=chosen)
            totals[key].append(trace)
            texts.setdefault(number, trace.summary["token_ids"])
            same[key] &= trace.summary["token_ids"] == texts[number]
    say("\n")
    rows = []
    for (method, budget), traces in totals.items():
        rounds = [r for t in traces for r in t.rounds]
        times = {
            k: statistics.fmean(r.times_ms[k] for r in rounds) for k in ("draft", "build", "verify", "commit")
        }
        rows.append({
            "method": method, "budget": budget, "rounds": len(rounds),
            "tau": sum(len(r.committed) for r in rounds) / len(rounds),
            "tokens_per_second": 1e3 * sum(len(r.committed) for r in rounds) / sum(t.summary["decode_ms"] for t in traces),
            "nodes_mean": statistics.fmean(r.verified_nodes for r in rounds),
            "at_cap": statistics.fmean(r.verified_nodes == CAP for r in rounds),
            "stage_ms": times, "same_tokens_as_ar": same[method, budget],
            "builder": traces[0].header["settings"].get("builder"), "forward": traces[0].header["settings"].get("forward"),
        })  # fmt: skip
    return {**_where(pair), "prompts": len(numbers), "tokens": tokens, "rows": rows}


def _where(pair: Pair) -> dict[str, Any]:
    made = header(pair)
    return {k: made[k] for k in ("date", "machine", "versions")}


def run(
    pair: Pair,
    say: Callable[[str], None],
    *,
    fit: bool = False,
    parts: Sequence[str] = ("along", "engine"),
    models: Sequence[CostModel] = (),
    texts: int | None = None,
    prompts: int = 6,
    tokens: int = 96,
    budgets: Sequence[int] = FIXED,
    common: dict[str, Any] | None = None,
    results: Path = RESULTS,
) -> dict[str, Any]:
    """Measure the parts and put them into the entries of the profiles' machines, precisions and engines.

    ``models``: without any, this machine's own profile, measured where it is missing. The engine's runs use the first.
    """
    if fit:
        made = fit_calibration(pair, say)
        path = calibration.FOLDER / f"{pair.info['drafter']}.json"
        made.save(path)
        print(f"{path}: {made.about['nodes']} nodes of {made.about['rounds']} rounds, {len(made.x)} knots")
        return made.summary()
    g = calibration.find(pair.info["target"], pair.info["drafter"])
    if not models:
        found = cost.stored(profile.identity(pair, profile.engine_of(pair, common or {})))
        if found is None or found.about.get("kind") != "full":
            found = profile.full(pair, common, say=say)
            found.save(cost.profile_path(found.about))
        models = [found]
    made_entries: list[dict[str, Any]] = [
        {"profile": costs.summary(), "calibration": g.summary()["about"]} for costs in models
    ]
    if "along" in parts:
        for entry, part in zip(made_entries, part_along(pair, models, g, texts, say), strict=True):
            entry["along"] = part
    if "engine" in parts:
        made_entries[0]["engine"] = part_engine(
            pair, models[0], g, prompts, tokens, budgets, common or {}, say
        )
    for entry in made_entries:
        held = merge(results, entry)
        print(text(entry))
    page = results.parents[1] / "performance.md"
    if results.resolve() == RESULTS.resolve() and page.is_file():
        page.write_text(replaced(page.read_text(encoding="utf-8"), tables(held)), encoding="utf-8")
    return {"entries": made_entries}


def key_of(entry: dict[str, Any]) -> list[Any]:
    return [entry["profile"]["about"].get(k) for k in cost.IDENTITY]


def merge(path: Path, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Put the entry's parts into the file; parts that were measured under another profile go."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    for k, old in enumerate(held):
        if key_of(old) == key_of(entry):
            if old["profile"]["hash"] == entry["profile"]["hash"]:
                entry = {**old, **entry}
            held[k] = entry
            break
    else:
        held.append(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return held


def text(entry: dict[str, Any]) -> str:
    """The entry as two small Markdown tables."""
    about = entry["profile"]["about"]
    lines = [
        f"Costs of {about['target']} on {about['machine']}, {about['dtype']}, engine {about['engine']} "
        f"(profile {entry['profile']['hash']}, {about['kind']})",
        "",
    ]
    if "along" in entry:
        part = entry["along"]
        lines += [
            f"Along {part['texts']} texts, cap {part['cap']}:", "",
            "| rule | nodes, median (5 – 95 %) | at the cap | τ | expected / observed accepted | tokens/s by the cost model |",
            "|---|---|---|---|---|---|",
        ]  # fmt: skip
        for name, r in part["rules"].items():
            rate = r["model_tokens_per_second"]
            lines.append(
                f"| {name} | {r['nodes_median']:.0f} ({r['nodes_low']} – {r['nodes_high']}) | {100 * r['at_cap']:.0f} % | {r['tau']:.2f} "
                f"| {r['expected_accepted']:.2f} / {r['observed_accepted']:.2f} | {'–' if rate is None else f'{rate:.1f}'} |"
            )
        lines += [
            "",
            "Cost at the cap over that of one row → nodes, median (at the cap), raw / calibrated; computed:",
            "",
        ]
        lines += [
            "; ".join(
                f"{r['ratio']:g} × → {r['raw']['nodes_median']:.0f} ({100 * r['raw']['at_cap']:.0f} %) / "
                f"{r['calibrated']['nodes_median']:.0f} ({100 * r['calibrated']['at_cap']:.0f} %)"
                for r in part["steepness"]
            ),
            "",
        ]
    if "engine" in entry:
        part = entry["engine"]
        lines += [
            f"Runs, {part['prompts']} prompts × {part['tokens']} tokens:", "",
            "| method | nodes, mean | τ | tokens/s | draft / build / verify / commit, ms | builder |",
            "|---|---|---|---|---|---|",
        ]  # fmt: skip
        for r in part["rows"]:
            name = r["method"] + (f"@{r['budget']}" if r["budget"] else "")
            digits = 1 if max(r["stage_ms"].values()) >= 10 else 2
            ms = " / ".join(f"{v:.{digits}f}" for v in r["stage_ms"].values())
            lines.append(
                f"| {name} | {r['nodes_mean']:.1f} | {r['tau']:.2f} | {r['tokens_per_second']:.1f} | {ms} | {r['builder'] or '–'} |"
            )
    return "\n".join(lines)


#: Between these lines of docs/performance.md stand the tables; all else there is written by people.
MARKS = ("<!-- dominotree bench adaptive: begin -->", "<!-- dominotree bench adaptive: end -->")


def replaced(page: str, tables: str) -> str:
    """The page with the tables between the marks; unchanged where it has no marks."""
    before, begin, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    return f"{before}{begin}\n{tables}\n{end}{after}" if begin and end else page


def tables(held: Sequence[dict[str, Any]]) -> str:
    """The short tables of docs/performance.md from the results file."""
    parts = [e for e in held if "along" in e]
    lines = [
        "| costs | rule | nodes, median (5 – 95 %) | at the cap | τ | drafts a round promised / accepted | tokens/s by the cost model |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for entry in parts:
        about, rules = entry["profile"]["about"], entry["along"]["rules"]
        best = max(
            (n for n in rules if n.startswith("dominotree@")),
            key=lambda n: rules[n]["model_tokens_per_second"],
        )
        where = f"{about['target']}, {about['machine']}, {about['dtype']}, {about['engine']}"
        for name in dict.fromkeys(
            ("condadaptive", "condadaptive-calibrated", best, f"dominotree@{CAP}", "caddtree")
        ):
            r = rules[name]
            label = f"{name} (best fixed)" if name == best else name
            lines.append(
                f"| {where} | {label} | {r['nodes_median']:.0f} ({r['nodes_low']} – {r['nodes_high']}) | {100 * r['at_cap']:.0f} % "
                f"| {r['tau']:.2f} | {r['expected_accepted']:.2f} / {r['observed_accepted']:.2f} | {r['model_tokens_per_second']:.1f} |"
            )
            where = ""
    if parts:
        lines += ["", "| C_verify at the cap over that of one row (computed) | nodes, median, raw / calibrated | at the cap, raw / calibrated |", "|---|---|---|"]  # fmt: skip
        for r in parts[0]["along"]["steepness"]:
            raw, control = r["raw"], r["calibrated"]
            lines.append(
                f"| {r['ratio']:g} × | {raw['nodes_median']:.0f} / {control['nodes_median']:.0f} "
                f"| {100 * raw['at_cap']:.0f} / {100 * control['at_cap']:.0f} % |"
            )
        lines += [
            "",
            "| predicted path probability | nodes | mean | accepted | 95 % |",
            "|---|---|---|---|---|",
        ]
        for r in parts[0]["along"]["reliability"]["raw"]:
            lines.append(
                f"| {r['low_edge']:g} – {r['high_edge']:g} | {r['nodes']} | {100 * r['predicted']:.3g} % | {100 * r['observed']:.3g} % "
                f"| {100 * r['low']:.3g} – {100 * r['high']:.3g} % |"
            )
    for entry in held:
        if "engine" in entry:
            lines += ["", *text({k: entry[k] for k in ("profile", "engine")}).splitlines()]
    return "\n".join(lines)


def from_arguments(args: Any, pair: Pair, say: Callable[[str], None]) -> dict[str, Any]:
    return run(
        pair, say, fit=args.fit, parts=args.parts, models=[CostModel.load(path) for path in args.profile or ()],
        texts=args.texts, prompts=args.prompts, tokens=args.tokens, budgets=args.budgets, results=args.results,
        common={"engine": args.engine, "forward": args.forward},
    )  # fmt: skip
