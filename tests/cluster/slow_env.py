"""An environment that takes its time, and leaves a file named after each process that plays it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


class Slow(gym.Env[np.ndarray, np.int64]):
    """Episodes of 20 steps of 2 ms; the first one begins when as many processes play as a file `together` says."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, notes: str) -> None:
        self.notes = Path(notes)
        together = self.notes.parent / "together"
        self.together = int(together.read_text()) if together.exists() else 1
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        (self.notes / str(os.getpid())).touch()
        while len([*self.notes.iterdir()]) < self.together:
            time.sleep(0.02)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.002)
        self.steps += 1
        observation = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return observation, float(action), False, self.steps == 20, {}


gym.register("OfflineCluster/Slow-v0", Slow)
