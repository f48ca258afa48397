"""Rewards of a size that learning rates fit, whatever the environment's are."""

from __future__ import annotations

import torch
from torch import Tensor

CLIP = 10.0
"""Largest size of a scaled reward."""


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted returns so far.

    As gymnasium's NormalizeReward and Stable-Baselines3 (Engstrom et al. 2020, "Implementation Matters in Deep Policy
    Gradients"), but a rollout at a time: its returns count before its rewards are divided. Then they are clipped.
    They are for learning alone: what is recorded has the environment's rewards.

    Arguments:
        num_envs: copies of the environment.
        gamma: of the returns.
    """

    def __init__(self, num_envs: int, *, gamma: float) -> None:
        self._gamma = gamma
        self.returns = torch.zeros(num_envs, dtype=torch.float64)
        """(N,), of the open episode of each copy so far."""
        self.count, self.mean, self.variance = 0, 0.0, 1.0
        """Of all returns, one a step."""

    def scaled(self, rewards: Tensor, *, ends: Tensor, is_step: Tensor) -> Tensor:
        """Return rewards (T, N) scaled, once their returns are counted.

        Arguments:
            ends: (T, N) bool, the step is the last of its episode.
            is_step: (T, N) bool; others only reset a copy, for a reward of 0.
        """
        returns = torch.empty(rewards.shape, dtype=torch.float64)
        for t, now in enumerate(rewards):
            returns[t] = self.returns.mul_(self._gamma).add_(now)
            self.returns.masked_fill_(ends[t], 0.0)
        self._count(returns[is_step])
        scaled: Tensor = rewards / (self.variance + 1e-8) ** 0.5
        return scaled.clamp(-CLIP, CLIP)

    def _count(self, values: Tensor) -> None:
        """Chan et al. 1979."""
        variance, mean = (float(moment) for moment in torch.var_mean(values, correction=0))
        total, delta = self.count + len(values), mean - self.mean
        squares = self.variance * self.count + variance * len(values) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count, self.variance = total, squares / total

    def state(self) -> Tensor:
        """Return the counts (3,) float64, without the open episodes."""
        return torch.tensor([self.count, self.mean, self.variance], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Go on from what `state` returned, with new episodes."""
        count, self.mean, self.variance = state.tolist()
        self.count = int(count)
        self.returns.zero_()
