"""TD3+BC (Fujimoto & Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning", arXiv 2106.06860)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.td3 import TD3, differences

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch


class TD3BC(TD3):
    """TD3 that is pulled towards the recorded actions (Fujimoto & Gu 2021, arXiv 2106.06860)."""

    alpha: float = Field(2.5, ge=0, le=1e6, description="Weight of the values against the recorded actions; 0 clones.")

    def policy_loss(self, networks: Networks, q: Tensor, actions: Tensor, batch: Batch) -> Tensor:
        """The squared distance to the recorded action, beside the value divided by its mean size."""
        weight = self.alpha / networks.mean_of_all(q[0].detach().abs()).clamp(min=1e-8)
        return differences(networks, actions, batch[columns.ACTIONS]).square().mean(dim=1) - weight * q[0]
