"""The algorithms by name."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from offline_core.config import Config, parse
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.config import MARWILConfig
from offline_core.learning.algorithms.continuous_cql import ContinuousCQL
from offline_core.learning.algorithms.cql import CQL
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.algorithms.iql import IQL
from offline_core.learning.algorithms.marwil import MARWIL
from offline_core.own_code import OwnCode, imported
from offline_core.own_errors import own_errors
from offline_core.policies.config import NetworkConfig
from offline_core.python_object import given

ALGORITHMS: dict[str, type[Algorithm]] = {"bc": BC, "marwil": MARWIL, "dqn": DQN, "iql": IQL, "cql": CQL}


def make_algorithm(
    name: str | OwnCode,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    network: NetworkConfig = NetworkConfig(),
    config: Config | None = None,
    *,
    seed: int = 0,
) -> Algorithm:
    """A new algorithm; with the defaults of its `config_class` if there is no `config`.

    MARWIL with β = 0 is behaviour cloning: without a value function, whose gradients would use up the norm that is allowed.

    Raises:
        ConfigError: there is no such algorithm, it cannot act in this action space, or the config is another one's.
    """
    if isinstance(name, OwnCode):
        return _own(name, observation_space, action_space, network, seed=seed)
    if name not in ALGORITHMS:
        raise ConfigError(f"There is no algorithm {name!r}; there are {', '.join(ALGORITHMS)}.")
    algorithm = ContinuousCQL if name == "cql" and isinstance(action_space, gym.spaces.Box) else ALGORITHMS[name]
    config = config or algorithm.config_class()
    if type(config) is not algorithm.config_class:
        raise ConfigError(f"{name} takes a {algorithm.config_class.__name__}, not a {type(config).__name__}.")
    if isinstance(config, MARWILConfig) and config.beta == 0:
        return BC(observation_space, action_space, network, seed=seed)
    return algorithm(observation_space, action_space, network, config, seed=seed)


def _own(
    code: OwnCode, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, *, seed: int
) -> Algorithm:
    """One of the user's own: its arguments are parameters of its `config_class`."""
    kind = imported(code.path, "algorithm")
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ConfigError(f"The algorithm {code} has to be a subclass of offline_core's Algorithm.")
    config = parse(kind.config_class, given(code.arguments))
    with own_errors(f"algorithm {code}", f"with {observation_space} and {action_space}", ConfigError):
        return kind(observation_space, action_space, network, config, seed=seed)
