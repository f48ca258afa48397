"""Write episodes into Parquet files that roll by rows and bytes; an error leaves no partial file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.data_file import DataFile, FilesConfig, footer_bytes, stored_bytes
from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.datasets.statistics import Statistics, StatisticsBuilder
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.codecs import CODECS, Format
from offline_core.data.episodes.index import episode_summary
from offline_core.data.store.location import Location
from offline_core.errors import SchemaError

ROW_GROUP_BYTES = 4 * 2**20
"""Aim for a row group, before compression: small enough to read one alone, large enough to scan at full speed."""

MAX_TASKS = 4
"""Most tasks that wait for the thread: row groups, or batches to be counted."""

OPTIONAL = {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA}
"""Table columns that exist only where they hold a value; a file has them in all rows or in none."""


class WrittenFiles(NamedTuple):
    """Files that no manifest lists yet."""

    format: Format
    files: list[FileEntry]
    statistics: Statistics


class EpisodeWriter:
    """Writes episodes, in either format, into files `<prefix>-<number>-<hash>.parquet` below `root`.

    Use as a context manager; after a clean exit `files` and `statistics` describe what was written. An error removes the
    file that was open. A file that has its name is complete, but belongs to no dataset until a manifest lists it.
    A thread counts and compresses what is written while the next is made; its first error is raised by a later call, or at a
    clean exit, and nothing is written after it.
    """

    def __init__(self, root: Location, prefix: str, *, format: Format, config: FilesConfig = FilesConfig()) -> None:
        self.root = root
        self.prefix = prefix
        self.codec = CODECS[format]
        self.config = config
        self.files: list[FileEntry] = []
        self.summaries: list[dict[str, np.ndarray]] = []
        self._columns: StatisticsBuilder | None = StatisticsBuilder()
        self._open: DataFile | None = None
        self._types: dict[str, pa.DataType] = {}
        self._thread = ThreadPoolExecutor(1)
        self._tasks: deque[Future[None]] = deque()
        self._has_failed = False

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._thread.shutdown(cancel_futures=kind is not None)  # after an error, it would meet a file that is gone
            if kind is None:
                self._wait()
                self._finish()
        finally:
            if self._open is not None:
                self._open.abandon()

    @property
    def statistics(self) -> Statistics:
        """Statistics of what was written so far; without columns if rows were copied of which the codec does not see them."""
        self._wait()
        return Statistics.of(self.summaries, self._columns)

    @property
    def written(self) -> WrittenFiles:
        """All files, after a clean exit."""
        return WrittenFiles(self.codec.name, self.files, self.statistics)

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes, whole, in this order.

        Raises:
            SchemaError: in table format, they differ from earlier ones in the type of a column, or in their extras.
            StorageError: the file cannot be written.
        """
        if not episodes:
            return
        if self._columns is not None:
            self._later(self._columns.add_episodes, episodes)
        self._append_groups(self.codec.encoded(episodes, self._shared), episode_summary(episodes))

    def copy(self, rows: pa.Table, summary: dict[str, np.ndarray]) -> None:
        """Appends rows of the format that is written, without decoding them; `summary` is the `episode_summary` of them."""
        numbers = self.codec.numbers(rows)
        if numbers is None:
            self._columns = None
        elif self._columns is not None:
            self._later(self._columns.add, numbers)
        self._append_groups(self.codec.shared(rows, summary, self._shared), summary)

    def _append_groups(self, groups: Iterable[tuple[pa.Table, int, int]], summary: dict[str, np.ndarray]) -> None:
        for rows, start, stop in groups:
            self._append(rows, _slice(summary, start, stop))

    def _append(self, rows: pa.Table, summary: dict[str, np.ndarray]) -> None:
        """Writes a row group, or several if one would be too large for a file: `_shared` goes by averages."""
        episodes = len(summary[columns.LENGTH])
        if episodes > 1 and footer_bytes(rows.schema) + stored_bytes(rows) > self.config.max_bytes_per_file:
            half = episodes // 2
            cut = int(self.codec.rows_of(summary[columns.LENGTH][:half]).sum())
            self._append(rows.slice(0, cut), _slice(summary, 0, half))
            self._append(rows.slice(cut), _slice(summary, half, episodes))
            return
        self._check_types(rows.schema)
        self._later(self._append_now, rows, summary)

    def _shared(self, rows: np.ndarray, sizes: np.ndarray, names: np.ndarray) -> list[tuple[int, int]]:
        """Consecutive episodes that share a row group, as (start, stop) pairs, limited by bytes and by rows; see `Share`.

        Two of one name never share it: the pieces of an episode would be read as one out of a row group of steps.
        """
        limit = self.config.max_rows_per_file or np.iinfo(np.int64).max
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

    def _later(self, task: Callable[..., None], *arguments: Any) -> None:
        """Have the thread do it after what it was given before."""
        self._wait(MAX_TASKS - 1)
        self._tasks.append(self._thread.submit(self._done, task, *arguments))

    def _done(self, task: Callable[..., None], *arguments: Any) -> None:
        """Do it, unless one before failed: its error is raised, and the file is gone."""
        if self._has_failed:
            return
        try:
            task(*arguments)
        except BaseException:
            self._has_failed = True
            raise

    def _wait(self, left: int = 0) -> None:
        """Until no more than so many tasks are left."""
        while len(self._tasks) > left:
            self._tasks.popleft().result()

    def _append_now(self, rows: pa.Table, summary: dict[str, np.ndarray]) -> None:
        if self._open is not None and not self._open.has_room(rows, self.config):
            self._finish()
        if self._open is None:
            name = f"{self.prefix}-{len(self.files):06d}"
            self._open = DataFile(self.root, name, rows.schema, self.config)
        self._open.append(rows, summary[columns.LENGTH])
        self.summaries.append(summary)

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


def _slice(summary: dict[str, np.ndarray], start: int, stop: int) -> dict[str, np.ndarray]:
    return {name: values[start:stop] for name, values in summary.items()}
