"""Weights that are clipped or shrunken, and the threshold that a log chooses."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.judging.estimation.estimators import METHODS
from offline_core.judging.estimation.shrinkage import clipped, shrunken, threshold, values
from offline_core.judging.estimation.trajectories import Model, Trajectories


def clicks(rows: int, weights: np.ndarray, *, seed: int = 0) -> Trajectories:
    """Episodes of one step, rewarded one time in ten, with a Q function that is half as large."""
    rng = np.random.default_rng(seed)
    rewards = (rng.random(rows) < 0.1) * 1.0
    model = Model(np.full(rows, 0.05), rewards - 0.05, np.zeros(rows))
    return Trajectories(np.ones(rows, np.int64), rewards, np.log(weights), 1.0, model)


def test_of_one_step_they_are_the_bandits_formulas() -> None:
    weights = np.array([0.1, 0.5, 4.0, 9.0])
    episodes = clicks(4, weights)
    model, r = episodes.model, episodes.rewards
    assert model is not None
    bare = Trajectories(episodes.lengths, r, episodes.log_ratios, 1.0)
    np.testing.assert_allclose(values(bare, clipped, 3.0), np.minimum(weights, 3) * r)
    λ = 3.0**2
    np.testing.assert_allclose(values(episodes, shrunken, 3.0), 0.05 + λ * weights / (weights**2 + λ) * (r - 0.05))
    np.testing.assert_allclose(values(episodes, shrunken, np.inf).mean(), METHODS["dr"].estimate(episodes, np.ones((1, 4))))


def test_of_more_steps_a_reward_is_weighed_by_the_actions_up_to_it() -> None:
    """Weights are 2 and 2 · 3 in the first episode, and 1/2 in the second."""
    episodes = Trajectories(np.array([2, 1]), np.array([1.0, 4.0, 8.0]), np.log([2, 3, 0.5]), 0.5)
    np.testing.assert_allclose(values(episodes, clipped, 4.0), [2 * 1 + 0.5 * 4 * 4, 0.5 * 8])
    np.testing.assert_allclose(values(episodes, clipped, np.inf).mean(), METHODS["pdis"].estimate(episodes, np.ones((1, 2))))


@pytest.mark.parametrize("shrink", [clipped, shrunken])
def test_equal_weights_are_left_as_they_are(shrink) -> None:
    assert threshold(clicks(500, np.ones(500)), shrink) in (1.0, np.inf)
    np.testing.assert_allclose(values(clicks(500, np.ones(500)), clipped), clicks(500, np.ones(500)).rewards)


@pytest.mark.parametrize(("name", "plain"), [("cis", "pdis"), ("drs", "dr")])
def test_where_a_few_weights_are_huge_the_error_is_smaller_than_without(name: str, plain: str) -> None:
    """Rewards do not depend on the action, so that the value is 0.1; one action in a hundred is 60 times as likely."""
    errors: dict[str, list[float]] = {name: [], plain: []}
    for seed in range(40):
        weights = np.where(np.random.default_rng(100 + seed).random(400) < 0.01, 60.4, 0.4)
        episodes = clicks(400, weights, seed=seed)
        for each, found in errors.items():
            found.append(float(METHODS[each].estimate(episodes, np.ones((1, 400)))[0]) - 0.1)
    assert np.square(errors[name]).mean() < 0.6 * np.square(errors[plain]).mean()


@pytest.mark.parametrize("name", ["cis", "drs"])
def test_a_resample_is_of_the_threshold_that_the_log_chose(name: str) -> None:
    episodes = clicks(300, np.random.default_rng(1).pareto(1.5, 300) * 0.5)
    counts = np.random.default_rng(2).integers(0, 3, size=(2, 300)).astype(float)
    own = episodes if name == "drs" else Trajectories(episodes.lengths, episodes.rewards, episodes.log_ratios, 1.0)
    each = values(own, shrunken if name == "drs" else clipped)
    np.testing.assert_allclose(METHODS[name].estimate(episodes, counts), (counts @ each) / counts.sum(axis=1))


@pytest.mark.parametrize("shrink", [clipped, shrunken])
def test_weights_beyond_every_number_are_shrunken_too(shrink) -> None:
    episodes = Trajectories(np.array([1, 1]), np.array([1.0, 2.0]), np.array([1e4, -1e4]), 1.0, Model(*np.ones((3, 2))))
    assert np.isfinite(values(episodes, shrink)).all()
