"""Playing one assignment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.config import EnvironmentSpec
from offline_core.environments import spaces_of
from offline_core.episodes import Episode
from offline_core.policies.policy import Policy
from offline_core.recording.player import Assignment, assignments, play

CARTPOLE = EnvironmentSpec(id="CartPole-v1")


def recorded(
    environment: EnvironmentSpec, *, episodes: int, num_envs: int, seed: int = 0, explore: bool = True
) -> list[Episode]:
    policy = Policy(*spaces_of(environment))
    chunks = play(policy, environment, Assignment(0, 0, episodes), identity="p", num_envs=num_envs, seed=seed, explore=explore)
    return [episode for chunk in chunks for episode in chunk]


@pytest.mark.parametrize(("episodes", "num_envs"), [(1, 32), (7, 3), (32, 32), (50, 8)])
def test_as_many_complete_episodes_as_asked_each_once(episodes: int, num_envs: int) -> None:
    found = recorded(CARTPOLE, episodes=episodes, num_envs=num_envs)
    assert len(found) == episodes == len({e.eps_id for e in found})
    for episode in found:
        assert episode.is_done
        assert episode.return_ == len(episode)
        episode.validate()


def test_episodes_name_the_policy_that_played_them() -> None:
    assert [e.custom_data for e in recorded(CARTPOLE, episodes=3, num_envs=2)] == [{"policy_id": "p"}] * 3


def test_recorded_steps_replay_in_a_fresh_environment() -> None:
    """Set a single CartPole to the recorded start and take the recorded actions: it has to go through the same states."""
    env = gym.make("CartPole-v1").unwrapped
    for episode in recorded(CARTPOLE, episodes=5, num_envs=5):
        env.reset()
        env.state = episode.observations[0].astype(np.float64)
        for t, action in enumerate(episode.actions):
            observation, _, terminated, _, _ = env.step(int(action))
            np.testing.assert_allclose(observation, episode.observations[t + 1], rtol=1e-4, atol=1e-5)
            assert terminated == (episode.terminated and t == len(episode) - 1)


def test_short_episodes_are_not_preferred() -> None:
    """With far more copies than needed at a time, the lengths still have the distribution of episodes played one by one."""
    together = np.array([len(e) for e in recorded(CARTPOLE, episodes=400, num_envs=200)])
    alone = np.array([len(e) for e in recorded(CARTPOLE, episodes=400, num_envs=1, seed=1)])
    standard_error = np.sqrt(together.var() / len(together) + alone.var() / len(alone))
    assert abs(together.mean() - alone.mean()) < 4 * standard_error


def test_same_seed_same_episodes_another_seed_others() -> None:
    first, again, other = (recorded(CARTPOLE, episodes=6, num_envs=3, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert not {e.observations.tobytes() for e in first} & {e.observations.tobytes() for e in other}
    assert not {e.eps_id for e in first} & {e.eps_id for e in other}


def test_recorded_probabilities_are_those_of_the_policy() -> None:
    policy = Policy(*spaces_of(CARTPOLE))
    for episode in recorded(CARTPOLE, episodes=3, num_envs=3):
        inputs = policy(torch.from_numpy(episode.observations[:-1].copy()))
        expected = policy.head.log_prob(inputs, torch.from_numpy(episode.actions.copy())).detach().numpy()
        np.testing.assert_allclose(episode.extras["action_logp"], expected, rtol=1e-5)
        np.testing.assert_allclose(episode.extras["action_dist_inputs"], inputs.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_continuous_actions_are_recorded_as_the_environment_got_them() -> None:
    pendulum = EnvironmentSpec(id="Pendulum-v1")
    for episode in recorded(pendulum, episodes=3, num_envs=2):
        assert episode.action_space is not None
        assert all(action in episode.action_space for action in episode.actions)
        assert episode.truncated and not episode.terminated and len(episode) == 200


def test_work_is_shared_out_evenly_before_anything_is_played() -> None:
    work = assignments(rounds=3, episodes=10, num_recorders=4)
    assert [a.episodes for a in work] == [3, 3, 2, 2] * 3
    assert {(a.round, a.recorder) for a in work} == {(r, k) for r in range(3) for k in range(4)}
    assert [a.recorder for a in assignments(rounds=1, episodes=2, num_recorders=5)] == [0, 1]
