"""An environment whose steps say which they are."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.runtime.config import EnvironmentSpec


class Clock(gym.Env):
    """Episode e has `lengths[e]` steps, over and over. It observes (e, t); step t is worth 10 · e + t.

    Even episodes are terminated at their end, odd ones truncated.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, lengths: tuple[int, ...] = (3, 2)) -> None:
        self.lengths = lengths
        self.episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = 10.0 * self.episode + self.time
        self.time += 1
        ends, even = self.time == self.lengths[self.episode % len(self.lengths)], self.episode % 2 == 0
        return self._observation(), reward, ends and even, ends and not even, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.episode, self.time], np.float64)


gym.register("OfflineTests/Clock-v0", Clock)
CLOCK = EnvironmentSpec(id=f"{__name__}:OfflineTests/Clock-v0")
