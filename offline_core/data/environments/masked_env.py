"""A vector environment whose observations say which actions are allowed, out of the infos that say it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from offline_core.data.episodes.action_masks import ACTION_MASK, OBSERVATIONS, with_mask
from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError, SpaceError


class MaskedEnv(VectorWrapper):
    """Observations {"observations": …, "action_mask": (n,) int8}; the masks leave the infos.

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
