"""What each episode adds to a weighted doubly robust estimate, and how few carry it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import genpareto, kstest

from offline_core.judging.estimation.estimators import EffectiveSize, at_times, errors_of, rewards_of, sums_by_time, weights_of
from offline_core.judging.estimation.trajectories import Trajectories


def influence(episodes: Trajectories) -> np.ndarray:
    """(E,) float64 derivatives of wdr by how often an episode counts, times E; their mean is 0.

    This is the infinitesimal jackknife (Efron 1982): their standard deviation over the root of E is the standard error of
    the estimate, to first order. Without a Q function they are of wpdis.
    """
    model = episodes.model
    errors = rewards_of if model is None else errors_of
    derivatives = np.zeros(len(episodes))
    if model is not None:
        derivatives += model.start_values
        derivatives -= derivatives.mean()
    for times, weighted, weights in sums_by_time(episodes, errors):
        mean = weights.sum(axis=0) / len(episodes)
        mean = np.where(mean > 0, mean, np.inf)  # where no weight is above 0 at a time, nothing is put right
        centre, shares = weighted.sum(axis=0) / len(episodes) / mean, episodes.gamma ** times.astype(np.float64) / mean
        end = 0
        for part in episodes.parts():
            begin, end = end, end + len(part)
            column = errors(part)
            for now, own, active in weights_of(part, times, episodes):
                errors_now = np.where(active, at_times(part, column, now), 0.0)
                derivatives[begin:end] += (own * (errors_now - centre[now - times[0]])) @ shares[now - times[0]]
    return derivatives


def carrying(influences: np.ndarray) -> EffectiveSize:
    """How many episodes carry an estimate: the effective size of the sizes of their influences, whose mean is 0.

    Of rewards that few episodes have, such as clicks, it is some four times as many as those.
    """
    sizes = np.abs(influences)
    if not sizes.any():
        return EffectiveSize(float(len(sizes)), 1 / len(sizes))
    return EffectiveSize(float(sizes.sum() ** 2 / (sizes**2).sum()), float(sizes.max() / sizes.sum()))


LEAST_TAIL, LEAST_FIT = 20, 0.1
"""Influences from which a shape is told, and p-value of Kolmogorov and Smirnov's test from which it is believed."""


class Tail(NamedTuple):
    """How heavy the tail of influences is."""

    shape: float
    """Shape of a generalised Pareto distribution, which has no variance from 0.5 on."""
    error: float
    """Standard error of the shape."""

    @property
    def at_least(self) -> float:
        """The shape less two standard errors."""
        return self.shape - 2 * self.error


def tail_of(influences: np.ndarray) -> Tail | None:
    """Of the largest influences, or of the smallest: of those whose tail is surely heavier.

    None: they are too few, or no such distribution describes them: those of clicks are no continuous numbers, and of a policy
    without a draw most are of episodes that weigh nothing.
    """
    tails = [tail for tail in (_upper_tail(influences), _upper_tail(-influences)) if tail is not None]
    return max(tails, key=lambda tail: tail.at_least, default=None)


def _upper_tail(numbers: np.ndarray) -> Tail | None:
    """The tail of the largest numbers: of as many as Pareto smoothed importance sampling takes.

    See Vehtari et al. 2024, arXiv 1507.02646.
    """
    count = int(min(len(numbers) / 5, 3 * len(numbers) ** 0.5))
    if count < LEAST_TAIL:
        return None
    ordered = np.sort(numbers)
    beyond = ordered[-count:] - ordered[-count - 1]
    if len(np.unique(beyond)) < count / 2:
        return None
    beyond = beyond[beyond > 0]
    shape, _, scale = genpareto.fit(beyond, floc=0)
    if kstest(beyond, genpareto(shape, 0, scale).cdf).pvalue < LEAST_FIT:
        return None
    return Tail(float(shape), float((1 + max(shape, 0.0)) / len(beyond) ** 0.5))


def varying(returns: np.ndarray, effective: float) -> float:
    """Degrees of freedom of a weighted variance of returns, at most as many as episodes count.

    By the kurtosis of the returns (Satterthwaite 1946), which weights do not change where they do not depend on them: that is
    how many of the rare ones can be expected among the episodes that weigh much, whether or not one was seen there.

    Arguments:
        effective: episodes that are left by their weights.
    """
    apart = (returns - returns.mean()) ** 2
    if not apart.any():
        return effective
    excess = max(2.0, float((apart**2).mean() / apart.mean() ** 2) - 1)
    return 2 * effective / excess
