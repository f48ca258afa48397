"""Random observations of a space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector.utils import batch_space


def observed(space: gym.Space[Any], *axes: int, seed: int = 0) -> Any:
    """Arrays (*axes, …), as vector environments give them."""
    for size in reversed(axes):
        space = batch_space(space, size)
    space.seed(seed)
    return space.sample()
