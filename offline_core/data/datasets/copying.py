"""What a version takes over from another: episodes that are copied, not decoded, and files of which all are kept.

An operation that makes something of each episode alone reads only what is new: where an earlier version of its source has files
in common with this one, as versions of an append have, what it made of those is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.datasets.damage import unusable_files
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import Dataset, open_version, versions
from offline_core.data.datasets.manifest import FileEntry, Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.episodes import Episode, columns
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError
from offline_core.runtime.prefetch import Prefetched
from offline_core.runtime.progress import progress

log = logging.getLogger(__name__)

GATHER_BYTES = 8 * 2**20
"""Rows of small row groups are gathered up to this size, so that they are written as large ones."""

NOWHERE = -1

WritePart: TypeAlias = Callable[[Location, Dataset], WrittenFiles]
"""Writes below a dataset's folder what is made of a dataset that has some of the source's files."""


def copy_episodes(
    source: Dataset,
    index: pl.DataFrame,
    to: np.ndarray,
    writers: Sequence[EpisodeWriter],
    *,
    names: Sequence[str] | None = None,
    what: str = "copy",
) -> None:
    """Appends episode i of `source` to `writers[to[i]]`, in the order of the source; `NOWHERE` leaves it out.

    Row groups without a copied episode are never read; the next ones are read while the last are written. Memory: a few
    times `GATHER_BYTES` for each writer.

    Arguments:
        index: `index` of the source, with `columns.EPISODE_SUMMARY` at least.
        names: of a step table only these columns; absent ones are skipped.
    """
    summary = {name: index[name].to_numpy() for name in columns.EPISODE_SUMMARY}
    with progress(int((to != NOWHERE).sum()), what=what, unit="episode") as bar:
        for rows in Prefetched(_gathered(_chosen_rows(source, index, to, names))):
            writers[rows.target].copy(rows.table, {name: values[rows.episodes] for name, values in summary.items()})
            bar.update(len(rows.episodes))


class _Rows(NamedTuple):
    table: pa.Table
    episodes: np.ndarray
    """Their numbers, rows of the index."""
    target: int


def _chosen_rows(source: Dataset, index: pl.DataFrame, to: np.ndarray, names: Sequence[str] | None) -> Iterator[_Rows]:
    counts = source.codec.rows_of(index[columns.LENGTH].to_numpy())
    for group, numbers in source.indexed_row_groups(index):
        targets = np.unique(to[numbers])
        targets = targets[targets != NOWHERE]
        if not len(targets):
            continue
        table = group.read(names)
        for target in targets.tolist():
            mask = to[numbers] == target
            part = table if mask.all() else table.filter(pa.array(np.repeat(mask, counts[numbers])))
            yield _Rows(part, numbers[mask], target)


def _gathered(parts: Iterator[_Rows]) -> Iterator[_Rows]:
    """The same rows in the same order, concatenated for each target while their columns are the same."""
    waiting: dict[int, list[_Rows]] = {}
    sizes: dict[int, int] = {}

    def together(target: int) -> _Rows:
        rows = waiting.pop(target)
        del sizes[target]
        return _Rows(pa.concat_tables([part.table for part in rows]), np.concatenate([part.episodes for part in rows]), target)

    for part in parts:
        before = waiting.get(part.target)
        if before and not before[0].table.schema.equals(part.table.schema):
            yield together(part.target)
        waiting.setdefault(part.target, []).append(part)
        sizes[part.target] = sizes.get(part.target, 0) + part.table.nbytes
        if sizes[part.target] >= GATHER_BYTES:
            yield together(part.target)
    for target in sorted(waiting):
        yield together(target)


def files_without(
    dataset: Dataset, places: pl.DataFrame | None, names: Collection[str], root: Location, config: FilesConfig
) -> tuple[list[FileEntry], Statistics]:
    """(the files of the dataset, those with such an episode written again without it; statistics of these episodes).

    Arguments:
        places: its index with `ROW_GROUP`; may be None if there are no names.
        names: ids of stored episodes to leave out.
        root: of the dataset that is written; the same, or one with the same files.
    """
    if places is None or not names:
        return list(dataset.manifest.files), Statistics()
    groups = set(places.filter(pl.col(columns.EPS_ID).is_in(list(names)))[columns.ROW_GROUP].to_list())
    holding = {group.file.uri for group in dataset.row_groups(only=groups)}
    files: list[FileEntry] = []
    for number, entry in enumerate(dataset.manifest.files):
        if dataset.location.child(entry.path).uri not in holding:
            files.append(entry)
            continue
        index = dataset.with_files([entry]).index()
        out = index[columns.EPS_ID].is_in(list(names)).to_numpy()
        files += file_without(dataset, entry, index, out, root, prefix=f"part-{number:05d}", config=config)
    return files, Statistics.of_episodes(chosen_episodes(dataset, places, names))


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
        index: index of the file alone.
        out: (episodes,) bool, those to leave out.
        root: of the dataset that is written.
    """
    with EpisodeWriter(root, prefix, format=dataset.manifest.format, config=config) as writer:
        copy_episodes(dataset.with_files([entry]), index, np.where(out, NOWHERE, 0), [writer], what="rewrite")
    return writer.files


def statistics_without(dataset: Dataset, removed: Statistics, added: Statistics, now: Sequence[FileEntry]) -> Statistics:
    """Statistics of a dataset without some episodes and with others; those of columns are exact but for the last digits.

    What they say of a column is not enough where an extreme value was removed: then all data is read.

    Arguments:
        now: the files with the others.
    """
    known = dataset.manifest.statistics
    if not removed.episodes:
        return known.merge(added)
    after, columns_now = dataset.with_files(now), known.replaced_columns(removed, added)
    if columns_now is not None:
        return statistics_anew(after, of_columns=False).model_copy(update={"columns": columns_now})
    if known.columns is not None:
        log.info("%s: a replaced episode held an extreme value, so the statistics are computed from all data.", dataset.ref)
    return statistics_anew(after, of_columns=known.columns is not None)


def statistics_anew(dataset: Dataset, *, of_columns: bool) -> Statistics:
    """Compute the statistics of a dataset: of its columns, too, for which all data is read, or of episodes by its index."""
    if of_columns:
        return Statistics.of_episodes(group.episodes() for group in dataset.row_groups())
    index = dataset.index() if dataset.manifest.files else None
    return Statistics.of([] if index is None else [{name: index[name].to_numpy() for name in columns.EPISODE_SUMMARY}])


def chosen_episodes(dataset: Dataset, places: pl.DataFrame, names: Collection[str]) -> Iterator[list[Episode]]:
    """The episodes of these ids; row groups without any are not read."""
    numbers = set(places.filter(pl.col(columns.EPS_ID).is_in(list(names)))[columns.ROW_GROUP].to_list())
    for group in dataset.row_groups(only=numbers):
        inside = places.filter(pl.col(columns.ROW_GROUP) == group.number_in_dataset)[columns.EPS_ID]
        yield group.episodes(only=inside.is_in(list(names)).to_numpy())


def written_by_file(
    root: Location, operation: Operation, source: Dataset, write: WritePart, *, files: FilesConfig
) -> WrittenFiles:
    """What an operation makes of a source, if its result for an episode depends on nothing but that episode.

    What the newest version in `root` by the same operation has of files that the source still has stays as it is. Episodes
    of other files are taken out, and those of the source's new files follow. So the episodes are those of a derivation from
    all of the source; those that were replaced lie at the end.

    Arguments:
        files: of what is written again.
    """
    if (earlier := _made_before(root, operation, source)) is None:
        return write(root, source)
    made, before = earlier
    gone, new = only_files(before, without=source), only_files(source, without=before)
    names = gone.index([columns.EPS_ID])[columns.EPS_ID].to_list()
    places = made.index([columns.EPS_ID, columns.ROW_GROUP]) if names else None
    kept, removed = files_without(made, places, names, root, files)
    written = write(root, new)
    statistics = statistics_without(made, removed, written.statistics, [*kept, *written.files])
    log.info(
        "%s: read %d of the %d files of %s, as version %d is made of the others.",
        operation.name,
        len(new.manifest.files),
        len(source.manifest.files),
        source.ref.uri,
        made.manifest.version,
    )
    return WrittenFiles(written.format, [*kept, *written.files], statistics)


def only_files(dataset: Dataset, *, without: Dataset) -> Dataset:
    """The dataset as if it had only the files that another version of it has not."""
    others = {(entry.path, entry.sha256) for entry in without.manifest.files}
    return dataset.with_files(entry for entry in dataset.manifest.files if (entry.path, entry.sha256) not in others)


def _made_before(root: Location, operation: Operation, source: Dataset) -> tuple[Dataset, Dataset] | None:
    """(the newest version by the same operation of an earlier version with some of the source's files, that version)."""
    own = {entry.path for entry in source.manifest.files}
    for number in reversed(versions(root.uri)):
        try:
            made = open_version(root, number)
            parents = made.manifest.parents
            if made.manifest.operation != operation or [parent.uri for parent in parents] != [source.location.uri]:
                continue
            before = open_version(source.location, parents[0].version or 0)
        except OfflineError:  # damaged, or deleted
            continue
        is_same = before.manifest.fingerprint == parents[0].fingerprint
        if is_same and own & {entry.path for entry in before.manifest.files} and not unusable_files(made):
            return made, before
    return None
