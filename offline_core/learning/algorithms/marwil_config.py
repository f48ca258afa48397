"""Parameters of MARWIL."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig, Gamma
from offline_core.learning.algorithms.bc_config import BCConfig


class MARWILConfig(AlgorithmConfig):
    """Cloning that weighs each step by its advantage (Wang et al. 2018)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.marwil:MARWIL"

    beta: float = Field(1.0, ge=0, le=100, description="How much better steps count more; 0 is behaviour cloning.")
    gamma: Gamma = 0.99
    gae_lambda: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Value targets: 1 trusts the rewards that came, 0 the value function one step on.",
    )
    value_coefficient: float = Field(1.0, gt=0, le=1e6, description="Weight of the value function's loss.")
    normalize_values: bool = Field(
        True,
        description="Divide the value function's loss by the variance of its targets in the data, of the first window when "
        "streaming: so it weighs the same against the policy's whatever the rewards are. False: RLlib's formula.",
    )
    max_weight: float = Field(20.0, gt=0, le=1e6, description="A step counts this much at most.")
    normalizer_rate: float = Field(
        0.01,
        gt=0,
        le=1,
        description="How far an update moves the mean squared advantage, which advantages are divided by the root of.",
    )
    normalizer_start: float | None = Field(
        None,
        gt=0,
        description="The mean squared advantage to begin with; None: that of the data, of 65,536 steps at most, and when "
        "streaming of the first window. RLlib's is 100, with a rate of 1e-8.",
    )

    def for_actions(self, space: gym.Space[Any]) -> AlgorithmConfig:
        """With β = 0, behaviour cloning: without a value function, whose gradients would use up the norm that is allowed."""
        return self if self.beta else BCConfig()
