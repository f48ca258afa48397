"""What follows a step, by a regression on random features; an episode that it does not hold of is unlike the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offline_core.data.episodes import columns
from offline_core.data.quality.steps import StepBatch
from offline_core.judging.ranking.sample import PARTS, Sample
from offline_core.judging.ranking.steps import StepNumbers, next_observations
from offline_core.runtime.seeding import derive_seed

RANDOM_FEATURES = 256
RIDGE = 1e-4
"""The penalty of the ridge regression, as a share of the mean square of a feature."""
KEPT = 0.95
"""Share of the steps in the second fit: those that the first fit explains best."""
LEAST_MISSED = 0.01
"""Smallest usual error of a model, as a share of what the targets vary by: one that is exact misses next to nothing."""
LARGEST = 10.0
"""Largest size of an input in robust deviations, to either side."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers in robust deviations from their medians."""

    center: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Scale:
        finite = np.where(np.isfinite(values), values, 0.0)
        low, center, high = np.quantile(finite, [0.25, 0.5, 0.75], axis=0)
        spread = np.maximum((high - low) / 1.349, finite.std(axis=0) * 0.1)
        return cls(center, np.where(spread > 0, spread, 1.0))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        scaled = (values - self.center) / self.spread
        return np.clip(np.where(np.isfinite(scaled), scaled, 0.0), -LARGEST, LARGEST)


class Dynamics:
    """Expected change of the observation, and reward, after an observation and an action; for each part one fit to the other.

    Ridge regression on cosines of random projections (Rahimi & Recht 2007, "Random features for large-scale kernel
    machines") and on the inputs themselves, fitted twice: the second time without the steps that the first fit explains worst
    (a concentration step of least trimmed squares, Rousseeuw & Van Driessen 2006).
    """

    def __init__(self, sample: Sample, *, seed: int) -> None:
        rng = np.random.default_rng(derive_seed(seed, "outliers", "dynamics"))
        inputs = sample.numbers.of(columns.OBS, columns.ACTIONS)
        self._scale = Scale.of(inputs)
        size = inputs.shape[1]
        self._weights = rng.normal(size=(size, RANDOM_FEATURES)) / max(1, size) ** 0.5
        self._phase = rng.uniform(0, 2 * np.pi, RANDOM_FEATURES)
        targets = _targets(sample.numbers, sample.following)
        self._unit = Scale.of(targets)
        lifted, wanted = self._lift(inputs), self._unit(targets)
        self._fits = []
        for number in range(PARTS):
            others = sample.outside(number)
            x, y = lifted[others], wanted[others]
            error = np.square(y - x @ _ridge(x, y)).sum(axis=1)
            kept = error <= np.quantile(error, KEPT)
            weights = _ridge(x[kept], y[kept])
            residuals = np.abs(y - x @ weights)
            self._fits.append((weights, np.maximum(np.quantile(residuals, 0.5, axis=0) / 0.6745, LEAST_MISSED)))

    def surprise(self, batch: StepBatch, numbers: StepNumbers, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two arrays (N,), of the observation after a step and of its reward: root of the distance from what was expected.

        Distances are in units of what the model usually misses. The root keeps a rare state from being all that counts. NaN
        and infinity are taken to be as expected, for another feature counts them. The root of the reward has its sign.

        Arguments:
            part: (N,) of each step.
        """
        lifted = self._lift(numbers.of(columns.OBS, columns.ACTIONS))
        targets = _targets(numbers, next_observations(batch))
        scaled = (targets - self._unit.center) / self._unit.spread
        residuals = np.zeros_like(scaled)
        for number, (weights, usual) in enumerate(self._fits):
            own = part == number
            residuals[own] = (scaled[own] - lifted[own] @ weights) / usual
        residuals = np.where(np.isfinite(scaled), residuals, 0.0)
        observed = np.sqrt(np.square(residuals[:, :-1]).mean(axis=1)) if residuals.shape[1] > 1 else np.zeros(len(residuals))
        reward = residuals[:, -1]
        return np.sqrt(observed), np.sign(reward) * np.sqrt(np.abs(reward))

    def _lift(self, inputs: np.ndarray) -> np.ndarray:
        scaled = self._scale(inputs)
        return np.column_stack([np.ones(len(scaled)), scaled, np.cos(scaled @ self._weights + self._phase)])


def _targets(numbers: StepNumbers, following: np.ndarray) -> np.ndarray:
    rewards = numbers.of(columns.REWARDS).sum(axis=1, keepdims=True)
    return np.column_stack([following - numbers.of(columns.OBS), rewards])


def _ridge(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    gram = x.T @ x
    gram[np.diag_indices_from(gram)] += RIDGE * len(x)
    return np.linalg.solve(gram, x.T @ y)
