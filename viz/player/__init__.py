"""The in-browser player: plain files, no bundler, no server needed to step through a run.

A page loads ``STYLES`` and, in this order, ``SCRIPTS`` (all relative to this folder), then calls
``DominoPlayer.mount(element, options)`` and gives it what ``viz.layout.served`` returns. ``standalone`` puts
the same files and one run into a single HTML file.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
STYLES = ("player.css", "compare.css", "present.css", "inside.css", "phone.css")
SCRIPTS = (
    "vendor/plotly-basic.min.js",
    "vendor/qrcode.js",
    "link.js",
    "stops.js",
    "qr.js",
    "notes.js",
    "text.js",
    "model.js",
    "placing.js",
    "reading.js",
    "tables.js",
    "saving.js",
    "fold.js",
    "geometry.js",
    "glossary.js",
    "labels.js",
    "tree.js",
    "panels.js",
    "pane.js",
    "picture.js",
    "race.js",
    "compare.js",
    "build.js",
    "slope.js",
    "inside.js",
    "present.js",
    "stopslist.js",
    "player.js",
)


def head(base: str = "", query: str = "", defer: bool = False) -> str:
    """HTML tags that load the player from ``base`` (a relative URL that ends in "/", or "")."""
    styles = [f'<link rel="stylesheet" href="{html.escape(base + s + query)}" />' for s in STYLES]
    mode = "defer " if defer else ""
    scripts = [f'<script {mode}src="{html.escape(base + s + query)}"></script>' for s in SCRIPTS]
    return "\n".join([*styles, *scripts])


def standalone(*runs: dict[str, Any], title: str = "DominoTree Live", theme: str = "auto") -> str:
    """One HTML file that shows a run, or two side by side; it asks for nothing from outside.

    Args:
        runs: one or two of what ``viz.layout.served`` returns.

    Raises ValueError for any other number of runs.
    """
    if len(runs) not in (1, 2):
        raise ValueError(f"a page holds one run or two, not {len(runs)}")

    def script(text: str) -> str:
        return "<script>\n" + text.replace("</script", "<\\/script") + "\n</script>"

    data = json.dumps(runs, allow_nan=False, separators=(",", ":")).encode()
    packed = base64.b64encode(gzip.compress(data, mtime=0)).decode()
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8" />',
        '<meta name="viewport" content="width=device-width, initial-scale=1" />',
        f"<title>{html.escape(title)}</title>",
        *("<style>\n" + (FOLDER / s).read_text(encoding="utf-8") + "\n</style>" for s in STYLES),
        "<style>body{margin:0}.dp{min-height:100vh}</style></head>",
        '<body><main id="player"></main>',
        *(script((FOLDER / s).read_text(encoding="utf-8")) for s in SCRIPTS),
        f'<script type="application/gzip" id="runs">{packed}</script>',
        script(f"const p = DominoPlayer.standalone({json.dumps({'theme': theme})});"),
        "</body></html>",
    ]
    return "\n".join(parts)
