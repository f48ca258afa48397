"""How far episodes are from the others, in robust deviations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import norm

from offline_core.judging.ranking import features as f

LEAST_OF_MEDIAN = 0.05
"""Of returns and lengths: a twentieth of the median is no distance where all others are equal."""
LEAST_SHARE = 0.05
"""Of a share of steps likewise."""
LEAST_OF_BROKEN = 1e-3
"""A single NaN in a hundred steps counts."""
LEAST_OF_FLAG = 0.125
"""An episode that alone has a flag is 8 deviations from the others; so is one that alone has a number other than 0, say."""
LEAST_OF_SURPRISE = 0.05
"""In nats, or in roots of deviations."""


def deviations(values: np.ndarray, least: np.ndarray, common_share: float) -> np.ndarray:
    """(E, F) signed distances from the medians, in robust standard deviations of the side on which a value lies; NaN: 0.

    Of each side the deviation is the larger one of those that its quartile and the quantile of its common share would have
    if it were half of a normal distribution. The first is the modified z-score (Iglewicz & Hoaglin 1993) by side, for skewed
    numbers ("double MAD"); the second widens it for long tails, and where so many episodes form a second mode. Both stay what
    they are whatever fewer episodes are changed to (a breakdown point of `common_share`).

    Arguments:
        values: (E, F)
        least: (F,) the smallest deviation.
        common_share: at most a quarter; at least one and a half episodes.
    """
    if not len(values):
        return np.zeros_like(values)
    share = min(max(common_share, 1.5 / len(values)), 0.25)
    finite = np.isfinite(values)
    known = np.where(finite, values, np.nan)
    empty = ~finite.any(axis=0)
    known[:, empty] = 0.0
    low, first, median, third, high = np.nanquantile(known, [share, 0.25, 0.5, 0.75, 1 - share], axis=0)
    by_quartile, by_tail = norm.ppf(0.75), norm.ppf(1 - share)
    above = np.maximum.reduce([(third - median) / by_quartile, (high - median) / by_tail, least])
    below = np.maximum.reduce([(median - first) / by_quartile, (median - low) / by_tail, least])
    apart = known - median
    found = apart / np.where(apart > 0, above, below)
    return np.where(finite & ~empty, found, 0.0)


def least_deviations(names: Sequence[str], values: np.ndarray) -> np.ndarray:
    """(F,) see `deviations`: of what all episodes have in common, a trifle is no outlier."""
    known = np.where(np.isfinite(values), values, np.nan)
    known[:, ~np.isfinite(values).any(axis=0)] = 0.0
    median = np.abs(np.nanmedian(known, axis=0)) if len(values) else np.zeros(len(names))
    sizes = dict(zip(names, median, strict=True))
    farthest = np.nanmax(np.abs(known - np.nanmedian(known, axis=0)), axis=0) if len(values) else np.zeros(len(names))
    least = np.array([_least(name, sizes) for name in names])
    return np.maximum(np.where(least > 0, least, LEAST_OF_FLAG * farthest), 1e-12)


def _least(name: str, medians: Mapping[str, float]) -> float:
    if name in (f.RETURN, f.LENGTH):
        return LEAST_OF_MEDIAN * medians[name]
    if name.startswith(f.BROKEN):
        return LEAST_OF_BROKEN
    if name.startswith((f.STILL, f.AT_BOUNDS)):
        return LEAST_SHARE
    if name in (f.CUT, f.MISSING):
        return LEAST_OF_FLAG
    for kind in (f.MEAN, f.SPREAD, f.JUMP):
        if name.startswith(kind):  # a number that stays within all episodes has no spread
            column = name[len(kind) + 1 :]
            sizes = (medians.get(f"{kind} {column}", 0.0) for kind in (f.SPREAD, f.MEAN, f.JUMP))
            return LEAST_OF_MEDIAN * next((size for size in sizes if size), 0.0)
    return LEAST_OF_SURPRISE
