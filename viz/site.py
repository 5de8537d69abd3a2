"""The page as a folder of plain files: Explore, Compare, Lessons and Benchmarks for any web host, no Python at view time.

The browser runs the same player and the same shell as on the live page; only the controls above them are plain
HTML (``shell/site.js``), recorded runs are gzipped files, and files are read and written by the browser itself.
All addresses are relative, so the folder works below any path.
"""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path

from dominotree.errors import SettingsError
from viz import benchmarks, lessons, page
from viz import library as lib
from viz.server import FOLDERS, POLICY
from viz.sessions import NoEngine, Sessions

MARK = '<meta name="generator" content="dominotree export --site" />'
OWN = ("player", "recorded", "shell")  # folders of a site, which an export over an older one empties
SAVES = (
    ("Rounds CSV", "rounds.csv"),
    ("Nodes CSV", "nodes.csv"),
    ("Trace JSON", "trace.json"),
    ("HTML", "run.html"),
)
#: Before anything is painted: the colours that the visitor chose, else the system's.
DARK = (
    "let dark = matchMedia('(prefers-color-scheme: dark)').matches;"
    "try { dark = (localStorage.getItem('dt-theme') || (dark ? 'dark' : 'light')) === 'dark'; } catch {}"
    "document.body.classList.toggle('dark', dark);"
)


def files(library: lib.Library | None = None) -> dict[str, bytes]:
    """Every file of the site by its relative path. Reads, and lays out, all recorded runs (some seconds).

    Raises SettingsError where there are no recorded runs, OSError without the published figures.
    """
    library = library or lib.Library()
    if not library.runs:
        raise SettingsError(
            f"there are no recorded runs in {library.folder}; export the site from a checkout of the project."
        )
    shipped = {area: lib.web_files(folder) for area, folder in FOLDERS.items()}
    version = lib.version(*shipped.values())
    found = {
        f"{area}/{version}/{name}": (FOLDERS[area] / name).read_bytes()
        for area, listed in shipped.items()
        for name in listed
    }
    found["shell/icon.svg"] = (FOLDERS["shell"] / "icon.svg").read_bytes()
    found |= {f"recorded/{run.run_id}.json.gz": library.served(run.run_id) for run in library.runs}
    found["lessons.json"] = lessons.served_json(library).encode()
    found["benchmarks.json"] = benchmarks.to_json(benchmarks.data(library)).encode()
    found["index.html"] = index(library, version).encode()
    return found


def write(folder: Path, library: lib.Library | None = None) -> int:
    """Write the site into ``folder``, over an older one if there is one; returns how many bytes it takes.

    Raises SettingsError if the folder holds anything else, OSError if it cannot be written.
    """
    old = folder / "index.html"
    if folder.is_dir() and any(folder.iterdir()):
        if not old.is_file() or MARK not in old.read_text(encoding="utf-8", errors="replace"):
            raise SettingsError(f"{folder} holds other files; name an empty or a new folder for the site.")
    elif folder.exists() and not folder.is_dir():
        raise SettingsError(f"{folder} is a file; name a folder for the site.")
    found = files(library)
    for name, body in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    for area in OWN:
        for path in sorted((folder / area).rglob("*"), reverse=True):  # files before their folders
            if path.is_file() and path.relative_to(folder).as_posix() not in found:
                path.unlink()
            elif path.is_dir() and not any(os.scandir(path)):
                path.rmdir()
    return sum(map(len, found.values()))


def index(library: lib.Library, version: str) -> str:
    """The one HTML page of the site."""
    sessions = Sessions(NoEngine())
    try:
        head = page.head(library, sessions, version, static=True)
    finally:
        sessions.close()
    charset, *rest = head.split("\n", 1)
    tabs = {
        "Explore": _explore(library),
        "Compare": _compare(library),
        "Lessons": _part(),
        "Benchmarks": _part(),
    }
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8" />',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}" />',
        '<meta name="viewport" content="width=device-width, initial-scale=1" />',
        MARK,
        charset,
        f'<link rel="stylesheet" href="shell/{version}/site.css" />',
        f'<script defer src="shell/{version}/site.js"></script>',
        *rest,
        "</head>",
        f'<body><script>{DARK}</script><div class="gradio-container"><div class="main app">',
        '<header class="dt-head"><h1>DominoTree <span>Live</span></h1><div class="dt-head-right">',
        '<span class="dt-badge" title="This site replays recorded runs. Installed on a machine of your own, '
        'DominoTree Live runs prompts, too.">recorded runs</span>',
        '<button type="button" class="dt-theme" aria-label="Switch between light and dark"></button></div></header>',
        '<div class="dt-tabs"><div class="tab-wrapper"><div class="tab-container" role="tablist">',
        *(_tab(title, title == "Explore") for title in tabs),
        "</div></div>",
        *(_panel(title, body, title == "Explore") for title, body in tabs.items()),
        "</div></div></div><noscript>This page steps through recorded runs with JavaScript, which is off.</noscript>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _tab(title: str, on: bool) -> str:
    name = title.lower()
    return (
        f'<button type="button" role="tab" id="tab-{name}" data-tab="{name}" aria-controls="panel-{name}" '
        f'aria-selected="{str(on).lower()}"{" class=selected" if on else ""}>{title}</button>'
    )


def _panel(title: str, body: str, on: bool) -> str:
    name = title.lower()
    hidden = "" if on else " hidden"
    return f'<section role="tabpanel" class="dt-tab" id="panel-{name}" aria-labelledby="tab-{name}"{hidden}>{body}</section>'


def _select(name: str, label: str, choices: Sequence[tuple[str, str]], value: str | None) -> str:
    """A labelled menu; ``choices``: (title, value)."""
    options = "".join(
        f'<option value="{html.escape(key)}"{" selected" if key == value else ""}>{html.escape(title)}</option>'
        for title, key in choices
    )
    return f'<label class="dt-field"><span>{label}</span><select id="{name}">{options}</select></label>'


def _explore(library: lib.Library) -> str:
    groups = library.menu()
    first = groups[0]
    return _player_tab(
        "explore",
        _select("explore-group", "Watch a run", [(g["title"], g["key"]) for g in groups], first["key"]),
        _select(
            "explore-run-choice",
            "Recorded with",
            [(run["title"], run["id"]) for run in first["runs"]],
            first["runs"][0]["id"],
        ),
    )


def _compare(library: lib.Library) -> str:
    groups = library.menu()
    opened = page.compared_group(groups)
    methods = [(title, name) for name, title in page.variants(groups).items()]
    return _player_tab(
        "compare",
        _select(
            "compare-group",
            "Watch two runs",
            [(g["title"], g["key"]) for g in groups],
            opened["key"] if opened else None,
        ),
        *(
            _select(f"compare-{side.lower()}", side, methods, method)
            for side, method in zip(("Left", "Right"), page.COMPARED, strict=True)
        ),
    )


def _player_tab(tab: str, *menus: str) -> str:
    """Menus, status, files and the player's place, named as on the live page."""
    saves = "".join(
        f'<button type="button" class="sm" id="{tab}-{what.replace(".", "-")}" data-save="{what}">{title}</button>'
        for title, what in SAVES
    )
    if tab == "explore":
        saves += '<button type="button" class="sm" id="explore-import">Import</button>'
    return (
        f'<div class="dt-bar"><div class="dt-group dt-recorded">{"".join(menus)}</div></div>'
        f'<div class="dt-bar-2"><p class="dt-status" role="status" aria-live="polite"></p>'
        f'<div class="dt-files" data-tab="{tab}">{saves}</div></div>'
        f'<div class="dt-player" data-tab="{tab}"></div>'
    )


def _part() -> str:
    return '<div class="dt-player"></div>'
