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
    config = _config_for(name, action_space, config)
    algorithm: Algorithm = config.algorithm_class()(observation_space, action_space, network, config, seed=seed)
    return algorithm


def algorithm_class(name: str | UserCode, action_space: gym.Space[Any], config: Config | None = None) -> type[Algorithm]:
    """Return the class of what `make_algorithm` returns, which says what columns it learns from; no network is built.

    Raises:
        ConfigError: The name is unknown, the config is another algorithm's, or has no effect with these actions.
    """
    if isinstance(name, UserCode):
        return _user_class(name)
    return _config_for(name, action_space, config).algorithm_class()  # type: ignore[no-any-return]


def _config_for(name: str, action_space: gym.Space[Any], config: Config | None) -> AlgorithmConfig:
    known = algorithm_configs()
    if name not in known:
        raise ConfigError(f"There is no algorithm {name!r}; there are {', '.join(known)}.")
    config = config or known[name]()
    if not isinstance(config, AlgorithmConfig) or type(config) is not known[name]:
        raise ConfigError(f"{name} takes a {known[name].__name__}, not a {type(config).__name__}.")
    return config.for_actions(action_space)


def _user_class(code: UserCode) -> type[Algorithm]:
    kind = import_object(code.path, "algorithm")
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ConfigError(f"The algorithm {code} has to be a subclass of offline_core's Algorithm.")
    return kind


def _make_user_algorithm(
    code: UserCode, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, *, seed: int
) -> Algorithm:
    kind = _user_class(code)
    config = parse(kind.config_class, unwrapped(code.arguments))
    with user_errors(f"algorithm {code}", f"with {observation_space} and {action_space}", ConfigError):
        return kind(observation_space, action_space, network, config, seed=seed)
