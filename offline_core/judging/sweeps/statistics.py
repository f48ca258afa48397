"""What scores of a few runs say: aggregates, intervals and curves (Agarwal et al. 2021, arXiv 2108.13264; as in `rliable`).

Scores are arrays (R, T): of R runs in each of T tasks. A sweep has one task, its dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Aggregate = Callable[[np.ndarray], np.ndarray]
"""(…, N) scores of all runs and tasks → (…,)."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How intervals are found (Efron 1979): by the percentiles of an aggregate of runs that are drawn anew."""

    resamples: int
    """Each of as many runs as there are."""
    confidence: float
    """Share of the resamples within an interval."""
    seed: int

    @property
    def ends(self) -> tuple[float, float]:
        """Quantiles at the ends of the interval."""
        return (1 - self.confidence) / 2, (1 + self.confidence) / 2


def interquartile_mean(scores: np.ndarray) -> Any:
    """Mean without the ⌊N/4⌋ lowest and highest scores, (…, N) → (…,): less of an accident than the mean, and less biased
    than the median. Of three scores or fewer it is their mean."""
    cut = scores.shape[-1] // 4
    return np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut].mean(axis=-1)


def interval(aggregate: Aggregate, scores: np.ndarray, bootstrap: Bootstrap) -> tuple[float, float] | None:
    """(low, high) of an aggregate of scores (R, T), stratified: the runs of each task are drawn by themselves.

    None of a single run, which says nothing of others.
    Memory: `resamples` times the scores.
    """
    runs, tasks = scores.shape
    if runs < 2:
        return None
    drawn = np.random.default_rng(bootstrap.seed).integers(runs, size=(bootstrap.resamples, runs, tasks))
    found = aggregate(scores[drawn, np.arange(tasks)].reshape(bootstrap.resamples, runs * tasks))
    low, high = np.quantile(found, bootstrap.ends)
    return float(low), float(high)


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of scores (R, T) above each threshold (K,): (K,) float64."""
    share: np.ndarray = np.mean(scores.reshape(-1, 1) > thresholds, axis=0)
    return share


def expected_best(scores: np.ndarray) -> np.ndarray:
    """Expected highest score of n policies tried, for n from 1 to N: (N,) → (N,) float64.

    Unbiased, as the n are drawn without replacement: the i-th lowest of N is the highest with probability C(i-1, n-1) / C(N, n)
    (Dodge et al. 2019, there with replacement; Kurenkov & Kolesnikov 2022, "Showing your offline reinforcement learning work").
    """
    ordered = np.sort(scores)
    number = len(ordered)
    rank = np.arange(1, number + 1)
    chance = np.full(number, 1 / number)
    found = np.empty(number)
    for n in range(1, number + 1):
        found[n - 1] = chance[n - 1 :] @ ordered[n - 1 :]  # lower ones have no chance
        if n < number:
            chance = chance * (rank - n) / n * (n + 1) / (number - n)
    return found


def learning_curve(
    curves: Sequence[Sequence[tuple[int, float]]], bootstrap: Bootstrap
) -> list[tuple[int, float, float, float]]:
    """(updates, mean, low, high) over runs with curves of (updates, value); a run that ended early keeps its last value."""
    curves = [curve for curve in curves if curve]
    if not curves:
        return []
    updates = sorted({at for curve in curves for at, _ in curve})
    values = np.stack([_held(curve, updates) for curve in curves])
    runs = len(values)
    drawn = np.random.default_rng(bootstrap.seed).integers(runs, size=(bootstrap.resamples, runs))
    shares = np.stack([np.mean(drawn == run, axis=1) for run in range(runs)], axis=1)
    low, high = np.quantile(shares @ values, bootstrap.ends, axis=0)
    return list(zip(updates, values.mean(axis=0).tolist(), low.tolist(), high.tolist(), strict=True))


def _held(curve: Sequence[tuple[int, float]], updates: Sequence[int]) -> np.ndarray:
    """The values at `updates`: the last one known; before the first, the first."""
    at, values = np.array(curve, np.float64).T
    held: np.ndarray = values[np.maximum(0, np.searchsorted(at, updates, side="right") - 1)]
    return held
