"""The one writer of Parquet files: rolls by rows and bytes, names files by their content, leaves nothing half done."""

from __future__ import annotations

import contextlib
import hashlib
import io
import operator
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from offline_core.config import Config
from offline_core.episodes import Episode, columns, encode, episodes_to_table, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.metadata import complete, episode_metadata, episode_summary
from offline_core.episodes.steps import step_column
from offline_core.episodes.table import space_metadata
from offline_core.errors import SchemaError
from offline_core.storage.location import Location
from offline_core.storage.manifest import FileEntry, Format, Statistics, Summary
from offline_core.storage.parquet_files import footer_of
from offline_core.storage.parquet_size import chunk_bytes, footer_bytes, stored_bytes
from offline_core.storage.statistics import StatisticsBuilder
from offline_core.storage.storage_errors import storage_errors

ROW_GROUP_BYTES = 4 * 2**20
"""Aim for a row group, before compression: small enough to read one alone, large enough to scan at full speed."""

OPTIONAL = {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA}
"""Table columns that are there only where there is something in them; a file has them in all rows or in none."""

_SUMMED_UP = (columns.OBS, columns.ACTIONS, columns.REWARDS)
"""What columns statistics are made of, beside the extras."""


Codec = Literal["zstd", "lz4", "snappy", "none"]


class FilesConfig(Config):
    """Size and compression of data files."""

    max_rows_per_file: int | None = Field(
        None, ge=1, title="Rows per file", description="Start a new file after this many rows (episodes, or steps of a table)."
    )
    max_bytes_per_file: int = Field(
        128 * 2**20, ge=2**16, description="Start a new file before it grows beyond this; only one episode alone may be larger."
    )
    compression: Codec = Field("zstd", description="Parquet codec.")
    column_compression: dict[str, Codec] = Field(
        {},
        exclude_if=operator.not_,
        title="Compression by column",
        description='Another codec for some columns: {"obs": "lz4", "infos": "none"}.',
    )
    compression_level: int | None = Field(
        None, ge=1, le=22, title="Compression level", description="For zstd; higher is smaller and slower to write. None: 1."
    )


class WrittenFiles(NamedTuple):
    """Files that no manifest lists yet."""

    format: Format
    files: list[FileEntry]
    statistics: Statistics


class EpisodeWriter:
    """Writes episodes, in either format, into files `<prefix>-<number>-<hash>.parquet` below `root`.

    Use as a context manager; after a clean end `files` and `statistics` say what was written. After an error nothing
    remains of the file that was open. Files are complete the moment they carry their name, but belong to no dataset
    until a manifest lists them.
    """

    def __init__(self, root: Location, prefix: str, *, format: Format, config: FilesConfig = FilesConfig()) -> None:
        self.root = root
        self.prefix = prefix
        self.format = format
        self.config = config
        self.files: list[FileEntry] = []
        self.metadata: list[dict[str, np.ndarray]] = []
        self._columns: StatisticsBuilder | None = StatisticsBuilder()
        self._open: _OpenFile | None = None
        self._types: dict[str, pa.DataType] = {}

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._finish()
        elif self._open is not None:
            self._open.abandon()

    @property
    def statistics(self) -> Statistics:
        """Of what was written so far; those of columns are not known if there were rows whose bytes were not opened."""
        columns = None if self._columns is None else self._columns.result()
        return statistics_of(self.metadata).model_copy(update={"columns": columns})

    @property
    def written(self) -> WrittenFiles:
        """All files, after a clean end."""
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
            _add_columns(self._columns, episodes)
        if self.format == "episodes":
            self._append_rows(episode_rows(episodes))
            return
        lengths = [len(episode) for episode in episodes]
        metadata = episode_summary(episodes)
        observations = sum(array.nbytes for array in nested.leaves(episodes[0].observations))  # next ones are stored too
        per_row = (episodes[0].nbytes + observations) / max(1, lengths[0])
        for start, stop in _groups(np.array(lengths), np.array(lengths) * per_row, self.config):
            rows = episodes_to_table(episodes[start:stop])
            self._append(rows, _slice(metadata, start, stop))

    def write_rows(self, rows: pa.Table) -> None:
        """Appends rows of the episode format (as `episode_rows` makes them) without opening their bytes."""
        self._columns = None
        self._append_rows(complete(rows))

    def _append_rows(self, rows: pa.Table) -> None:
        metadata = {name: rows[name].to_numpy() for name in columns.EPISODE_SUMMARY}
        sizes = pc.binary_length(rows[columns.ITEM]).to_numpy()
        for start, stop in _groups(np.ones(len(sizes), int), sizes, self.config):
            self._append(rows.slice(start, stop - start), _slice(metadata, start, stop))

    def write_table(self, rows: pa.Table, metadata: dict[str, np.ndarray]) -> None:
        """Appends rows of the table format; `metadata` has the arrays of `episode_summary`, in the order of the rows."""
        if self._columns is not None:
            names = {*_SUMMED_UP, *rows.column_names} - (set(columns.STEP_COLUMNS) - set(_SUMMED_UP))
            self._columns.add({name: read_column(rows, name) for name in sorted(names)})
        lengths = metadata[columns.LENGTH]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        per_row = rows.nbytes / max(1, rows.num_rows)
        for start, stop in _groups(lengths, lengths * per_row, self.config):
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
        if self._open is not None and not self._open.has_room(rows, self.config):
            self._finish()
        if self._open is None:
            name = f"{self.prefix}-{len(self.files):06d}"
            self._open = _OpenFile(self.root, name, rows.schema, self.config)
        self._open.append(rows, metadata)
        self.metadata.append(metadata)

    def _check_types(self, schema: pa.Schema) -> None:
        types = {field.name: field.type for field in schema if field.name not in OPTIONAL}
        self._types = self._types or types
        for name in sorted(types.keys() | self._types.keys()):
            if (now := types.get(name, "missing")) != (before := self._types.get(name, "missing")):
                raise SchemaError(
                    f"Column {name!r} is {now} where earlier episodes for {self.root.uri} have {before}. "
                    "Use the episode format, or import again with the environment or the spaces they are all of."
                )

    def _finish(self) -> None:
        if self._open is not None:
            self.files.append(self._open.finish())
            self._open = None


def episode_rows(episodes: Sequence[Episode]) -> pa.Table:
    """Rows of the episode format: column `item` and the metadata that episodes are chosen by."""
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


def _add_columns(statistics: StatisticsBuilder, episodes: Sequence[Episode]) -> None:
    """All steps at once where the episodes agree on their shapes, as those of one dataset nearly always do."""
    for name in dict.fromkeys([*_SUMMED_UP, *(name for episode in episodes for name in episode.extras)]):
        having = [episode for episode in episodes if name in _SUMMED_UP or name in episode.extras]
        try:
            statistics.add({name: step_column(having, name)})
        except ValueError:
            for episode in having:
                statistics.add({name: step_column([episode], name)})


def _codecs(schema: pa.Schema, config: FilesConfig) -> dict[str, Codec]:
    """By the path of each leaf, as Parquet has it (`obs.list.element`).

    Raises:
        SchemaError: a column is named that is not there.
    """
    if missing := sorted(config.column_compression.keys() - set(schema.names)):
        raise SchemaError(
            f"files.column_compression names the column {missing[0]}; there are {', '.join(schema.names)}. In episode format "
            "an episode is one value, the column item."
        )
    empty = io.BytesIO()
    pq.ParquetWriter(empty, schema).close()
    leaves = pq.read_metadata(empty).schema
    chosen = config.column_compression.items()
    return {
        path: next((codec for name, codec in chosen if f"{path}.".startswith(f"{name}.")), config.compression)
        for path in (leaves.column(number).path for number in range(len(leaves)))
    }


class _OpenFile:
    """A Parquet file under a temporary name."""

    def __init__(self, root: Location, name: str, schema: pa.Schema, config: FilesConfig) -> None:
        self.root = root
        self.name = name
        self.uri = root.child(name).uri
        self.schema = schema
        self.rows = self.episodes = self.steps = 0
        self.footer_bytes = footer_bytes(schema)
        text = [field.name for field in schema if pa.types.is_string(field.type)]
        blobs = [field.name for field in schema if pa.types.is_binary(field.type)]
        codecs = _codecs(schema, config)
        with storage_errors("write", self.uri):
            self.file = root.store.new_file(root.child(name).path)
        self.sink = _HashingSink(self.file)
        with self._whole_or_gone():
            self.writer = pq.ParquetWriter(
                self.sink,
                schema,
                compression=codecs,
                compression_level={path: config.compression_level or 1 for path, codec in codecs.items() if codec == "zstd"},
                use_dictionary=text,
                write_statistics=[name for name in schema.names if name not in blobs],
                write_page_checksum=True,
            )

    def has_room(self, rows: pa.Table, config: FilesConfig) -> bool:
        too_many = config.max_rows_per_file is not None and self.rows + rows.num_rows > config.max_rows_per_file
        size = self.sink.tell() + self.footer_bytes + stored_bytes(rows)
        return not too_many and size <= config.max_bytes_per_file and rows.schema.equals(self.schema)

    def append(self, rows: pa.Table, metadata: dict[str, np.ndarray]) -> None:
        with self._whole_or_gone():
            self.writer.write_table(rows, row_group_size=rows.num_rows)
        self.footer_bytes += chunk_bytes(self.schema)
        self.rows += rows.num_rows
        self.episodes += len(metadata[columns.LENGTH])
        self.steps += int(metadata[columns.LENGTH].sum())

    def finish(self) -> FileEntry:
        with self._whole_or_gone():
            self.writer.close()
            sha256 = self.sink.sha256.hexdigest()
            footer = footer_of(self.file, self.sink.tell())
            path = f"{self.name}-{sha256[:12]}.parquet"
            self.root.store.put_file(self.file, self.root.child(path).path)
        return FileEntry(
            path=path,
            rows=self.rows,
            episodes=self.episodes,
            steps=self.steps,
            bytes=self.sink.tell(),
            sha256=sha256,
            footer_sha256=hashlib.sha256(footer).hexdigest(),
        )

    def abandon(self) -> None:
        with contextlib.suppress(Exception):  # the error that brought us here is the one to see
            self.writer.close()
        self.root.store.discard(self.file)

    @contextlib.contextmanager
    def _whole_or_gone(self) -> Iterator[None]:
        try:
            with storage_errors("write", self.uri):
                yield
        except BaseException:
            self.abandon()
            raise


class _HashingSink:
    """A file object that hashes what passes through, so that no file is read again to be named; its file stays open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.sha256 = hashlib.sha256()
        self.closed = False
        self._size = 0

    def write(self, data: Any) -> int:
        self.stream.write(data)
        self.sha256.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self.stream.flush()

    def close(self) -> None:
        self.closed = True


def _groups(rows: np.ndarray, sizes: np.ndarray, config: FilesConfig) -> list[tuple[int, int]]:
    """Consecutive episodes that share a row group: (start, stop) pairs, cut by bytes and by rows, never inside one."""
    limit = config.max_rows_per_file or np.iinfo(np.int64).max
    groups, start, group_rows, group_bytes = [], 0, 0, 0.0
    for i, (count, size) in enumerate(zip(rows.tolist(), sizes.tolist(), strict=True)):
        if i > start and (group_rows + count > limit or group_bytes + size > ROW_GROUP_BYTES):
            groups.append((start, i))
            start, group_rows, group_bytes = i, 0, 0.0
        group_rows += count
        group_bytes += size
    return [*groups, (start, len(rows))] if len(rows) else groups


def _slice(metadata: dict[str, np.ndarray], start: int, stop: int) -> dict[str, np.ndarray]:
    return {name: values[start:stop] for name, values in metadata.items()}
