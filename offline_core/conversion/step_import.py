"""Steps of a source → episodes on disk.

    read ─→ prepare ─→ scatter by episode ─→ gather, assemble, write

Rows without an episode id lie in order, or are few enough to be linked in memory, and need no scattering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from offline_core.conversion.config import ImportConfig
from offline_core.conversion.exchange import PartWriter, read_part
from offline_core.conversion.linking import row_bytes
from offline_core.conversion.ordering import observations, order_of
from offline_core.conversion.preparation import Preparation
from offline_core.conversion.report import Counts
from offline_core.conversion.trajectories import assemble
from offline_core.conversion.unreadable import Unreadable, refuse
from offline_core.conversion.writing import Written, write
from offline_core.episodes import Episode, columns
from offline_core.errors import DataError, StorageError
from offline_core.storage.location import Location
from offline_core.storage.sources.fingerprint import files_of
from offline_core.storage.sources.ray_reads import RayRead
from offline_core.storage.sources.step_reader import StepReader

PART_BYTES = 16 * 2**20
"""Size of the source's files for one part: what is in them takes many times that in memory."""
MAX_PARTS = 512
"""As many files are open at a time."""
PARTS_PER_TASK = 8
"""These share their files, lest those be as small as parts are."""
FILES_PER_TASK = 16
IN_ORDER_SHARE = 0.9
"""Rows without ids or time are taken as lying in order, and not held in memory to be linked, if this share of the first
ones is followed by the row that fits."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class StepImport:
    """What has to be known wherever a part of the work is done."""

    readers: Sequence[StepReader]
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

    @classmethod
    def of(cls, readers: Sequence[StepReader], config: ImportConfig, root: Location, folder: Location) -> StepImport:
        """Looks at the first rows to see what is there.

        Raises:
            ConfigError: the parameters do not fit what is there.
        """
        preparation = Preparation(config.mapping, config.spaces(), config.recorded_action_range)
        size = sum(bytes for reader in readers for _, bytes, _ in files_of(reader))
        parts = config.partitions or min(MAX_PARTS, max(1, -(-size // PART_BYTES)))
        job = cls(readers, config, root, folder, parts, preparation)
        if (table := next(job._prepared(range(len(readers)), []), None)) is not None:
            job.has_ids = columns.EPS_ID in table.column_names
            job.order = order_of(config.episodes, table.schema)
            if config.episodes.order == "auto" and not job.has_ids and columns.NEW_OBS in table.column_names:
                if not _lies_in_order(table):
                    job.order = "linked"  # t alone does not tell episodes apart
                elif job.order == "linked":
                    job.order = "stored"
        return job

    def run(self, unreadable: list[Unreadable]) -> list[Written]:
        """Writes everything, part by part; what cannot be read is added to `unreadable`."""
        everything = range(len(self.readers))
        if not self.has_ids and self.order not in ("linked", "single_step"):
            return [write(self.root, "part", self._in_order(unreadable), self.config)]
        if not self.has_ids or self.parts == 1:
            tables = list(self._prepared(everything, unreadable))
            assembled = [self._assemble(pa.concat_tables(tables))] if tables else []
            return [write(self.root, "part", assembled, self.config)]
        groups = [everything[i : i + FILES_PER_TASK] for i in range(0, len(everything), FILES_PER_TASK)]
        read_with = "local" if any(isinstance(reader, RayRead) for reader in self.readers) else self.config.engine
        for found in _each(read_with, self._scatter, groups, "read"):
            unreadable += found
        parts = range(self.parts)
        shares = [parts[i : i + PARTS_PER_TASK] for i in range(0, len(parts), PARTS_PER_TASK)]
        return list(_each(self.config.engine, self._gather, shares, "write"))

    def _scatter(self, group: range) -> list[Unreadable]:
        unreadable: list[Unreadable] = []
        ids_per_file = self.config.episodes.ids_per_file
        with PartWriter(self.folder, f"{group.start:08d}", parts=self.parts, ids_per_file=ids_per_file) as writer:
            for table in self._prepared(group, unreadable):
                writer.write(table)
        return unreadable

    def _gather(self, parts: range) -> Written:
        tables = (read_part(self.folder, part) for part in parts)
        assembled = (self._assemble(table) for table in tables if table is not None)
        return write(self.root, f"part-{parts.start:05d}", assembled, self.config)

    def _prepared(self, which: Iterable[int], unreadable: list[Unreadable]) -> Iterator[pa.Table]:
        """The rows of some readers in our columns; what cannot be read is added to `unreadable`, or raised."""
        for number in which:
            reader, row = self.readers[number], 0
            try:
                for batch in reader.batches():
                    table, bad = self.preparation(batch, file=number, first_row=row, uri=reader.uri)
                    row += batch.num_rows
                    for each in bad:
                        refuse(each, self.config.unreadable, unreadable)
                    if table is not None and table.num_rows:
                        yield table
            except (DataError, StorageError) as error:
                if self.config.unreadable == "fail":
                    raise
                unreadable.append(Unreadable(reader.uri, None, 0, error))

    def _in_order(self, unreadable: list[Unreadable]) -> Iterator[tuple[list[Episode], Counts]]:
        """Episodes of rows that lie in order, as soon as an end is there."""
        waiting: list[pa.Table] = []
        for table in self._prepared(range(len(self.readers)), unreadable):
            ends = np.flatnonzero(_ends(table))
            cut = int(ends[-1]) + 1 if len(ends) else 0
            if cut:
                yield self._assemble(pa.concat_tables([*waiting, table.slice(0, cut)]))
                waiting = []
            if cut < table.num_rows:
                waiting.append(table.slice(cut))
        if waiting:
            yield self._assemble(pa.concat_tables(waiting))

    def _assemble(self, table: pa.Table) -> tuple[list[Episode], Counts]:
        uris = [reader.uri for reader in self.readers]
        return assemble(table, self.config.episodes, order=self.order, files=uris, spaces=self.preparation.spaces)


def _each(engine: str, function: Callable[[Item], Result], items: Sequence[Item], what: str) -> Iterator[Result]:
    """The results of `function` in the order of the items, computed here or by Ray Data."""
    if engine == "local":
        yield from map(function, tqdm(items, desc=what, unit="part", disable=None))
        return
    import ray.data

    numbers = ray.data.from_items(list(range(len(items))), override_num_blocks=len(items))
    done = numbers.map(lambda row: {"number": row["item"], "result": [function(items[row["item"]])]})
    results = {row["number"]: row["result"][0] for row in done.iter_rows()}
    yield from (results[number] for number in range(len(items)))


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
