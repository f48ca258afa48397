"""ReBRAC (Tarasov et al. 2023, "Revisiting the Minimalist Approach to Offline Reinforcement Learning", arXiv 2305.09836)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.td3 import TD3, differences
from offline_core.learning.returns import HAS_NEW_ACTIONS, NEW_ACTIONS, steps_left
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps


class ReBRAC(TD3):
    """TD3 whose policy and critics are both penalised for leaving the recorded actions (Tarasov et al. 2023)."""

    policy_penalty: float = Field(0.01, ge=0, le=1e6, description="Weight of the policy's squared distance to the actions.")
    critic_penalty: float = Field(
        0.01,
        ge=0,
        le=1e6,
        description="Weight of the next action's squared distance to the recorded one, which lowers the targets.",
    )
    normalize_values: bool = Field(True, description="Divide the values that the policy climbs by their mean size.")

    climbed: ClassVar[int | None] = None
    batch_columns: ClassVar[tuple[str, ...]] = (*TD3.batch_columns, NEW_ACTIONS, HAS_NEW_ACTIONS)

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        super().prepare(networks, steps, spec)
        assert steps.ahead is not None
        rows = torch.arange(len(steps.ahead), device=steps.ahead.device) + steps.ahead
        steps.columns[NEW_ACTIONS] = steps.columns[columns.ACTIONS][rows]
        steps.columns[HAS_NEW_ACTIONS] = steps_left(steps) > steps.ahead

    def following(self, networks: Networks, values: Tensor, new_actions: Tensor, batch: Batch) -> Tensor:
        """The value less the squared distance to the recorded next action."""
        distance = differences(networks, new_actions, batch[NEW_ACTIONS]).square().sum(dim=1)
        return values - self.critic_penalty * distance.where(batch[HAS_NEW_ACTIONS], 0.0)

    def policy_loss(self, networks: Networks, q: Tensor, actions: Tensor, batch: Batch) -> Tensor:
        """The squared distance to the recorded action, beside the smallest critic's value."""
        distance = differences(networks, actions, batch[columns.ACTIONS]).square().sum(dim=1)
        values = q.min(dim=0).values
        if self.normalize_values:
            values = values / networks.mean_of_all(values.detach().abs()).clamp(min=1e-8)
        return self.policy_penalty * distance - values
