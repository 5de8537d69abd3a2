"""DominoTree Live: ``python app.py`` serves the page; see ``python app.py --help``."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import webbrowser
from urllib.parse import urlsplit, urlunsplit


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="app.py", description="DominoTree Live: speculative decoding made visible."
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default %(default)s; 0.0.0.0 for all)"
    )
    parser.add_argument("--port", type=int, default=7860, help="port to listen on (default %(default)s)")
    parser.add_argument(
        "--replay-only", action="store_true", help="show recorded runs only; never load a model"
    )
    parser.add_argument(
        "--public-url",
        type=public_url,
        default=None,
        metavar="URL",
        help="the page's address for others, for links and QR codes (default: as the visitor opened it)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in this machine's browser")
    parser.add_argument("--pair", default="default", help="pair to run prompts with (default: %(default)s)")
    parser.add_argument("--target", help="target model: hub id or local folder (instead of --pair)")
    parser.add_argument("--drafter", help="its Domino drafter: hub id or local folder")
    parser.add_argument("--dflash", help="its DFlash drafter: hub id or local folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default %(default)s)")
    return parser


def public_url(text: str) -> str:
    """A web address without a fragment, for the links that the page hands out."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address such as https://example.org/dominotree/"
        )
    return urlunsplit(parts._replace(path=parts.path or "/", fragment=""))


def desktop() -> bool:
    """Whether there is a screen for a browser; without one, ``webbrowser`` may start a text browser that never ends."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def main() -> None:
    asked = arguments().parse_args()
    import uvicorn

    from viz.library import Library
    from viz.live import PairEngine
    from viz.server import create_app
    from viz.sessions import NoEngine, Sessions

    if asked.replay_only:
        app = create_app(Library(), Sessions(NoEngine()), public_url=asked.public_url or "")
    else:
        engine = PairEngine(asked.pair, asked.target, asked.drafter, asked.dflash, asked.device)
        app = create_app(
            Library(), Sessions(engine), on_start=engine.start, public_url=asked.public_url or ""
        )
    outside = f", for others {asked.public_url}" if asked.public_url else ""
    print(f"DominoTree Live: http://{asked.host}:{asked.port}{outside}", flush=True)
    if asked.open and desktop():
        threading.Timer(1.0, webbrowser.open, [f"http://127.0.0.1:{asked.port}"]).start()
    uvicorn.run(app, host=asked.host, port=asked.port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
