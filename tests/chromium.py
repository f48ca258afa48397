"""A Chromium of this machine for tests of pages; a page that asks another host for anything fails its test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCREENSHOTS = os.environ.get("OFFLINE_SCREENSHOTS_IN")
"""A folder, if pictures of what the tests see are wanted."""

MARKS = [
    pytest.mark.filterwarnings("default"),  # the browser's driver is not ours
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium; 'apt install chromium'"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For modules that import it."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"])
        opened.new_page, opened.new_context = _patient(opened.new_page), _patient(opened.new_context)
        yield opened
        opened.close()


def _patient(make: Callable[..., Any]) -> Callable[..., Any]:
    """Makes pages, or contexts, that wait longer than Playwright's 30 s."""

    def made(*arguments: Any, **options: Any) -> Any:
        page = make(*arguments, **options)
        page.set_default_timeout(1000 * PATIENCE_SECONDS)
        return page

    return made
