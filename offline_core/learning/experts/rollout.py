"""The steps of all copies of an environment between two updates of the policy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.policies.policy import as_tensors
from offline_core.policies.rollouts.loop import PlayedSteps


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of N copies, as tensors; no `EpisodeBatch`, for the same reasons as `PlayedSteps`."""

    observations: Nested
    """(T + 1, N, …): before each step, and after the last."""
    actions: Tensor
    """(T, N, *action shape)."""
    rewards: Tensor
    """(T, N), float32."""
    terminated: Tensor
    """(T, N), bool."""
    truncated: Tensor
    """(T, N), bool."""
    is_step: Tensor
    """(T, N), bool: False where a copy only resets; PPO does not learn from that."""

    @property
    def flat_observations(self) -> Nested:
        """((T + 1)·N, …)."""
        return nested.map_leaves(lambda leaf: leaf.flatten(0, 1), self.observations)

    @classmethod
    def of(cls, played: PlayedSteps) -> Rollout:
        """The steps of a loop."""
        return cls(
            as_tensors(played.observations),
            torch.from_numpy(played.actions),
            torch.from_numpy(played.rewards).float(),
            torch.from_numpy(played.terminated),
            torch.from_numpy(played.truncated),
            torch.from_numpy(played.counts),
        )
