"""A building over days of 24 steps: nothing terminates, each step costs about 1, and its values are known."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from offline_core.data.episodes import Episode
from tests.judging.estimation.chains import episode_of

SPACES = spaces.Discrete(4), spaces.Discrete(2)
STEPS, GAMMA = 24, 0.99
START = np.array([0.4, 0.3, 0.2, 0.1])
MOVES = np.array(
    [
        [[0.7, 0.2, 0.1, 0], [0.3, 0.4, 0.2, 0.1]],
        [[0.3, 0.5, 0.2, 0], [0.1, 0.4, 0.3, 0.2]],
        [[0.1, 0.3, 0.5, 0.1], [0, 0.2, 0.5, 0.3]],
        [[0, 0.2, 0.4, 0.4], [0, 0.1, 0.2, 0.7]],
    ]
)
REWARDS = np.array([[-0.4, -1.0], [-0.7, -0.6], [-1.2, -0.8], [-1.6, -1.1]])
BEHAVIOUR = np.array([[0.5, 0.5], [0.6, 0.4], [0.5, 0.5], [0.4, 0.6]])
TARGET = np.array([[0.75, 0.25], [0.4, 0.6], [0.35, 0.65], [0.25, 0.75]])


def true_value(policy: np.ndarray, steps: int = STEPS, gamma: float = GAMMA) -> float:
    """Of the start, by backward recursion."""
    v = np.zeros(4)
    for _ in range(steps):
        v = (policy * (REWARDS + gamma * MOVES @ v)).sum(axis=1)
    return float(START @ v)


def logged(days: int, *, seed: int, steps: int = STEPS) -> list[Episode]:
    """Of the behaviour, each truncated after so many steps."""
    rng = np.random.default_rng(seed)
    states, actions = np.empty((days, steps + 1), np.int64), np.empty((days, steps), np.int64)
    states[:, 0] = rng.choice(4, size=days, p=START)
    for t in range(steps):
        actions[:, t] = rng.random(days) >= BEHAVIOUR[states[:, t], 0]
        to = MOVES[states[:, t], actions[:, t]].cumsum(axis=1)
        states[:, t + 1] = (rng.random(days)[:, None] >= to).sum(axis=1).clip(max=3)
    rewards = REWARDS[states[:, :-1], actions] + 0.1 * rng.normal(size=actions.shape)
    logp = np.log(BEHAVIOUR[states[:, :-1], actions]).astype(np.float32)
    return [
        episode_of(day, states[day], actions[day], rewards[day], logp=logp[day], terminated=False, of=SPACES)
        for day in range(days)
    ]
