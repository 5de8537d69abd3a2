"""What ``dominotree export`` writes: tables, one HTML file of a run, the page as a folder of files.

The engine knows no web library: ``viz`` (what a person sees) is imported only here, and only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dominotree.errors import SettingsError
from dominotree.trace import Trace, export_csv, load, plain
from dominotree.trace.files import write


def _count(runs: Sequence[Path], most: int, what: str) -> None:
    if not 1 <= len(runs) <= most:
        wanted = "one run" if most == 1 else "one run, or two to compare"
        raise SettingsError(f"{what} takes {wanted}, not {len(runs)} files.")


def csv(runs: Sequence[Path], folder: Path) -> list[Path]:
    """``rounds.csv`` and ``nodes.csv`` of one run in ``folder``; returns their paths."""
    _count(runs, 1, "--csv")
    return list(export_csv(runs[0], folder))


def html(runs: Sequence[Path], file: Path) -> Path:
    """One HTML file that shows a run, or two side by side, in any browser without a network."""
    _count(runs, 2, "--html")
    if file.is_dir():
        raise SettingsError(f"--html {str(file)!r} is a folder; name a file, for example run.html.")
    from viz.layout import served
    from viz.player import standalone

    traces = [load(path) for path in runs]
    text = standalone(*(plain(served(trace)) for trace in traces), title=_title(traces))
    write(file, text.encode())
    return file


def _title(traces: Sequence[Trace]) -> str:
    from dominotree.methods import METHODS

    names = [str(trace.header["settings"]["method"]) for trace in traces]
    titles = [METHODS[name].title if name in METHODS else name for name in names]
    return f"{' and '.join(titles)}: {traces[0].prompt['text']}"[:80]


def site(runs: Sequence[Path], folder: Path, recorded: Path | None = None) -> str:
    """The page as files for any web host; returns one sentence about it.

    ``recorded``: a folder of runs to show instead of those that come with the project.
    """
    if runs:
        raise SettingsError("--site shows a folder of runs: name it with --runs instead of single files.")
    from viz.library import Library
    from viz.site import write as write_site

    size = write_site(folder, Library(recorded) if recorded else None)
    return f"{folder}: {size / 1e6:.1f} MB; put it on any web server, for example: python -m http.server --directory {folder}"
