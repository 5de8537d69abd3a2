"""Add the build, pop by pop, to single rounds of recorded runs; every other number of the files stays.

    dominotree record --pops NAME:ROUND[,ROUND…] …        # which rounds lessons show: python -m viz.lessons

A run's rounds follow from its prompt and settings, so the run is decoded again up to the last wanted round. Every round
on the way must be the recorded one (tokens, path, verified tree and its scores), else its file stays as it is. The run id is a hash of the
content and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

from dominotree.checkpoints import Pair
from dominotree.cost import CostModel
from dominotree.decode import Run, Settings
from dominotree.errors import DominoTreeError, SettingsError
from dominotree.trace import Round, load, save

#: Largest difference of any score between the recorded round and the one decoded again.
TOLERANCE = 1e-3
#: Settings that decide what is decoded; which engine decodes is this machine's choice.
ASKED = ("method", "budget", "top_m", "children", "temperature", "seed", "max_new_tokens", "full_row")


def wanted_rounds(texts: Sequence[str]) -> dict[str, list[int]]:
    """``["math-dominotree:3,9"]`` as ``{"math-dominotree": [3, 9]}``. Raises SettingsError."""
    out = {}
    for text in texts:
        name, _, rounds = text.partition(":")
        try:
            out[name] = sorted({int(number) for number in rounds.split(",")})
        except ValueError:
            raise SettingsError(f"--pops takes NAME:ROUND[,ROUND…], not {text!r}.") from None
    return out


def add_pops(pair: Pair, folder: Path, wanted: dict[str, list[int]], say: Callable[[str], None]) -> None:
    """Record the pops of the wanted rounds into the files of ``folder``; other rounds of a file have none after it.

    Raises SettingsError for an unknown file or round, DominoTreeError where the engine does not decode the same again.
    """
    for name, numbers in wanted.items():
        path = folder / f"{name}.json.gz"
        if not path.is_file():
            raise SettingsError(f"no recording is named {name} in {folder}.")
        trace = load(path)
        if not 1 <= numbers[0] <= numbers[-1] <= len(trace.rounds):
            raise SettingsError(f"{name} has the rounds 1 to {len(trace.rounds)}, not {numbers}.")
        settings = trace.header["settings"]
        asked = {name: settings[name] for name in ASKED if name in settings}
        profile = trace.header.get(
            "cost_profile"
        )  # of a cost-aware budget: it decides how many nodes there are
        costs = CostModel.from_dict(profile) if profile else None
        run = Run(pair, prompt_ids=trace.prompt["token_ids"], settings=Settings(**asked), costs=costs)
        worst = 0.0
        for old, new in zip(trace.rounds[: numbers[-1]], run, strict=False):
            worst = max(worst, _difference(old, new, name))
            old.pops = new.pops if old.index in numbers else []
            say(f"\r{name}, round {old.index} of {numbers[-1]}    ")
        for this in trace.rounds[numbers[-1] :]:
            this.pops = []
        tokens = {token for this in trace.rounds for pop in this.pops for token in pop.token}
        trace.tokens |= {token: run.trace.tokens[token] for token in tokens}
        save(trace, path)
        say("\n")
        print(
            f"{path.name}: rounds {', '.join(map(str, numbers))}, run {trace.run_id}, largest difference of a score "
            f"{worst:.1g}, {path.stat().st_size / 1024:.0f} KB"
        )


def _difference(old: Round, new: Round, name: str) -> float:
    """Largest difference of a score in the verified trees of two rounds that must be the same, else DominoTreeError."""
    count = old.verified_nodes  # the verified tree comes first, in pop order; pops refer to no other node
    columns = ("base_logit", "delta", "logz_m", "cum_marginal", "cum_static", "cum_conditional")

    def facts(this: Round) -> tuple[object, ...]:
        trees = (this.nodes.token[:count], this.nodes.parent[:count], this.nodes.order[:count])
        return this.anchor, this.committed, this.path, this.verified_nodes, *trees

    worst = 0.0
    if facts(old) == facts(new):
        for column in columns:
            for x, y in zip(
                getattr(old.nodes, column)[:count], getattr(new.nodes, column)[:count], strict=True
            ):
                worst = max(worst, 0.0 if x == y else inf if x is None or y is None else abs(x - y))
    if facts(old) != facts(new) or worst > TOLERANCE:
        raise DominoTreeError(
            f"{name} is not decoded again as it was recorded: round {old.index} differs; record the run anew."
        )
    return worst
