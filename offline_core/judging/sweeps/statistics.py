"""What scores of a few runs say: aggregates, intervals and curves (Agarwal et al. 2021, arXiv 2108.13264; as in `rliable`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from offline_core.judging.estimation.bootstrap import resampled, resampled_counts


def interquartile_mean(scores: np.ndarray) -> Any:
    """Mean without the ⌊N/4⌋ lowest and highest scores, (…, N) → (…,): less of an accident than the mean, and less biased
    than the median. Of three scores or fewer it is their mean."""
    cut = scores.shape[-1] // 4
    return np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut].mean(axis=-1)


def interval(scores: np.ndarray, *, resamples: int, confidence: float, seed: int) -> tuple[float, float] | None:
    """(low, high) of the interquartile mean of runs' scores (N,), by the percentiles of runs drawn anew (Efron 1979).

    Returns None for a single run, which says nothing of others.

    Arguments:
        resamples: each of as many runs as there are.
        confidence: share of the resamples within the interval.
    """
    if len(scores) < 2:
        return None
    means = [interquartile_mean(scores[drawn]) for drawn in resampled(len(scores), resamples=resamples, seed=seed)]
    low, high = np.quantile(np.concatenate(means), _ends(confidence))
    return float(low), float(high)


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of scores (N,) above each threshold (K,): (K,) float64."""
    share: np.ndarray = np.mean(scores[:, None] > thresholds, axis=0)
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
    expected = np.empty(number)
    for n in range(1, number + 1):
        expected[n - 1] = chance[n - 1 :] @ ordered[n - 1 :]  # lower ones have no chance
        if n < number:
            chance = chance * (rank - n) / n * (n + 1) / (number - n)
    return expected


def learning_curve(
    curves: Sequence[Sequence[tuple[int, float]]], *, resamples: int, confidence: float, seed: int
) -> list[tuple[int, float, float, float]]:
    """(updates, mean, low, high) over runs with curves of (updates, value); a run that ended early keeps its last value.

    Arguments:
        resamples, confidence, seed: as of `interval`.
    """
    curves = [curve for curve in curves if curve]
    if not curves:
        return []
    updates = sorted({at for curve in curves for at, _ in curve})
    values = np.stack([_held(curve, updates) for curve in curves])
    counts = np.concatenate([*resampled_counts(len(values), resamples=resamples, seed=seed)])
    low, high = np.quantile(counts / len(values) @ values, _ends(confidence), axis=0)
    return list(zip(updates, values.mean(axis=0).tolist(), low.tolist(), high.tolist(), strict=True))


def _ends(confidence: float) -> tuple[float, float]:
    """Quantiles at the ends of an interval."""
    return (1 - confidence) / 2, (1 + confidence) / 2


def _held(curve: Sequence[tuple[int, float]], updates: Sequence[int]) -> np.ndarray:
    """The values of a curve at `updates`: the last one known by then, or the first one before that."""
    at, values = np.array(curve, np.float64).T
    held: np.ndarray = values[np.maximum(0, np.searchsorted(at, updates, side="right") - 1)]
    return held
