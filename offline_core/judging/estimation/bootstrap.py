"""How far an estimate may be off: the percentile bootstrap over episodes (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

COUNTS_AT_A_TIME = 2**22


def resampled_counts(episodes: int, *, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each of E episodes was drawn in each resample: (b, E) float64 at a time, `resamples` rows in all.

    The same arguments give the same rows, so that intervals of several methods can be compared.
    Memory: `COUNTS_AT_A_TIME` counts, or one resample.
    """
    generator = np.random.default_rng(seed)
    rows = max(1, COUNTS_AT_A_TIME // episodes)
    for begin in range(0, resamples, rows):
        drawn = [generator.integers(episodes, size=episodes) for _ in range(min(rows, resamples - begin))]
        yield np.stack([np.bincount(each, minlength=episodes) for each in drawn]).astype(np.float64)


def interval(
    estimate: Callable[[np.ndarray], np.ndarray],
    episodes: int,
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> tuple[float, float]:
    """(low, high) of an estimate: counts (b, E) → (b,), NaN where there is none, as all weights are 0.

    The value of such a resample is unknown: it counts as below all others for the low end, and above them for the high one.
    So both ends are infinite once there are more of them than may lie outside.
    """
    found = np.concatenate([estimate(counts) for counts in resampled_counts(episodes, resamples=resamples, seed=seed)])
    outside = (1 - confidence) / 2
    # Numbers that were found, and none between two of them: there is nothing halfway to infinity.
    low = np.quantile(np.where(np.isnan(found), -np.inf, found), outside, method="closest_observation")
    high = np.quantile(np.where(np.isnan(found), np.inf, found), 1 - outside, method="closest_observation")
    return float(low), float(high)
