"""Behaviour cloning (Pomerleau 1989): the recorded actions are the truth."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.bc_config import BCConfig
from offline_core.learning.steps import Batch
from offline_core.policies.config import NetworkConfig
from offline_core.policies.gaussian import BoxHead, GaussianHead
from offline_core.policies.squashed import SquashedGaussianHead


class BC(Algorithm):
    """Maximises the likelihood of the actions, or minimises the squared error of the mean action."""

    loss_compares = True
    config_class = BCConfig
    config: BCConfig

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        super().build(observation_space, action_space, network, seed)
        if self.config.squared_error and not isinstance(self.policy.head, BoxHead):
            raise ConfigError(f"bc.squared_error needs Box actions, found {action_space}: leave it out.")

    def forward(self, batch: Batch) -> LossOutput:
        if self.config.squared_error:
            head = cast(GaussianHead | SquashedGaussianHead, self.policy.head)
            mean = head.unit_mean(self.policy.features(batch[columns.OBS])).float()
            return LossOutput((mean - head.scaled(batch[columns.ACTIONS])).square().mean(dim=1), {})
        inputs = self.policy(batch[columns.OBS]).float()
        loss = -self.policy.head.log_prob(inputs, batch[columns.ACTIONS])
        return LossOutput(loss, {"entropy": self.policy.head.entropy(inputs).detach()})
