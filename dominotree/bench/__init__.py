"""What the figures of README and docs/performance.md come from. One module per command."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dominotree.checkpoints import Pair
from dominotree.errors import SettingsError

EVAL = Path(__file__).resolve().parents[2] / "assets" / "eval"


def eval_file(name: str) -> Path:
    """A file of ``assets/eval``; a checkout has it, an installed wheel does not."""
    path = EVAL / name
    if not path.is_file():
        raise SettingsError(
            f"assets/eval/{name} is not here; run the benchmarks from a checkout of the project."
        )
    return path


def eval_prompts() -> list[dict[str, str]]:
    """The 96 evaluation prompts: {"kind": "math" | "code" | "chat", "prompt": str}."""
    return [
        json.loads(line)
        for line in eval_file("prompts.jsonl").read_text(encoding="utf-8").splitlines()
        if line
    ]


def header(pair: Pair) -> dict[str, Any]:
    """Machine, versions, pair and date of a result."""
    import torch

    from dominotree import __version__
    from dominotree.decode import machine_name

    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine_name(pair.target.device),
        "versions": {"dominotree": __version__, "torch": str(torch.__version__)},
        "pair": pair.info,
    }


def run(args: argparse.Namespace, pair: Pair, say: Callable[[str], None]) -> dict[str, Any]:
    """Run one benchmark by its command-line arguments, print its table, return its result."""
    from dominotree.bench import accepted, adaptive, exact, identical, speed
    from dominotree.cli import engine_of

    if args.bench == "exact":
        result = exact.run(pair, args.texts, say)
    elif args.bench == "identical":
        result = identical.run(
            pair, args.start, args.prompts, args.tokens, args.temperatures, args.methods, say, engine_of(args)
        )
    elif args.bench == "adaptive":
        result = adaptive.from_arguments(args, pair, say)
    elif args.bench == "speed":
        result = speed.run(pair, args.prompts, args.tokens, args.methods, say, engine_of(args))
    else:
        result = accepted.run(pair, args.texts, args.rows, say)
    return {"bench": args.bench, **header(pair), **result}
