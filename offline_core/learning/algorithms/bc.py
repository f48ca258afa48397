"""Behaviour cloning (Pomerleau 1989): the recorded actions are the truth."""

from __future__ import annotations

from offline_core.episodes import columns
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.bc_config import BCConfig
from offline_core.learning.steps import Batch


class BC(Algorithm):
    """Maximises the likelihood of the actions."""

    loss_compares = True
    config_class = BCConfig

    def forward(self, batch: Batch) -> LossOutput:
        inputs = self.policy(batch[columns.OBS]).float()
        loss = -self.policy.head.log_prob(inputs, batch[columns.ACTIONS])
        return LossOutput(loss, {"entropy": self.policy.head.entropy(inputs).detach()})
