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
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from offline_core.data.episodes.action_masks import ACTION_MASK, OBSERVATIONS, with_mask
from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError, EnvironmentNotFoundError, SpaceError
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


class MaskedEnv(VectorWrapper):
    """Says in observations which actions are allowed: {"observations": …, "action_mask": (n,) int8}. Infos say it no longer.

    Under NEXT_STEP autoreset an info is of the observation that comes with it, also of the last one of an episode and of the
    first one of the next. An environment need not say the mask of a terminal state: there it is 0.

    Arguments:
        env: with `action_mask` in its infos, as gymnasium's Taxi-v3 has it.
        name: of the environment, for messages.

    Raises:
        ConfigError: actions are no choices.
    """

    def __init__(self, env: VectorEnv, name: str) -> None:
        super().__init__(env)
        self._name = name
        try:
            space = with_mask(env.single_observation_space, env.single_action_space)
        except SpaceError as error:
            raise ConfigError(f"Environment {name}: {error}") from error
        self.single_observation_space = space
        self.observation_space = batch_space(space, env.num_envs)
        self._shape = (env.num_envs, *(space[ACTION_MASK].shape or ()))

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Nested, dict[str, Any]]:
        """Begin new episodes.

        Raises:
            ConfigError: infos have no mask, or one that is none.
        """
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._with_masks(observations, infos, may_lack=np.zeros(self.num_envs, bool))

    def step(self, actions: Nested) -> tuple[Nested, Any, Any, Any, dict[str, Any]]:
        """Step all copies; raises what `reset` raises."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        masked, infos = self._with_masks(observations, infos, may_lack=terminated)
        return masked, rewards, terminated, truncated, infos

    def _with_masks(
        self, observations: Nested, infos: dict[str, Any], *, may_lack: np.ndarray
    ) -> tuple[Nested, dict[str, Any]]:
        infos = dict(infos)
        masks = infos.pop(ACTION_MASK, None)
        there = infos.pop(f"_{ACTION_MASK}", np.full(self.num_envs, masks is not None))
        if not (there | may_lack).all():
            raise ConfigError(
                f"Environment {self._name} gives no {ACTION_MASK} in the info of a reset or step: leave "
                "environment.action_mask out, or have the environment give one with each observation."
            )
        masks = np.zeros(self._shape, np.int8) if masks is None else np.asarray(masks)
        if masks.shape != self._shape or masks.dtype.kind not in "biuf" or not np.isin(masks[there], (0, 1)).all():
            raise ConfigError(
                f"Environment {self._name} gives as {ACTION_MASK} {masks.dtype} of shape {masks.shape[1:]}; it has to be "
                f"{self._shape[1]} numbers that are 0 or 1, one for each choice of {self.single_action_space}."
            )
        masks = np.where(there[:, np.newaxis], masks, 0).astype(np.int8)
        return {ACTION_MASK: masks, OBSERVATIONS: observations}, infos
