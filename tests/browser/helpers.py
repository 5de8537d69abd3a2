"""What the browser tests share: Chromium, guarded visitors, plain files over HTTP, the player's test page."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright
from trace_factory import VOCABULARY

from dominotree import trace as tr
from viz import player
from viz.layout import served
from viz.player.bench import FLAGS

ROOT = Path(__file__).parents[2]
#: No name but this machine's address leads anywhere.
ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
LOCAL = r"(https?://127\.0\.0\.1[:/]|file:|data:|blob:)"
#: Words and digits only, as most text has them.
PLAIN = VOCABULARY[:190]
PLAYER_PAGE = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>player</title>
{player.head("viz/player/")}<style>body{{margin:0}}</style></head>
<body><main id="player"></main><input id="field"><button id="other">Other</button>
<script src="tests/browser/probe.js"></script><script>
const events = [];
const p = DominoPlayer.mount(document.getElementById("player"), {{
  onEvent: (name, detail) => events.push([name, detail]) }});
</script></body></html>"""

#: Opens a page: a visitor of its own, ``size`` in px, further options as of Playwright's ``new_context``.
Open = Callable[..., Page]


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium; the test fails, with the reason, where there is none."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("no Chromium: set CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, ALONE])
        yield browser
        browser.close()


@contextmanager
def visitors(browser: Browser, allowed: str = LOCAL, console: bool = True) -> Iterator[Open]:
    """Gives a function that opens blank pages, each a new visitor's.

    Whatever they ask for beyond ``allowed`` (a regular expression of URLs), any script error and, with
    ``console``, any error in the console fails the test when it ends.
    """
    contexts: list[Any] = []
    wrong: list[str] = []

    def open_page(size: tuple[int, int] = (1440, 900), **more: Any) -> Page:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **more)
        contexts.append(context)

        def gate(request: Request) -> None:
            if not re.match(allowed, request.url):
                wrong.append(request.url)

        context.on("request", gate)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        if console:
            page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


class _Files(http.server.SimpleHTTPRequestHandler):
    """Files of a folder, quietly; ``pages`` holds what has no file."""

    def __init__(self, *args: Any, pages: dict[str, str], **more: Any) -> None:
        self.pages = pages
        super().__init__(*args, **more)

    def do_GET(self) -> None:
        if self.path in self.pages:
            body = self.pages[self.path].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        elif self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def files_of(folder: Path, pages: dict[str, str] | None = None) -> Iterator[str]:
    """A web server of ``folder`` on a free local port; gives its address. ``pages``: path -> HTML besides."""
    handler = functools.partial(_Files, directory=str(folder), pages=pages or {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


# ---- the player's test page: `p` is the player, `events` what it told -------------------------------------


def show(page: Page, *traces: tr.Trace) -> None:
    """Load one run, or compare two, and draw."""
    runs = [tr.to_json(served(tr.finish(trace))) for trace in traces]
    call = "p.load(runs[0])" if len(runs) == 1 else "p.compare(runs[0], runs[1])"
    page.evaluate(f"texts => {{ const runs = texts.map(JSON.parse); {call}; p.flush(); }}", runs)


def js(page: Page, expression: str) -> Any:
    """The value of an expression; what waits to be drawn is drawn before, and what it asks to draw after it.

    The player itself, which its methods return, is not sent over: it would take seconds.
    """
    return page.evaluate(
        f"() => {{ p.flush(); const found = ({expression}); if (p.frame) p.flush();"
        " return found === p ? null : found; }"
    )


def state(page: Page) -> dict[str, Any]:
    return js(page, "p.state()")


def headline(page: Page) -> str:
    return js(page, "p.panes[0].headline.innerText")


def assert_nothing_meets(seen: dict[str, Any]) -> None:
    """No label box of ``probe.measure()`` meets a line, a mark, a foreign chip, another label or the border."""
    inset = 0.5

    def apart(a: list[float], b: list[float]) -> bool:
        return (
            a[0] + inset >= b[2] - inset
            or b[0] + inset >= a[2] - inset
            or a[1] + inset >= b[3] - inset
            or b[1] + inset >= a[3] - inset
        )

    labels, stage = seen["labels"], seen["stage"]
    for i, label in enumerate(labels):
        for other in labels[i + 1 :]:
            assert apart(label, other), (label[4], other[4])
        for mark in seen["marks"]:
            assert apart(label, mark), (label[4], mark)
        x0, y0, x1, y1 = label[:4]
        assert x0 >= stage[0] - 1 and x1 <= stage[2] + 1 and y0 >= stage[1] - 1 and y1 <= stage[3] + 1, label
        for name, width, *line in seen["lines"]:
            half = width / 2 - inset
            wide = [line[0] - half, line[1] - half, line[2] + half, line[3] + half]
            assert x0 >= wide[2] or x1 <= wide[0] or y0 >= wide[3] or y1 <= wide[1], (label, name, line)
        for chip in seen["chips"]:
            inside = chip[0] <= x0 and chip[2] >= x1 and chip[1] <= (y0 + y1) / 2 <= chip[3]
            assert inside or apart(label, chip), (label[4], chip)
