"""Cuts what a vector environment returned, step by step for all copies at once, into the episodes of each copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.environments import info_of
from offline_core.episodes import Episode, nested
from offline_core.episodes.nested import Nested


@dataclass(frozen=True, slots=True)
class Chunk:
    """C consecutive steps of E copies under NEXT_STEP autoreset."""

    observations: Nested
    """(C+1, E, …): before the first step and after each."""
    actions: Nested
    """(C, E, …)"""
    rewards: np.ndarray
    """(C, E)"""
    terminated: np.ndarray
    """(C, E)"""
    truncated: np.ndarray
    """(C, E)"""
    extras: dict[str, np.ndarray]
    """(C, E, …) each."""
    infos: list[dict[str, Any]]
    """C+1 dicts as the vector environment gives them: arrays over copies, with `_key` masks beside them."""


class EpisodeCutter:
    """Keeps the open episode of each copy between chunks.

    Arguments:
        quota: (E,) how many episodes of each copy count. They are its first ones, fixed before anything is played, so
            that no episode is preferred for being short.
        eps_id: names the k-th episode of copy j.
        spaces: observation and action space of one copy.
    """

    def __init__(
        self, quota: np.ndarray, *, eps_id: Callable[[int, int], str], spaces: tuple[gym.Space[Any], gym.Space[Any]]
    ) -> None:
        self._quota = quota
        self._eps_id = eps_id
        self._spaces = spaces
        self._played = np.zeros(len(quota), int)
        self._open: list[Episode | None] = [None] * len(quota)
        self._resets = np.zeros(len(quota), bool)

    def cut(self, chunk: Chunk) -> list[Episode]:
        """The counted episodes that end in this chunk, by copy and then by time."""
        done = chunk.terminated | chunk.truncated
        finished = [episode for copy in range(done.shape[1]) for episode in self._cut_copy(chunk, done[:, copy], copy)]
        self._resets = done[-1]
        return finished

    def _cut_copy(self, chunk: Chunk, done: np.ndarray, copy: int) -> list[Episode]:
        finished = []
        start = int(self._resets[copy])  # the step after an end is a reset and no step
        for last in [*np.flatnonzero(done).tolist(), len(done) - 1]:
            if self._played[copy] == self._quota[copy]:
                self._open[copy] = None
                break
            if last < start:
                continue
            piece = self._piece(chunk, copy, start, last + 1)
            before = self._open[copy]
            episode = piece if before is None else before.concat(replace(piece, t_started=before.t))
            if done[last]:
                finished.append(episode)
                self._played[copy] += 1
                self._open[copy] = None
                start = last + 2
            else:
                self._open[copy] = episode
        return finished

    def _piece(self, chunk: Chunk, copy: int, start: int, stop: int) -> Episode:
        def steps(array: np.ndarray) -> np.ndarray:
            return array[start:stop, copy]

        infos = None
        if any(chunk.infos[start : stop + 1]):
            infos = [info_of(info, copy) for info in chunk.infos[start : stop + 1]]
        return Episode(
            eps_id=self._eps_id(copy, int(self._played[copy])),
            observations=nested.map_leaves(lambda array: array[start : stop + 1, copy], chunk.observations),
            actions=nested.map_leaves(steps, chunk.actions),
            rewards=steps(chunk.rewards),
            infos=infos if infos is not None and any(infos) else None,
            extras=nested.map_leaves(steps, chunk.extras),
            terminated=bool(chunk.terminated[stop - 1, copy]),
            truncated=bool(chunk.truncated[stop - 1, copy]),
            observation_space=self._spaces[0],
            action_space=self._spaces[1],
        )
