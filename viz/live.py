"""The page's door to the engine: loads the pair in the background, then runs one request at a time.

Only this module reaches the engine, and only inside its functions: importing it imports no torch.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from dominotree.errors import DominoTreeError
from viz.sessions import LiveRun, sentence

log = logging.getLogger(__name__)

WARM_UP_PROMPT = "Count from one to twenty in words."


class PairEngine:
    """A pair that loads in the background. ``state``: "loading", then "ready" or "failed" (see ``message``).

    ``pair``, or ``target`` with ``drafter``, and ``device`` are what ``load_pair`` takes. Once loaded, short
    runs warm the engine up; a plain one also gives the AR speed that live speed-ups are measured against.
    """

    def __init__(
        self,
        pair: str = "default",
        target: str | None = None,
        drafter: str | None = None,
        dflash: str | None = None,
        device: str = "cpu",
    ) -> None:
        self._wanted: dict[str, Any] = {"name": pair, "target": target, "drafter": drafter, "dflash": dflash}
        self._device = device
        self._pair: Any = None
        self._thread: threading.Thread | None = None
        self.state = "loading"
        self.message = "The model is loading."

    def start(self) -> None:
        """Begin loading; returns at once. Calling it again does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._load, name="load-pair", daemon=True)
            self._thread.start()

    def _load(self) -> None:
        try:
            from dominotree.checkpoints import load_pair
            from dominotree.decode import Settings, generate

            dtype = "float32" if self._device == "cpu" else "bfloat16"
            pair = load_pair(**self._wanted, device=self._device, dtype=dtype)
            generate(pair, WARM_UP_PROMPT, Settings(method="ar", max_new_tokens=4))
            plain = generate(pair, WARM_UP_PROMPT, Settings(method="ar", max_new_tokens=32))
            pair.ar_tokens_per_second = plain.summary["tokens_per_second"]
            if pair.domino is not None:
                generate(pair, WARM_UP_PROMPT, Settings(max_new_tokens=8))
        except Exception as error:
            log.exception("the pair could not be loaded")
            self.message = f"{sentence(error)} Recorded runs still work."
            self.state = "failed"
            return
        self._pair = pair
        info = pair.info
        self.message = (
            f"{info['target']} with {info['drafter'] or info['dflash']}, {info['dtype']} on {info['device']}"
        )
        self.state = "ready"

    def run(self, prompt: str, settings: dict[str, Any], cancel: threading.Event) -> LiveRun:
        """A decoding run, recorded in full. Raises DominoTreeError (one sentence) when it cannot start."""
        if self._pair is None:
            raise DominoTreeError(self.message)
        from dominotree.decode import Run, Settings

        return Run(self._pair, prompt, Settings(**settings), record=True, cancel=cancel)
