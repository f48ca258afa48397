"""Code of a user's own, for tests: numbers in lines of text, and a class that makes its data up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.data.episodes import Episode, EpisodeBatch, table_to_episodes
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.prelearner.prelearner import PreLearner

SPACES = (gym.spaces.Box(-100.0, 100.0, (1,)), gym.spaces.Discrete(3))


class Lines(PreLearner):
    """`3 1 4` is an episode that observes 3, 1 and 4; actions are the observations modulo 3."""

    def spaces(self, *_: Any) -> tuple[gym.Space, gym.Space]:
        return SPACES

    def episodes(self, rows: pa.Table) -> list[Episode]:
        return [self._episode(text) for text in rows["text"].to_pylist()]

    def _episode(self, text: str) -> Episode:
        numbers = np.array(text.split(), np.float32)[:, None]
        actions = numbers[:-1, 0].astype(int) % 3
        return Episode(eps_id=text, observations=numbers, actions=actions, rewards=np.ones(len(actions)), truncated=True)


class Confused(Lines):
    def batch(self, rows: pa.Table) -> EpisodeBatch:
        made = super().batch(rows)
        return made | {"actions": made["actions"][1:]}


class OneSpace(Lines):
    def spaces(self, *_: Any) -> Any:
        return SPACES[0]


class Unspoken(Lines):
    def spaces(self, *spaces: Any) -> Any:
        return spaces


class Evens:
    """Even observations only: of an own dataset's rows, or of those of `Lines`."""

    def __call__(self, steps: EpisodeBatch) -> EpisodeBatch:
        return steps | {"obs": steps["obs"] - steps["obs"] % 2}


class Numbers:
    """A data class that counts to `steps`, in episodes of ten."""

    def __init__(self, uri: str, steps: int = 100, fail: str = "") -> None:
        self.uri, self.steps, self.fail = uri, steps, fail

    def spaces(self) -> tuple[gym.Space, gym.Space]:
        if self.fail == "spaces":
            raise RuntimeError("no idea")
        if self.fail == "one space":
            return SPACES[0]
        return SPACES

    def batches(self, wanted: Sequence[str], *, needs_next_obs: bool) -> Iterator[EpisodeBatch]:
        assert Path(self.uri).exists()
        for start in range(0, self.steps, 20):
            if self.fail == "parts" and start:
                raise RuntimeError("lost the thread")
            if self.fail == "none" and start:
                yield None
            count = np.arange(start, start + 20)
            last = count[9::10, None].astype(np.float32) if needs_next_obs else None
            yield EpisodeBatch.from_steps({"obs": count[:, None].astype(np.float32), "actions": count % 3}, [10, 10], last)


class Anywhere(Numbers):
    """In a place that nobody else knows."""

    def batches(self, wanted: Sequence[str], *, needs_next_obs: bool) -> Iterator[EpisodeBatch]:
        yield EpisodeBatch.from_steps({"obs": np.ones((20, 1), np.float32), "actions": np.zeros(20, int)}, [20])


class Halves:
    """Every other episode."""

    def __call__(self, steps: EpisodeBatch) -> EpisodeBatch:
        return steps.select(np.arange(steps.num_episodes) % 2 == 0)


class Backwards(PreLearner):
    """Episodes of a dataset's table, played backwards."""

    def episodes(self, rows: pa.Table) -> list[Episode]:
        return [
            Episode(
                eps_id=episode.eps_id,
                observations=episode.observations[::-1],
                actions=episode.actions[::-1],
                rewards=episode.rewards[::-1],
                truncated=True,
            )
            for episode in table_to_episodes(rows)
        ]


class NextObs:
    needs_next_obs = True
    adds = ("new_obs",)

    def __call__(self, steps: EpisodeBatch) -> EpisodeBatch:
        return steps | {"new_obs": np.zeros_like(steps["obs"])}


class NoBC:
    """No algorithm."""


class Loud(BC):
    """An algorithm that cannot be built."""

    def build(self, *arguments: Any) -> None:
        raise ValueError("too loud")
