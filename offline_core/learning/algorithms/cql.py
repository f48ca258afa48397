"""Conservative Q-learning (Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning"), CQL(H)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from torch import Tensor

from offline_core.learning.algorithms.config import FOR_CONTINUOUS_ACTIONS, CQLConfig, refuse_changed
from offline_core.learning.algorithms.dqn import DQN
from offline_core.policies.config import NetworkConfig


class CQL(DQN):
    """Deep Q-learning with the penalty α · (log Σ exp Q(s, ·) - Q(s, a)): actions that nobody took are not worth more.

    For actions from a list; `ContinuousCQL` is for the others.
    """

    config_class = CQLConfig

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig = NetworkConfig(),
        config: CQLConfig = CQLConfig(),
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, network, config, seed=seed)
        refuse_changed(FOR_CONTINUOUS_ACTIONS, config, action_space)
        self.alpha = config.alpha

    def penalty(self, all_q: Tensor, q: Tensor) -> Tensor:
        return self.alpha * (all_q.logsumexp(dim=1) - q)
