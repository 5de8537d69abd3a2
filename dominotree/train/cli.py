"""``python -m dominotree.train``: prompts, generate, train, evaluate, or all of it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from dominotree.train import config, data, export
from dominotree.train.evaluate import Options, Text, evaluate
from dominotree.train.generate import GenerationSettings, generate_corpus
from dominotree.train.llama import BatchedTarget
from dominotree.train.trainer import Corpus, Trainer, TrainSettings

ROOT = Path(__file__).resolve().parents[2]
EVALUATION = ROOT / "assets" / "eval"


def load_target(folder: Path, device: str, compile: bool) -> BatchedTarget:
    """The target in bf16 on a GPU, float32 on the CPU."""
    where = torch.device(device)
    return BatchedTarget(folder, where, torch.bfloat16 if where.type == "cuda" else torch.float32, compile)


def stop_ids(folder: Path) -> list[int]:
    value = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"]
    return value if isinstance(value, list) else [value]


def fixed_texts(path: Path, prompts: Path) -> list[Text]:
    """The evaluation texts: ``texts.json`` (ids) with the kinds of ``prompts.jsonl``."""
    kinds = [row["kind"] for row in data.read_evaluation(prompts)]
    return [
        Text(kinds[t["prompt_number"]], t["prompt_ids"], t["response_ids"])
        for t in json.loads(path.read_text(encoding="utf-8"))
    ]


def corpus_texts(folder: Path) -> list[Text]:
    """The sequences of a corpus as texts (the dev set)."""
    ids, offsets, prompt, kind = (
        np.load(folder / f"{name}.npy") for name in ("ids", "offsets", "prompt_len", "kind")
    )
    texts = []
    for i in range(len(kind)):
        whole = ids[offsets[i] : offsets[i + 1]].tolist()
        texts.append(Text(data.KINDS[kind[i]], whole[: prompt[i]], whole[prompt[i] :]))
    return texts


def synthetic_corpus(folder: Path, vocab: int, sequences: int, longest: int) -> Path:
    """Random tokens in the shape of a corpus: for compiling while the real one is still being made."""
    r = np.random.default_rng(0)
    size = r.integers(longest // 3, longest, sequences)
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    n = int(offsets[-1])
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, np.ndarray] = {"ids": r.integers(20, vocab, n).astype(np.uint16), "offsets": offsets, "prompt_len": (size // 3).astype(np.int32), "kind": np.zeros(sequences, np.uint8),
              "soft_ids": r.integers(20, vocab, (n, 4)).astype(np.uint16), "soft_p": np.full((n, 4), 63, np.uint8)}  # fmt: skip
    for name, value in arrays.items():
        np.save(folder / f"{name}.npy", value)
    return folder


def wait_for(folders: Sequence[Path], patience_s: float) -> None:
    """Until every corpus has its report."""
    end = time.monotonic() + patience_s
    while not all((f / "report.json").is_file() for f in folders):
        if time.monotonic() > end:
            raise TimeoutError(f"no corpus in {', '.join(map(str, folders))} after {patience_s:.0f} s")
        time.sleep(0.5)


def command_prompts(o: argparse.Namespace) -> None:
    from dominotree.tokenizer import Tokenizer

    settings = config.load(data.PromptSettings, o.config, o.set)
    evaluation = [row["prompt"] for row in data.read_evaluation(o.evaluation)]
    made, report = data.make_prompts(settings, evaluation)
    prompts = data.tokenise(made, Tokenizer.from_folder(o.target), settings, report)
    prompts.save(o.out)
    print(json.dumps(prompts.report, indent=2))


def command_generate(o: argparse.Namespace) -> None:
    settings = config.load(GenerationSettings, o.config, o.set)
    if o.device.startswith("cuda"):
        torch.cuda.set_per_process_memory_fraction(0.75)  # a trainer may be compiling on the same GPU
    target = load_target(o.target, o.device, o.device.startswith("cuda"))
    report = generate_corpus(
        target, data.PromptSet.load(o.prompts), stop_ids(o.target), o.out, settings, split=int(o.dev)
    )
    print(json.dumps(report))


def command_train(o: argparse.Namespace) -> None:
    settings = config.load(TrainSettings, o.config, o.set)
    if o.limit is not None:
        settings.limit_s = o.limit
    gpu = o.device.startswith("cuda")
    if gpu:
        settings.compile = not o.eager
        settings.flex = not (o.eager or o.no_flex)
        settings.graph = not (o.eager or o.no_graph)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    target = load_target(o.target, o.device, settings.compile)
    trainer = Trainer(settings, target, o.out)
    if gpu:
        synthetic = Corpus(
            [
                synthetic_corpus(
                    o.out / "synthetic", target.shape.vocab_size, 4 * settings.sequences, settings.max_total
                )
            ],
            target.device,
        )
        trainer.prepare(synthetic, 2)
        print(f"compiled in {trainer.warm_up(synthetic):.1f} s", flush=True)
    wait_for(o.corpus, o.patience)
    corpus = Corpus(o.corpus, target.device)
    print(f"{len(corpus)} sequences, {corpus.response_tokens} response tokens", flush=True)
    quick: Callable[..., dict[str, Any]] | None = None
    if o.dev_corpus is not None:
        wait_for([o.dev_corpus], o.patience)
        dev = corpus_texts(o.dev_corpus)

        def quick(model: Any) -> dict[str, Any]:
            return evaluate(model, target, dev, texts_per_batch=16 if gpu else 1).table()

    if o.trial and quick is not None and not (o.out / "checkpoint.pt").exists():
        settings = best_trial(trainer, corpus, settings, o, quick)
    trainer.restart(settings)
    trainer.prepare(corpus)
    if trainer.resume():
        print(f"resumed at step {trainer.step_number}", flush=True)
    deadline = None if o.deadline is None else time.monotonic() + o.deadline - time.time()
    summary = trainer.run(corpus, quick, deadline)
    export.save_released(trainer.model, o.out / "drafter", target.shape.num_layers, o.max_positions)
    print(json.dumps(summary), flush=True)
    record: dict[str, Any] = {"summary": summary, "settings": asdict(settings), "versions": export.versions(),
                              "data": [json.loads((f / "report.json").read_text(encoding="utf-8")) for f in o.corpus]}  # fmt: skip
    model = export.load_released(o.out / "drafter", target.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if quick is not None:
        record["dev"] = quick(model)
        print("dev", json.dumps(record["dev"]), flush=True)
    if o.texts is not None:
        result = evaluate(model, target, fixed_texts(o.texts, o.evaluation), texts_per_batch=16 if gpu else 1)
        record["final"] = result.table()
        record["coverage"], record["hits"] = result.coverage, result.hits
        record["intervals"] = {
            m: {k: result.interval(m, k) for k in sorted(set(result.kinds))} for m in result.accepted
        }
        print("final", json.dumps(record["final"]), flush=True)
        card = export.model_card(
            o.title or o.out.name,
            "domino" if settings.shape.domino else "dflash",
            "SmolLM2-135M-Instruct",
            summary,
            record["final"],
            record["data"],
            record["settings"],
        )
        (o.out / "drafter" / "README.md").write_text(card, encoding="utf-8")
    (o.out / "record.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def best_trial(
    trainer: Trainer,
    corpus: Corpus,
    settings: TrainSettings,
    o: argparse.Namespace,
    quick: Callable[..., dict[str, Any]],
) -> TrainSettings:
    """Train each ``--trial`` for ``--trial-seconds`` and keep the settings with the best τ on the dev set (budget 16)."""
    folder, scores = trainer.folder, []
    for number, text in enumerate(o.trial):
        values = {
            key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in text.split(","))
        }
        values = {k: float(v) if isinstance(v, str) else v for k, v in values.items()}
        trial = dataclasses.replace(settings, **values, limit_s=o.trial_seconds, evaluate_at=())
        trainer.folder = folder / f"trial{number}"
        trainer.folder.mkdir(parents=True, exist_ok=True)
        trainer.restart(trial)
        trainer.prepare(corpus)
        trainer.run(corpus)
        table = quick(trainer.model)
        score = table["dominotree@16" if settings.shape.domino else "marginal@16"]["all"]
        scores.append((score, dataclasses.replace(settings, **values)))
        print(
            f"trial {text}: {trainer.step_number} steps, {score}",
            json.dumps({m: row["all"] for m, row in table.items()}),
            flush=True,
        )
    trainer.folder = folder
    return max(scores, key=lambda pair: pair[0])[1]


def stages(o: argparse.Namespace) -> list[list[list[str]]]:
    """The recipe as groups of command lines: those of one group run side by side, one on each GPU."""
    gpus = 1 if o.device == "cpu" else max(1, torch.cuda.device_count() if o.gpus is None else o.gpus)
    total = 60.0 * o.minutes
    share = {"generate": 0.2 * total, "domino": 0.5 * total, "dflash": 0.25 * total}
    if gpus > 1:
        share["domino"] = share["dflash"] = 0.75 * total
    base = ["--target", str(o.target), "--evaluation", str(o.evaluation)]
    prompts = o.prompts or o.out / "prompts.npz"
    groups: list[list[list[str]]] = []
    if o.prompts is None:
        groups.append(
            [
                [
                    "prompts",
                    *base,
                    "--out",
                    str(prompts),
                    *(["--config", o.prompts_config] if o.prompts_config else []),
                ]
            ]
        )
    answer = ["generate", *base, "--prompts", str(prompts), "--device", o.device]
    if o.generate_config:
        answer += ["--config", o.generate_config]
    dev, corpora = o.out / "dev", [o.out / f"corpus{i}" for i in range(gpus)]
    groups.append(
        [
            [
                *answer,
                "--dev",
                "--out",
                str(dev),
                "--set",
                "sampled_share=0",
                "--set",
                "long_share=0",
                "--set",
                "min_group=48",
            ]
        ]
    )
    groups.append(
        [
            [
                *answer,
                "--out",
                str(c),
                "--set",
                f"shards={gpus}",
                "--set",
                f"shard={i}",
                "--set",
                f"limit_s={share['generate']}",
            ]
            for i, c in enumerate(corpora)
        ]
    )
    trained = []
    for name, settings in (("domino", o.domino_config), ("dflash", o.dflash_config)):
        line = [
            "train",
            *base,
            "--config",
            settings,
            "--corpus",
            *map(str, corpora),
            "--dev-corpus",
            str(dev),
            "--out",
            str(o.out / name),
            "--limit",
            str(share[name]),
        ]
        line += ["--device", o.device, "--title", f"smollm2-135m-{name}-b16"]
        trained.append(line if o.texts is None else [*line, "--texts", str(o.texts)])
    return [*groups, trained] if gpus > 1 else [*groups, *([line] for line in trained)]


def command_all(o: argparse.Namespace) -> None:
    o.out.mkdir(parents=True, exist_ok=True)
    for group in stages(o):
        print("·", " | ".join(line[0] for line in group), flush=True)
        if o.device == "cpu":
            for line in group:
                main(line)
            continue
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "dominotree.train", *line],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu)},
            )
            for gpu, line in enumerate(group)
        ]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SystemExit(
                f"{group[codes.index(next(c for c in codes if c))][0]} failed; see its message above"
            )
    print(f"drafters: {o.out / 'domino' / 'drafter'} and {o.out / 'dflash' / 'drafter'}")


def command_plot(o: argparse.Namespace) -> None:
    from dominotree.train.plot import write_plot

    write_plot(o.log, o.out)


def command_evaluate(o: argparse.Namespace) -> None:
    target = load_target(o.target, o.device, False)
    texts = fixed_texts(o.texts, o.evaluation) if o.dev_corpus is None else corpus_texts(o.dev_corpus)
    if o.every > 1:
        texts = texts[:: o.every]
    result = evaluate(export.load_released(o.drafter, target.device), target, texts, Options(top_m=o.top_m))
    print(json.dumps({"table": result.table(), "coverage": result.coverage, "hits": result.hits}, indent=1))


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m dominotree.train",
        description="Make the default drafters: prompts, responses, training, evaluation.",
    )
    commands = p.add_subparsers(dest="command", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        c = commands.add_parser(name, help=text)
        c.set_defaults(run=run)
        c.add_argument(
            "--target",
            type=Path,
            required=True,
            help="target folder (config.json, model.safetensors, tokenizer)",
        )
        c.add_argument(
            "--evaluation",
            type=Path,
            default=EVALUATION / "prompts.jsonl",
            help="evaluation prompts, kept out of the data",
        )
        return c

    def add_run(c: argparse.ArgumentParser) -> None:
        c.add_argument("--config", help="YAML file, or the name of one in dominotree/train/configs")
        c.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting")
        c.add_argument("--out", type=Path, required=True)

    c = add("prompts", command_prompts, "make the prompt set (.npz)")
    add_run(c)
    c = add("generate", command_generate, "answer the prompts with the target")
    add_run(c)
    c.add_argument("--prompts", type=Path, required=True)
    c.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    c.add_argument("--dev", action="store_true", help="the dev prompts instead of the training prompts")
    c = add("train", command_train, "train a drafter on one or more corpora")
    add_run(c)
    c.add_argument("--corpus", type=Path, nargs="+", required=True)
    c.add_argument("--dev-corpus", type=Path)
    c.add_argument("--texts", type=Path, help="fixed evaluation texts for the final table")
    c.add_argument("--limit", type=float, help="seconds of training; schedules end with it")
    c.add_argument("--deadline", type=float, help="Unix time at which training must be over")
    c.add_argument("--patience", type=float, default=1200.0, help="seconds to wait for the corpora")
    c.add_argument("--eager", action="store_true", help="do not compile")
    c.add_argument("--no-flex", action="store_true", help="compile, but with plain masked attention")
    c.add_argument(
        "--no-graph", action="store_true", help="launch every kernel instead of replaying CUDA graphs"
    )
    c.add_argument(
        "--trial",
        action="append",
        default=[],
        metavar="KEY=VALUE,…",
        help="try these settings first; the best on the dev set is used",
    )
    c.add_argument("--trial-seconds", type=float, default=45.0)
    c.add_argument("--title")
    c.add_argument("--max-positions", type=int, default=8192)
    c.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    c = add("all", command_all, "the whole recipe: prompts, responses, both drafters, evaluation")
    c.add_argument("--out", type=Path, required=True)
    c.add_argument("--minutes", type=float, default=30.0, help="time for everything but the prompts")
    c.add_argument("--gpus", type=int, help="how many to use (default: all)")
    c.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    c.add_argument("--prompts", type=Path, help="use this prompt set instead of making one")
    c.add_argument("--prompts-config")
    c.add_argument("--generate-config")
    c.add_argument("--domino-config", default="domino")
    c.add_argument("--dflash-config", default="dflash")
    c.add_argument("--texts", type=Path, help="fixed evaluation texts for the final table")
    c = commands.add_parser("plot", help="draw a training log (loss, accuracy by depth, τ) as an HTML page")
    c.set_defaults(run=command_plot)
    c.add_argument("log", type=Path, nargs="+", help="log.jsonl files, gzipped or not")
    c.add_argument("--out", type=Path, required=True)
    c = add("evaluate", command_evaluate, "accepted length by method along fixed texts")
    c.add_argument("--drafter", type=Path, required=True)
    c.add_argument("--texts", type=Path, default=EVALUATION / "eval_texts.json")
    c.add_argument("--dev-corpus", type=Path)
    c.add_argument("--every", type=int, default=1, help="use every n-th text")
    c.add_argument("--top-m", type=int, default=64)
    c.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    return p


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
