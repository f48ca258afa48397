"""Gymnasium vector environments, made one way everywhere: vectorised where the environment offers it, NEXT_STEP autoreset.

NEXT_STEP means: the step after an episode's end ignores its action and returns the first observation of the next episode
with reward 0. That step is no transition; whoever records or learns skips it.
"""

from __future__ import annotations

import contextlib
import difflib
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from offline_core.config import EnvironmentSpec
from offline_core.errors import ConfigError, EnvironmentNotFoundError
from offline_core.own_code import import_module

Spaces = tuple[gym.Space[Any], gym.Space[Any]]


def make_vector_env(environment: EnvironmentSpec, num_envs: int) -> VectorEnv:
    """`num_envs` copies of the environment, stepped together.

    Raises:
        EnvironmentNotFoundError: gymnasium has no such id.
        ConfigError: the environment cannot be made with these arguments.
    """
    spec = _spec(environment)
    if spec.vector_entry_point is not None:
        with contextlib.suppress(ConfigError):  # it may know fewer arguments than the environment itself
            env = _make(environment, num_envs, gym.VectorizeMode.VECTOR_ENTRY_POINT)
            if env.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
                return env
            env.close()
    return _make(environment, num_envs, gym.VectorizeMode.SYNC, vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP})


def spaces_of(environment: EnvironmentSpec) -> Spaces:
    """(observation space, action space) of a single copy; see `make_vector_env` for what it raises."""
    env = make_vector_env(environment, 1)
    try:
        return env.single_observation_space, env.single_action_space
    finally:
        env.close()


def reward_threshold(environment: EnvironmentSpec) -> float | None:
    """The mean return at which the environment counts as solved, if it says so."""
    return _spec(environment).reward_threshold


def shares(episodes: int, players: int) -> np.ndarray:
    """How many of the episodes each of the players plays, (players,) int: as even as can be, the first ones one more.

    Fixed before anything is played: whoever takes the episodes as they end prefers short ones.
    """
    return episodes // players + (np.arange(players) < episodes % players)


def info_of(info: dict[str, Any], copy: int) -> dict[str, Any]:
    """What a vector environment's info says of one copy; gymnasium marks in `_key` for whom `key` was set."""
    own: dict[str, Any] = {}
    for key, value in info.items():
        mask = info.get(f"_{key}")
        if (key.startswith("_") and key[1:] in info) or (mask is not None and not mask[copy]):
            continue
        if isinstance(value, dict):
            item: Any = info_of(value, copy)
        else:
            item = value[copy] if isinstance(value, np.ndarray | list | tuple) else value
        own[key] = item.item() if isinstance(item, np.generic) else item
    return own


def _spec(environment: EnvironmentSpec) -> gym.envs.registration.EnvSpec:
    module, _, name = environment.id.rpartition(":")
    try:
        if module:
            import_module(module)
    except Exception as error:  # a module of the user's may raise anything while it is imported
        raise EnvironmentNotFoundError(
            f"Environment {environment.id!r}: cannot import {module!r}: {error!r}. Is its package installed here, or its "
            "folder the current one?"
        ) from error
    try:
        return gym.spec(name)
    except gym.error.Error as error:
        similar = " or ".join(map(repr, difflib.get_close_matches(name, gym.registry, n=2)))
        raise EnvironmentNotFoundError(
            f"Gymnasium knows no environment {environment.id!r}. {f'Did you mean {similar}? ' if similar else ''}"
            "If another package brings it, install that and name its module as well, for example 'ale_py:ALE/Pong-v5'."
        ) from error


def _make(environment: EnvironmentSpec, num_envs: int, mode: gym.VectorizeMode, **kwargs: Any) -> VectorEnv:
    try:
        return gym.make_vec(environment.id, num_envs=num_envs, vectorization_mode=mode, **kwargs, **environment.kwargs)
    except Exception as error:  # whatever the environment's own code makes of a wrong argument
        raise ConfigError(f"Environment {environment.id!r} cannot be made with {environment.kwargs}: {error!r}") from error
