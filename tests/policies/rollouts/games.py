"""Games that say which actions are allowed, and raise at any other: importing this module registers them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

ACTIONS, STATES = 4, 6


class Strict(gym.Env[Any, Any]):
    """A random state and a random mask each step; one of the allowed actions, the state's, earns 1.

    Episodes take 1 to 9 steps; a terminal state allows nothing, and a truncated one something.

    Arguments:
        inside: the mask is in the observation, not in the info.
        says: the info has a mask at all.
        bits: what stands for allowed.
        start: the first action.
    """

    def __init__(self, *, inside: bool = False, says: bool = True, start: int = 0, bits: int = 1) -> None:
        self.inside, self.says, self.start, self.bits = inside, says, start, bits
        self.action_space = spaces.Discrete(ACTIONS, start=start)
        own: gym.Space[Any] = spaces.Discrete(STATES)
        mask = spaces.Box(0, 1, (ACTIONS,), np.int8)
        self.observation_space = spaces.Dict({"observations": own, "action_mask": mask}) if inside else own

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 10))
        return self._drawn(over=False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = int(action) - self.start
        if not self.mask[chosen]:
            raise AssertionError(f"action {chosen} is illegal: {self.mask}")
        reward = float(chosen == self.state % ACTIONS or not self.mask[self.state % ACTIONS])
        self.left -= 1
        terminated = self.left == 0 and self.state % 2 == 0
        truncated = self.left == 0 and not terminated
        return *self._drawn(over=terminated)[:1], reward, terminated, truncated, self._info()

    def _drawn(self, *, over: bool) -> tuple[Any, dict[str, Any]]:
        self.state = int(self.np_random.integers(STATES))
        self.mask = (self.np_random.random(ACTIONS) < 0.4).astype(np.int8) * self.bits
        self.mask[self.np_random.integers(ACTIONS)] = self.bits
        if over:
            self.mask[:] = 0
        return ({"observations": self.state, "action_mask": self.mask.copy()} if self.inside else self.state), self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.mask.copy()} if self.says and not self.inside else {}


for name, given in {"": {}, "Inside": {"inside": True}, "Silent": {"says": False}, "Twos": {"bits": 2}}.items():
    gym.register(f"Strict{name}-v0", entry_point=Strict, kwargs=given)
