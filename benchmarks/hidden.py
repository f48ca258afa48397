"""CartPole whose velocities are not seen: what to do depends on the past."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


def make(**kwargs: object) -> gym.Env:
    space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return gym.wrappers.TransformObservation(CartPoleEnv(**kwargs), lambda observation: observation[[0, 2]], space)


gym.register("HiddenCartPole-v1", entry_point=make, max_episode_steps=500, reward_threshold=475.0)
