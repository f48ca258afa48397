"""The episodes in what a vector environment returned, step by step for all copies at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.environments.vector_env import info_of
from offline_core.data.episodes import Episode, nested
from offline_core.policies.rollouts import PlayedSteps


class EpisodeBuilder:
    """Builds the episodes that count, and keeps the open one of each copy from call to call.

    Arguments:
        num_envs: copies of the environment.
        eps_id: names the k-th episode of copy j.
        spaces: observation and action space of one copy.
    """

    def __init__(
        self, num_envs: int, *, eps_id: Callable[[int, int], str], spaces: tuple[gym.Space[Any], gym.Space[Any]]
    ) -> None:
        self._eps_id = eps_id
        self._spaces = spaces
        self._finished = [0] * num_envs
        self._open: list[Episode | None] = [None] * num_envs

    def build(self, steps: PlayedSteps) -> list[Episode]:
        """The episodes that end in these steps, by copy and then by time."""
        ends = steps.terminated | steps.truncated
        finished = []
        for copy, before in enumerate(self._open):
            rows = np.flatnonzero(steps.counts[:, copy])
            for part in np.split(rows, np.flatnonzero(ends[rows, copy]) + 1):
                if not len(part):
                    continue
                start, stop = int(part[0]), int(part[-1]) + 1
                episode = self._part(steps, copy, start, stop)
                if before is not None:
                    episode = before.concat(replace(episode, t_started=before.t))
                if ends[stop - 1, copy]:
                    finished.append(episode)
                    self._finished[copy] += 1
                    before = None
                else:
                    before = episode
            self._open[copy] = before
        return finished

    @property
    def open(self) -> list[Episode]:
        """The steps so far of the episodes that have not ended."""
        return [episode for episode in self._open if episode is not None]

    def _part(self, played: PlayedSteps, copy: int, start: int, stop: int) -> Episode:
        def steps(array: np.ndarray) -> np.ndarray:
            return array[start:stop, copy]

        infos = None
        if any(played.infos[start : stop + 1]):
            infos = [info_of(info, copy) for info in played.infos[start : stop + 1]]
        return Episode(
            eps_id=self._eps_id(copy, self._finished[copy]),
            observations=nested.map_leaves(lambda array: array[start : stop + 1, copy], played.observations),
            actions=nested.map_leaves(steps, played.actions),
            rewards=steps(played.rewards),
            infos=infos if infos is not None and any(infos) else None,
            extras=nested.map_leaves(steps, played.extras),
            terminated=bool(played.terminated[stop - 1, copy]),
            truncated=bool(played.truncated[stop - 1, copy]),
            observation_space=self._spaces[0],
            action_space=self._spaces[1],
        )
