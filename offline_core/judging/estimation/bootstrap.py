"""How far an estimate may be off: the percentile bootstrap over episodes (Efron 1979), or over groups of many of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

COUNTS_AT_A_TIME = 2**22
MOST_GROUPS = 4_096
"""As many episodes are drawn each for itself. Of more, groups are drawn, which bounds the work and memory of resampling."""


@dataclass(frozen=True)
class Groups:
    """What a resample draws: E episodes in G groups of equal size, or of two sizes that differ by one."""

    of: np.ndarray
    """(E,) small integers, the number of each episode's group."""
    number: int
    """G."""

    @classmethod
    def by_lot(cls, episodes: int) -> Groups:
        """Each episode is a group of its own, or is put into one of `MOST_GROUPS` by a lot that depends on E alone.

        Sums over groups are independent and equally distributed where episodes are, so that they can be drawn in their place
        (Kleiner et al. 2014, "A scalable bootstrap for massive data", is of the same thought). Being sums, they are nearer
        to a normal distribution than episodes, and the sum of a resample loses none of its variance.
        """
        number = min(episodes, MOST_GROUPS)
        of = np.resize(np.arange(number, dtype=np.min_scalar_type(number)), episodes)
        if episodes > number:
            np.random.default_rng(episodes).shuffle(of)
        return cls(of, number)

    def part(self, begin: int, end: int) -> Groups:
        """The same groups with these episodes alone."""
        return Groups(self.of[begin:end], self.number)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Add up values by group: (E,) or (E, b) → (G,) or (G, b), float64."""
        width = int(np.prod(values.shape[1:]))
        bins = self.of if values.ndim == 1 else (self.of[:, None].astype(np.int64) * width + np.arange(width)).ravel()
        return np.bincount(bins, weights=values.ravel(), minlength=self.number * width).reshape(self.number, *values.shape[1:])

    def means(self, values: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """(B,) means of one number an episode, (E,), where groups count so often (B, G)."""
        return np.asarray((counts @ self.sums(values)) / (counts @ self.sizes))

    @cached_property
    def sizes(self) -> np.ndarray:
        """(G,) float64 numbers of episodes in the groups."""
        return np.bincount(self.of, minlength=self.number).astype(np.float64)


def resampled(groups: int, *, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Which of G groups, or runs, each resample has drawn: (b, G) int64 at a time, `resamples` rows in all.

    The same arguments give the same rows, so that intervals of several methods can be compared.
    Memory: `COUNTS_AT_A_TIME` numbers, or one resample.
    """
    generator = np.random.default_rng(seed)
    rows = max(1, COUNTS_AT_A_TIME // groups)
    for begin in range(0, resamples, rows):
        yield generator.integers(groups, size=(min(rows, resamples - begin), groups))


def resampled_counts(groups: int, *, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each group was drawn in each resample, (b, G) float64 at a time; see `resampled`."""
    for drawn in resampled(groups, resamples=resamples, seed=seed):
        yield np.stack([np.bincount(resample, minlength=groups) for resample in drawn]).astype(np.float64)


def interval(
    estimate: Callable[[np.ndarray], np.ndarray],
    groups: int,
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> tuple[float, float]:
    """(low, high) of an estimate, a function of counts (b, G) → (b,) that gives NaN where all weights are 0.

    The value of such a resample is unknown: it counts as below all others for the low end, and above them for the high one.
    So both ends are infinite once there are more of them than may lie outside.
    """
    estimates = np.concatenate([estimate(counts) for counts in resampled_counts(groups, resamples=resamples, seed=seed)])
    outside = (1 - confidence) / 2
    # Both ends are estimates, and not numbers between two of them: nothing is halfway to infinity.
    low = np.quantile(np.where(np.isnan(estimates), -np.inf, estimates), outside, method="closest_observation")
    high = np.quantile(np.where(np.isnan(estimates), np.inf, estimates), 1 - outside, method="closest_observation")
    return float(low), float(high)
