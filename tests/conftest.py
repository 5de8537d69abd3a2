"""Shared test set-up: one CPU thread per process, no network, the tests folder importable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
sys.path.insert(0, str(Path(__file__).parent))

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """GPU tests are skipped, by name and with the reason, where there is no CUDA device."""
    if not any("gpu" in item.keywords for item in items):
        return
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device here"))
