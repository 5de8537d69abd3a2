"""Where the project keeps what it made or fetched: the default pair, compiled kernels, cost profiles."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The cache folder: ``$DOMINOTREE_CACHE``, else ``dominotree`` in the platform's own cache folder."""
    if chosen := os.environ.get("DOMINOTREE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "dominotree"
