"""The cards as pages in a real browser, light and dark, wide and narrow: nothing is cut off, pale or asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from offline_core.runtime.reporting.cards import (
    chain_card,
    episodes_card,
    estimates_card,
    expert_card,
    quality_card,
    returns_rows,
    sweep_card,
    training_card,
)
from tasks.decision_card import decide

from offline_core.judging.decisions.config import DecisionConfig
from offline_core.runtime.reporting.card import Card, Headline, Ran, Section
from tests.chromium import MARKS, SCREENSHOTS, browser
from tests.judging.decisions.made_up import CALIBRATED, made_up

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [*MARKS, pytest.mark.slow]
__all__ = ["browser"]

METRICS = {
    "episode_return_mean": 97.2,
    "episode_return_std": 12.0,
    "episode_return_min": 71.0,
    "episode_return_max": 120.0,
    "episode_length_mean": 97.2,
    "episodes": 20.0,
}
DRAWN = np.random.default_rng(0)
CURVE = [(1000 * i, 475 * (1 - 0.8**i)) for i in range(12)]
RETURNS = DRAWN.normal(100, 20, 300).tolist()
LENGTHS = DRAWN.integers(40, 200, 300).tolist()
RAN = Ran("train", {"optimizer": {"max_epochs": 2}}, {"python": "3.11.7", "torch": "2.13.0", "git": "0123456789ab"})
ROWS = {
    "Dataset": f"a/{'long-name-' * 12}/pruned version 1 (20 episodes, 1,633 steps, 50.4 KiB)",
    "Time": "12 min",
    "Root": "runs",
}

CARDS: dict[str, Callable[[], Card]] = {
    "expert": lambda: expert_card(rows=returns_rows(METRICS) | ROWS, curve=CURVE, target=475.0),
    "recording": lambda: episodes_card("Recording", rows=ROWS, episodes=lambda: {"recorded": (RETURNS, LENGTHS)}),
    "pruning": lambda: episodes_card(
        "Pruning", rows=ROWS, episodes=lambda: {"before": (RETURNS, LENGTHS), "after": (RETURNS[:90], LENGTHS[:90])}
    ),
    "quality": lambda: quality_card(
        rows=ROWS,
        findings=[
            ("observations_outside_space", "pass", "0 of 1,633 steps have observations that their space does not contain."),
            ("non_finite", "fail", "3 of 1,633 steps hold NaN or infinity."),
            ("time_jumps", "not applicable", "0 of 0 steps have times."),
            ("open_episodes", "warn", "1 of 20 episodes neither terminate nor are truncated."),
        ],
        returns=(np.linspace(0, 200, 21).tolist(), DRAWN.integers(0, 30, 20).tolist()),
        lengths=(np.linspace(0, 300, 21).tolist(), DRAWN.integers(0, 30, 20).tolist()),
    ),
    "training": lambda: training_card(
        rows=returns_rows(METRICS) | ROWS,
        losses=[(x, 1 / (1 + y)) for x, y in CURVE],
        held_out=[(x, 1.2 / (1 + y)) for x, y in CURVE[::3]],
        curve=CURVE,
        target=475.0,
        effective_sample_size=[],
        seconds={"loading": 2.0, "waiting for data": 0.2, "gathering batches": 0.4, "updating": 12.0},
    ),
    "estimate": lambda: estimates_card(
        rows=ROWS,
        recorded=(20.0, 18.0, 22.0),
        estimates={"wis": (24.0, 19.0, 31.0), "fqe": (22.0, 21.0, 23.0), "wdr": (23.0, 22.1, 24.0)},
        sizes={"wis": (12.5, 0.3), "wdr": (40.0, 0.1)},
        episodes=120,
        required=25.0,
        warnings=["wis: 12.5 of 120 episodes count."],
    ),
    "sweep": lambda: sweep_card(
        rows=ROWS,
        score="last return",
        scores={"1": (250.0, 240.0, 260.0), "2": (200.0, 150.0, 260.0)},
        curves={
            name: [(x, y * share, y * share - 9, y * share + 9) for x, y in CURVE] for name, share in (("1", 1.0), ("2", 0.7))
        },
        profiles={"1": [(200.0, 1.0), (240.0, 0.8), (260.0, 0.0)], "2": [(150.0, 1.0), (260.0, 0.0)]},
        expected_best={"bc": [200.0, 230.0, 240.0], "iql": [220.0, 235.0, 238.0]},
    ),
    "decision": lambda: decide(made_up("promote", **CALIBRATED), DecisionConfig(), output="runs/decision").card,
    "chain": lambda: chain_card(
        "Expert to policy",
        rows=ROWS,
        seconds={"train expert": 40.0, "record episodes": 4.0, "train policy": 12.0},
        returns={"expert": 475.0, "recorded": 300.0, "kept": 410.0, "policy": 97.2},
        headline=Headline("Worse than the expert", "Return 97.2 ± 12.0; the expert returned 475.0.", "warning"),
    ),
}
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
@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_readable(browser: Browser, name: str, scheme: str) -> None:
    asked: list[str] = []
    card = CARDS[name]()
    headline = card.headline or Headline("Done", "All of it, and nothing else.", "good")
    more = Section("Notes", ["A sentence that says what to do."])
    card = Card(card.title, card.rows, card.draw, RAN, ancestors=[(0, "policy/best"), (1, "pruned")], headline=headline,
                sections=[*card.sections, more])  # fmt: skip
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 800})  # type: ignore[arg-type]
    page.on("request", lambda request: asked.append(request.url))
    page.set_content(card.html())
    if SCREENSHOTS:
        page.screenshot(path=f"{SCREENSHOTS}/card-{name}-{scheme}.png", full_page=True)
    assert page.evaluate(CONTRAST) >= 4.5
    for width in (1000, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert not [url for url in asked if not url.startswith("data:")]
    page.close()
