"""Cal-QL (Nakamoto et al. 2023, "Cal-QL: Calibrated Offline RL Pre-Training for Efficient Online Fine-Tuning")."""

from __future__ import annotations

import torch
from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.continuous_cql import ContinuousCQL
from offline_core.learning.algorithms.cql_config import CalQLConfig
from offline_core.learning.returns import RETURNS_TO_GO, discounted_sums, steps_left
from offline_core.learning.steps import Batch, BatchSpec, Steps


class CalQL(ContinuousCQL):
    """CQL that does not push the values of the policy's actions below the return of the behaviour from the same step.

    So values are on the scale of returns when the policy goes on by play. Actions drawn uniformly are pushed as in CQL.
    """

    batch_columns = (*ContinuousCQL.batch_columns, RETURNS_TO_GO)
    config_class = CalQLConfig
    config: CalQLConfig

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        super().prepare(steps, spec)
        steps.columns[RETURNS_TO_GO] = discounted_sums(
            steps.columns[columns.REWARDS], steps_left(steps), self.config.gamma
        ).float()

    def calibrated(self, q: Tensor, batch: Batch) -> Tensor:
        returns = batch[RETURNS_TO_GO]
        uniform = self.config.action_samples * len(returns)
        return torch.cat([q[:, :uniform], q[:, uniform:].maximum(returns.repeat(2 * self.config.action_samples))], dim=1)
