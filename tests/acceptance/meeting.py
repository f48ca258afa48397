"""An environment that two have to play at the same time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from tests.waiting import PATIENCE_SECONDS


class Meeting(gym.Env):
    """Its first episode begins when another process plays it, too; the others, at once. Episodes have three steps."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, place: str) -> None:
        self.place = Path(place)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        (self.place / str(os.getpid())).touch()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(list(self.place.iterdir())) < 2:
            if time.monotonic() > deadline:
                raise TimeoutError("nobody else plays")
            time.sleep(0.01)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), 1.0, self.steps == 3, False, {}


gym.register("Meeting-v0", Meeting)
