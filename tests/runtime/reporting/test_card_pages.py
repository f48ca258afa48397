"""The cards as pages in a real browser, light and dark, wide and narrow: nothing is cut off, pale or asked for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from offline_core.runtime.reporting.card import Ran
from offline_core.runtime.result import Result
from offline_core.runtime.stage import STAGES
from tests.chromium import MARKS, SCREENSHOTS, browser
from tests.made_up_results import results

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [*MARKS, pytest.mark.slow]
__all__ = ["browser"]

RAN = Ran(
    "train",
    {"optimizer": {"max_epochs": 2}},
    {"python": "3.11.7", "torch": "2.13.0", "git": "0123456789ab"},
    f"offline train runs/{'long-name-' * 12} -s optimizer.max_epochs=2",
)
NAMES = sorted({*STAGES, "forget", "explain"} - {"rollback"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    return results(tmp_path_factory.mktemp("results"))


CONTRAST = """() => {
  const part = (c) => { c /= 255; return c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4; };
  const light = (color) => { const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map(part);
    return .2126*r + .7152*g + .0722*b; };
  const under = (e) => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor; if (!c.startsWith('rgba')) return c; } return 'rgb(255, 255, 255)'; };
  return [...document.querySelectorAll('h1, h2, p, span, td, th, li, pre')].filter((e) => e.textContent.trim()).map((e) => {
    const [a, b] = [light(getComputedStyle(e).color), light(under(e))].sort((x, y) => y - x);
    return (a + .05) / (b + .05); }).reduce((x, y) => Math.min(x, y));
}"""
"""The least contrast of text to what is under it (WCAG 2, 1.4.3)."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_readable(browser: Browser, made: dict[str, Result], name: str, scheme: str) -> None:
    asked: list[str] = []
    card = made[name].card()
    long = {"A long name": f"a/{'long-name-' * 12}/pruned version 1 (20 episodes, 1,633 steps, 50.4 kB)"}
    ancestors = [(depth, f"{'long-name-' * 5}{depth}") for depth in range(12)]
    card = dataclasses.replace(card, ran=RAN, ancestors=ancestors, facts={**card.facts, **long})
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1400, "height": 800})  # type: ignore[arg-type]
    page.on("request", lambda request: asked.append(request.url))
    page.set_content(card.html())
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate(CONTRAST) >= 4.5
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 800})
        if SCREENSHOTS:
            page.screenshot(path=f"{SCREENSHOTS}/card-{name}-{scheme}-{width}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.querySelectorAll('.wide, pre')].every((each) => each.scrollWidth <= each.clientWidth)")
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert not [url for url in asked if not url.startswith("data:")]
    page.close()
