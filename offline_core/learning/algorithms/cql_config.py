"""Parameters of conservative Q-learning (Kumar et al. 2020): for Discrete actions, for continuous ones, and for either."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig, Gamma
from offline_core.learning.algorithms.dqn_config import DQNConfig

Alpha = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        title="Alpha",
        description="Weight of the conservative penalty; 0 is plain Q-learning. For continuous actions it is added to δ², as "
        "in RLlib, and for Discrete ones to Huber's δ²/2, where the same alpha weighs twice as much.",
    ),
]
NStep = Annotated[
    int,
    Field(
        ge=1,
        le=1_000,
        title="Steps",
        description="Rewards that are summed before the target networks estimate the rest: 1 in the paper and in RLlib. With "
        "more, actions are valued by what the behaviour policy did after them.",
    ),
]


class DiscreteCQLConfig(DQNConfig):
    """Q-learning that keeps actions outside the data below those in it (Kumar et al. 2020)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.discrete_cql:DiscreteCQL"

    n_step: NStep = 1
    alpha: Alpha = 1.0


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


class CQLConfig(DiscreteCQLConfig, ContinuousCQLConfig):
    """Q-learning that keeps actions outside the data below those in it (Kumar et al. 2020).

    Double, dueling and the target interval are for Discrete actions only.
    """

    def for_actions(self, space: gym.Space[Any]) -> AlgorithmConfig:
        kind = ContinuousCQLConfig if isinstance(space, gym.spaces.Box) else DiscreteCQLConfig
        fields = type(self).model_fields
        used = {name: getattr(self, name) for name in fields if name in kind.model_fields}
        changed = [f"cql.{name}" for name in fields if name not in used and getattr(self, name) != fields[name].default]
        if changed:
            raise ConfigError(f"With actions in {space}, {' and '.join(changed)} would change nothing: leave that out.")
        return kind(**used)
