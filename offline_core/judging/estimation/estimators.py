"""What a policy would come to, out of episodes of another: each estimator a function of how often each episode counts.

An estimator takes E episodes and `counts` (B, E) ≥ 0, of which a row of ones is the estimate itself and any other row a
resample of the bootstrap, and returns (B,) mean discounted returns, float64. Weights are computed from sums of logarithms and
relative to the largest of those they are compared with, so that none overflows.

Where an episode ends, nothing follows: later rewards are 0 and its weight stays what it was (Thomas & Brunskill 2016,
arXiv 1604.00923, whose absorbing state this is). A mean over those episodes only that go on, as RLlib takes it, would estimate
something else: where each step is rewarded with 1, the return of the behaviour, whatever the policy.

In a log of one step, is and pdis are inverse propensity scores, wis and wpdis are self-normalised ones, fqe is the direct
method, and dr and wdr are doubly robust and self-normalised doubly robust, as bandits have them.

Of a fixed horizon, steps after it are none of the episodes. None of is, wis, pdis, wpdis and cis looks beyond a recording that
ended before, without a termination. fqe, dr, drs and wdr do, by the Q function; see `unrecorded_share`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from offline_core.judging.estimation import shrinkage
from offline_core.judging.estimation.trajectories import Model, Trajectories

Estimator = Callable[[Trajectories, np.ndarray], np.ndarray]

NUMBERS_AT_A_TIME = 2**22
FAR = 690.0
"""Below e to this power, and above e to its negative, numbers of float64 are exact."""
SMALLEST = -FAR
"""Weights less than e to this power of the largest count as that much, unless they are 0: a resample without the large ones
still has a mean. Of several that small, it is their plain mean, whatever they are to each other."""


def importance_sampling(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """is: returns times the ratio of all actions (Precup et al. 2000). Unbiased; its variance grows with every step."""
    return _mean(episodes.episode_log_weights, episodes.returns, np.arange(len(episodes)), counts)


def weighted_importance_sampling(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """wis: the mean of returns, weighted by these ratios. Consistent, and never beyond the returns that were recorded."""
    weights = relative_weights(episodes.episode_log_weights)
    with np.errstate(invalid="ignore"):  # all are 0: there is no such mean
        return np.asarray((counts @ (weights * episodes.returns)) / (counts @ weights))


def per_decision(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """pdis: each reward times the ratio of the actions up to it alone (Precup et al. 2000). Unbiased."""
    return _mean(episodes.log_weights, episodes.discounts * episodes.rewards, episodes.starts, counts)


def weighted_per_decision(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """wpdis: at each time the mean of the rewards, weighted by the ratios up to then. Consistent.

    NaN if all of them are 0 at a time: nothing was recorded of what the policy is paid there.
    """
    return _weighted_by_time(episodes, episodes.rewards, counts, of_nothing=np.nan)


def fitted_q(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """fqe: what the Q function says of the start states (Le et al. 2019, arXiv 1903.08738). As good as that function is."""
    return np.asarray((counts @ _model(episodes).start_values) / counts.sum(axis=1))


def doubly_robust(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """dr: fqe, put right by the function's own errors on the recorded steps, weighted as in pdis.

    Jiang & Li 2016, arXiv 1511.03722. Unbiased whatever the Q function, if that was fitted to other episodes; the better it
    is, the less there is left to weigh. What follows the end of a recording within the horizon is taken from it.
    """
    errors = _mean(episodes.log_weights, episodes.discounts * _model(episodes).errors, episodes.starts, counts)
    return np.asarray(fitted_q(episodes, counts) + errors)


def weighted_doubly_robust(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """wdr: the same with the weights of wpdis (Thomas & Brunskill 2016, arXiv 1604.00923). Consistent.

    Where all weights are 0, nothing is put right: what follows is the function's word alone.
    """
    return np.asarray(fitted_q(episodes, counts) + _weighted_by_time(episodes, _model(episodes).errors, counts, of_nothing=0.0))


def clipped_per_decision(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """cis: pdis with weights that are clipped at a threshold which the log chooses (Ionides 2008), see `shrinkage`."""
    return _mean_of(shrinkage.values(replace(episodes, model=None), shrinkage.clipped), counts)


def shrunken_doubly_robust(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """drs: dr with weights that are shrunken by as much as the log chooses (Su et al. 2020, arXiv 1907.09623)."""
    _model(episodes)
    return _mean_of(shrinkage.values(episodes, shrinkage.shrunken), counts)


class EffectiveSize(NamedTuple):
    """How much weights leave of a sample."""

    episodes: float
    """(Σw)² / Σw² (Kish 1965), 0 if all weights are 0."""
    largest: float
    """The largest weight's share in the sum."""


def size_of_episodes(episodes: Trajectories) -> EffectiveSize:
    """Of the weights of whole episodes."""
    size, largest = _size(relative_weights(episodes.episode_log_weights))
    return EffectiveSize(float(size), float(largest))


def size_by_time(episodes: Trajectories) -> EffectiveSize:
    """Of the weights at a time, over all recorded steps, discounted: the harmonic mean of sizes, and the mean of shares.

    The variance of what is recorded at a time goes with one over the size there. So it is the steps with the fewest episodes
    that count, and with a time at which all weights are 0 nothing is left.
    """
    steps = episodes_over_size = largest_share = 0.0
    for times, rows, active in times_of(episodes, len(episodes)):
        size, largest = _size(relative_weights(episodes.log_weights[rows]))
        share = active.sum(axis=0) * episodes.gamma ** times.astype(np.float64)
        steps += float(share.sum())
        with np.errstate(divide="ignore"):
            episodes_over_size += float((share / size).sum())
        largest_share += float(share @ largest)
    return EffectiveSize(steps / episodes_over_size, largest_share / steps)


def unrecorded_share(episodes: Trajectories) -> float:
    """How much of an estimate is about steps that count but were not recorded, from 0 to 1: fqe, dr and wdr have the Q
    function's word for them alone; is, wis, pdis and wpdis leave them out.

    Weighted as in wpdis. Of the discounted steps; or of the value, if the Q function says that what follows is worth more than
    its share of the steps (a reward at the end, say). Rewards and values count by their size, so that costs and gains do not
    cancel out.
    """
    if episodes.unrecorded is None or not episodes.unrecorded.any():
        return 0.0
    if np.isinf(episodes.unrecorded).any():
        return 1.0
    shares = [_share_beyond(episodes, np.ones(len(episodes.rewards)), episodes.unrecorded)]
    if episodes.model is not None:
        ends = episodes.gamma * np.abs(episodes.model.end_values)
        shares.append(_share_beyond(episodes, np.abs(episodes.rewards), ends))
    return max(shares)


def _share_beyond(episodes: Trajectories, recorded: np.ndarray, beyond: np.ndarray) -> float:
    """Of what is weighed in all: (N,) by step, and (E,) that follows the last one."""
    once = np.ones((1, len(episodes)))
    after = np.zeros(len(recorded))
    after[episodes.starts + episodes.lengths - 1] = beyond
    [within], [behind] = (_weighted_by_time(episodes, each, once, of_nothing=0.0) for each in (recorded, after))
    return float(behind / (within + behind)) if behind > 0 else 0.0


class Method(NamedTuple):
    """An estimator, and what it stands on."""

    estimate: Estimator
    size: Callable[[Trajectories], EffectiveSize] | None
    """None: nothing is weighted."""
    needs_model: bool


METHODS: dict[str, Method] = {
    "is": Method(importance_sampling, size_of_episodes, False),
    "wis": Method(weighted_importance_sampling, size_of_episodes, False),
    "pdis": Method(per_decision, size_by_time, False),
    "wpdis": Method(weighted_per_decision, size_by_time, False),
    "cis": Method(clipped_per_decision, size_by_time, False),
    "fqe": Method(fitted_q, None, True),
    "dr": Method(doubly_robust, size_by_time, True),
    "drs": Method(shrunken_doubly_robust, size_by_time, True),
    "wdr": Method(weighted_doubly_robust, size_by_time, True),
}


def fitting(methods: Sequence[str]) -> list[str]:
    """Those of the methods that fit a Q function."""
    return [name for name in methods if METHODS[name].needs_model]


def weighing(methods: Sequence[str]) -> list[str]:
    """Those of the methods that weigh episodes by how probable their actions were."""
    return [name for name in methods if METHODS[name].size is not None]


def _model(episodes: Trajectories) -> Model:
    assert episodes.model is not None
    return episodes.model


def _mean_of(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Of one number an episode, (E,)."""
    return np.asarray((counts @ values) / counts.sum(axis=1))


def _mean(log_weights: np.ndarray, values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Of sums of weighted values, each from one of `starts` to the next."""
    largest = float(log_weights.max())
    largest = largest if np.isfinite(largest) else 0.0
    sums = np.add.reduceat(np.exp(log_weights - largest) * values, starts)
    means = (counts @ sums) / counts.sum(axis=1)
    if largest < FAR:
        return np.asarray(means * np.exp(largest))
    with np.errstate(divide="ignore", over="ignore"):  # it may be beyond every number: infinite then, and 0 where the mean is
        return np.asarray(np.sign(means) * np.exp(np.log(np.abs(means)) + largest))


def _weighted_by_time(episodes: Trajectories, values: np.ndarray, counts: np.ndarray, *, of_nothing: float) -> np.ndarray:
    """The sum over all times of the weighted mean, discounted; `of_nothing` is the mean where all weights are 0."""
    total = np.zeros(len(counts))
    for times, rows, active in times_of(episodes, max(counts.shape)):
        weights = relative_weights(episodes.log_weights[rows])
        sums, all_weights = counts @ (weights * np.where(active, values[rows], 0.0)), counts @ weights
        means = np.divide(sums, all_weights, out=np.full(sums.shape, of_nothing), where=all_weights > 0)
        total += means @ (episodes.gamma ** times.astype(np.float64))
    return total


def times_of(episodes: Trajectories, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(times (b,), steps (E, b) at those times or else the last ones, whether they are at those times) of all times that count.

    Those do not at which the discount is less than the smallest number.
    Memory: some times `NUMBERS_AT_A_TIME` numbers, if the caller has `rows` of them for each time.
    """
    width = max(1, NUMBERS_AT_A_TIME // rows)
    longest = int(np.count_nonzero(episodes.gamma ** np.arange(episodes.lengths.max(), dtype=np.float64)))
    for begin in range(0, longest, width):
        times = np.arange(begin, min(begin + width, longest))
        active = times < episodes.lengths[:, None]
        yield times, episodes.starts[:, None] + np.minimum(times, episodes.lengths[:, None] - 1), active


def relative_weights(log_weights: np.ndarray) -> np.ndarray:
    """Weights in units of the largest of their column; (E,) or (E, b)."""
    largest = log_weights.max(axis=0)
    relative = log_weights - np.where(np.isfinite(largest), largest, 0.0)
    return np.asarray(np.where(np.isneginf(log_weights), 0.0, np.exp(np.maximum(relative, SMALLEST))))


def _size(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = weights.sum(axis=0)
    there = np.where(total > 0, total, 1.0)
    return total**2 / np.where(total > 0, (weights**2).sum(axis=0), 1.0), weights.max(axis=0) / there
