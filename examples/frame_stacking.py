"""Change observations with a connector: the last few at once, and the environment to match.

    offline train runs/recording runs/policy \\
        -s 'data.connectors=[{path: examples.frame_stacking:StackFrames, arguments: {frames: 4}}]' \\
        -s evaluation.environment.id=examples.frame_stacking:StackedCartPole-v1

`network.frames` does the same with less memory: the policy itself keeps the last observations. Use a connector for changes that
no parameter offers.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FrameStackObservation

import offline_core as offline


class StackFrames:
    """Observations (R, …) → (R, frames, …), the oldest first; the first one of an episode is repeated before it."""

    def __init__(self, frames: int = 4) -> None:
        self.frames = frames

    def spaces(self, observation_space: gym.spaces.Box, action_space: gym.Space) -> tuple[gym.Space, gym.Space]:
        low, high = (np.repeat(bound[None], self.frames, axis=0) for bound in (observation_space.low, observation_space.high))
        return gym.spaces.Box(low, high, dtype=low.dtype.type), action_space

    def __call__(self, steps: offline.EpisodeBatch) -> offline.EpisodeBatch:
        seen = np.arange(steps.rows)[:, None] + np.arange(1 - self.frames, 1)
        seen = np.maximum(seen, steps.first[:, None])
        return steps | {"obs": steps["obs"][seen]}


def stacked_cartpole(frames: int = 4, **arguments: Any) -> gym.Env:
    """CartPole with observations that are stacked in the same way."""
    return FrameStackObservation(gym.make("CartPole-v1", **arguments), frames)


gym.register("StackedCartPole-v1", stacked_cartpole, reward_threshold=475.0)
