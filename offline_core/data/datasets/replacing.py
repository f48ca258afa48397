"""The next version of a dataset without some episodes: only the files that hold them are written again."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import polars as pl

from offline_core.data.datasets.copying import NOWHERE, copy_episodes
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.episode_index import episode_index
from offline_core.data.datasets.manifest import FileEntry, Statistics, Summary
from offline_core.data.datasets.row_groups import ROW_GROUP, row_groups
from offline_core.data.datasets.statistics import StatisticsBuilder
from offline_core.data.datasets.writer import EpisodeWriter, add_columns, statistics_of
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.metadata import episode_summary
from offline_core.data.store.location import Location

log = logging.getLogger(__name__)


def files_without(
    dataset: Dataset, places: pl.DataFrame | None, names: Collection[str], root: Location, config: FilesConfig
) -> tuple[list[FileEntry], Statistics]:
    """(the files of the dataset, those with such an episode written again without it; statistics of these episodes).

    Arguments:
        places: `places_of_ids` of the dataset; may be None if there are no names.
        names: ids of stored episodes to leave out.
        root: of the dataset that is written; the same, or one with the same files.
    """
    if places is None or not names:
        return list(dataset.manifest.files), Statistics()
    groups = set(places.filter(pl.col(columns.EPS_ID).is_in(list(names)))[ROW_GROUP].to_list())
    holding = {group.file.uri for group in row_groups(dataset, only=groups)}
    files: list[FileEntry] = []
    for number, entry in enumerate(dataset.manifest.files):
        if dataset.location.child(entry.path).uri not in holding:
            files.append(entry)
            continue
        index = episode_index(dataset.with_files([entry]))
        out = index[columns.EPS_ID].is_in(list(names)).to_numpy()
        files += file_without(dataset, entry, index, out, root, prefix=f"part-{number:05d}", config=config)
    return files, statistics_of_episodes(chosen_episodes(dataset, places, names))


def file_without(
    dataset: Dataset,
    entry: FileEntry,
    index: pl.DataFrame,
    out: np.ndarray,
    root: Location,
    *,
    prefix: str = "part",
    config: FilesConfig = FilesConfig(),
) -> list[FileEntry]:
    """Write a file of the dataset again without some of its episodes; nothing if none are left.

    Arguments:
        index: `episode_index` of the file alone.
        out: (episodes,) bool, those to leave out.
        root: of the dataset that is written.
    """
    with EpisodeWriter(root, prefix, format=dataset.manifest.format, config=config) as writer:
        copy_episodes(dataset.with_files([entry]), index, np.where(out, NOWHERE, 0), [writer], what="rewrite")
    return writer.files


def statistics_without(dataset: Dataset, removed: Statistics, added: Statistics, now: Sequence[FileEntry]) -> Statistics:
    """Statistics of a dataset without some episodes and with others, exact but for the last digits of moments.

    What they say of an extreme value that was removed is not enough: then returns and lengths of all episodes are read, or
    for the columns all data.

    Arguments:
        now: the files with the others.
    """
    known = dataset.manifest.statistics
    if not removed.episodes:
        return known.merge(added)
    after = dataset.with_files(now)
    columns_now = known.replaced_columns(removed, added)
    if columns_now is None and known.columns is not None:
        log.info("%s: a replaced episode held an extreme value, so the statistics are computed from all data.", dataset.ref)
        return statistics_of_episodes(group.episodes() for group in row_groups(after))
    returns, lengths = (
        known.returns.replaced(removed.returns, added.returns),
        known.lengths.replaced(removed.lengths, added.lengths),
    )
    if returns is None or lengths is None:
        index = episode_index(after, [columns.RETURN, columns.LENGTH])
        returns, lengths = (Summary.of(index[name].to_numpy()) for name in (columns.RETURN, columns.LENGTH))
    return Statistics(
        episodes=known.episodes - removed.episodes + added.episodes,
        steps=known.steps - removed.steps + added.steps,
        terminated=known.terminated - removed.terminated + added.terminated,
        truncated=known.truncated - removed.truncated + added.truncated,
        returns=returns,
        lengths=lengths,
        columns=columns_now,
    )


def statistics_of_episodes(batches: Iterable[Sequence[Episode]]) -> Statistics:
    """Statistics of decoded episodes, those of columns too."""
    builder, metadata = StatisticsBuilder(), []
    for episodes in batches:
        add_columns(builder, episodes)
        metadata.append(episode_summary(episodes))
    return statistics_of(metadata).model_copy(update={"columns": builder.result()})


def chosen_episodes(dataset: Dataset, places: pl.DataFrame, names: Collection[str]) -> Iterator[list[Episode]]:
    """The episodes of these ids; row groups without any are not read."""
    numbers = set(places.filter(pl.col(columns.EPS_ID).is_in(list(names)))[ROW_GROUP].to_list())
    for group in row_groups(dataset, only=numbers):
        inside = places.filter(pl.col(ROW_GROUP) == group.number_in_dataset)[columns.EPS_ID]
        yield group.episodes(only=inside.is_in(list(names)).to_numpy())
