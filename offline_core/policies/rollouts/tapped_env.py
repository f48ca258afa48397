"""A vector environment that keeps what is played in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.policies.rollouts.loop import PlayedSteps
from offline_core.policies.rollouts.metric import PlayedStep


class TappedEnv(VectorWrapper):
    """The environment itself to those who play, and all their steps, exact and in order, to who takes them.

    Memory: that of the steps until they are taken.

    Arguments:
        env: made by `make_vector_env`.
    """

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self.kept = 0
        """Steps of all copies together that can be taken."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Nested, dict[str, Any]]:
        """Begin new episodes; steps that were not taken are forgotten."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._begin(_copied(observations), infos)
        self._done = np.zeros(self.num_envs, bool)
        return observations, infos

    def _begin(self, observations: Nested, infos: dict[str, Any]) -> None:
        self._first, self._infos, self._played, self.kept = observations, [infos], list[PlayedStep](), 0

    def step(self, actions: Nested) -> tuple[Nested, Any, Any, Any, dict[str, Any]]:
        """Step all copies, and keep what came of it."""
        before = self._played[-1].next_observations if self._played else self._first
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        done, counts = terminated | truncated, ~self._done
        self._played.append(
            PlayedStep(
                observations=before,
                next_observations=_copied(observations),
                actions=_copied(actions),
                extras={},
                rewards=rewards.copy(),
                terminated=terminated.copy(),
                truncated=truncated.copy(),
                infos=infos,
                counts=counts,
                ends=counts & done,
            )
        )
        self._infos.append(infos)
        self._done, self.kept = done, self.kept + 1
        return observations, rewards, terminated, truncated, infos

    def take(self) -> PlayedSteps:
        """Return the steps since the last call, of which there has to be one, and keep them no longer."""
        taken = PlayedSteps.of(self._first, self._played, self._infos)
        self._begin(self._played[-1].next_observations, self._infos[-1])
        return taken


def _copied(values: Nested) -> Nested:
    return nested.map_leaves(np.array, values)
