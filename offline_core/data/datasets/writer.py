"""Write episodes into Parquet files that roll by rows and bytes; an error leaves no partial file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.data_file import DataFile, FilesConfig
from offline_core.data.datasets.manifest import FileEntry, Format, Statistics, Summary
from offline_core.data.datasets.parquet_size import footer_bytes, stored_bytes
from offline_core.data.datasets.statistics import StatisticsBuilder
from offline_core.data.episodes import Episode, columns, encode, episodes_to_table, nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.metadata import complete, episode_metadata, episode_summary
from offline_core.data.episodes.steps import step_column
from offline_core.data.episodes.table import space_metadata
from offline_core.data.store.location import Location
from offline_core.errors import SchemaError

ROW_GROUP_BYTES = 4 * 2**20
"""Aim for a row group, before compression: small enough to read one alone, large enough to scan at full speed."""

MAX_TASKS = 4
"""That wait for the thread: row groups, or batches to be counted."""
OPTIONAL = {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA}
"""Table columns that exist only where they hold a value; a file has them in all rows or in none."""

_STATISTICS_COLUMNS = (columns.OBS, columns.ACTIONS, columns.REWARDS)
"""Columns with statistics, besides the extras."""


class WrittenFiles(NamedTuple):
    """Files that no manifest lists yet."""

    format: Format
    files: list[FileEntry]
    statistics: Statistics


class EpisodeWriter:
    """Writes episodes, in either format, into files `<prefix>-<number>-<hash>.parquet` below `root`.

    Use as a context manager; after a clean exit `files` and `statistics` describe what was written. An error removes the
    file that was open. A file that has its name is complete, but belongs to no dataset until a manifest lists it.
    A thread counts and compresses what is written while the next is made; its error is raised by a later call, or at the exit.
    """

    def __init__(self, root: Location, prefix: str, *, format: Format, config: FilesConfig = FilesConfig()) -> None:
        self.root = root
        self.prefix = prefix
        self.format = format
        self.config = config
        self.files: list[FileEntry] = []
        self.metadata: list[dict[str, np.ndarray]] = []
        self._columns: StatisticsBuilder | None = StatisticsBuilder()
        self._open: DataFile | None = None
        self._types: dict[str, pa.DataType] = {}
        self._thread = ThreadPoolExecutor(1)
        self._tasks: deque[Future[None]] = deque()

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        try:
            self._wait()
            if kind is None:
                self._finish()
        finally:
            if self._open is not None:
                self._open.abandon()

    @property
    def statistics(self) -> Statistics:
        """Statistics of what was written so far; without columns if `write_rows` was called."""
        self._wait()
        columns = None if self._columns is None else self._columns.result()
        return statistics_of(self.metadata).model_copy(update={"columns": columns})

    @property
    def written(self) -> WrittenFiles:
        """All files, after a clean exit."""
        return WrittenFiles(self.format, self.files, self.statistics)

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes, whole, in this order.

        Raises:
            SchemaError: in table format, they differ from earlier ones in the type of a column, or in their extras.
            StorageError: the file cannot be written.
        """
        if not episodes:
            return
        if self._columns is not None:
            self._later(add_columns, self._columns, episodes)
        if self.format == "episodes":
            self._append_rows(episode_rows(episodes))
            return
        lengths = [len(episode) for episode in episodes]
        metadata = episode_summary(episodes)
        observations = sum(array.nbytes for array in nested.leaves(episodes[0].observations))  # stored again as new_obs
        per_row = (episodes[0].nbytes + observations) / max(1, lengths[0])
        for start, stop in _groups(np.array(lengths), np.array(lengths) * per_row, self.config, metadata[columns.EPS_ID]):
            rows = episodes_to_table(episodes[start:stop])
            self._append(rows, _slice(metadata, start, stop))

    def write_rows(self, rows: pa.Table) -> None:
        """Appends rows of the episode format (see `episode_rows`) without decoding them."""
        self._columns = None
        self._append_rows(complete(rows))

    def _append_rows(self, rows: pa.Table) -> None:
        metadata = {name: rows[name].to_numpy() for name in columns.EPISODE_SUMMARY}
        sizes = pc.binary_length(rows[columns.ITEM]).to_numpy()
        for start, stop in _groups(np.ones(len(sizes), int), sizes, self.config, np.arange(len(sizes))):
            self._append(rows.slice(start, stop - start), _slice(metadata, start, stop))

    def write_table(self, rows: pa.Table, metadata: dict[str, np.ndarray]) -> None:
        """Appends rows of the table format; `metadata` has the arrays of `episode_summary`, in the order of the rows."""
        if self._columns is not None:
            names = {*_STATISTICS_COLUMNS, *rows.column_names} - (set(columns.STEP_COLUMNS) - set(_STATISTICS_COLUMNS))
            self._later(self._columns.add, {name: read_column(rows, name) for name in sorted(names)})
        lengths = metadata[columns.LENGTH]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        per_row = rows.nbytes / max(1, rows.num_rows)
        for start, stop in _groups(lengths, lengths * per_row, self.config, metadata[columns.EPS_ID]):
            part = rows.slice(offsets[start], offsets[stop] - offsets[start])
            self._append(part, _slice(metadata, start, stop))

    def _append(self, rows: pa.Table, metadata: dict[str, np.ndarray]) -> None:
        """Writes a row group, or several if one would be too large for a file: `_groups` goes by averages."""
        episodes = len(metadata[columns.LENGTH])
        if episodes > 1 and footer_bytes(rows.schema) + stored_bytes(rows) > self.config.max_bytes_per_file:
            half = episodes // 2
            cut = half if self.format == "episodes" else int(metadata[columns.LENGTH][:half].sum())
            self._append(rows.slice(0, cut), _slice(metadata, 0, half))
            self._append(rows.slice(cut), _slice(metadata, half, episodes))
            return
        self._check_types(rows.schema)
        self._later(self._append_now, rows, metadata)

    def _later(self, task: Callable[..., None], *arguments: Any) -> None:
        """Have the thread do it after what it was given before."""
        self._wait(MAX_TASKS - 1)
        self._tasks.append(self._thread.submit(task, *arguments))

    def _wait(self, left: int = 0) -> None:
        """Until no more than so many tasks are left."""
        while len(self._tasks) > left:
            self._tasks.popleft().result()

    def _append_now(self, rows: pa.Table, metadata: dict[str, np.ndarray]) -> None:
        if self._open is not None and not self._open.has_room(rows, self.config):
            self._finish()
        if self._open is None:
            name = f"{self.prefix}-{len(self.files):06d}"
            self._open = DataFile(self.root, name, rows.schema, self.config)
        self._open.append(rows, metadata)
        self.metadata.append(metadata)

    def _check_types(self, schema: pa.Schema) -> None:
        types = {field.name: field.type for field in schema if field.name not in OPTIONAL}
        self._types = self._types or types
        for name in sorted(types.keys() | self._types.keys()):
            if (now := types.get(name, "missing")) != (before := self._types.get(name, "missing")):
                raise SchemaError(
                    f"Column {name!r} is {now} where earlier episodes for {self.root.uri} have {before}. "
                    "Use the episode format, or import again with the environment or the spaces of all episodes."
                )

    def _finish(self) -> None:
        file, self._open = self._open, None
        if file is not None:
            self.files.append(file.finish())


def episode_rows(episodes: Sequence[Episode]) -> pa.Table:
    """Rows of the episode format: column `item` and the metadata columns."""
    items = pa.array([encode(episode) for episode in episodes], pa.binary())
    rows = episode_metadata(episodes).add_column(0, pa.field(columns.ITEM, items.type, nullable=False), items)
    return rows.replace_schema_metadata(space_metadata(episodes[0].observation_space, episodes[0].action_space))


def statistics_of(metadata: Sequence[dict[str, np.ndarray]]) -> Statistics:
    """Statistics of episodes by their metadata (see `episode_summary`), in the order given."""
    if not metadata:
        return Statistics()
    joined = {name: np.concatenate([part[name] for part in metadata]) for name in columns.EPISODE_SUMMARY}
    return Statistics(
        episodes=len(joined[columns.LENGTH]),
        steps=int(joined[columns.LENGTH].sum()),
        terminated=int(joined[columns.TERMINATED].sum()),
        truncated=int(joined[columns.TRUNCATED].sum()),
        returns=Summary.of(joined[columns.RETURN]),
        lengths=Summary.of(joined[columns.LENGTH]),
    )


def add_columns(statistics: StatisticsBuilder, episodes: Sequence[Episode]) -> None:
    """Add the steps of episodes, all at once if the episodes agree on their shapes, else episode by episode."""
    for name in dict.fromkeys([*_STATISTICS_COLUMNS, *(name for episode in episodes for name in episode.extras)]):
        having = [episode for episode in episodes if name in _STATISTICS_COLUMNS or name in episode.extras]
        try:
            statistics.add({name: step_column(having, name)})
        except ValueError:
            for episode in having:
                statistics.add({name: step_column([episode], name)})


def _groups(rows: np.ndarray, sizes: np.ndarray, config: FilesConfig, names: np.ndarray) -> list[tuple[int, int]]:
    """Consecutive episodes that share a row group, as (start, stop) pairs, limited by bytes and by rows.

    Two of one name never share it: the pieces of an episode would be read as one out of a row group of steps.
    """
    limit = config.max_rows_per_file or np.iinfo(np.int64).max
    groups, start, group_rows, group_bytes = [], 0, 0, 0.0
    present: set[Any] = set()
    for i, (count, size, name) in enumerate(zip(rows.tolist(), sizes.tolist(), names.tolist(), strict=True)):
        if i > start and (group_rows + count > limit or group_bytes + size > ROW_GROUP_BYTES or name in present):
            groups.append((start, i))
            start, group_rows, group_bytes, present = i, 0, 0.0, set()
        group_rows += count
        group_bytes += size
        present.add(name)
    return [*groups, (start, len(rows))] if len(rows) else groups


def _slice(metadata: dict[str, np.ndarray], start: int, stop: int) -> dict[str, np.ndarray]:
    return {name: values[start:stop] for name, values in metadata.items()}
