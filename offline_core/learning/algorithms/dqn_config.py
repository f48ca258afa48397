"""Parameters of deep Q-learning."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig, Gamma


class DQNConfig(AlgorithmConfig):
    """Q-learning from saved experience (Mnih et al. 2015)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.dqn:DQN"

    gamma: Gamma = 0.99
    n_step: int = Field(3, ge=1, le=1_000, description="Rewards that are summed before the target network estimates the rest.")
    double: bool = Field(True, description="The learned network chooses the next action, the target network values it.")
    dueling: bool = Field(True, description="Q is the sum of a value and the actions' advantages.")
    target_network_interval_updates: int = Field(
        500, ge=1, le=10**9, description="Updates after which the target network is replaced."
    )
