"""The card of a sweep."""

from __future__ import annotations

import numpy as np

from offline_core.data.store.location import Location
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import SweepResult, SweptSetting
from offline_core.judging.sweeps.statistics import performance_profile
from offline_core.runtime.reporting.cards import sweep_card
from offline_core.runtime.units import duration_text
from tasks.artifacts import Page

MOST_ROWS = 50
"""Settings in the table."""
MOST_LINES = 6
"""Settings in a picture."""


def sweep(result: SweepResult, config: SweepConfig, *, output: str, **_: object) -> Page:
    """The settings by rank, as a table and as pictures of the best."""
    score, ranked = result.score.replace("_", " "), [*enumerate(result.settings, 1)]
    runs = sum(len(setting.runs) for setting in result.settings)
    rows: dict[str, object] = {
        "Dataset": result.dataset,
        "Compared by": f"{score}, {result.settings[0].name} is best: {result.checkpoint}",
        **{f"{rank}. {setting.name}": _scores(setting) for rank, setting in ranked[:MOST_ROWS]},
        **{f"Failed {number}": str(failure) for number, failure in enumerate(result.failures[:MOST_ROWS], 1)},
        "All": f"{len(ranked):,} settings, {runs:,} runs, {len(result.failures):,} failed",
        "Intervals": f"{100 * config.confidence:g} %, of the interquartile mean, {config.resamples:,} resamples of the runs",
        "Time": duration_text(result.seconds),
    }
    every = [run.score for setting in result.settings for run in setting.runs]
    thresholds = np.linspace(min(every), max(every), 101)
    card = sweep_card(
        rows=rows,
        score=score,
        scores={str(rank): _with_bounds(setting) for rank, setting in ranked[: 2 * MOST_LINES]},
        curves={str(rank): setting.curve for rank, setting in ranked[:MOST_LINES]},
        profiles={str(rank): _profile(result, setting, thresholds) for rank, setting in ranked[:MOST_LINES]},
        expected_best=result.expected_best,
    )
    return Page(card, (result.checkpoint, None), [Location.of(output).child("card")])


def _profile(result: SweepResult, setting: SweptSetting, thresholds: np.ndarray) -> list[tuple[float, float]]:
    """(score, share of the runs that are better)"""
    share = performance_profile(result.sign * np.array(setting.scores), result.sign * thresholds)
    return list(zip(thresholds.tolist(), share.tolist(), strict=True))


def _scores(setting: SweptSetting) -> str:
    value, low, high = _with_bounds(setting)
    bounds = "" if setting.low is None else f" ({low:.4g} to {high:.4g})"
    return f"{value:.4g}{bounds}, mean {setting.mean:.4g}, {len(setting.runs)} runs"


def _with_bounds(setting: SweptSetting) -> tuple[float, float, float]:
    value = setting.interquartile_mean
    return value, value if setting.low is None else setting.low, value if setting.high is None else setting.high
