"""``dominotree bench pair``: what docs/performance.md says of a pair on one machine, measured in one process.

Loading a pair and compiling its kernels takes longer than most of these measurements, so they share it: float32 first
(equality with ``ar``, cost profile, cost-aware runs, recordings), then bfloat16 (profile, cost-aware runs, speed). Each
result is written as soon as it is there, so an interrupted run keeps what it has.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dominotree import calibration, cost, profile
from dominotree.bench import adaptive, header, identical, recordings, speed
from dominotree.checkpoints import Pair
from dominotree.cli import add_pair_options, finite, open_pair, progress

PARTS = ("identical", "profile", "adaptive", "record", "speed")
PLAN = {
    "float32": ("identical", "profile", "adaptive", "record"),
    "bfloat16": ("profile", "adaptive", "speed"),
}


class Session:
    """One loaded pair and the folder for its results."""

    def __init__(self, pair: Pair, out: Path, args: argparse.Namespace, say: Callable[[str], None]) -> None:
        self.pair, self.out, self.args, self.say = pair, out, args, say
        self.dtype = str(pair.target.dtype).removeprefix("torch.")
        self.costs: cost.CostModel | None = None

    def keep(self, name: str, result: dict[str, Any]) -> None:
        path = self.out / f"{name}-{self.dtype}.json"
        path.write_text(
            json.dumps(finite({**header(self.pair), **result}), indent=1, allow_nan=False) + "\n", "utf-8"
        )

    def identical(self) -> None:
        """Every method's tokens against ``ar``'s."""
        found = identical.run(
            self.pair, 0, self.args.prompts, self.args.tokens, [0.0, 0.7, 1.0], None, self.say
        )
        self.keep("identical", found)

    def profile(self) -> None:
        """The cost model that the cost-aware methods use on this machine."""
        model = profile.full(self.pair, repeats=self.args.repeats, say=self.say)
        model.save(self.out / f"profile-{self.dtype}.json")
        print(profile.table(model))
        self.costs = model

    def adaptive(self) -> None:
        """Runs of the cost-aware methods beside fixed budgets (``bench adaptive``'s part "engine")."""
        if self.costs is None:
            self.profile()
        assert self.costs is not None
        g = calibration.find(self.pair.info["target"], self.pair.info["drafter"])
        found = adaptive.part_engine(
            self.pair, self.costs, g, self.args.prompts, self.args.tokens, adaptive.FIXED, {}, self.say
        )
        entry = {"profile": self.costs.summary(), "calibration": g.summary()["about"], "engine": found}
        print(adaptive.text(entry))
        self.keep("adaptive", entry)

    def record(self) -> None:
        """The runs that the page replays, into a folder of their own."""
        recordings.record_all(self.pair, self.out / f"traces-{self.dtype}", None, self.say)

    def speed(self) -> None:
        """Tokens per second of every method against ``ar``."""
        self.keep("speed", speed.run(self.pair, self.args.prompts, self.args.tokens, None, self.say))


def run(args: argparse.Namespace, load: Callable[[str], Pair], say: Callable[[str], None]) -> None:
    """Measure the parts of ``args.parts`` in every precision of ``args.dtypes``; ``load`` opens the pair in one."""
    args.out.mkdir(parents=True, exist_ok=True)
    for dtype in args.dtypes:
        started = time.perf_counter()
        session = Session(load(dtype), args.out, args, say)
        print(f"{dtype}: loaded in {time.perf_counter() - started:.1f} s")
        for part in (p for p in PLAN[dtype] if p in args.parts):
            started = time.perf_counter()
            getattr(session, part)()
            print(f"{dtype}: {part} took {time.perf_counter() - started:.1f} s", flush=True)


def main(argv: Sequence[str]) -> int:
    """Options of ``dominotree bench pair``."""
    parser = argparse.ArgumentParser(prog="dominotree bench pair", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--dtypes", nargs="+", choices=list(PLAN), default=list(PLAN))
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens of each prompt (recordings: 128)")
    parser.add_argument("--repeats", type=int, default=3, help="counted calls of each point of the profile")
    add_pair_options(parser, dtype=False)
    args = parser.parse_args(argv)

    def load(dtype: str) -> Pair:
        return open_pair(argparse.Namespace(**{**vars(args), "dtype": dtype}))

    run(args, load, progress)
    return 0
