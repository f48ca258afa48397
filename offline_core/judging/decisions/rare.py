"""How far an estimate from rare rewards, such as clicks, may be off: by how many more or fewer there might have been."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from offline_core.judging.estimation.estimators import relative_weights
from offline_core.judging.estimation.trajectories import Trajectories

MOST_REWARDED = 0.1
"""Share of episodes with a reward, above which rewards are not rare."""
LEAST_RISK = 1e-12


@dataclass(frozen=True, slots=True)
class RareSide:
    """Rewards that speak for a candidate, or against it: a sum of Poisson numbers, each with its size."""

    total: float
    variance: float
    one_more: float
    """What another reward would add, in the mean."""

    @classmethod
    def of(cls, added: np.ndarray, apart: np.ndarray, size: float, count: int) -> RareSide:
        """Of what rewards added (…,), and of how much each step's reward counts (…,), both above 0."""
        one_more = size * float((apart**2).sum() / apart.sum()) / count if len(apart) else 0.0
        return cls(float(added.sum()) / count, float((added**2).sum()) / count**2, one_more)

    def low(self, risk: float) -> float:
        """Fay & Feuer 1997, "Confidence intervals for directly standardized rates": exact of rewards of one size."""
        if self.total == 0:
            return 0.0
        return float(self.variance / (2 * self.total) * chi2.ppf(risk, 2 * self.total**2 / self.variance))

    def high(self, risk: float) -> float:
        """Likewise, with one reward more, of mean size."""
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
        rewards = candidate.rewards[:]
        paid = rewards != 0
        signs = np.sign(rewards[paid])
        if not 0 < paid.mean() <= MOST_REWARDED or (signs != signs[0]).any():
            return None
        apart = signs[0] * (_shares(candidate) - (1.0 if today is None else _shares(today)))
        sizes = np.abs(rewards[paid])
        size, count = float((sizes**2).mean() / sizes.mean()), len(rewards)
        sides = []
        for one in (apart, -apart):
            its = one > 0
            sides.append(RareSide.of(one[paid & its] * np.abs(rewards[paid & its]), one[its], size, count))
        return cls(sides[0], sides[1], float(parts[~paid].std() * ((~paid).sum()) ** 0.5 / count))

    def below(self, risk: float) -> float:
        """How far the difference may be below its estimate, at a one-sided risk."""
        better, worse = self.better.total - self.better.low(risk), self.worse.high(risk) - self.worse.total
        return float(np.hypot(np.hypot(better, worse), norm.isf(risk) * self.rest))

    def above(self, risk: float) -> float:
        """How far it may be above."""
        better, worse = self.better.high(risk) - self.better.total, self.worse.total - self.worse.low(risk)
        return float(np.hypot(np.hypot(better, worse), norm.isf(risk) * self.rest))

    def p_value(self, value: float) -> float:
        """One-sided, of an estimate `value` where the difference is 0 or less."""
        side, far = (self.below, value) if value > 0 else (self.above, -value)
        if side(LEAST_RISK) <= far:
            risk = LEAST_RISK
        elif side(0.5) >= far:
            risk = 0.5
        else:
            risk = float(np.exp(brentq(lambda log: side(float(np.exp(log))) - far, np.log(LEAST_RISK), np.log(0.5))))
        return risk if value > 0 else 1 - risk


def _shares(episodes: Trajectories) -> np.ndarray:
    """(E,) weights whose mean is 1; all 0 if none is above."""
    weights = relative_weights(episodes.episode_log_weights)
    return np.asarray(weights / (weights.mean() or 1.0))
