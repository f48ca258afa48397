"""From stored rows to training columns: a prelearner, then the connectors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.row_group import READ_SECONDS
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.episodes.batch import run_starts
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.errors import SchemaError, within
from offline_core.learning.prelearner.connectors import Pipeline, check_batch
from offline_core.learning.prelearner.prelearner import PreLearner, Rows, make_prelearner
from offline_core.runtime.user_code import UserCode, user_errors

PRELEARNER_SECONDS = "_prelearner_seconds"
"""(R,) float32, next to `READ_SECONDS`: how long a mapper took, in its first row."""
SECONDS = (READ_SECONDS, PRELEARNER_SECONDS)


@dataclass(frozen=True)
class Mapper:
    """Maps stored rows to flat training columns, in this process or sent to Ray's actors.

    Its errors name the dataset, and whose code failed.
    """

    user_code: UserCode | None
    """The user's prelearner; None: the built-in one."""
    format: Rows
    wanted: tuple[str, ...]
    needs_next_obs: bool
    where: str
    pipeline: Pipeline

    def stored_columns(self) -> tuple[str, ...] | None:
        """The columns to read of a dataset; None: all."""
        return self._prelearner.stored_columns()

    def __call__(self, rows: pa.Table) -> EpisodeBatch:
        """Return the flat columns of the episodes that these rows hold.

        Raises:
            DataError: The rows are not what they have to be, or user code fails on them.
        """
        with within(self.where):
            refuse_extension_types(rows.schema, "the rows")
            prelearner = self._prelearner
            if self.user_code is None:
                return self.pipeline(prelearner.batch(rows))
            with user_errors(f"prelearner {self.user_code}", f"on {rows.num_rows:,} rows"):
                batch = prelearner.batch(rows)
            with within(f"The prelearner {self.user_code}"):
                batch = check_batch(batch, has_last=self.needs_next_obs)
            return self.pipeline(batch)

    def timed(self, rows: pa.Table) -> EpisodeBatch:
        """Return the same, row group by row group, with the columns `SECONDS`.

        Rows with numbers of row groups keep them. The sums of `SECONDS` are how long reading and this took.
        """
        read_seconds = 0.0
        if READ_SECONDS in rows.column_names:
            read_seconds = rows[READ_SECONDS].to_numpy().sum()
            rows = rows.drop_columns([READ_SECONDS])
        begin = time.perf_counter()
        batch = self._by_row_group(rows) if ROW_GROUP in rows.column_names else self(rows)
        seconds = np.zeros((2, batch.rows), np.float32)
        seconds[:, :1] = [[read_seconds], [time.perf_counter() - begin]]
        return batch | dict(zip(SECONDS, seconds, strict=True))

    def _by_row_group(self, rows: pa.Table) -> EpisodeBatch:
        numbers = rows[ROW_GROUP].combine_chunks()
        rows = rows.drop_columns([ROW_GROUP])
        batches = []
        for start, stop in itertools.pairwise([*run_starts(numbers).tolist(), rows.num_rows]):
            batch = self(rows.slice(start, stop - start))
            batches.append(batch | {ROW_GROUP: np.full(batch.rows, numbers[start].as_py(), np.int32)})
        batches = [batch for batch in batches if batch.rows] or batches
        if not batches:
            return self(rows)
        check_same_columns(batches, self.where)
        return EpisodeBatch.concatenate(batches)

    @cached_property
    def _prelearner(self) -> PreLearner:
        """The prelearner; it is not made with the mapper, as Ray's error about that would not name the cause."""
        return make_prelearner(
            self.user_code, format=self.format, wanted=self.wanted, needs_next_obs=self.needs_next_obs, where=self.where
        )


@dataclass(slots=True)
class ReadSoFar:
    """What reading and prelearning have produced, and how long it took; zeros where another process reads."""

    steps: int = 0
    bytes: int = 0
    """Bytes in memory."""
    seconds: float = 0.0
    """Seconds that the reader of the batches waited."""
    read_seconds: float = 0.0
    """Seconds of reading files, in all processes and threads."""
    prelearner_seconds: float = 0.0
    """Seconds of mapping rows, in all processes."""

    def since(self, other: ReadSoFar) -> ReadSoFar:
        """Return what came after `other`."""
        return ReadSoFar(*(getattr(self, field.name) - getattr(other, field.name) for field in fields(self)))

    def timed(self, batches: Iterable[EpisodeBatch]) -> Iterator[EpisodeBatch]:
        """Return the same batches, counted, without the columns `SECONDS`."""
        waiting = iter(batches)
        while True:
            begin = time.perf_counter()
            batch = next(waiting, None)
            self.seconds += time.perf_counter() - begin
            if batch is None:
                return
            batch, read_seconds, prelearner_seconds = without_seconds(batch)
            self.read_seconds += read_seconds
            self.prelearner_seconds += prelearner_seconds
            self.steps += len(batch)
            self.bytes += sum(column.nbytes for column in batch.columns.values())
            yield batch


def check_same_columns(batches: list[EpisodeBatch], where: str) -> None:
    """Raise a SchemaError if not all batches have the columns of the first."""
    first = batches[0].columns.keys()
    if different := next((batch.columns.keys() ^ first for batch in batches if batch.columns.keys() != first), None):
        raise SchemaError(f"Some episodes of {where} have the column {', '.join(sorted(different))} and others do not.")


def without(batch: EpisodeBatch, *names: str) -> EpisodeBatch:
    """Return the same episodes without these columns."""
    return replace(batch, columns={name: column for name, column in batch.columns.items() if name not in names})


def without_seconds(batch: EpisodeBatch) -> tuple[EpisodeBatch, float, float]:
    """Return (the batch, seconds that reading it took, seconds that the mapper took)."""
    read_seconds, prelearner_seconds = (float(batch[name].sum()) if name in batch else 0.0 for name in SECONDS)
    return without(batch, *SECONDS), read_seconds, prelearner_seconds
