"""Generalised advantage estimation, against cases worked out by hand and a plain loop in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from offline_core.learning.experts.ppo import advantages


def gae(rewards, values, terminated, truncated, *, gamma: float, gae_lambda: float) -> np.ndarray:
    def tensor(x, dtype=torch.float64):
        return torch.tensor(np.asarray(x), dtype=dtype).reshape(len(x), -1)

    return advantages(
        tensor(rewards),
        tensor(values),
        terminated=tensor(terminated, torch.bool),
        truncated=tensor(truncated, torch.bool),
        gamma=gamma,
        gae_lambda=gae_lambda,
    ).numpy()


def test_termination_is_worth_nothing_afterwards() -> None:
    found = gae([1.0, 1.0], [5.0, 7.0, 100.0], [False, True], [False, False], gamma=0.5, gae_lambda=1.0)
    # t=1: 1 - 7 = -6; t=0: 1 + 0.5*7 - 5 = -0.5, plus 0.5 * -6
    np.testing.assert_allclose(found.ravel(), [-3.5, -6.0])


def test_truncation_is_worth_the_observation_it_stopped_at() -> None:
    found = gae([1.0, 1.0], [5.0, 7.0, 100.0], [False, False], [False, True], gamma=0.5, gae_lambda=1.0)
    np.testing.assert_allclose(found.ravel(), [-0.5 + 0.5 * 44.0, 1 + 50 - 7])


def test_a_reset_step_and_the_next_episode_change_nothing_before_them() -> None:
    """Steps: end of an episode, its reset, first step of the next. Whatever stands there, the first advantage stays."""
    for junk in (0.0, 1e6):
        found = gae([2.0, junk, junk], [1.0, 3.0, junk, junk], [True, False, False], [False] * 3, gamma=0.9, gae_lambda=0.95)
        np.testing.assert_allclose(found[0], 1.0)
        found = gae([2.0, junk, junk], [1.0, 3.0, junk, junk], [False] * 3, [True, False, False], gamma=0.9, gae_lambda=0.95)
        np.testing.assert_allclose(found[0], 2.0 + 0.9 * 3.0 - 1.0)


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_a_plain_loop_says_the_same_for_each_copy_by_itself(gae_lambda: float) -> None:
    rng = np.random.default_rng(0)
    steps, copies, gamma = 40, 6, 0.97
    rewards, values = rng.normal(size=(steps, copies)), rng.normal(size=(steps + 1, copies))
    terminated, truncated = rng.random((2, steps, copies)) < 0.1
    expected = np.zeros((steps, copies))
    for copy in range(copies):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                following = 0.0 if terminated[k, copy] else values[k + 1, copy]
                expected[t, copy] += weight * (rewards[k, copy] + gamma * following - values[k, copy])
                if terminated[k, copy] or truncated[k, copy]:
                    break
                weight *= gamma * gae_lambda
    found = gae(rewards, values, terminated, truncated, gamma=gamma, gae_lambda=gae_lambda)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
