"""Weights made smaller where they are large: a little bias for much less variance, as far as the log says that it pays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from offline_core.judging.estimation.trajectories import Trajectories

THRESHOLDS = 20
MOST = 300.0
"""Logarithm of the largest weight whose square is still a number."""

Shrink = Callable[[np.ndarray, float], np.ndarray]


def clipped(weights: np.ndarray, most: float) -> np.ndarray:
    """Weights, none above `most` (Ionides 2008, "Truncated importance sampling")."""
    return np.asarray(np.minimum(weights, most))


def shrunken(weights: np.ndarray, most: float) -> np.ndarray:
    """λ w / (w² + λ), λ = `most`²: half of what they were at `most`, ever less above (Su et al. 2020, arXiv 1907.09623).

    Of all weights for so little variance, these change a doubly robust estimate the least where the Q function may be wrong
    anywhere.
    """
    return weights if np.isinf(most) else np.asarray(weights * (most**2 / (weights**2 + most**2)))


def values(episodes: Trajectories, shrink: Shrink, most: float | None = None) -> np.ndarray:
    """(E,) float64, what each episode adds to the estimate, which is the mean of these values.

    Rewards are weighed by the actions up to them, as in pdis; with a Q function its errors are, and its word is added, as in
    dr. In a log of one step that is importance sampling and doubly robust estimation as bandits have them.

    Arguments:
        most: threshold; None: `threshold` chooses it.
    """
    weights, numbers, alone = _weighed(episodes)
    most = threshold(episodes, shrink) if most is None else most
    return np.asarray(alone + np.add.reduceat(shrink(weights, most) * numbers, episodes.starts))


def threshold(episodes: Trajectories, shrink: Shrink) -> float:
    """The threshold with the least mean squared error, as the log has it; infinite if no weight is to be made smaller.

    That error is the variance of the estimate, and the square of a bound of its bias: what is taken from the weights, times
    the mean size of what they weigh, as if that were all of one sign (Wang et al. 2017, arXiv 1612.01205, with the mean size
    in the place of the largest, which would forbid everything for clicks). `THRESHOLDS` numbers between the median weight and
    the largest are tried, in equal factors, and none at all.
    """
    weights, numbers, alone = _weighed(episodes)
    count, some, size = len(episodes), weights[weights > 0], float(np.abs(numbers).mean())
    best, least = np.inf, float((alone + np.add.reduceat(weights * numbers, episodes.starts)).var()) / count
    if not some.size:
        return best
    for most in np.geomspace(np.median(some), some.max(), THRESHOLDS).tolist():
        less = shrink(weights, most)
        values = alone + np.add.reduceat(less * numbers, episodes.starts)
        bias = size * float((weights - less).sum()) / count
        if (error := float(values.var()) / count + bias**2) < least:
            best, least = most, error
    return best


def _weighed(episodes: Trajectories) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(weights (N,), discounted numbers that they are of (N,), what is added without a weight (E,))."""
    weights = np.exp(np.minimum(episodes.log_weights, MOST))
    model = episodes.model
    numbers = episodes.rewards if model is None else model.errors
    alone = np.zeros(len(episodes)) if model is None else model.start_values
    return weights, episodes.discounts * numbers, alone
