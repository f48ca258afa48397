"""Cal-QL (Nakamoto et al. 2023, "Cal-QL: Calibrated Offline RL Pre-Training for Efficient Online Fine-Tuning")."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.cql import ContinuousCQL
from offline_core.learning.returns import RETURNS_TO_GO, discounted_sums, steps_left
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps


class CalQL(ContinuousCQL):
    """CQL whose sampled actions are worth the recorded return at least, to go on by play (Nakamoto et al. 2023)."""

    batch_columns: ClassVar[tuple[str, ...]] = (*ContinuousCQL.batch_columns, RETURNS_TO_GO)

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        super().prepare(networks, steps, spec)
        rewards = steps.columns[columns.REWARDS]
        steps.columns[RETURNS_TO_GO] = discounted_sums(rewards, steps_left(steps), self.gamma).float()

    def calibrated(self, q: Tensor, batch: Batch) -> Tensor:
        """Do not push the values of the policy's actions below the return of the behaviour from the same step.

        So values are on the scale of returns when the policy goes on by play. Actions drawn uniformly are pushed as in CQL.
        """
        returns = batch[RETURNS_TO_GO]
        uniform = self.action_samples * len(returns)
        return torch.cat([q[:, :uniform], q[:, uniform:].maximum(returns.repeat(2 * self.action_samples))], dim=1)
