"""Cutting chunks of a vector environment into episodes, against single environments stepped one by one."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from offline_core.environments import info_of
from offline_core.episodes import Episode
from offline_core.recording.cutter import Chunk, EpisodeCutter


class Countdown(gym.Env):
    """Counts its own steps; episode k of copy j has a length that everybody can work out; ends by turns in both ways."""

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


def play(num_envs: int, quota: list[int], *, steps: int, chunk: int) -> list[Episode]:
    """Steps a vector environment and cuts it, `chunk` steps at a time."""
    env = SyncVectorEnv([lambda copy=copy: Countdown(copy) for copy in range(num_envs)], autoreset_mode=AutoresetMode.NEXT_STEP)
    cutter = EpisodeCutter(
        np.array(quota), eps_id=lambda copy, k: f"{copy}-{k}", spaces=(Countdown.observation_space, Countdown.action_space)
    )
    observation, info = env.reset()
    episodes: list[Episode] = []
    for start in range(0, steps, chunk):
        seen, infos, rows = [observation], [info], []
        for t in range(start, min(start + chunk, steps)):
            actions = np.array([(t + copy) % 5 for copy in range(num_envs)])
            observation, rewards, terminated, truncated, info = env.step(actions)
            rows.append((actions, rewards, terminated, truncated))
            seen.append(observation)
            infos.append(info)
        actions, rewards, terminated, truncated = (np.stack(parts) for parts in zip(*rows, strict=True))
        extras = {"twice": 2 * actions}
        episodes += cutter.cut(Chunk(np.stack(seen), actions, rewards, terminated, truncated, extras, infos))
    env.close()
    return episodes


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1000])
def test_every_episode_is_whole_and_its_own(chunk: int) -> None:
    episodes = play(4, [3, 3, 2, 2], steps=70, chunk=chunk)
    assert sorted(e.eps_id for e in episodes) == sorted(f"{c}-{k}" for c, n in enumerate([3, 3, 2, 2]) for k in range(n))
    for episode in episodes:
        copy, k = map(int, episode.eps_id.split("-"))
        expected = Countdown(copy)
        expected.episode = k
        assert len(episode) == expected.length()
        steps = np.arange(len(episode) + 1)
        np.testing.assert_array_equal(
            episode.observations, np.stack([np.full(len(steps), copy), np.full(len(steps), k), steps], axis=1)
        )
        np.testing.assert_array_equal(episode.rewards, 10.0 * copy + steps[1:])
        assert (episode.terminated, episode.truncated) == (k % 2 == 0, k % 2 == 1)
        assert episode.t_started == 0
        np.testing.assert_array_equal(episode.extras["twice"], 2 * episode.actions)
        assert episode.get_infos(0) == {"fresh": True, "episode": k}
        assert [info["action"] for info in episode.get_infos(slice(1, None))] == episode.actions.tolist()
        episode.validate()


def test_what_is_cut_does_not_depend_on_the_size_of_the_chunks() -> None:
    def by_id(episodes: list[Episode]) -> list[Episode]:
        return sorted(episodes, key=lambda episode: episode.eps_id)

    assert by_id(play(5, [4] * 5, steps=90, chunk=3)) == by_id(play(5, [4] * 5, steps=90, chunk=90))


def test_episodes_beyond_the_quota_are_not_counted() -> None:
    episodes = play(3, [1, 0, 2], steps=200, chunk=16)
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
