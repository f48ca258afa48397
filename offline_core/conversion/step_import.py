"""Steps of a source → episodes on disk.

    read ─→ prepare ─→ scatter by episode ─→ gather, assemble, write

Rows without an episode id lie in order, or are few enough to be linked in memory, and need no scattering.
What cannot be read is noted with its place, lest the rows around it be taken for neighbours.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from offline_core.conversion.action_range import infer_range, steps_of_table
from offline_core.conversion.config import EpisodesConfig, ImportConfig
from offline_core.conversion.exchange import PartWriter, read_part
from offline_core.conversion.ordering import observations
from offline_core.conversion.preparation import Preparation
from offline_core.conversion.report import Counts, Unreadable, refuse
from offline_core.conversion.row_columns import RowColumns
from offline_core.conversion.times import has_timestamps
from offline_core.conversion.trajectories import Spaces, assemble
from offline_core.conversion.trajectory_linking import row_bytes
from offline_core.conversion.writing import Written, write
from offline_core.episodes import Episode, columns
from offline_core.errors import ConfigError, DataError
from offline_core.formats.sources.fingerprint import files_of
from offline_core.formats.sources.listing import Listing
from offline_core.formats.sources.ray_reads import RayRead
from offline_core.formats.sources.scans import SOURCE_ROW
from offline_core.formats.sources.small_files import small_files
from offline_core.formats.sources.step_reader import StepReader
from offline_core.runtime.engine import map_items
from offline_core.runtime.prefetch import prefetched
from offline_core.runtime.progress import progress
from offline_core.storage.location import Location

PART_BYTES = 16 * 2**20
"""Size of the source's files for one part: what is in them takes many times that in memory."""
MAX_PARTS = 512
"""As many files are open at a time."""
PARTS_PER_TASK = 8
"""They share files, which else would be as small as parts are."""
FILES_PER_TASK = 16
"""At least."""
SMALL_FILES_PER_TASK = 512
IN_ORDER_SHARE = 0.9
"""Rows without ids are taken as lying in order, and not held in memory to be linked, as long as this share of those that are
read together is followed by the row that fits."""


@dataclass
class Lost:
    """What cannot be imported."""

    unreadable: list[Unreadable] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """(file, row) of what could not be read."""
    clipped_actions: int = 0
    """Not lost, but changed: steps whose action lay outside the range they were recorded in."""
    without_partner: Counter[int] = field(default_factory=Counter)
    """By the number of the join, rows without one."""

    def count(self, before: tuple[int, Sequence[int]], after: tuple[int, Sequence[int]]) -> None:
        """Add what was counted between two calls of `Preparation.counted`."""
        self.clipped_actions += after[0] - before[0]
        self.without_partner.update({i: b - a for i, (a, b) in enumerate(zip(before[1], after[1], strict=True)) if b > a})


@dataclass
class StepImport:
    """What has to be known wherever a part of the work is done."""

    readers: Sequence[StepReader]
    sizes: Sequence[int]
    """Bytes that each reader reads; 0 if it reads no files."""
    config: ImportConfig
    root: Location
    """Of the dataset."""
    folder: Location
    """For rows on their way to their part."""
    parts: int
    preparation: Preparation
    order: str = ""
    """As `order_of` says; empty if there are no rows."""
    has_ids: bool = False
    may_link: bool = False
    """Rows that turn out not to lie in order are linked."""
    notes: list[str] = field(default_factory=list)
    """What was inferred from the first rows and not declared."""

    @classmethod
    def of(
        cls,
        readers: Sequence[StepReader],
        config: ImportConfig,
        root: Location,
        folder: Location,
        listing: Listing,
        spaces: Spaces,
        columns_made: RowColumns | None = None,
    ) -> StepImport:
        """Look at the first rows for columns, order and the range of actions.

        Raises:
            ConfigError: the parameters do not fit the source.
        """
        preparation = Preparation(config.mapping, spaces, config.recorded_action_range, columns_made)
        sizes = [sum(size for _, size, _ in files_of(reader, listing)) for reader in readers]
        parts = config.partitions or min(MAX_PARTS, max(1, -(-sum(sizes) // PART_BYTES)))
        job = cls(readers, sizes, config, root, folder, parts, preparation)
        tables = job._prepared(range(len(readers)), Lost())
        if (table := next(tables, None)) is not None:
            if config.recorded_action_range is None:
                job._infer_range(itertools.chain([table], tables))
            tables.close()  # or what reads for it, Ray's tasks among them, goes on
            job.has_ids = columns.EPS_ID in table.column_names
            job.order = order_of(config.episodes, table)
            job.may_link = config.episodes.order == "auto" and not job.has_ids and columns.NEW_OBS in table.column_names
            if job.may_link and job.order == "linked":
                job.order = "stored"
        return job

    def _infer_range(self, tables: Iterable[pa.Table]) -> None:
        self.preparation.recorded_action_range, note = infer_range(map(steps_of_table, tables), self.preparation.spaces[1])
        self.notes += [] if note is None else [note]

    def run(self, unreadable: list[Unreadable]) -> list[Written]:
        """Writes everything, part by part; what cannot be read is added to `unreadable`."""
        lost = Lost(unreadable)
        written = self._written(lost)
        written[0].counts.clipped_actions = lost.clipped_actions
        if self.preparation.made is not None:
            self.notes += self.preparation.made.notes(lost.without_partner)
        return written

    def _written(self, lost: Lost) -> list[Written]:
        everything = range(len(self.readers))
        if not self.has_ids and self.order != "linked":
            return [write(self.root, "part", self._in_order(lost), self.config)]
        if not self.has_ids or self.parts == 1:
            tables = list(self._prepared_together(everything, lost))
            assembled = [self._assemble(pa.concat_tables(tables), lost)] if tables else []
            return [write(self.root, "part", assembled, self.config)]
        groups = _groups(self.sizes)
        read_with = "local" if any(isinstance(reader, RayRead) for reader in self.readers) else self.config.engine
        with progress(len(groups), what="read", unit="part") as bar:
            for found in map_items(read_with, self._scatter, groups):
                lost.unreadable += found.unreadable
                lost.places += found.places
                lost.clipped_actions += found.clipped_actions
                lost.without_partner += found.without_partner
                bar.update(1)
        parts = range(self.parts)
        shares = [parts[i : i + PARTS_PER_TASK] for i in range(0, len(parts), PARTS_PER_TASK)]
        written = []
        with progress(len(shares), what="write", unit="part") as bar:
            for part, refused in map_items(self.config.engine, functools.partial(self._gather, lost.places), shares):
                written.append(part)
                lost.unreadable += refused
                bar.update(1)
        return written

    def _scatter(self, group: range) -> Lost:
        lost, ids_per_file = Lost(), self.config.episodes.ids_per == "file"
        with PartWriter(self.folder, f"{group.start:08d}", parts=self.parts, ids_per_file=ids_per_file) as writer:
            for table in self._prepared_together(group, lost):
                writer.write(table)
        return lost

    def _gather(self, places: list[tuple[int, int]], parts: range) -> tuple[Written, list[Unreadable]]:
        lost = Lost(places=places)
        tables = (read_part(self.folder, part) for part in parts)
        assembled = (self._assemble(table, lost) for table in tables if table is not None)
        return write(self.root, f"part-{parts.start:05d}", assembled, self.config), lost.unreadable

    def _prepared(self, which: Iterable[int], lost: Lost) -> Generator[pa.Table]:
        """The rows of some readers in our columns; what cannot be read is added to `lost`, or raised."""
        for number in which:
            reader, row, reached = self.readers[number], 0, 0
            before = self.preparation.counted()
            try:
                for batch in reader.batches():
                    table, bad = self.preparation(batch, file=number, first_row=row, uri=reader.uri)
                    row += batch.num_rows
                    for each in bad:
                        refuse(each, self.config.unreadable, lost.unreadable)
                        lost.places.append((number, reached if each.row is None else each.row))
                    if table is not None and table.num_rows:
                        reached = table[SOURCE_ROW][-1].as_py() + 1
                        yield table
            except DataError as error:  # and no StorageError: what is out of reach is not damaged
                if self.config.unreadable == "fail":
                    raise
                lost.unreadable.append(Unreadable(reader.uri, None, 0, error))
                lost.places.append((number, reached))
            lost.count(before, self.preparation.counted())

    def _prepared_together(self, which: Iterable[int], lost: Lost) -> Iterator[pa.Table]:
        """As `_prepared`, in larger tables: small files are read and converted many at a time; a thread reads ahead."""
        for numbers, rows in prefetched(small_files(self.readers, self.sizes, which)):
            before = self.preparation.counted()
            if rows is not None and (table := self.preparation.together(rows)) is not None:
                lost.count(before, self.preparation.counted())
                yield table
            else:
                yield from self._prepared(numbers, lost)

    def _in_order(self, lost: Lost) -> Iterator[tuple[list[Episode], Counts]]:
        """Episodes of rows stored in order, as soon as their end is read; from the first rows out of order, all are linked."""
        waiting: list[pa.Table] = []
        tables = self._prepared(range(len(self.readers)), lost)
        for table in tables:
            if self.may_link and not _lies_in_order(table):
                yield self._assemble(pa.concat_tables([*waiting, table, *tables]), lost, order="linked")
                return
            ends = np.ones(table.num_rows, bool) if self.order == "single_step" else _ends(table)
            cut = int(np.flatnonzero(ends)[-1]) + 1 if ends.any() else 0
            if cut:
                yield self._assemble(pa.concat_tables([*waiting, table.slice(0, cut)]), lost)
                waiting = []
            if cut < table.num_rows:
                waiting.append(table.slice(cut))
        if waiting:
            yield self._assemble(pa.concat_tables(waiting), lost)

    def _assemble(self, table: pa.Table, lost: Lost, order: str | None = None) -> tuple[list[Episode], Counts]:
        return assemble(
            table,
            self.config.episodes,
            order=order or self.order,
            files=[reader.uri for reader in self.readers],
            spaces=self.preparation.spaces,
            refuse=functools.partial(refuse, rule=self.config.unreadable, listed=lost.unreadable),
            lost=lost.places,
        )


def _groups(sizes: Sequence[int]) -> list[range]:
    """The files of each task that reads them."""
    groups, start, size = [], 0, 0
    for number, more in enumerate(sizes):
        count = number - start
        if count >= FILES_PER_TASK and (size >= PART_BYTES or count >= SMALL_FILES_PER_TASK):
            groups.append(range(start, number))
            start, size = number, 0
        size += more
    return [*groups, range(start, len(sizes))]


def _ends(table: pa.Table) -> np.ndarray:
    """(N,) bool: the row ends an episode."""
    ends = np.zeros(table.num_rows, bool)
    for name in {columns.TERMINATEDS, columns.TRUNCATEDS} & set(table.column_names):
        ends |= table[name].to_numpy()
    return ends


def _lies_in_order(table: pa.Table) -> bool:
    """Whether most rows that end nothing are followed by the row that fits."""
    obs, new_obs = (row_bytes(tree) for tree in observations(table))
    fits = (new_obs[:-1] == obs[1:]).all(axis=1)[~_ends(table)[:-1]]
    return bool(fits.mean() >= IN_ORDER_SHARE) if len(fits) else True


def order_of(rules: EpisodesConfig, table: pa.Table) -> str:
    """What `auto` stands for with these columns and first rows.

    Raises:
        ConfigError: the order cannot be had from these columns.
    """
    names = table.column_names
    order: str = rules.order
    if order == "auto":
        if columns.T in names:
            order = "t" if _numbers_steps(table[columns.T], rules.first_t) else "time"
        else:
            order = "linked" if columns.NEW_OBS in names else "stored"
    if order in ("t", "time") and columns.T not in names:
        raise ConfigError(f"Rows cannot be ordered by {order}: no column is mapped to 't'.")
    if rules.ids_per == "date" and not has_timestamps(table):
        raise ConfigError("Ids per date need a column 't' of timestamps or dates; use episodes.ids_per: file, or folder.")
    if order == "t" and has_timestamps(table):
        raise ConfigError("Column 't' holds times and does not number steps; use order: time.")
    if order == "linked" and columns.NEW_OBS not in names:
        raise ConfigError("Rows cannot be linked without a column new_obs.")
    if columns.NEW_OBS not in names and rules.last_new_obs is None:
        raise ConfigError(
            "There is no column new_obs, so it is the obs of the next step; say what follows the last one by "
            "episodes.last_new_obs: repeat or drop."
        )
    if columns.NEW_OBS not in names and order == "single_step" and rules.last_new_obs == "drop":
        raise ConfigError("Single steps without new_obs would all be dropped; use last_new_obs: repeat.")
    if not {columns.EPS_ID, columns.TERMINATEDS, columns.TRUNCATEDS} & set(names) and order != "single_step":
        raise ConfigError(f"Nothing says where an episode ends: map a column to eps_id or to dones. There are {names}.")
    return order


def _numbers_steps(t: pa.ChunkedArray, first: int) -> bool:
    """Whole numbers do; if they are stored as real ones, only those that begin with the first of an episode."""
    if not pa.types.is_floating(t.type):
        return bool(pa.types.is_integer(t.type))
    values = t.to_numpy()
    return bool((values == np.floor(values)).all() and values.min(initial=np.inf) == first)
