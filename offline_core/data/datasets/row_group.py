"""A row group: a part of a data file that any process reads alone, in any order."""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import CODECS, Codec, Format
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import open_parquet, parquet_errors, read_footer
from offline_core.errors import within
from offline_core.runtime.prefetch import AT_A_TIME, several

if TYPE_CHECKING:
    import ray.data


PREFETCH_BYTES = 64 * 2**20
"""Bytes of row groups read before they are needed: enough to keep a network connection busy."""

READ_SECONDS = "_read_seconds"
"""(R,) float32: how long reading took, in the first row."""

_passes = itertools.count(1)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group of a data file, picklable; in a committed dataset it holds whole episodes."""

    file: Location
    sha256: str
    """Of the file, to notice that another file has replaced it."""
    footer_sha256: str | None
    """See `FileEntry`."""
    number: int
    num_rows: int
    size_bytes: int
    """Before compression."""
    format: Format
    number_in_dataset: int = 0
    pass_number: int = 0
    """Counts calls of `row_groups_of`: each pass over a dataset reads and verifies footers anew."""
    spaces: StoredSpaces = field(default=(None, None), compare=False)
    """Of the manifest."""

    @property
    def uri(self) -> str:
        return self.file.uri

    @property
    def codec(self) -> Codec:
        return CODECS[self.format]

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return list(self._footer.schema.to_arrow_schema().names)

    def read(self, names: Sequence[str] | None = None) -> pa.Table:
        """Its rows, with the columns `names` (absent ones are skipped) or all.

        Raises:
            CorruptFileError: the file is damaged.
            StorageError: it cannot be read.
        """
        return _read([self], names)

    def episodes(self, names: Sequence[str] | None = None, *, only: np.ndarray | None = None) -> list[Episode]:
        """Its episodes, not validated; they get the dataset's spaces unless they have their own.

        Arguments:
            names: only these columns, where they are stored apart.
            only: (episodes,) booleans: leave out the others.

        Raises:
            CorruptFileError, EpisodeError, SchemaError, UnsafeDataError: naming the file and the episode.
        """
        with within(uri=self.uri):
            rows = self.read(self.codec.stored(names))
        return self.decode(rows, only)

    def decode(self, rows: pa.Table, only: np.ndarray | None = None) -> list[Episode]:
        """The episodes of some of its rows; see `episodes`."""
        with within(uri=self.uri):
            return [self._with_spaces(episode) for episode in self.codec.episodes(rows, only)]

    def first_episode(self) -> Episode:
        """The first of its episodes; no other is decoded. See `episodes`."""
        with within(uri=self.uri):
            rows = self.read(self.codec.stored(None))
            stop = [*self.codec.starts(rows).tolist(), rows.num_rows][1]
        return self.decode(rows.slice(0, stop))[0]

    @property
    def _footer(self) -> pq.FileMetaData:
        return _footer(self.file, self.sha256, self.footer_sha256, self.pass_number)

    def _with_spaces(self, episode: Episode) -> Episode:
        observation_space, action_space = self.spaces
        if episode.observation_space is None and observation_space is not None:
            episode = replace(episode, observation_space=observation_space)
        if episode.action_space is None and action_space is not None:
            episode = replace(episode, action_space=action_space)
        return episode


def _read(groups: Sequence[RowGroup], names: Sequence[str] | None) -> pa.Table:
    """The rows of row groups of one file."""
    first = groups[0]
    with parquet_errors(first.uri), open_parquet(first.file, first._footer) as file:
        return file.read_row_groups([group.number for group in groups], columns=None if names is None else list(names))


@functools.lru_cache(maxsize=256)
def _footer(file: Location, sha256: str, footer_sha256: str | None, pass_number: int) -> pq.FileMetaData:
    """Read once a pass in each process, however many row groups the file has."""
    return read_footer(file, footer_sha256)


def row_groups_of(
    location: Location,
    entries: Sequence[FileEntry],
    format: Format,
    spaces: StoredSpaces,
    only: Container[int] | None = None,
) -> Iterator[RowGroup]:
    """The row groups of files in their order; reads neither data nor, unless the manifest is old, footers.

    Arguments:
        only: numbers of those to return; None: all.
    """
    pass_number, numbers = next(_passes), itertools.count()
    for start in range(0, len(entries), AT_A_TIME):
        some = entries[start : start + AT_A_TIME]
        files = [(location.child(entry.path), entry.sha256, entry.footer_sha256) for entry in some]
        for file, sizes in zip(files, _group_sizes(some, files, pass_number), strict=True):
            for number, (rows, size) in enumerate(sizes):
                in_dataset = next(numbers)
                if only is None or in_dataset in only:
                    yield RowGroup(*file, number, rows, size, format, in_dataset, pass_number, spaces)


def _group_sizes(
    entries: Sequence[FileEntry], files: Sequence[tuple[Location, str, str | None]], pass_number: int
) -> list[list[tuple[int, int]]]:
    """(rows, bytes before compression) of each row group of some files."""
    if all(entry.group_rows is not None and entry.group_bytes is not None for entry in entries):
        return [list(zip(entry.group_rows or (), entry.group_bytes or (), strict=True)) for entry in entries]
    footers = several(lambda file: _footer(*file, pass_number), files)
    groups = [[footer.row_group(number) for number in range(footer.num_row_groups)] for footer in footers]
    return [[(group.num_rows, group.total_byte_size) for group in of_file] for of_file in groups]


def batches(groups: Iterable[RowGroup], size_bytes: int = PREFETCH_BYTES) -> Iterator[list[RowGroup]]:
    """Neighbouring row groups of one file, as many as have no more than so many bytes before compression, one at least."""
    batch: list[RowGroup] = []
    batch_bytes = 0
    for group in groups:
        if batch and (group.file != batch[0].file or batch_bytes + group.size_bytes > size_bytes):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(group)
        batch_bytes += group.size_bytes
    if batch:
        yield batch


def read_together(groups: Sequence[RowGroup], names: Sequence[str], *, timed: bool = False, numbered: bool = False) -> pa.Table:
    """The rows of several row groups, in this order, as one table; neighbours of one file are read at once.

    Arguments:
        timed: add the column `READ_SECONDS`.
        numbered: add the column `ROW_GROUP`.
    """
    begin = time.perf_counter()
    table = pa.concat_tables(
        [_read(list(of_file), names) for _, of_file in itertools.groupby(groups, lambda group: group.file)]
    )
    if timed:
        seconds = np.zeros(table.num_rows, np.float32)
        seconds[:1] = time.perf_counter() - begin
        table = table.append_column(READ_SECONDS, pa.array(seconds))
    if numbered:
        numbers = np.array([group.number_in_dataset for group in groups], np.int32)
        table = table.append_column(ROW_GROUP, pa.array(np.repeat(numbers, [group.num_rows for group in groups])))
    return table


def prefetch_tables(
    groups: Sequence[RowGroup],
    names: Sequence[str],
    *,
    together: int = 1,
    timed: bool = False,
    numbered: bool = False,
) -> Iterator[pa.Table]:
    """`read_together` of `together` row groups at a time; threads read the next ones while one is used.

    It ends its threads without waiting for them. An error's traceback may hold this generator until the garbage collector
    ends it. The collector may run while a thread starts, which holds a lock that waiting for a thread needs.
    """
    waiting: deque[tuple[Future[pa.Table], int]] = deque()
    ahead_bytes = 0
    pool = ThreadPoolExecutor(AT_A_TIME)
    read = functools.partial(read_together, timed=timed, numbered=numbered)
    try:
        for start in range(0, len(groups), together):
            some = groups[start : start + together]
            waiting.append((pool.submit(read, some, names), sum(group.size_bytes for group in some)))
            ahead_bytes += waiting[-1][1]
            while len(waiting) > 1 and ahead_bytes > PREFETCH_BYTES:
                first, size = waiting.popleft()
                ahead_bytes -= size
                yield first.result()
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_with_ray(
    groups: Sequence[RowGroup],
    names: Sequence[str],
    *,
    together: int = 1,
    timed: bool = False,
    numbered: bool = False,
    num_cpus: float = 1,
) -> ray.data.Dataset:
    """The same rows as a lazy Ray dataset: `read_together` of `together` row groups makes a block.

    Arguments:
        num_cpus: that Ray reserves for a task.
    """
    import ray.data

    starts = range(0, max(1, len(groups)), together)
    sent = ray.data.from_arrow([_described(groups[start : start + together]) for start in starts])
    sent.context.target_max_block_size = None  # an episode of a table is not split, however large a block becomes
    read = functools.partial(_read_block, names=list(names), timed=timed, numbered=numbered)
    return sent.map_batches(read, batch_size=None, batch_format="pyarrow", num_cpus=num_cpus)


_DESCRIBED = pa.schema(
    [
        ("uri", pa.string()),
        ("sha256", pa.string()),
        ("footer_sha256", pa.string()),
        ("format", pa.string()),
        *((name, pa.int64()) for name in ("number", "num_rows", "size_bytes", "number_in_dataset", "pass_number")),
    ]
)


def _described(groups: Sequence[RowGroup]) -> pa.Table:
    """Each block of Ray names its row groups: a list of all of them would go with every task."""
    return pa.table([[getattr(group, name) for group in groups] for name in _DESCRIBED.names], schema=_DESCRIBED)


def _read_block(block: pa.Table, **how: Any) -> pa.Table:
    return read_together([RowGroup(Location.of(row.pop("uri")), **row) for row in block.to_pylist()], **how)
