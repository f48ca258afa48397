"""Parameters of conservative Q-learning for continuous actions."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig, Gamma
from offline_core.learning.algorithms.discrete_cql_config import Alpha, NStep


class ContinuousCQLConfig(AlgorithmConfig):
    """An actor and two critics that keep actions outside the data below those in it (Kumar et al. 2020)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.continuous_cql:ContinuousCQL"

    gamma: Gamma = 0.99
    n_step: NStep = 1
    alpha: Alpha = 1.0
    action_samples: int = Field(
        10,
        ge=1,
        le=1_000,
        title="Action samples",
        description="Continuous actions only: actions of each kind that the penalty is estimated from.",
    )
    target_rate: float = Field(
        0.005,
        gt=0,
        le=1,
        title="Target rate",
        description="Continuous actions only: share of the way that an update moves the target critics to the learned ones.",
    )
