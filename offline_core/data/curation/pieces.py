"""Cut episodes into pieces: each unbroken run of kept steps becomes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from offline_core.data.curation.condition import Condition, without_nan
from offline_core.data.curation.observed import as_series, step_words
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.batch import STEP_NAMES, step_column
from offline_core.errors import SchemaError
from offline_core.runtime.progress import progress

EPISODE = "number of the episode"


def write_pieces(
    source: Dataset,
    index: pl.DataFrame,
    keep: np.ndarray,
    where_steps: Condition,
    writer: EpisodeWriter,
    *,
    names: Sequence[str] | None = None,
) -> int:
    """Appends the pieces of the episodes to `keep` whose steps meet the condition; returns how many episodes had none.

    Row groups without an episode to keep are never read.

    Arguments:
        index: `episode_index` of the source.
        keep: (episodes,) booleans, in the order of the index.
        names: of a step table the columns to keep, None for all.

    Raises:
        ConfigError: the condition cannot be used.
        DataError: an episode cannot be read; the message names it.
    """
    without = 0
    needed = None if names is None else [*names, *where_steps.names, columns.OBS, columns.ACTIONS]
    with progress(int(keep.sum()), what="prune", unit="episode") as bar:
        for group, numbers in source.indexed_row_groups(index):
            if not keep[numbers].any():
                continue
            some = group.episodes(needed, only=keep[numbers])
            kept = kept_steps(some, where_steps, source)
            split_episodes = [pieces(episode, steps) for episode, steps in zip(some, kept, strict=True)]
            writer.write([_projected(piece, names) for parts in split_episodes for piece in parts])
            without += split_episodes.count([])
            bar.update(len(some))
    return without


def kept_steps(episodes: Sequence[Episode], where_steps: Condition, dataset: Dataset) -> list[np.ndarray]:
    """For each episode (T,) booleans: its steps that meet the condition; those where a NaN leaves it open do not.

    Arguments:
        where_steps: names columns of steps, and those of the log from which the import made observations and choices.

    Raises:
        ConfigError: the condition names an unknown column, or gives no answer for a step.
        SchemaError: the episodes do not agree on the shape of a column it names.
    """
    lengths = [len(episode) for episode in episodes]
    is_stored = all(where_steps.names <= {*STEP_NAMES, *episode.extras} for episode in episodes)
    words = {} if is_stored else step_words(episodes, dataset)
    frame = step_frame(episodes, where_steps, words)
    unknown = where_steps.met(frame, within=EPISODE).is_null()
    for name in where_steps.names & words.keys():  # of no known category
        unknown &= frame[name].is_not_null()
    if unknown.any():
        step = int(unknown.arg_true()[0])
        where_steps.refuse(f"is neither true nor false for {frame.row(step, named=True)}; subscripts count from 1.")
    met = where_steps.met(without_nan(frame), within=EPISODE).fill_null(False)
    return np.split(met.to_numpy(), np.cumsum(lengths)[:-1])


def step_frame(episodes: Sequence[Episode], condition: Condition, words: Mapping[str, pl.Series] | None = None) -> pl.DataFrame:
    """The columns that a condition names, a row a step, with the number of the episode.

    Arguments:
        words: further columns, which go behind those of the steps that have their names.

    Raises:
        ConfigError, SchemaError: As `kept_steps`.
    """
    present = [*STEP_NAMES, *set.intersection(*(set(episode.extras) for episode in episodes))]
    frame = pl.DataFrame({EPISODE: np.repeat(np.arange(len(episodes)), [len(episode) for episode in episodes])})
    condition.require(dict.fromkeys([*present, *(words or {})]))
    for name in sorted(condition.names):
        if name not in present:
            frame = frame.with_columns((words or {})[name].alias(name))
            continue
        try:
            leaves = nested.flatten(step_column(episodes, name), name)
        except ValueError as error:
            raise SchemaError(f"The episodes do not agree on the shape of {name}, so no condition on it: {error}.") from error
        frame = frame.with_columns(**{path: as_series(values) for path, values in leaves.items()})
    return frame


def pieces(episode: Episode, keep: np.ndarray) -> list[Episode]:
    """The unbroken runs of kept steps, in order; `keep` is (T,) booleans.

    The first keeps the id of the episode. The later ones are called `<eps_id>@<t_started>`, for whatever reads them has
    to see that they do not follow each other.
    """
    if keep.all():
        return [episode]
    edges = np.flatnonzero(np.diff(keep, prepend=False, append=False)).reshape(-1, 2)
    runs = [episode.slice(start, stop) for start, stop in edges.tolist()]
    return runs[:1] + [replace(run, eps_id=f"{run.eps_id}@{run.t_started}") for run in runs[1:]]


def _projected(episode: Episode, names: Sequence[str] | None) -> Episode:
    if names is None:
        return episode
    return replace(episode, extras={name: tree for name, tree in episode.extras.items() if name in names})
