"""Gradio, imported without rewriting its type stubs.

On import Gradio parses the source of each of its components and writes a ``.pyi`` file beside it: more than a
third of its import time, and nothing that a running page needs. Its writer passes over classes without a
source file, so while it is being imported its components are said to have none.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@contextmanager
def _no_stub_files() -> Iterator[None]:
    getfile = inspect.getfile

    def quick(thing: Any) -> str:
        if type(thing).__name__ == "ComponentMeta":
            raise OSError("no stub file wanted")
        return getfile(thing)

    inspect.getfile = quick  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.getfile = getfile


with _no_stub_files():
    import gradio as gr

__all__ = ["gr"]
