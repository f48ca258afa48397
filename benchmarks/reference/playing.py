"""The one way in which policies of every side are played."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import numpy as np


def returns(environment: str, act: Callable[[np.ndarray], np.ndarray], episodes: int) -> list[float]:
    """Undiscounted returns of episodes that start with the seeds 10,000, 10,001, …

    Arguments:
        act: (1, …) observations → (1, …) actions.
    """
    env = gym.make(environment)
    totals = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=10_000 + episode)
        total, over = 0.0, False
        while not over:
            action = act(np.asarray(observation)[None])[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
    return totals
