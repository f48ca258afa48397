"""ReBRAC (Tarasov et al. 2023, "Revisiting the Minimalist Approach to Offline Reinforcement Learning", arXiv 2305.09836)."""

from __future__ import annotations

import torch
from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.algorithms.td3_config import ReBRACConfig
from offline_core.learning.returns import HAS_NEW_ACTIONS, NEW_ACTIONS, steps_left
from offline_core.learning.steps import Batch, BatchSpec, Steps


class ReBRAC(TD3):
    """TD3 with squared distances to the recorded actions in the policy's loss, and in the critics' targets to the next one.

    The policy climbs the smallest critic.
    """

    batch_columns = (*TD3.batch_columns, NEW_ACTIONS, HAS_NEW_ACTIONS)
    config_class = ReBRACConfig
    config: ReBRACConfig

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        super().prepare(steps, spec)
        assert steps.ahead is not None
        rows = torch.arange(len(steps.ahead), device=steps.ahead.device) + steps.ahead
        steps.columns[NEW_ACTIONS] = steps.columns[columns.ACTIONS][rows]
        steps.columns[HAS_NEW_ACTIONS] = steps_left(steps) > steps.ahead

    def following(self, values: Tensor, new_actions: Tensor, batch: Batch) -> Tensor:
        distance = self.head.scaled(new_actions) - self.head.scaled(batch[NEW_ACTIONS])
        penalty = distance.square().sum(dim=1).where(batch[HAS_NEW_ACTIONS], 0.0)
        return values - self.config.critic_penalty * penalty

    def policy_loss(self, q: Tensor, actions: Tensor, batch: Batch) -> Tensor:
        distance = self.head.scaled(actions) - self.head.scaled(batch[columns.ACTIONS])
        values = q.min(dim=0).values
        if self.config.normalize_values:
            values = values / self.mean_of_all(values.detach().abs()).clamp(min=1e-8)
        return self.config.policy_penalty * distance.square().sum(dim=1) - values
