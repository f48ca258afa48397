"""Behaviour cloning (Pomerleau 1989): the recorded actions are the truth."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from offline_core.config import Config
from offline_core.episodes import columns
from offline_core.learning.algorithms.algorithm import Algorithm, Terms
from offline_core.learning.steps import Batch
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy


class BC(Algorithm):
    """Maximises the likelihood of the actions."""

    loss_compares = True

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig = NetworkConfig(),
        config: Config = Config(),
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, network, config, seed=seed)
        self.policy = Policy(observation_space, action_space, network, seed=seed)

    def forward(self, batch: Batch) -> Terms:
        inputs = self.policy(batch[columns.OBS]).float()
        loss = -self.policy.head.log_prob(inputs, batch[columns.ACTIONS])
        return Terms(loss, {"entropy": self.policy.head.entropy(inputs).detach()})
