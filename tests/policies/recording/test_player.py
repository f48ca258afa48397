"""Playing the episodes of one task."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import Episode, EpisodeBatch, columns
from offline_core.learning.steps import MASK, BatchSpec, Steps
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.policies.recording import player
from offline_core.policies.recording.player import EpisodesToPlay, episodes_to_play, play
from offline_core.runtime.config import EnvironmentSpec

CARTPOLE = EnvironmentSpec(id="CartPole-v1")


def recorded(
    environment: EnvironmentSpec,
    *,
    episodes: int,
    num_envs: int,
    seed: int = 0,
    explore: bool = True,
    policy: Policy | None = None,
) -> list[Episode]:
    policy = policy or Policy(*spaces_of(environment))
    chunks = play(
        policy, environment, EpisodesToPlay(0, 0, episodes), identity="p", num_envs=num_envs, seed=seed, explore=explore
    )
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


def policy_with(network: NetworkConfig) -> Policy:
    """One whose choice depends on what it sees and has seen."""
    policy = Policy(*spaces_of(CARTPOLE), network)
    with torch.no_grad():
        policy.head.logits.weight.mul_(300.0)  # type: ignore[attr-defined]
    return policy


def steps_of(episodes: list[Episode]) -> Steps:
    """All rows, the observation after the last step too."""
    return Steps.of(EpisodeBatch.of(episodes, [columns.OBS], has_last=True))


@pytest.mark.parametrize("steps_at_a_time", [7, 1024])
@pytest.mark.parametrize(
    "network",
    [NetworkConfig(frames=4), NetworkConfig(recurrent="lstm"), NetworkConfig(recurrent="gru")],
    ids=["frames", "lstm", "gru"],
)
def test_what_was_remembered_comes_back_from_the_recording(
    monkeypatch: pytest.MonkeyPatch, network: NetworkConfig, steps_at_a_time: int
) -> None:
    """Recorded are single raw observations; frames and sequences gathered from them say what the policy said."""
    monkeypatch.setattr(player, "MAX_STEPS", steps_at_a_time)
    policy = policy_with(network)
    episodes = recorded(CARTPOLE, episodes=7, num_envs=3, policy=policy)
    assert all(episode.observations.shape == (len(episode) + 1, 4) for episode in episodes)
    said = np.concatenate([episode.extras["action_dist_inputs"] for episode in episodes])
    steps = steps_of(episodes)
    longest = max(map(len, episodes))
    if network.frames > 1:
        reading = BatchSpec((columns.OBS,), frames=network.frames)
    else:
        reading = BatchSpec((columns.OBS,), sequence_steps=longest)
    batch = steps.batch(steps.indices(reading), reading)
    with torch.no_grad():
        again = policy(batch[columns.OBS])
    if MASK in batch:
        again = again[batch[MASK].flatten()]
    np.testing.assert_allclose(said, again.numpy(), atol=1e-5)
    assert np.abs(said).max() > 0.1, "the policy says nothing"


def test_actions_made_of_several_are_recorded_as_they_are_nested() -> None:
    gym.register("TwoHands-v0", entry_point=TwoHands)
    try:
        episodes = recorded(EnvironmentSpec(id="TwoHands-v0"), episodes=5, num_envs=2)
    finally:
        del gym.registry["TwoHands-v0"]
    for episode in episodes:
        episode.validate()
        assert len(episode) == 6
        for t in range(6):
            assert TwoHands.action_space.contains({key: part[t] for key, part in episode.actions.items()})
        earned = episode.actions["left"].sum(axis=1) + episode.actions["right"]
        np.testing.assert_allclose(episode.rewards, earned, rtol=1e-5)


class TwoHands(gym.Env[np.ndarray, Any]):
    """Six steps; earns what its hands do."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Dict(left=gym.spaces.Box(-2, 2, (3,)), right=gym.spaces.Discrete(4))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full(2, self.t / 9, np.float32), float(action["left"].sum() + action["right"]), self.t == 6, False, {}


def test_work_is_shared_out_evenly_before_anything_is_played() -> None:
    work = episodes_to_play(rounds=3, episodes=10, num_recorders=4)
    assert [a.episodes for a in work] == [3, 3, 2, 2] * 3
    assert {(a.round, a.recorder) for a in work} == {(r, k) for r in range(3) for k in range(4)}
    assert [a.recorder for a in episodes_to_play(rounds=1, episodes=2, num_recorders=5)] == [0, 1]
