"""Returns, λ-returns and n steps of all episodes at once, against plain loops in float64 and cases worked out by hand."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.learning.returns import discounted_sums, n_step_sums, steps_left, value_targets
from offline_core.learning.steps import Steps
from tests.learning.algorithms.making import made_steps
from tests.learning.making import batch_of

EPISODES = st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=8)
DISCOUNTS = st.sampled_from([0.0, 0.3, 0.9, 0.99, 1.0])


def test_steps_left() -> None:
    assert steps_left(made_steps([3, 1, 2], [True, False, True])).tolist() == [3, 2, 1, 0, 1, 0, 2, 1, 0]
    assert steps_left(Steps.of(batch_of([3, 1], needs_next_obs=False))).tolist() == [3, 2, 1, 1]


@settings(deadline=None)
@given(EPISODES, DISCOUNTS)
def test_sums_of_a_plain_loop(episodes: list[tuple[int, bool]], factor: float) -> None:
    steps = made_steps(*zip(*episodes, strict=True))
    values, expected = steps.columns["rewards"].numpy(), np.zeros(len(steps.episode))
    for row in reversed(range(len(expected))):
        if not np.isnan(values[row]):  # the row after the last step
            expected[row] = values[row] + factor * expected[row + 1]
    found = discounted_sums(steps.columns["rewards"], steps_left(steps), factor)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(EPISODES, DISCOUNTS, st.integers(1, 50))
def test_n_steps_of_a_plain_loop(episodes: list[tuple[int, bool]], factor: float, n: int) -> None:
    steps = made_steps(*zip(*episodes, strict=True))
    values, left = steps.columns["rewards"].numpy(), steps_left(steps)
    expected = [sum(factor**k * values[row + k] for k in range(min(n, left[row]))) for row in range(len(values))]
    np.testing.assert_allclose(n_step_sums(steps.columns["rewards"], left, factor, n).numpy(), expected, rtol=1e-12, atol=1e-12)


@settings(deadline=None)
@given(EPISODES, DISCOUNTS, DISCOUNTS)
def test_value_targets_are_the_advantages_of_the_paper_plus_the_value(
    episodes: list[tuple[int, bool]], gamma: float, gae_lambda: float
) -> None:
    """Schulman et al. 2016, equations 11 and 16, term by term."""
    steps = made_steps(*zip(*episodes, strict=True))
    rewards, terminated = steps.columns["rewards"].numpy(), steps.columns["terminateds"].numpy()
    values = np.random.default_rng(1).normal(size=len(rewards))
    left = steps_left(steps)
    expected = np.zeros(len(rewards))
    for t in steps.rows.tolist():
        expected[t] = values[t]
        for k in range(int(left[t])):
            following = 0.0 if terminated[t + k] else values[t + k + 1]
            expected[t] += (gamma * gae_lambda) ** k * (rewards[t + k] + gamma * following - values[t + k])
    found = value_targets(
        steps.columns["rewards"],
        torch.from_numpy(values),
        left,
        terminated=steps.columns["terminateds"],
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    np.testing.assert_allclose(found[steps.rows].numpy(), expected[steps.rows], rtol=1e-10, atol=1e-10)


def test_the_rest_of_an_episode_by_hand() -> None:
    """A terminated one is worth its rewards; one that was cut, also what its last observation is."""
    for ended, expected in ((True, [1 + 1 + 0.75, 2 + 1.5, 3]), (False, [2.75 + 1, 3.5 + 2, 3 + 4])):
        steps = made_steps([3], [ended])
        rewards, values = torch.tensor([1.0, 2.0, 3.0, 99.0]), torch.tensor([7.0, 7.0, 7.0, 8.0])
        terminated = steps.columns["terminateds"]
        found = value_targets(rewards, values, steps_left(steps), terminated=terminated, gamma=0.5, gae_lambda=1.0)
        assert found[steps.rows].tolist() == expected


def test_long_episodes_lose_no_precision() -> None:
    """100,000 equal rewards: a geometric series, exact to float64 at every step."""
    left = torch.arange(100_000, -1, -1)
    found = discounted_sums(torch.ones(100_001), left, 0.999)
    np.testing.assert_allclose(found.numpy(), (1 - 0.999 ** left.double().numpy()) / (1 - 0.999), rtol=1e-12)
