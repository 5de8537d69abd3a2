"""Fixtures of the browser tests. A module may have its own of the same name; it then takes precedence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers import PLAYER_PAGE, ROOT, Open, files_of, launched, show, visitors
from playwright.sync_api import Browser, Page

from dominotree import trace as tr


@pytest.fixture(
    scope="module"
)  # not longer: Playwright allows one loop a thread, and some tests start their own
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def player_address() -> Iterator[str]:
    """The player alone on a page, served from the checkout."""
    with files_of(ROOT, {"/": PLAYER_PAGE}) as address:
        yield address


@pytest.fixture
def visit_player(chromium: Browser, player_address: str) -> Iterator[Open]:
    """Open the player with no, one or two traces; an outside request or a script error fails the test."""
    with visitors(chromium) as new_page:

        def open_player(*traces: tr.Trace, size: tuple[int, int] = (1440, 900), **more: Any) -> Page:
            page = new_page(size, **more)
            page.goto(player_address)
            if traces:
                show(page, *traces)
            return page

        yield open_player
