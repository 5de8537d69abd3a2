"""τ by method, budget, candidates and temperature on the three prompt sets: ``assets/eval/tau.csv``.

τ is simulated along fixed texts of the target (``dominotree.train.evaluate``): the text never depends on the drafter, so
one batched pass gives what every method gets accepted at every position. Temperature 0 uses ``eval_texts.json``; above
0 the texts are drawn once from the target and kept in ``sampled_texts.json``. ``--engine N`` runs the engine itself on N
prompts of each set and adds tokens a second to the table.

    python -m dominotree.bench.tau --target DIR --drafter DOMINO_DIR --drafter DFLASH_DIR --out assets/eval
    python -m dominotree.bench.tau --engine 2 --out assets/eval
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dominotree.bench import eval_file, eval_prompts
from dominotree.checkpoints import Pair, load_pair
from dominotree.decode import Settings, generate
from dominotree.methods import METHODS
from dominotree.train import export
from dominotree.train.cli import load_target, stop_ids
from dominotree.train.drafter import TrainDrafter
from dominotree.train.evaluate import Options, Result, Text, evaluate
from dominotree.train.generate import GenerationSettings, generate_batch
from dominotree.train.llama import BatchedTarget

COLUMNS = (
    "pair", "drafter", "method", "budget", "top_m", "temperature", "set", "prompts", "tau", "tau_low", "tau_high",
    "tokens_per_second",
)  # fmt: skip
SETS = ("math", "code", "chat")
TEMPERATURES = (0.5, 1.0)
TOP_M = (16, 32, 64, 128)
TOKENS = 128
ADAPTIVE = ("caddtree", "condadaptive")  # budget set per round: only the engine can tell


def fixed_texts(entries: Sequence[dict[str, Any]]) -> list[Text]:
    """Stored ids as texts of their prompt sets."""
    kinds = [row["kind"] for row in eval_prompts()]
    return [Text(kinds[e["prompt_number"]], e["prompt_ids"], e["response_ids"]) for e in entries]


def sample_texts(
    target: BatchedTarget, stops: Sequence[int], temperature: float, seed: int = 0
) -> list[dict[str, Any]]:
    """One response of the target to each evaluation prompt, ``TOKENS`` tokens at most, cut after a stop id."""
    import numpy as np

    entries = json.loads(eval_file("eval_texts.json").read_text(encoding="utf-8"))
    generator = torch.Generator(device=target.device).manual_seed(seed)
    out, lengths, _, _ = generate_batch(
        target,
        [np.asarray(e["prompt_ids"], dtype=np.uint16) for e in entries],
        torch.full((len(entries),), temperature),
        TOKENS,
        torch.tensor(list(stops), device=target.device),
        GenerationSettings(),
        generator,
    )
    rows = zip(entries, out.tolist(), lengths.tolist(), strict=True)
    return [
        {"prompt_number": e["prompt_number"], "prompt_ids": e["prompt_ids"], "response_ids": text[:size]}
        for e, text, size in rows
    ]


def method_name(name: str, domino: bool) -> tuple[str, int | None]:
    """(method of the registry, budget) of an evaluation row: the marginal tree of a DFlash drafter is ``ddtree``."""
    method, _, budget = name.partition("@")
    if method == "marginal" and not domino:
        method = "ddtree"
    return method, int(budget) if budget else None


def csv_rows(
    pair: str, drafter: str, domino: bool, result: Result, temperature: float, top_m: int | str, only: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Rows of one evaluation, by method and prompt set, and ``all``: the mean of the sets."""
    for name in result.accepted:
        method, budget = method_name(name, domino)
        if only and method not in only:
            continue
        used = top_m if method in ("static", "dominotree") else ""
        shared = {"pair": pair, "drafter": drafter, "method": method, "budget": budget or "", "top_m": used, "temperature": temperature}  # fmt: skip
        for kind in SETS:
            low, high = result.interval(name, kind)
            yield shared | {
                "set": kind, "prompts": result.kinds.count(kind), "tau": round(result.tau(name, kind), 4),
                "tau_low": round(low, 4), "tau_high": round(high, 4), "tokens_per_second": "",
            }  # fmt: skip
        yield shared | {"set": "all", "prompts": len(result.kinds), "tau": round(result.tau(name), 4), "tau_low": "", "tau_high": "", "tokens_per_second": ""}  # fmt: skip


def details(result: Result) -> dict[str, Any]:
    """Per-depth acceptance (share of rounds), coverage and hits by level, reliability of path probabilities."""
    return {
        "accepted_at_least": {m: {k: result.depths(m, k) for k in SETS} for m in result.accepted},
        "top_m_coverage_by_level": [round(x, 4) for x in result.coverage],
        "teacher_forced_hits_by_level": {m: [round(x, 4) for x in h] for m, h in result.hits.items()},
        "calibration": {
            m: [[int(n), round(p, 4), round(g, 4)] for n, p, g in rows]
            for m, rows in result.calibration.items()
        },
    }


def run(
    target_folder: Path,
    drafters: dict[str, Path],
    out: Path,
    device: str = "cpu",
    pair: str = "default",
    batch: int = 4,
    sweep: bool = True,
    every: int = 1,
) -> list[dict[str, Any]]:
    """Evaluate drafter folders (by name) and write ``tau.csv`` and ``tau_details.json`` into ``out``."""
    target = load_target(target_folder, device, False)
    stored = out / "sampled_texts.json"
    if stored.is_file():
        sampled = json.loads(stored.read_text(encoding="utf-8"))
    else:
        stops = stop_ids(target_folder)
        sampled = {str(t): sample_texts(target, stops, t) for t in TEMPERATURES}
        stored.write_text(json.dumps(sampled, separators=(",", ":")) + "\n", encoding="utf-8")
    texts = {0.0: fixed_texts(json.loads(eval_file("eval_texts.json").read_text(encoding="utf-8")))}
    texts |= {float(t): fixed_texts(entries) for t, entries in sampled.items()}
    texts = {t: found[::every] for t, found in texts.items()}
    rows: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    for name, folder in drafters.items():
        model: TrainDrafter = export.load_released(folder, target.device)
        domino = model.shape.domino
        for temperature, found in texts.items():
            result = evaluate(model, target, found, Options(calibrate=temperature == 0), batch)
            rows += csv_rows(pair, name, domino, result, temperature, 64)
            if temperature == 0:
                more[name] = details(result)
            print(
                name,
                temperature,
                json.dumps({m: row["all"] for m, row in result.table().items()}),
                flush=True,
            )
        if domino and sweep:
            for top_m in (*TOP_M, model.shape.vocab):
                if top_m == 64:
                    continue
                small = max(1, batch // 4) if top_m == model.shape.vocab else batch
                result = evaluate(model, target, texts[0.0], Options(top_m=top_m), small)
                label: int | str = "full" if top_m == model.shape.vocab else top_m
                rows += csv_rows(pair, name, domino, result, 0.0, label, ("static", "dominotree"))
                print(
                    name,
                    "top",
                    label,
                    json.dumps({m: row["all"] for m, row in result.table().items()}),
                    flush=True,
                )
    out.mkdir(parents=True, exist_ok=True)
    write_csv(rows, out / "tau.csv")
    (out / "tau_details.json").write_text(json.dumps(more, indent=1) + "\n", encoding="utf-8")
    return rows


def engine_rows(
    pair: Pair, per_set: int, tokens: int, methods: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The engine itself on the first prompts of each set, temperature 0: tokens a second of decoding and its own τ.

    Methods take turns prompt by prompt. On a shared CPU only ratios between methods mean anything.
    """
    settings: list[tuple[str, int | None, Settings]] = []
    for name in methods or METHODS:
        fixed = METHODS[name].kind == "tree" and name not in ADAPTIVE
        for budget in (16, 64) if fixed else (None,):
            chosen = Settings(method=name, max_new_tokens=tokens)
            settings.append((name, budget, replace(chosen, budget=budget) if budget else chosen))
    totals = {(name, b, kind): [0, 0, 0, 0.0, 0] for name, b, _ in settings for kind in SETS}
    prompts = eval_prompts()
    generate(
        pair, prompts[0]["prompt"], Settings(method="dominotree", max_new_tokens=16)
    )  # warm-up, not counted
    for kind in SETS:
        for entry in [p for p in prompts if p["kind"] == kind][:per_set]:
            for name, budget, chosen in settings:
                summary = generate(pair, entry["prompt"], chosen).summary
                total = totals[name, budget, kind]
                total[0] += summary["committed"]
                total[1] += summary["rounds"]
                total[2] += summary["new_tokens"] - 1
                total[3] += summary["decode_ms"] / 1e3
                total[4] += 1
                print(kind, name, budget, f"{total[2] / total[3]:.1f} tokens/s", flush=True)
    names = {"domino": pair.info["drafter"], "dflash": pair.info["dflash"] or pair.info["drafter"], None: ""}
    return [
        {"pair": pair.info["name"], "drafter": names[METHODS[name].drafter], "method": name, "budget": budget or "", "top_m": "", "temperature": 0.0,
         "set": kind, "prompts": count, "tau": round(committed / rounds, 4), "tau_low": "", "tau_high": "", "tokens_per_second": round(new / seconds, 2)}
        for (name, budget, kind), (committed, rounds, new, seconds, count) in totals.items()
    ]  # fmt: skip


def merge_speed(path: Path, measured: Sequence[dict[str, Any]]) -> None:
    """Put measured tokens a second into the rows of ``tau.csv``; methods that only the engine runs become new rows."""
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return (
            *tuple(str(row[c]) for c in ("pair", "drafter", "method", "budget", "set")),
            str(float(row["temperature"])),
        )

    known = {key(row): row for row in rows if row["top_m"] in ("", "64")}
    for row in measured:
        if key(row) in known:
            known[key(row)]["tokens_per_second"] = row["tokens_per_second"]
        else:
            rows.append(row)
    write_csv(rows, path)


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m dominotree.bench.tau", description=__doc__.splitlines()[0])
    p.add_argument("--target", type=Path)
    p.add_argument("--drafter", action="append", default=[], metavar="NAME=DIR or DIR", help="repeatable")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    p.add_argument("--pair", default="default")
    p.add_argument(
        "--batch", type=int, default=16 if torch.cuda.is_available() else 1, help="texts at a time"
    )
    p.add_argument("--no-sweep", action="store_true", help="leave the sweep over top-M out")
    p.add_argument("--every", type=int, default=1, help="every n-th prompt only")
    p.add_argument(
        "--engine",
        type=int,
        default=0,
        metavar="N",
        help="run the engine on N prompts a set and add tokens a second",
    )
    p.add_argument("--tokens", type=int, default=64, help="new tokens of an engine run")
    o = p.parse_args(arguments)
    if o.engine:
        merge_speed(o.out / "tau.csv", engine_rows(load_pair(o.pair), o.engine, o.tokens))
        return 0
    if o.target is None or not o.drafter:
        p.error("--target and --drafter are needed unless --engine is given")
    drafters = {}
    for item in o.drafter:
        name, _, folder = str(item).rpartition("=")
        drafters[name or Path(folder).name] = Path(folder)
    run(o.target, drafters, o.out, o.device, o.pair, o.batch, not o.no_sweep, o.every)
    return 0


if __name__ == "__main__":
    sys.exit(main())
