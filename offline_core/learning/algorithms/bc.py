"""Behaviour cloning (Pomerleau 1989): the recorded actions are the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.policies.config import NetworkConfig

if TYPE_CHECKING:
    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch


class BC(Algorithm):
    """The recorded actions are the truth (Pomerleau 1989)."""

    squared_error: bool = Field(
        False,
        description="Box actions only: learn the mean action by its squared error, in halves of the range, and no "
        "distribution. Otherwise the likelihood of the actions is maximised.",
    )

    loss_compares: ClassVar[bool] = True

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        super().build(networks, spaces, network, seed)
        if self.squared_error and not isinstance(spaces[1], gym.spaces.Box):
            raise ConfigError(f"bc.squared_error needs Box actions, found {spaces[1]}: leave it out.")

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        policy, actions = networks.policy, batch[columns.ACTIONS]
        if self.squared_error:
            head: Any = policy.head
            mean = head.unit_mean(policy.features(batch[columns.OBS])).float()
            return LossOutput((mean - head.scaled(actions)).square().mean(dim=1), {})
        inputs = policy(batch[columns.OBS]).float()
        return LossOutput(-policy.head.log_prob(inputs, actions), {"entropy": policy.head.entropy(inputs)})
