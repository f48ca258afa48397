"""A candidate beside what runs today, on the same episodes: the difference, and how sure it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm
from scipy.stats import t as student

from offline_core.judging.decisions.result import Difference
from offline_core.judging.estimation.bootstrap import resampled_counts
from offline_core.judging.estimation.config import DECIDING
from offline_core.judging.estimation.estimators import METHODS, relative_weights, size_by_time
from offline_core.judging.estimation.influence import carrying, influence, tail_of, varying
from offline_core.judging.estimation.trajectories import Trajectories

SMALLEST_SHARE = 1e-9
"""A standard error below this share of the returns is one of rounding."""
SMALLEST_RATIO = 1e-5
"""A log-ratio that is less apart is one of rounding, of probabilities that networks compute in float32."""
MOST_REWARDED = 0.1
"""Share of episodes with a reward, above which rewards are not rare."""
LEAST_RISK = 1e-12


def compare(
    candidate: Trajectories,
    today: Trajectories | None,
    *,
    beyond: float,
    risk: float,
    confidence: float,
    resamples: int,
    seed: int,
    with_tail: bool = False,
) -> Difference:
    """Value of a candidate minus that of what runs today, paired by episode.

    Both are estimated by wdr. What the log recorded needs no estimate. Where a recording ends before its episode, what follows
    is of the candidate's Q function on both sides then: nothing is claimed of what was not recorded. The interval and the
    p-value are of the studentised bootstrap (Efron & Tibshirani 1993, chapter 12): each resample, of groups of episodes where
    they are many, is divided by its own standard error, which the influences give. No bound is closer than that of rare
    rewards, or else Student's, see `RareRewards` and `Student`.

    Arguments:
        today: None: what the log recorded.
        beyond: the p-value is of a difference that is no larger, and `p_worse` of one that is no smaller.
        risk: of the one-sided bound.
        confidence: of the interval.
        with_tail: tell how heavy the tail of the influences is, where bounds go by their variance and not by how many rewards
            there are. It takes some hundredths of a second.
    """
    parts = influence(candidate) - (candidate.continued - candidate.continued.mean() if today is None else influence(today))
    value = float(_differences(candidate, today, np.ones((1, candidate.groups.number)))[0])
    error = float(parts.std(ddof=1) / len(parts) ** 0.5) if len(parts) > 1 else np.inf
    weights, carried = size_by_time(candidate), carrying(parts)
    told = {
        "effective_episodes": weights.episodes,
        "carrying_episodes": carried.episodes,
        "largest_share": max(weights.largest**2 * weights.episodes, carried.largest),
    }
    drawn = candidate.groups.sums(parts)
    scale = max(float(np.abs(candidate.returns).mean()), abs(value))
    if acts_alike(candidate, today):
        return without_resamples(0.0, float(beyond >= 0), p_worse=float(beyond <= 0), **told)
    if not np.isfinite(error):
        return without_resamples(value, 1.0, error=np.inf, **told)
    if error <= SMALLEST_SHARE * scale:
        p_value = float(value <= beyond + SMALLEST_SHARE * scale)
        return without_resamples(value, p_value, p_worse=float(value >= beyond - SMALLEST_SHARE * scale), **told)
    ratios = np.concatenate(
        [
            (_differences(candidate, today, counts) - value) / _errors(drawn, counts, candidate.groups.sizes, least=0.1 * error)
            for counts in resampled_counts(len(drawn), resamples=resamples, seed=seed)
        ]
    )
    outside = (1 - confidence) / 2
    most, least = np.quantile(ratios, [1 - outside, outside])
    # Of few episodes resamples are too much alike: no bound is closer than one that knows how many count.
    few: RareRewards | Student = RareRewards.of(candidate, today, parts) or Student.of(candidate, weights.episodes, error)
    far = (value - beyond) / error
    p_value, p_worse = ((1.0 + is_farther.sum()) / (1 + len(ratios)) for is_farther in (ratios >= far, ratios <= far))
    p_of_few = few.p_value(value - beyond)
    return Difference(
        tail=tail_of(parts) if with_tail and isinstance(few, Student) else None,
        value=value,
        low=float(value - max(most * error, few.below(outside))),
        high=float(value + max(-least * error, few.above(outside))),
        standard_error=error,
        at_least=float(value - max(np.quantile(ratios, 1 - risk) * error, few.below(risk))),
        p_value=float(max(p_value, p_of_few)),
        p_worse=float(max(p_worse, 1 - p_of_few)),
        **told,
    )


def acts_alike(candidate: Trajectories, today: Trajectories | None) -> bool:
    """Whether all that was done is as likely to both; then what their Q functions differ by is noise."""
    recorded: Iterable[np.ndarray] = itertools.repeat(np.zeros(1))
    others = recorded if today is None else (part.log_ratios for part in today.parts())
    # isclose, for of what neither would ever do both ratios are -inf
    return all(
        np.isclose(part.log_ratios, other, rtol=0, atol=SMALLEST_RATIO).all()
        for part, other in zip(candidate.parts(), others, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Student:
    """Bounds of a normal sample of as many episodes as count and vary."""

    episodes: float
    error: float

    @classmethod
    def of(cls, candidate: Trajectories, effective_episodes: float, error: float) -> Student:
        return cls(max(2.0, varying(candidate.returns, effective_episodes)), error)

    def below(self, risk: float) -> float:
        """How far a difference may be below its estimate, at a one-sided risk."""
        return float(student.isf(risk, self.episodes - 1) * self.error)

    above = below
    """How far a difference may be above its estimate, at a one-sided risk."""

    def p_value(self, value: float) -> float:
        """One-sided p-value of an estimate `value`, where the difference is 0 or less."""
        return float(student.sf(value / self.error, self.episodes - 1))


@dataclass(frozen=True, slots=True)
class RareSide:
    """Rewards that speak for a candidate, or against it: a sum of Poisson numbers, each with its size."""

    total: float
    variance: float
    one_more: float
    """What another reward would add, in the mean."""

    @classmethod
    def of(cls, added: np.ndarray, apart: np.ndarray, size: float, count: int) -> RareSide:
        """Bounds out of what rewards added (…,) and how much each step's reward counts (…,), both above 0."""
        one_more = size * float((apart**2).sum() / apart.sum()) / count if len(apart) else 0.0
        return cls(float(added.sum()) / count, float((added**2).sum()) / count**2, one_more)

    def low(self, risk: float) -> float:
        """The lower bound of the sum; it is exact for rewards of one size.

        See Fay & Feuer 1997, "Confidence intervals for directly standardized rates".
        """
        if self.total == 0:
            return 0.0
        return float(self.variance / (2 * self.total) * chi2.ppf(risk, 2 * self.total**2 / self.variance))

    def high(self, risk: float) -> float:
        """The upper bound of the sum, likewise of Fay & Feuer, with one reward more, of mean size."""
        total, variance = self.total + self.one_more, self.variance + self.one_more**2
        return float(variance / (2 * total) * chi2.isf(risk, 2 * total**2 / variance)) if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RareRewards:
    """What a difference between two policies on a log of one step is made of, where few steps are paid.

    The rewards of actions that are likelier to the candidate speak for it, the others against it. Both are sums of Poisson
    numbers, and their bounds are put together by the squares of what they are off (Zou & Donner 2008, "Construction of
    confidence limits about effect measures").
    """

    better: RareSide
    worse: RareSide
    rest: float
    """Standard error of what steps without a reward add."""

    @classmethod
    def of(cls, candidate: Trajectories, today: Trajectories | None, parts: np.ndarray) -> RareRewards | None:
        """None: some episode has more than one step, rewards are not rare, or they are of both signs.

        Arguments:
            today: None: what the log recorded.
            parts: (E,) the influence of each episode on the difference.
        """
        if len(candidate.rewards) > len(candidate):
            return None
        rewards = candidate.rewards
        paid = rewards != 0
        signs = np.sign(rewards[paid])
        if not 0 < paid.mean() <= MOST_REWARDED or (signs != signs[0]).any():
            return None
        apart = signs[0] * (_shares(candidate) - (1.0 if today is None else _shares(today)))
        sizes = np.abs(rewards[paid])
        size, count = float((sizes**2).mean() / sizes.mean()), len(rewards)
        sides = []
        for excess in (apart, -apart):
            is_above = excess > 0
            sides.append(RareSide.of(excess[paid & is_above] * np.abs(rewards[paid & is_above]), excess[is_above], size, count))
        return cls(sides[0], sides[1], float(parts[~paid].std() * ((~paid).sum()) ** 0.5 / count))

    def below(self, risk: float) -> float:
        """How far a difference may be below its estimate, at a one-sided risk."""
        better, worse = self.better.total - self.better.low(risk), self.worse.high(risk) - self.worse.total
        return float(np.hypot(np.hypot(better, worse), norm.isf(risk) * self.rest))

    def above(self, risk: float) -> float:
        """How far a difference may be above its estimate, at a one-sided risk."""
        better, worse = self.better.high(risk) - self.better.total, self.worse.total - self.worse.low(risk)
        return float(np.hypot(np.hypot(better, worse), norm.isf(risk) * self.rest))

    def p_value(self, value: float) -> float:
        """One-sided p-value of an estimate `value`, where the difference is 0 or less."""
        side, far = (self.below, value) if value > 0 else (self.above, -value)
        if side(LEAST_RISK) <= far:
            risk = LEAST_RISK
        elif side(0.5) >= far:
            risk = 0.5
        else:
            risk = float(np.exp(brentq(lambda log: side(float(np.exp(log))) - far, np.log(LEAST_RISK), np.log(0.5))))
        return risk if value > 0 else 1 - risk


def without_resamples(
    value: float,
    p_value: float,
    *,
    p_worse: float = 1.0,
    error: float = 0.0,
    effective_episodes: float,
    carrying_episodes: float,
    largest_share: float,
) -> Difference:
    """A difference that no other episodes could change (an error of 0), or of which a single one says nothing (infinity)."""
    return Difference(
        value=value,
        low=value - error,
        high=value + error,
        standard_error=error,
        at_least=value - error,
        p_value=p_value,
        p_worse=p_worse,
        effective_episodes=effective_episodes,
        carrying_episodes=carrying_episodes,
        largest_share=largest_share,
    )


def combined(differences: Sequence[Difference], fitted: Sequence[float]) -> np.ndarray:
    """(candidates,) scores by which they are ranked: the wdr difference of each, put together with that of its Q function.

    Each of both counts by its precision. That of the Q functions is told by how far they are from wdr, beyond its standard
    errors, over all candidates (empirical Bayes). So Q functions count where wdr knows little, and where they were right
    elsewhere.
    """
    values = np.array([difference.value for difference in differences])
    variances = np.array([difference.standard_error**2 for difference in differences])
    weights = np.where(np.isfinite(values), 1 / np.maximum(variances, 1e-12), 0.0)
    values, variances = np.where(weights > 0, values, 0.0), np.where(weights > 0, variances, 0.0)
    if not weights.any():
        return np.array(fitted)
    disagreement = np.sum(weights * ((np.array(fitted) - values) ** 2 - variances)) / np.sum(weights)
    spread = max(float(disagreement), float(variances[weights > 0].min()), 1e-12)
    return np.asarray((weights * values + np.array(fitted) / spread) / (weights + 1 / spread))


def holm(p_values: Sequence[float], risk: float) -> list[bool]:
    """Whether each hypothesis is shown, at this risk over all of them (Holm 1979)."""
    shown = [False] * len(p_values)
    for rank, number in enumerate(np.argsort(p_values, kind="stable").tolist()):
        if p_values[number] > risk / (len(p_values) - rank):
            break
        shown[number] = True
    return shown


def _differences(candidate: Trajectories, today: Trajectories | None, counts: np.ndarray) -> np.ndarray:
    estimate = METHODS[DECIDING].estimate
    other = candidate.groups.means(candidate.continued, counts) if today is None else estimate(today, counts)
    return np.asarray(estimate(candidate, counts) - other)


def _errors(sums: np.ndarray, counts: np.ndarray, sizes: np.ndarray, *, least: float) -> np.ndarray:
    """(b,) standard errors of the resamples.

    Arguments:
        sums: (G,) sums of the influences of each group.
        sizes: (G,) numbers of episodes in the groups.
    """
    drawn = counts.sum(axis=1)
    means = (counts @ sums) / drawn
    errors = np.sqrt(np.maximum((counts @ sums**2) / drawn - means**2, 0) / drawn) * (drawn / (counts @ sizes))
    return np.asarray(np.maximum(errors, least))


def _shares(episodes: Trajectories) -> np.ndarray:
    """(E,) weights whose mean is 1; all are 0 if no weight is above 0."""
    weights = relative_weights(episodes.episode_log_weights)
    return np.asarray(weights / (weights.mean() or 1.0))
