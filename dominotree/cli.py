"""The ``dominotree`` command. Results go to standard output, progress to standard error.

Exit code 0 on success, 2 on bad arguments, 1 on failure; each failure is one sentence.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dominotree import __version__
from dominotree.errors import DominoTreeError, PromptError, SettingsError
from dominotree.methods import METHODS

if TYPE_CHECKING:
    from dominotree.decode import Run, Settings


class Parser(argparse.ArgumentParser):
    """Bad arguments are one sentence, without the usage wall."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)


def top_m(text: str) -> int | None:
    """``--top-m``: a number, or 'full' for the whole vocabulary."""
    if text == "full":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'full'") from None


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``generate`` and ``trace`` share."""
    parser.add_argument(
        "--prompt", required=True, help="the user's message; it goes through the chat template"
    )
    parser.add_argument(
        "--method", default="dominotree", help=f"one of {', '.join(METHODS)} (default dominotree)"
    )
    parser.add_argument(
        "--budget",
        type=int,
        help="tree nodes besides the root (default 16); cost-aware methods: at most (256)",
    )
    parser.add_argument(
        "--profile", type=Path, help="cost profile of a cost-aware method (default: this machine's own)"
    )
    parser.add_argument(
        "--top-m", type=top_m, default=64, help="candidates per level that are corrected, or 'full'"
    )
    parser.add_argument(
        "--children", type=int, default=None, help="children per node (default: the method's)"
    )
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument(
        "--full-row", action="store_true", help="normalise corrected levels over the whole vocabulary"
    )
    add_engine_options(parser)
    add_pair_options(parser)


def add_engine_options(parser: argparse.ArgumentParser, builder: bool = True) -> None:
    """What decodes (``gpu/plan.py``); the trace names what ran."""
    parser.add_argument(
        "--engine", default="auto", help="auto, graph (the round as CUDA graphs), eager or static"
    )
    if builder:
        parser.add_argument(
            "--builder", default="auto", help="auto, fused, graph or reference: who builds the trees on a GPU"
        )
    parser.add_argument(
        "--forward", default="auto", help="auto, kernels (bfloat16) or static: the captured forward"
    )


def add_pair_options(parser: argparse.ArgumentParser, dtype: bool = True) -> None:
    """Which pair, where; ``dtype``: and in which one precision."""
    parser.add_argument("--pair", default="default", help="default, qwen3-4b or qwen3-8b")
    parser.add_argument("--target", help="a target's folder or hub id, instead of --pair")
    parser.add_argument("--drafter", help="a Domino drafter's folder or hub id")
    parser.add_argument("--dflash", help="a DFlash drafter's folder or hub id")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    if dtype:
        parser.add_argument("--dtype", default="float32", help="float32 or bfloat16")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="dominotree", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)

    setup = commands.add_parser("setup", help="fetch and convert the default pair once")
    setup.set_defaults(run=cmd_setup)

    generate = commands.add_parser("generate", help="decode one prompt")
    add_run_options(generate)
    generate.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    generate.set_defaults(run=cmd_generate)

    trace = commands.add_parser("trace", help="decode one prompt and write every round to a file")
    add_run_options(trace)
    trace.add_argument("--out", required=True, type=Path, help="where to write, for example run.json.gz")
    trace.add_argument("--title", default="", help="a title shown on the page")
    trace.set_defaults(run=cmd_trace)

    export = commands.add_parser("export", help="a run as tables or one HTML file, the page as a static site")
    export.add_argument(
        "runs", nargs="*", type=Path, help="files written by 'dominotree trace' or exported from the page"
    )
    export.add_argument(
        "--csv", type=Path, metavar="DIR", help="folder for rounds.csv and nodes.csv of one run"
    )
    export.add_argument(
        "--html", type=Path, metavar="FILE", help="one HTML file of a run, or of two side by side"
    )
    export.add_argument(
        "--site", type=Path, metavar="DIR", help="the page with all recorded runs, for any web server"
    )
    export.add_argument(
        "--runs", type=Path, metavar="DIR", dest="folder", help="with --site: a folder of runs of your own"
    )
    export.set_defaults(run=cmd_export)

    record = commands.add_parser("record", help="record the runs that the page replays (assets/traces)")
    record.add_argument(
        "--out", type=Path, default=Path("assets/traces"), help="folder (default %(default)s)"
    )
    record.add_argument("--only", nargs="*", default=None, help="names of single runs to record again")
    record.add_argument(
        "--pops",
        nargs="+",
        metavar="NAME:ROUND,…",
        help="only add the build, pop by pop, to these rounds of recorded runs",
    )
    add_pair_options(record)
    record.set_defaults(run=cmd_record)

    profile = commands.add_parser("profile", help="measure what a draft and a verify cost on this machine")
    profile.add_argument("--contexts", type=int, nargs="+", help="committed rows (default 64 512 2048)")
    profile.add_argument("--max-nodes", type=int, default=256, help="largest tree (default 256)")
    profile.add_argument("--repeats", type=int, default=7, help="counted calls of each point (default 7)")
    profile.add_argument("--out", type=Path, help="write here instead of the cache")
    add_pair_options(profile)
    add_engine_options(profile, builder=False)
    profile.set_defaults(run=cmd_profile)

    commands.add_parser("train", help="make the drafters anew (needs a GPU)", add_help=False)

    bench = commands.add_parser("bench", help="reproduce the figures of docs/performance.md")
    kinds = bench.add_subparsers(dest="bench", required=True, parser_class=Parser)
    exact = kinds.add_parser("exact", help="round by round against an independent implementation")
    exact.add_argument("--texts", type=int, default=None, help="only the first N of the 12 texts")
    identical = kinds.add_parser("identical", help="every method's tokens against ar's")
    identical.add_argument("--prompts", type=int, default=48)
    identical.add_argument("--tokens", type=int, default=64)
    identical.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    identical.add_argument("--methods", nargs="+", default=None)
    identical.add_argument("--start", type=int, default=0, help="first prompt, to split the work")
    speed = kinds.add_parser("speed", help="tokens per second of every method against ar, side by side")
    speed.add_argument("--prompts", type=int, default=6)
    speed.add_argument("--tokens", type=int, default=64)
    speed.add_argument("--methods", nargs="+", default=None)
    table = kinds.add_parser("accepted", help="tokens per round on fixed texts, by method and prompt set")
    table.add_argument("--texts", type=int, default=None, help="only N texts of each set")
    table.add_argument("--rows", nargs="+", default=None, help="only these rows, for example conditional_16")
    adaptive = kinds.add_parser("adaptive", help="the cost-aware budget: nodes, calibration, τ, speed")
    bench_adaptive_options(adaptive)
    kinds.add_parser("page", help="the page: key press to paint in Chromium", add_help=False)
    kinds.add_parser(
        "engine", help="the engine on a GPU at the Qwen3 shapes, beside its floor", add_help=False
    )
    kinds.add_parser(
        "pair", help="all measurements of a pair on this machine, in one process", add_help=False
    )
    kinds.add_parser(
        "tau", help="assets/eval/tau.csv: τ by method, budget, top-M, temperature", add_help=False
    )
    for kind in (identical, speed, adaptive):
        add_engine_options(kind, builder=False)
    for kind in (exact, identical, speed, table, adaptive):
        kind.add_argument("--out", type=Path, help="also write the result as JSON")
        add_pair_options(kind)
        kind.set_defaults(run=cmd_bench)
    return parser


def bench_adaptive_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--fit", action="store_true", help="only fit the calibration of the pair's Domino drafter")
    add("--parts", nargs="+", choices=("along", "engine"), default=["along", "engine"], help="default: both")
    add(
        "--profile",
        type=Path,
        nargs="+",
        help="cost profiles (default: this machine's own, measured if missing)",
    )
    add("--texts", type=int, help="only so many of the 48 texts")
    add("--prompts", type=int, default=6, help="prompts of the engine's runs (default 6)")
    add("--tokens", type=int, default=96, help="new tokens of each (default 96)")
    add("--budgets", type=int, nargs="+", default=[16, 32, 64, 128, 256], help="fixed budgets beside it")
    add("--results", type=Path, default=Path("docs/performance/adaptive.json"), help="file to add to")


def cmd_setup(args: argparse.Namespace) -> None:
    from dominotree.default_pair import ensure

    pair = ensure(progress=True)
    print(f"default pair ready: {pair.target_dir} and {pair.drafter_dir}")


def settings_of(args: argparse.Namespace) -> Settings:
    from dominotree.decode import Settings

    return Settings(
        method=args.method, budget=args.budget, top_m=args.top_m, children=args.children, temperature=args.temperature,
        seed=args.seed, max_new_tokens=args.max_new_tokens, full_row=args.full_row, **engine_of(args),
    )  # fmt: skip


def engine_of(args: argparse.Namespace) -> dict[str, str]:
    """The engine's options as settings."""
    return {k: getattr(args, k) for k in ("engine", "builder", "forward") if hasattr(args, k)}


def open_pair(args: argparse.Namespace) -> Any:
    import torch

    from dominotree.checkpoints import load_pair

    if args.threads is not None:
        if args.threads < 1:
            raise SettingsError(f"--threads must be at least 1, not {args.threads}.")
        torch.set_num_threads(args.threads)
    return load_pair(
        args.pair,
        target=args.target,
        drafter=args.drafter,
        dflash=args.dflash,
        device=args.device,
        dtype=args.dtype,
    )


def start_run(args: argparse.Namespace, record: bool) -> Run:
    """A checked run: settings and prompt are refused before the model is loaded where that is possible."""
    settings = settings_of(args)
    if not args.prompt.strip():
        raise PromptError(f"the prompt is empty ({args.prompt!r}); type at least one word.")
    from dominotree.cost import CostModel
    from dominotree.decode import Run

    costs = None if args.profile is None else CostModel.load(args.profile)
    return Run(
        open_pair(args), args.prompt, settings, record=record, costs=costs, title=getattr(args, "title", "")
    )


def drain(run: Run, show: Callable[[str], None]) -> None:
    """Decode to the end, telling ``show`` after each round how far it is."""
    for rnd in run:
        show(f"\rround {rnd.index}: {len(run.output)} of {run.settings.max_new_tokens} tokens")
    show("\n")


def progress(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def cmd_generate(args: argparse.Namespace) -> None:
    run = start_run(args, record=False)
    drain(run, progress)
    summary, s = run.trace.summary, run.settings
    if not args.json:
        print(summary["text"])
        tau = "–" if summary["tau"] is None else f"{summary['tau']:.2f}"
        rate = "–" if summary["tokens_per_second"] is None else f"{summary['tokens_per_second']:.1f}"
        label = f" on {run.drafter_label}" if run.drafter_label else ""
        progress(
            f"{s.method}{label}: {summary['new_tokens']} tokens in {summary['rounds']} rounds, τ {tau}, "
            f"{rate} tokens/s, stopped by {summary['stop_reason']}\n"
        )
        return
    keys = ("token_ids", "text", "rounds", "tau", "tokens_per_second", "stop_reason", "stop_token", "new_tokens",
            "committed", "accepted_drafts", "prefill_ms", "decode_ms", "near_ties", "warnings")  # fmt: skip
    out = {"method": s.method, "drafter": run.drafter_label, **{k: summary[k] for k in keys},
           "settings": run.trace.header["settings"], "prompt_token_ids": run.prompt_ids}  # fmt: skip
    print(json.dumps(finite(out), ensure_ascii=False, allow_nan=False))


def finite(value: Any) -> Any:
    """The value with infinities and NaN as null: strict JSON has no word for them."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def cmd_trace(args: argparse.Namespace) -> None:
    if not args.out.name or args.out.is_dir():
        raise SettingsError(f"--out {str(args.out)!r} is no file name; give one, for example run.json.gz.")
    if not args.out.parent.is_dir():
        raise SettingsError(f"the folder {str(args.out.parent)!r} of --out does not exist; create it first.")
    run = start_run(args, record=True)
    drain(run, progress)
    from dominotree.trace import save

    save(run.trace, args.out)
    print(f"{args.out}: {len(run.trace.rounds)} rounds, run {run.trace.run_id}")


def cmd_export(args: argparse.Namespace) -> None:
    from dominotree import export

    if not (args.csv or args.html or args.site):
        raise SettingsError("say what to make: --csv DIR, --html FILE or --site DIR.")
    if args.csv:
        for path in export.csv(args.runs, args.csv):
            print(path)
    if args.html:
        print(export.html(args.runs, args.html))
    if args.site:
        print(export.site(args.runs, args.site, args.folder))


def cmd_record(args: argparse.Namespace) -> None:
    from dominotree.bench.recordings import record_all

    if args.pops:
        from dominotree.bench.pops import add_pops, wanted_rounds

        wanted = wanted_rounds(args.pops)
        add_pops(open_pair(args), args.out, wanted, progress)
        return
    record_all(open_pair(args), args.out, args.only, progress)


def cmd_profile(args: argparse.Namespace) -> None:
    from dominotree import cost, profile

    if not 1 <= args.max_nodes <= 1024 or not 1 <= args.repeats <= 1000:
        raise SettingsError("--max-nodes goes from 1 to 1024, --repeats from 1 to 1000.")
    pair = open_pair(args)
    contexts = args.contexts or profile.CONTEXTS
    model = profile.full(pair, engine_of(args), contexts, args.max_nodes, args.repeats, progress)
    path = args.out or cost.profile_path(model.about)
    model.save(path)
    print(profile.table(model))
    print(f"{path}: profile {model.hash}")


def cmd_bench(args: argparse.Namespace) -> None:
    from dominotree import bench

    result = bench.run(args, open_pair(args), progress)
    if args.out:
        args.out.write_text(json.dumps(finite(result), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["train"]:  # these have parsers of their own
            from dominotree.train.cli import main as train

            return train(words[1:])
        if words[:2] == ["bench", "page"]:
            from dominotree.bench.page import main as page

            return page(words[2:])
        if words[:2] == ["bench", "tau"]:
            from dominotree.bench.tau import main as tau

            return tau(words[2:])
        if words[:2] == ["bench", "engine"]:
            from dominotree.bench.engine import main as engine

            return engine(words[2:])
        if words[:2] == ["bench", "pair"]:
            from dominotree.bench.pair import main as whole

            return whole(words[2:])
        args = build_parser().parse_args(words)
        args.run(args)
    except (SettingsError, PromptError) as error:
        print(f"dominotree: {error}", file=sys.stderr)
        return 2
    except (DominoTreeError, OSError) as error:
        print(f"dominotree: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("dominotree: stopped", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
