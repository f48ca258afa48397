"""The name `cql`: conservative Q-learning for the actions of the dataset, discrete or continuous."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig
from offline_core.learning.algorithms.continuous_cql_config import ContinuousCQLConfig
from offline_core.learning.algorithms.discrete_cql_config import DiscreteCQLConfig


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
