"""Parameters of conservative Q-learning (Kumar et al. 2020): for Discrete actions, for continuous ones, and for either."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig
from offline_core.learning.algorithms.dqn_config import DQNConfig
from offline_core.learning.algorithms.sac_config import SACConfig

Alpha = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        description="Weight of the conservative penalty; 0 is plain Q-learning. For continuous actions it is added to δ², as "
        "in RLlib, and for Discrete ones to Huber's δ²/2, where the same alpha weighs twice as much.",
    ),
]


class DiscreteCQLConfig(DQNConfig):
    """Q-learning that keeps actions outside the data below those in it (Kumar et al. 2020)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.discrete_cql:DiscreteCQL"

    n_step: int = Field(1, ge=1, le=1_000, description="Rewards that are summed before the targets estimate the rest.")
    alpha: Alpha = 1.0


class ContinuousCQLConfig(SACConfig):
    """An actor and critics that keep actions outside the data below those in it (Kumar et al. 2020)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.continuous_cql:ContinuousCQL"

    entropy_backup: bool = Field(
        False,
        description="Continuous actions only: next values include the policy's entropy, as those of SAC do.",
    )
    alpha: Alpha = 1.0
    action_samples: int = Field(
        10,
        ge=1,
        le=1_000,
        description="Continuous actions only: actions of each kind that the penalty is estimated from.",
    )
    lagrange_threshold: float | None = Field(
        None,
        description="Continuous actions only: scale the penalty so that it is this large on average. None: do not.",
    )


class CalQLConfig(ContinuousCQLConfig):
    """CQL whose sampled actions are worth the recorded return at least, to go on by play (Nakamoto et al. 2023)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.cal_ql:CalQL"


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
