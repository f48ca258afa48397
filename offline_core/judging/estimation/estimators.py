"""What a policy would come to, out of episodes of another: each estimator a function of how often each episode counts.

An estimator takes E episodes in G groups and `counts` (B, G) ≥ 0, of which a row of ones is the estimate itself and any other
row a resample of the bootstrap, and returns (B,) mean discounted returns, float64. It adds up by group first. Weights are
computed from sums of logarithms and relative to the largest of those they are compared with, so that none overflows.

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
OfPart = Callable[[Trajectories], np.ndarray]
"""A function that gives a number of each episode or step of a part of the trajectories."""

NUMBERS_AT_A_TIME = 2**22
NUMBERS_KEPT = 2**24
FAR = 690.0
"""Below e to this power, and above e to its negative, numbers of float64 are exact."""
SMALLEST = -FAR
"""Weights less than e to this power of the largest count as that much, unless they are 0: a resample without the large ones
still has a mean. Of several that small, it is their plain mean, whatever they are to each other."""


def importance_sampling(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """is: returns times the ratio of all actions (Precup et al. 2000). Unbiased; its variance grows with every step."""
    return _mean(episodes, _episode_weights, _returns, counts)


def weighted_importance_sampling(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """wis: the mean of returns, weighted by these ratios. Consistent, and never beyond the returns that were recorded."""
    weights, sums = relative_weights(episodes.episode_log_weights), episodes.groups.sums
    with np.errstate(invalid="ignore"):  # all are 0: there is no such mean
        return np.asarray((counts @ sums(weights * episodes.returns)) / (counts @ sums(weights)))


def per_decision(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """pdis: each reward times the ratio of the actions up to it alone (Precup et al. 2000). Unbiased."""
    return _mean(episodes, _step_weights, lambda part: part.discounts * rewards_of(part), counts)


def weighted_per_decision(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """wpdis: at each time the mean of the rewards, weighted by the ratios up to then. Consistent.

    NaN if all of them are 0 at a time: nothing was recorded of what the policy is paid there.
    """
    return _weighted_by_time(episodes, rewards_of, counts, of_nothing=np.nan)


def fitted_q(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """fqe: what the Q function says of the start states (Le et al. 2019, arXiv 1903.08738). As good as that function is."""
    sums = by_group(episodes, lambda part: _model(part).start_values)
    return np.asarray((counts @ sums) / (counts @ episodes.groups.sizes))


def doubly_robust(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """dr: fqe, put right by the function's own errors on the recorded steps, weighted as in pdis.

    Jiang & Li 2016, arXiv 1511.03722. Unbiased whatever the Q function, if that was fitted to other episodes; the better it
    is, the less there is left to weigh. What follows the end of a recording within the horizon is taken from it.
    """
    errors = _mean(episodes, _step_weights, lambda part: part.discounts * errors_of(part), counts)
    return np.asarray(fitted_q(episodes, counts) + errors)


def weighted_doubly_robust(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """wdr: the same with the weights of wpdis (Thomas & Brunskill 2016, arXiv 1604.00923). Consistent.

    Where all weights are 0, nothing is put right: what follows is the function's word alone.
    """
    return np.asarray(fitted_q(episodes, counts) + _weighted_by_time(episodes, errors_of, counts, of_nothing=0.0))


def clipped_per_decision(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """cis: pdis with weights that are clipped at a threshold which the log chooses (Ionides 2008), see `shrinkage`."""
    return episodes.groups.means(shrinkage.values(replace(episodes, model=None), shrinkage.clipped), counts)


def shrunken_doubly_robust(episodes: Trajectories, counts: np.ndarray) -> np.ndarray:
    """drs: dr with weights that are shrunken by as much as the log chooses (Su et al. 2020, arXiv 1907.09623)."""
    _model(episodes)
    return episodes.groups.means(shrinkage.values(episodes, shrinkage.shrunken), counts)


class EffectiveSize(NamedTuple):
    """How much weights, or the sizes of influences, leave of a sample."""

    episodes: float
    """(Σw)² / Σw² (Kish 1965), 0 if all weights are 0."""
    largest: float
    """The largest weight's share in the sum."""


def size_of_episodes(episodes: Trajectories) -> EffectiveSize:
    """The effective size of the weights of whole episodes."""
    weights = relative_weights(episodes.episode_log_weights)
    size, largest = _size(weights.sum(axis=0), (weights**2).sum(axis=0))
    return EffectiveSize(float(size), float(largest))


def size_by_time(episodes: Trajectories) -> EffectiveSize:
    """The effective size of the weights at a time, over all recorded steps, discounted.

    Sizes are averaged by the harmonic mean, and shares by the plain one.

    The variance of what is recorded at a time goes with one over the size there. So it is the steps with the fewest episodes
    that count, and with a time at which all weights are 0 nothing is left.
    """
    times = np.arange(episodes.times_that_count)
    there, total, squares = np.zeros((3, len(times)))
    for part in episodes.parts():
        for now, weights, active in weights_of(part, times, episodes):
            there[now] += active.sum(axis=0)
            total[now] += weights.sum(axis=0)
            squares[now] += (weights**2).sum(axis=0)
    share = there * episodes.gamma ** times.astype(np.float64)
    size, largest = _size(total, squares)
    with np.errstate(divide="ignore"):
        return EffectiveSize(float(share.sum() / (share / size).sum()), float(share @ largest / share.sum()))


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
    shares = [_share_beyond(episodes, lambda part: np.ones(len(part.rewards)), _unrecorded)]
    if episodes.model is not None:
        shares.append(_share_beyond(episodes, lambda part: np.abs(rewards_of(part)), _worth_after))
    return max(shares)


def _unrecorded(part: Trajectories) -> np.ndarray:
    assert part.unrecorded is not None
    return part.unrecorded


def _worth_after(part: Trajectories) -> np.ndarray:
    return np.asarray(part.gamma * np.abs(_model(part).end_values))


def _share_beyond(episodes: Trajectories, recorded: OfPart, beyond: OfPart) -> float:
    """The share of what follows the last steps in all that is weighed.

    Arguments:
        recorded: gives (N,) numbers of the recorded steps.
        beyond: gives (E,) numbers of what follows the last one.
    """

    def after(part: Trajectories) -> np.ndarray:
        values = np.zeros(len(part.rewards))
        values[part.starts + part.lengths - 1] = beyond(part)
        return values

    once = np.ones((1, episodes.groups.number))
    [within], [behind] = (_weighted_by_time(episodes, column, once, of_nothing=0.0) for column in (recorded, after))
    return float(behind / (within + behind)) if behind > 0 else 0.0


class Method(NamedTuple):
    """An estimator, and what it stands on."""

    estimate: Estimator
    size: Callable[[Trajectories], EffectiveSize] | None
    """The effective size of its weights; None if nothing is weighted."""
    needs_model: bool

    def value(self, episodes: Trajectories) -> float:
        """The estimate itself, of no resample."""
        return float(self.estimate(episodes, np.ones((1, episodes.groups.number)))[0])


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
    """The methods that fit a Q function."""
    return [name for name in methods if METHODS[name].needs_model]


def weighing(methods: Sequence[str]) -> list[str]:
    """The methods that weigh episodes by how probable their actions were."""
    return [name for name in methods if METHODS[name].size is not None]


def _model(episodes: Trajectories) -> Model:
    assert episodes.model is not None
    return episodes.model


def by_group(episodes: Trajectories, of: OfPart) -> np.ndarray:
    """(G,) sums by group of the numbers (E,) of the episodes."""
    return np.asarray(sum(part.groups.sums(of(part)) for part in episodes.parts()))


def rewards_of(part: Trajectories) -> np.ndarray:
    """(N,) what was paid."""
    return part.rewards


def errors_of(part: Trajectories) -> np.ndarray:
    """(N,) errors of the Q function."""
    return _model(part).errors


def _returns(part: Trajectories) -> np.ndarray:
    return part.returns


def _step_weights(part: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    return part.log_weights, part.starts


def _episode_weights(part: Trajectories) -> tuple[np.ndarray, np.ndarray]:
    return part.episode_log_weights, np.arange(len(part))


def _mean(
    episodes: Trajectories,
    log_weights: Callable[[Trajectories], tuple[np.ndarray, np.ndarray]],
    values: OfPart,
    counts: np.ndarray,
) -> np.ndarray:
    """(B,) means over the episodes of their sums of weighted values.

    Arguments:
        log_weights: (of each value, where each episode's values begin).
    """
    largest = max(float(log_weights(part)[0].max()) for part in episodes.parts())
    largest = largest if np.isfinite(largest) else 0.0

    def weighed(part: Trajectories) -> np.ndarray:
        logs, starts = log_weights(part)
        return np.add.reduceat(np.exp(logs - largest) * values(part), starts)

    means = (counts @ by_group(episodes, weighed)) / (counts @ episodes.groups.sizes)
    if largest < FAR:
        return np.asarray(means * np.exp(largest))
    with np.errstate(divide="ignore", over="ignore"):  # it may be beyond every number: infinite then, and 0 where the mean is
        return np.asarray(np.sign(means) * np.exp(np.log(np.abs(means)) + largest))


def _weighted_by_time(episodes: Trajectories, values: OfPart, counts: np.ndarray, *, of_nothing: float) -> np.ndarray:
    """The sum over all times of the weighted mean, discounted; `of_nothing` is the mean where all weights are 0."""
    total = np.zeros(len(counts))
    width = max(1, NUMBERS_AT_A_TIME // max(counts.shape))
    for times, weighted, weights in sums_by_time(episodes, values):
        for begin in range(0, len(times), width):
            now = slice(begin, begin + width)
            sums, all_weights = counts @ weighted[:, now], counts @ weights[:, now]
            means = np.divide(sums, all_weights, out=np.full(sums.shape, of_nothing), where=all_weights > 0)
            total += means @ (episodes.gamma ** times[now].astype(np.float64))
    return total


def sums_by_time(episodes: Trajectories, values: OfPart) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(times (b,), sums of weighted values (G, b), sums of weights (G, b)) of all times that count.

    Weights are relative to the largest of their time. What all methods need is kept, if it is of all times together.
    Memory: `NUMBERS_KEPT` numbers, or those of one time.
    """
    longest, number = episodes.times_that_count, episodes.groups.number
    width = max(1, NUMBERS_KEPT // number)
    for begin in range(0, longest, width):
        times = np.arange(begin, min(begin + width, longest))
        sums = episodes.kept.get(values)
        if sums is None:
            weighted, all_weights = np.zeros((2, number, len(times)))
            for part in episodes.parts():
                column = values(part)
                for now, weights, active in weights_of(part, times, episodes):
                    span = slice(now[0] - begin, now[-1] + 1 - begin)
                    weighted[:, span] += part.groups.sums(weights * np.where(active, at_times(part, column, now), 0.0))
                    all_weights[:, span] += part.groups.sums(weights)
            sums = weighted, all_weights
            if width >= longest and values in (rewards_of, errors_of):
                episodes.kept[values] = sums
        yield times, *sums


def weights_of(
    part: Trajectories, times: np.ndarray, whole: Trajectories
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(some of the times (b,), weights (E, b) then, whether there is a step then (E, b)) of a part of whole trajectories.

    Weights are in units of the largest of the whole at each time.
    """
    largest = largest_by_time(whole)
    width = max(1, NUMBERS_AT_A_TIME // len(part))
    for begin in range(0, len(times), width):
        now = times[begin : begin + width]
        weights = _relative(at_times(part, part.log_weights, now), largest[now])
        yield now, weights, now < part.lengths[:, None]


def largest_by_time(episodes: Trajectories) -> np.ndarray:
    """(times that count,) logarithm of the largest weight at each time."""
    cached = episodes.kept.get(largest_by_time)
    if cached is None:
        largest = np.full(episodes.times_that_count, -np.inf)
        for part in episodes.parts():
            width = max(1, NUMBERS_AT_A_TIME // len(part))
            for begin in range(0, len(largest), width):
                now = np.arange(begin, min(begin + width, len(largest)))
                largest[now] = np.maximum(largest[now], at_times(part, part.log_weights, now).max(axis=0))
        cached = episodes.kept[largest_by_time] = largest, largest
    return cached[0]


def at_times(part: Trajectories, column: np.ndarray, times: np.ndarray) -> np.ndarray:
    """A column (N,) at neighbouring times, (E, b); after the end of an episode it has the number of the last step."""
    longest = int(part.lengths.max())
    if len(column) == longest * len(part) and times[-1] < longest:  # all are as long
        return column.reshape(len(part), longest)[:, times[0] : times[-1] + 1]
    return np.asarray(column[part.starts[:, None] + np.minimum(times, part.lengths[:, None] - 1)])


def relative_weights(log_weights: np.ndarray) -> np.ndarray:
    """(E,) weights in units of the largest."""
    return _relative(log_weights, log_weights.max(axis=0))


def _relative(log_weights: np.ndarray, largest: np.ndarray) -> np.ndarray:
    relative = log_weights - np.where(np.isfinite(largest), largest, 0.0)
    return np.asarray(np.where(np.isneginf(log_weights), 0.0, np.exp(np.maximum(relative, SMALLEST))))


def _size(total: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(effective sizes, shares of the largest weight) of sums of weights in units of the largest, and of their squares."""
    is_any = total > 0
    return total**2 / np.where(is_any, squares, 1.0), is_any / np.where(is_any, total, 1.0)
