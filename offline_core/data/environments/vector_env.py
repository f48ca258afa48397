"""Make gymnasium vector environments: vectorised where the environment offers it, with NEXT_STEP autoreset.

NEXT_STEP means: the step after an episode's end ignores its action and returns the first observation of the next episode
with reward 0. That step is no transition; recording and learning skip it.
"""

from __future__ import annotations

import contextlib
import difflib
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from offline_core.data.environments.masked_env import MaskedEnv
from offline_core.errors import ConfigError, EnvironmentNotFoundError
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.user_code import import_module
from offline_core.secrets import masked, masked_text

Spaces = tuple[gym.Space[Any], gym.Space[Any]]

NUM_ENVS = 128
"""Default limit of the copies of an environment that are stepped together."""


def make_vector_env(environment: EnvironmentSpec, num_envs: int) -> VectorEnv:
    """`num_envs` copies of the environment, stepped together.

    Raises:
        EnvironmentNotFoundError: gymnasium does not know the id, or a package that it needs is not installed.
        ConfigError: the environment cannot be made with these arguments.
    """
    env = _vector_env(environment, num_envs)
    return MaskedEnv(env, environment.id) if environment.action_mask else env


def _vector_env(environment: EnvironmentSpec, num_envs: int) -> VectorEnv:
    spec = spec_of(environment)
    if spec.vector_entry_point is not None:
        with contextlib.suppress(ConfigError):  # it may take fewer arguments than the environment itself
            env = _make(environment, num_envs, gym.VectorizeMode.VECTOR_ENTRY_POINT)
            if env.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
                return env
            env.close()
    return _make(environment, num_envs, gym.VectorizeMode.SYNC, vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP})


def spaces_of(environment: EnvironmentSpec) -> Spaces:
    """(observation space, action space) of a single copy; raises what `make_vector_env` raises."""
    env = make_vector_env(environment, 1)
    try:
        return env.single_observation_space, env.single_action_space
    finally:
        env.close()


def reward_threshold(environment: EnvironmentSpec) -> float | None:
    """The mean return at which the environment counts as solved; None: it does not say."""
    return spec_of(environment).reward_threshold


def shares(episodes: int, players: int) -> np.ndarray:
    """The number of episodes for each of the players, (players,) int; they differ by one at most.

    Fixed before anything is played: taking the episodes that end first would prefer short ones.
    """
    return episodes // players + (np.arange(players) < episodes % players)


def info_of(info: dict[str, Any], copy: int) -> dict[str, Any]:
    """One copy's part of a vector environment's info; gymnasium marks in `_key` the copies that set `key`."""
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


def spec_of(environment: EnvironmentSpec) -> gym.envs.registration.EnvSpec:
    """What gymnasium knows of the environment; nothing is made.

    Raises:
        EnvironmentNotFoundError: gymnasium does not know the id, or its module cannot be imported.
    """
    module, _, name = environment.id.rpartition(":")
    try:
        if module:
            import_module(module)
    except Exception as error:  # a user module may raise anything while it is imported
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
            "If another package registers it, install that and name its module, too, for example 'ale_py:ALE/Pong-v5'."
        ) from error


def _make(environment: EnvironmentSpec, num_envs: int, mode: gym.VectorizeMode, **kwargs: Any) -> VectorEnv:
    try:
        return gym.make_vec(environment.id, num_envs=num_envs, vectorization_mode=mode, **kwargs, **environment.kwargs)
    except (gym.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        extra = (
            " (pip install -c constraints.txt '.[mujoco]', in a checkout of this project)" if _is_mujoco(environment) else ""
        )
        raise EnvironmentNotFoundError(
            f"Environment {environment.id!r} needs a package that is not installed: {error}. Install it{extra}."
        ) from error
    except Exception as error:  # the environment's code may raise anything
        told = masked_text(repr(error), environment.kwargs)
        raise ConfigError(
            f"Environment {environment.id!r} cannot be made with {masked(environment.kwargs, arguments=True)}: {told}"
        ) from error


def _is_mujoco(environment: EnvironmentSpec) -> bool:
    return ".mujoco" in str(spec_of(environment).entry_point)
