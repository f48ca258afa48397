"""Apply a user's filters to the episodes of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.episode_index import indexed_row_groups
from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.runtime.progress import progress
from offline_core.runtime.user_code import UserCode
from offline_core.runtime.user_errors import user_errors

Filter = Callable[[Episode], bool]

NO_FILTER = -1


def make_filters(filters: Sequence[UserCode]) -> list[Filter]:
    """Each called with an episode from then on: True keeps it.

    Raises:
        ConfigError: one cannot be made, or be called.
    """
    return [_Filter(own) for own in filters]


def refusals(source: Dataset, index: pl.DataFrame, filters: Sequence[Filter], keep: np.ndarray) -> np.ndarray:
    """(episodes,) for each episode to `keep` the number of the first filter that does not, `NO_FILTER` if all keep it.

    An episode that one refused is not shown to the next; the others are read once, a row group at a time. Row groups
    without an episode to keep are never read.

    Arguments:
        index: `episode_index` of the source.
        keep: (episodes,) booleans, in the order of the index.

    Raises:
        ConfigError: a filter gives something else than True or False.
        DataError: a filter failed, or an episode cannot be read; the message names it.
    """
    refused_by = np.full(len(index), NO_FILTER)
    with progress(int(keep.sum()), what="filter", unit="episode") as bar:
        for group, numbers in indexed_row_groups(source, index):
            left = numbers[keep[numbers]]
            if not len(left):
                continue
            for number, episode in zip(left, group.episodes(only=keep[numbers]), strict=True):
                refused_by[number] = next((i for i, keeps in enumerate(filters) if not keeps(episode)), NO_FILTER)
            bar.update(len(left))
    return refused_by


class _Filter:
    """One of them, whose errors name it and the episode."""

    def __init__(self, own: UserCode) -> None:
        self._what = f"filter {own}"
        self._keeps = own.make("filter")
        if not callable(self._keeps):
            raise ConfigError(f"The {self._what} cannot be called with an episode; give it a method __call__(episode).")

    def __call__(self, episode: Episode) -> bool:
        with user_errors(self._what, f"on episode {episode.eps_id}"):
            keeps = self._keeps(episode)
        if not isinstance(keeps, bool | np.bool):
            raise ConfigError(
                f"The {self._what} gives {keeps!r} for episode {episode.eps_id}, and not True (keep it) or False (drop it)."
            )
        return bool(keeps)
