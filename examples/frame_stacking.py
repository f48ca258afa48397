"""A connector that changes what is observed: the last few observations at once, and the environment to match.

    offline train runs/recording runs/policy \\
        -s 'data.connectors=[{path: examples.frame_stacking:StackFrames, arguments: {frames: 4}}]' \\
        -s evaluation.environment.id=examples.frame_stacking:StackedCartPole-v1

`network.frames` does the same with less memory, for a policy that keeps the last observations itself; this is how to
change observations in a way of your own.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation

from offline_core.prelearner.layout import STARTS, Columns


class StackFrames:
    """Observations (R, …) → (R, frames, …), the oldest first; before an episode's first one stands the first one."""

    def __init__(self, frames: int = 4) -> None:
        self.frames = frames

    def spaces(self, observation_space: gym.spaces.Box, action_space: gym.Space) -> tuple[gym.Space, gym.Space]:
        low, high = (np.repeat(bound[None], self.frames, axis=0) for bound in (observation_space.low, observation_space.high))
        return gym.spaces.Box(low, high, dtype=low.dtype.type), action_space

    def __call__(self, steps: Columns) -> Columns:
        rows = np.arange(len(steps[STARTS]))
        first = np.maximum.accumulate(np.where(steps[STARTS], rows, 0))
        seen = np.maximum(rows[:, None] + np.arange(1 - self.frames, 1), first[:, None])
        return steps | {"obs": steps["obs"][seen]}


def stacked_cartpole(frames: int = 4, **arguments: Any) -> gym.Env:
    """CartPole whose observations are stacked in the same way."""
    return FrameStackObservation(gym.make("CartPole-v1", **arguments), frames)


gym.register("StackedCartPole-v1", stacked_cartpole, reward_threshold=475.0)
