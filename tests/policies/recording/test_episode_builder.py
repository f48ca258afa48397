"""Episodes built from the steps of a vector environment are those of single environments."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from offline_core.data.environments.vector_env import info_of
from offline_core.data.episodes import Episode
from offline_core.policies.policy import Actions, PolicyState
from offline_core.policies.recording.episode_builder import EpisodeBuilder
from offline_core.policies.rollouts import EnvironmentLoop


class Countdown(gym.Env):
    """Counts its own steps. The length of an episode follows from copy and episode; every second one is truncated."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Discrete(5)

    def __init__(self, copy: int) -> None:
        self.copy, self.episode, self.step_number = copy, -1, 0

    def length(self) -> int:
        return 1 + (3 * self.copy + 5 * self.episode) % 11

    def reset(self, *, seed=None, options=None):
        self.episode, self.step_number = self.episode + 1, 0
        return self._observation(), {"fresh": True, "episode": self.episode}

    def step(self, action):
        self.step_number += 1
        ended = self.step_number == self.length()
        terminated = ended and self.episode % 2 == 0
        return (
            self._observation(),
            10.0 * self.copy + self.step_number,
            terminated,
            ended and not terminated,
            {"action": int(action)},
        )

    def _observation(self) -> np.ndarray:
        return np.array([self.copy, self.episode, self.step_number], np.float64)


class InTurns:
    """A policy whose action is the number of its step and copy, modulo 5."""

    def __init__(self, num_envs: int) -> None:
        self.next = np.arange(num_envs)

    def initial_state(self, num_envs: int) -> PolicyState:
        return PolicyState(np.ones(num_envs, bool))

    def choose(self, observations: Any, state: PolicyState, **_: Any) -> Actions:
        actions, self.next = self.next % 5, self.next + 1
        return Actions(actions, {"twice": 2 * actions}, state)


def play(quota: list[int], *, steps: int) -> list[Episode]:
    """All episodes of the quota, built from so many steps at a time."""
    env = SyncVectorEnv([partial(Countdown, copy) for copy in range(len(quota))], autoreset_mode=AutoresetMode.NEXT_STEP)
    policy: Any = InTurns(len(quota))
    loop = EnvironmentLoop(env, policy, seed=0, explore=False, quota=np.array(quota), with_extras=True)
    spaces = (Countdown.observation_space, Countdown.action_space)
    builder = EpisodeBuilder(len(quota), eps_id=lambda copy, k: f"{copy}-{k}", spaces=spaces)
    episodes: list[Episode] = []
    while not loop.is_over:
        episodes += builder.build(loop.take(steps))
    env.close()
    return episodes


@pytest.mark.parametrize("steps", [1, 2, 7, 64, 1000])
def test_every_episode_is_whole_and_its_own(steps: int) -> None:
    episodes = play([3, 3, 2, 2], steps=steps)
    assert sorted(e.eps_id for e in episodes) == sorted(f"{c}-{k}" for c, n in enumerate([3, 3, 2, 2]) for k in range(n))
    for episode in episodes:
        copy, k = map(int, episode.eps_id.split("-"))
        expected = Countdown(copy)
        expected.episode = k
        assert len(episode) == expected.length()
        assert episode.observations.tolist() == [[copy, k, t] for t in range(len(episode) + 1)]
        assert episode.rewards.tolist() == [10.0 * copy + t + 1 for t in range(len(episode))]
        assert (episode.terminated, episode.truncated) == (k % 2 == 0, k % 2 == 1)
        assert episode.t_started == 0
        np.testing.assert_array_equal(episode.extras["twice"], 2 * episode.actions)
        assert episode.get_infos(0) == {"fresh": True, "episode": k}
        assert [info["action"] for info in episode.get_infos(slice(1, None))] == episode.actions.tolist()
        episode.validate()


def test_episodes_do_not_depend_on_the_steps_taken_at_a_time() -> None:
    def by_id(episodes: list[Episode]) -> list[Episode]:
        return sorted(episodes, key=lambda episode: episode.eps_id)

    assert by_id(play([4] * 5, steps=3)) == by_id(play([4] * 5, steps=90))


def test_episodes_beyond_the_quota_are_not_counted() -> None:
    episodes = play([1, 0, 2], steps=16)
    assert sorted(e.eps_id for e in episodes) == ["0-0", "2-0", "2-1"]


def test_infos_are_those_of_the_copy_alone() -> None:
    info = {
        "lives": np.array([3, 0]),
        "_lives": np.array([True, False]),
        "nested": {"x": np.array([1.5, 2.5]), "_x": np.array([True, True])},
        "_nested": np.array([True, True]),
    }
    assert info_of(info, 0) == {"lives": 3, "nested": {"x": 1.5}}
    assert info_of(info, 1) == {"nested": {"x": 2.5}}
