"""An algorithm of one's own: cloning that counts each step by a column `weights`, which the data or a connector brings.

    offline train runs/weighted runs/policy \\
        -s 'algorithm={path: examples.loss:WeightedCloning, arguments: {floor: 0.1}}'

examples/marwil_sequence.py has connectors that make such a column.
"""

from typing import Any

import gymnasium as gym
from pydantic import Field

from offline_core.config import Config
from offline_core.learning.algorithms.algorithm import Algorithm, Terms
from offline_core.learning.steps import Batch
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

WEIGHTS = "weights"


class WeightedCloningConfig(Config):
    """What can be set with `arguments`."""

    floor: float = Field(0.0, ge=0, description="No step counts less than this.")


class WeightedCloning(Algorithm):
    """Maximises the likelihood of the actions, each times its weight."""

    stored = batch_columns = ("obs", "actions", WEIGHTS)
    loss_compares = True  # the weights are those of the data
    config_class = WeightedCloningConfig

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig,
        config: WeightedCloningConfig,
        *,
        seed: int,
    ) -> None:
        super().__init__(observation_space, action_space, network, config, seed=seed)
        self.floor = config.floor
        self.policy = Policy(observation_space, action_space, network, seed=seed)

    def forward(self, batch: Batch) -> Terms:
        inputs = self.policy(batch["obs"]).float()
        weights = batch[WEIGHTS].clamp(min=self.floor)
        loss = -weights * self.policy.head.log_prob(inputs, batch["actions"])
        return Terms(loss, {"weight": weights})
