"""Builds the algorithm that a training's parameters choose."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig
from offline_core.learning.algorithms.registry import algorithm_configs
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, parse
from offline_core.runtime.python_object import unwrapped
from offline_core.runtime.user_code import UserCode, import_object
from offline_core.runtime.user_errors import user_errors


def make_algorithm(
    name: str | UserCode,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    network: NetworkConfig = NetworkConfig(),
    config: Config | None = None,
    *,
    seed: int = 0,
) -> Algorithm:
    """Return a new algorithm, with default parameters if `config` is None.

    Raises:
        ConfigError: The name is unknown, the config is another algorithm's, or the algorithm cannot act in this space.
    """
    if isinstance(name, UserCode):
        return _make_user_algorithm(name, observation_space, action_space, network, seed=seed)
    known = algorithm_configs()
    if name not in known:
        raise ConfigError(f"There is no algorithm {name!r}; there are {', '.join(known)}.")
    config = config or known[name]()
    if not isinstance(config, AlgorithmConfig) or type(config) is not known[name]:
        raise ConfigError(f"{name} takes a {known[name].__name__}, not a {type(config).__name__}.")
    config = config.for_actions(action_space)
    algorithm: Algorithm = config.algorithm_class()(observation_space, action_space, network, config, seed=seed)
    return algorithm


def _make_user_algorithm(
    code: UserCode, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, *, seed: int
) -> Algorithm:
    kind = import_object(code.path, "algorithm")
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ConfigError(f"The algorithm {code} has to be a subclass of offline_core's Algorithm.")
    config = parse(kind.config_class, unwrapped(code.arguments))
    with user_errors(f"algorithm {code}", f"with {observation_space} and {action_space}", ConfigError):
        return kind(observation_space, action_space, network, config, seed=seed)
