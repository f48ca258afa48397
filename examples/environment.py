"""Define an environment: this module registers it, and each process that plays it imports the module.

    offline train-expert runs/corridor/expert --env examples.environment:Corridor-v0
    offline record runs/corridor/expert/best runs/corridor/recording -s episodes=50
    offline evaluate runs/corridor/expert/best -s environment.id=examples.environment:Corridor-v0 \\
        -s environment.kwargs.length=5
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Corridor(gym.Env[np.ndarray, np.int64]):
    """Walk to the door at the right end; each step that does not reach it costs 1. The observation is the share of the way."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, *, length: int = 10) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = int(self.np_random.integers(self.length))
        return self.observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position = max(0, self.position + (1 if action else -1))
        at_door = self.position == self.length
        return self.observation(), float(at_door) - 1.0, at_door, False, {"is_success": at_door}

    def observation(self) -> np.ndarray:
        return np.array([self.position / self.length], np.float32)


gym.register("Corridor-v0", f"{__name__}:Corridor", max_episode_steps=50, reward_threshold=-5.5)
