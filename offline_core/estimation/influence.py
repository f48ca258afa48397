"""What each episode adds to a weighted doubly robust estimate, and how heavy the tail of that is."""

from __future__ import annotations

import numpy as np

from offline_core.estimation.estimators import relative_weights, times_of
from offline_core.estimation.trajectories import Trajectories

TAIL_SHARE = 0.2
LEAST_TAIL = 5
EQUAL = 1e-9


def influence(episodes: Trajectories) -> np.ndarray:
    """(E,) float64 derivatives of wdr by how often an episode counts, times E; their mean is 0.

    The infinitesimal jackknife (Efron 1982): their standard deviation over the root of E is the standard error of the
    estimate, to first order. Without a Q function it is that of wpdis.
    """
    model = episodes.model
    values = np.zeros(len(episodes)) if model is None else model.start_values
    errors = episodes.rewards if model is None else model.errors
    found = values - values.mean()
    for times, rows, active in times_of(episodes, len(episodes)):
        weights = relative_weights(episodes.log_weights[rows])
        mean = weights.mean(axis=0)
        there = mean > 0
        errors_now = np.where(active, errors[rows], 0.0)[:, there]
        shares = weights[:, there] / mean[there]
        centred = shares * (errors_now - (shares * errors_now).mean(axis=0))
        found += centred @ (episodes.gamma ** times[there].astype(np.float64))
    return np.asarray(found)


def pareto_k(values: np.ndarray) -> float:
    """Shape of the generalised Pareto distribution of the largest of |values|; above 0.7 their mean cannot be relied on.

    By Zhang & Stephens 2009, with the prior of Vehtari et al. 2024 (arXiv 1507.02646), whose limit that is. -inf where there
    is no tail: fewer than five values, or equal ones.
    """
    sizes = np.sort(np.abs(values))
    count = int(min(TAIL_SHARE * len(sizes), 3 * len(sizes) ** 0.5))
    if count < LEAST_TAIL:
        return -np.inf
    excess = sizes[-count:] - sizes[-count - 1]
    excess = excess[excess > EQUAL * sizes[-1]]  # of a process with few states many are equal
    if (count := len(excess)) < LEAST_TAIL:
        return -np.inf
    quarter = excess[int(count / 4 + 0.5) - 1]
    grid = 30 + int(count**0.5)
    steps = 1 - (grid / (np.arange(1, grid + 1) - 0.5)) ** 0.5
    thetas = 1 / excess[-1] + steps / (3 * quarter)
    with np.errstate(divide="ignore", invalid="ignore"):
        shapes = np.log1p(-thetas[:, None] * excess).mean(axis=1)
        likelihoods = count * (np.log(-thetas / shapes) - shapes - 1)
    likelihoods = np.where(np.isfinite(likelihoods), likelihoods, -np.inf)
    weights = np.exp(likelihoods - likelihoods.max())
    theta = float((thetas * weights).sum() / weights.sum())
    k = float(np.log1p(-theta * excess).mean())
    return (k * count + 0.5 * 10) / (count + 10)
