"""TD3+BC (Fujimoto & Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning", arXiv 2106.06860)."""

from __future__ import annotations

from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.algorithms.td3_config import TD3BCConfig
from offline_core.learning.steps import Batch


class TD3BC(TD3):
    """TD3 whose policy loses the squared distance to the recorded action, beside the value divided by its mean size."""

    config_class = TD3BCConfig
    config: TD3BCConfig

    def policy_loss(self, q: Tensor, actions: Tensor, batch: Batch) -> Tensor:
        distance = self.head.scaled(actions) - self.head.scaled(batch[columns.ACTIONS])
        weight = self.config.alpha / self.mean_of_all(q[0].detach().abs()).clamp(min=1e-8)
        return distance.square().mean(dim=1) - weight * q[0]
