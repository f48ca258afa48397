"""Rewards on a scale of their own, for learning alone: what is recorded keeps the environment's."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from offline_core.learning.experts.rollout import Rollout

CLIP = 10.0
"""Largest size of a scaled reward."""
_PREFIX = "rewards."


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted returns so far.

    As gymnasium's NormalizeReward and Stable-Baselines3 (Engstrom et al. 2020, "Implementation Matters in Deep Policy
    Gradients"), but a rollout at a time: its returns count before its rewards are divided. Then they are clipped.

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

    def scaled(self, rollout: Rollout) -> Rollout:
        """Return the same steps with scaled rewards, once they are counted."""
        ends = rollout.terminated | rollout.truncated
        returns = torch.empty(rollout.rewards.shape, dtype=torch.float64)
        for t, rewards in enumerate(rollout.rewards):
            returns[t] = self.returns.mul_(self._gamma).add_(rewards)
            self.returns.masked_fill_(ends[t], 0.0)
        self._count(returns[rollout.is_step])
        scaled = rollout.rewards / (self.variance + 1e-8) ** 0.5
        return replace(rollout, rewards=scaled.clamp(-CLIP, CLIP))

    def _count(self, values: Tensor) -> None:
        """Chan et al. 1979."""
        variance, mean = (float(moment) for moment in torch.var_mean(values, correction=0))
        total, delta = self.count + len(values), mean - self.mean
        squares = self.variance * self.count + variance * len(values) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count, self.variance = total, squares / total

    def state(self) -> dict[str, Tensor]:
        """Return the counts, without the open episodes."""
        return {f"{_PREFIX}moments": torch.tensor([self.count, self.mean, self.variance], dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` returned, with new episodes."""
        count, self.mean, self.variance = state[f"{_PREFIX}moments"].tolist()
        self.count = int(count)
        self.returns.zero_()
