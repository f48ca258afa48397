"""Files that Polars scans: Parquet, CSV, NDJSON and Arrow IPC, with projection and row filter pushed down into the file."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.errors import ConfigError, CorruptFileError, SchemaError, first_line
from offline_core.sql import shown, sql_condition
from offline_core.storage.location import Location
from offline_core.storage.sources.expansion import COLUMNAR, MAX_EXPANSION, Expansion, check_parquet, check_text
from offline_core.storage.sources.local_copy import local_file
from offline_core.storage.sources.partitions import Values
from offline_core.storage.sources.step_reader import Unreadable
from offline_core.storage.sources.text_lines import BadLine, copy_rows
from offline_core.storage.storage_errors import storage_errors

SOURCE_ROW = "_source_row"
"""A column beside the step columns: the number of the row in its file, from 0."""

BATCH_BYTES = 32 * 2**20
_MEASURED_ROWS = 1000
"""By these is told how many rows make a batch."""

_TEXT = ("csv", "ndjson")
_FILE_PATHS = "include_file_paths"
_SAME_LINES = frozenset(
    {"separator", "decimal_comma", "null_values", "new_columns", "schema_overrides", "infer_schema_length", "try_parse_dates"}
)
"""Arguments under which it can still be told, without Polars, which lines are rows."""

# All rows say what type a column has: a reward may be 1 for ten thousand steps, and 0.5 then.
SCANS: dict[str, Callable[..., pl.LazyFrame]] = {
    "parquet": functools.partial(pl.scan_parquet, glob=False),
    "csv": functools.partial(pl.scan_csv, glob=False, infer_schema_length=None),
    "ndjson": lambda path, **arguments: pl.scan_ndjson(glob.escape(path), **{"infer_schema_length": None} | arguments),
    "ipc": functools.partial(pl.scan_ipc, glob=False),
}


@dataclass(frozen=True)
class ScannedFile:
    """One file; only the chosen columns and the row groups that can meet the condition are read.

    Of one that does not lie on a local disk, all is first copied there, as Polars does not know the filesystems that we do.
    """

    location: Location
    format: str
    """A key of `SCANS`."""
    columns: tuple[str, ...] | None = None
    where: str | None = None
    """SQL condition on the file's own columns."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further ones for Polars' scan function, such as `separator`; `include_file_paths` names a column for the URI."""
    partition: Values = field(default_factory=dict)
    """What the names of its folders say; a column of that name in the file itself stays."""
    max_expansion: float = MAX_EXPANSION
    """See `Expansion`."""

    @property
    def uri(self) -> str:
        return self.location.uri

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`; with the column `SOURCE_ROW`. Lines of text that are no rows are given as such."""
        with local_file(self.location) as file:
            if not self._is_empty(file):
                self._check_expansion(file)
                yield from self._batches(file)

    def _check_expansion(self, file: Location) -> None:
        """Before Polars takes the memory for it."""
        with storage_errors("read", self.uri):
            expansion = self._expansion(file.path)
            if self.format == "parquet":
                check_parquet(file, expansion)
            elif self.format in _TEXT:
                line_end = str(self.arguments.get("eol_char", "\n")).encode() if self.format == "csv" else None
                check_text(file, expansion, line_end=line_end)

    def _expansion(self, path: str) -> Expansion:
        columnar = 1 if self.format in _TEXT else COLUMNAR
        return Expansion(self.uri, os.path.getsize(path), self.max_expansion * columnar)

    def _batches(self, file: Location) -> Iterator[pa.Table | Unreadable]:
        read = 0
        try:
            for batch in self._read(file.path):
                yield batch
                read = batch[SOURCE_ROW][-1].as_py() + 1
            return
        except CorruptFileError as error:
            if self.format not in _TEXT or not self._arguments.keys() <= _SAME_LINES:
                raise
            unread = error
        with tempfile.NamedTemporaryFile() as rest:
            good, bad = self._without_bad_lines(file, rest)
            if not good or not bad:
                raise self._corrupt(bad[0].problem) if bad else unread
            yield from (Unreadable(self.uri, row, 1, CorruptFileError(f"{what}.")) for row, what in bad if row >= read)
            rows_before = np.array([row for row, _ in bad]) - np.arange(len(bad))  # of those that are copied
            for batch in self._read(rest.name):
                copied = batch[SOURCE_ROW].to_numpy()
                rows = copied + np.searchsorted(rows_before, copied, side="right")
                batch = batch.set_column(0, SOURCE_ROW, pa.array(rows)).filter(pa.array(rows >= read))
                if batch.num_rows:
                    yield batch

    def _is_empty(self, file: Location) -> bool:
        """There is not a byte in it, as in the log of a system that had nothing to say; Parquet has a header at least."""
        if self.format not in _TEXT:
            return False
        with storage_errors("read", self.uri):
            return bool(file.filesystem.get_file_info(file.path).size == 0)

    def _read(self, path: str) -> Iterator[pa.Table]:
        with self._errors():
            expansion = self._expansion(path)
            schema = self._scanned(path, self._arguments).collect_schema()
            if SOURCE_ROW in schema:
                raise SchemaError(f"{self.uri} has a column {SOURCE_ROW}, a name that is taken here; rename it in the file.")
            known = {"schema": schema} if self.format in _TEXT else {}  # lest Polars looks at all rows again, whatever is asked
            added = self._added(schema)
            rows = self._scanned(path, {**self._arguments, **known, "row_index_name": SOURCE_ROW}).with_columns(**added)
            schema = pl.Schema({**schema, **pl.LazyFrame().select(**added).collect_schema()})
            present = list(schema)
            wanted = present if self.columns is None else list(self.columns)
            if missing := sorted(set(wanted) - set(present)):
                raise SchemaError(f"{self.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
            measured = rows.select(SOURCE_ROW, *wanted).head(_MEASURED_ROWS).collect()
            if self.format not in _TEXT:
                expansion.add(_bytes(measured))
            small = measured.height < _MEASURED_ROWS and _bytes(measured) <= BATCH_BYTES
            if (
                small and self.where is None and self.format not in _TEXT
            ):  # these are all rows: RLlib leaves thousands of such files
                if measured.height:
                    yield measured.to_arrow()
                return
            width = max(1, _bytes(measured) // max(1, measured.height))
            if self.where is not None:
                rows = rows.filter(self._condition(self.where, schema))
            chosen = rows.select(SOURCE_ROW, *wanted)
            for batch in chosen.collect_batches(chunk_size=max(1, BATCH_BYTES // width), maintain_order=True):
                if batch.height:
                    if self.format not in _TEXT:
                        expansion.add(_bytes(batch))
                    yield batch.to_arrow()

    @property
    def _arguments(self) -> dict[str, Any]:
        """Those that Polars gets: it would name the copy of a file that lies elsewhere."""
        return {name: value for name, value in self.arguments.items() if name != _FILE_PATHS}

    def _added(self, schema: Mapping[str, Any]) -> dict[str, pl.Expr]:
        """The columns that are not in the file."""
        values = {name: value for name, value in self.partition.items() if name not in schema}
        if (name := self.arguments.get(_FILE_PATHS)) is not None:
            if not isinstance(name, str) or name in schema or name in values:
                raise ConfigError(f"{_FILE_PATHS} is {name!r}; it has to be a name that no column of {self.uri} has.")
            values[name] = self.uri
        return {name: pl.lit(value, pl.Int64 if isinstance(value, int) else pl.String) for name, value in values.items()}

    def _scanned(self, path: str, arguments: Mapping[str, Any]) -> pl.LazyFrame:
        try:
            return SCANS[self.format](path, **arguments)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise ConfigError(f"polars.scan_{self.format} does not take these arguments: {first_line(error)}.") from error

    def _condition(self, where: str, schema: Mapping[str, Any]) -> pl.Expr:
        """The condition, tried on no rows."""
        condition = sql_condition(where)
        try:
            kind = pl.DataFrame(schema={SOURCE_ROW: pl.UInt32, **schema}).select(condition).dtypes[0]
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise ConfigError(f"The condition {shown(where)} cannot be used on {self.uri}: {first_line(error)}.") from error
        if kind != pl.Boolean:
            raise ConfigError(f"The condition {shown(where)} gives {kind} and not true or false.")
        return condition

    def _without_bad_lines(self, file: Location, into: Any) -> tuple[int, list[BadLine]]:
        """(how many rows there are, now in the file `into`; the lines that are none)."""
        try:
            return copy_rows(file, self.format, separator=self.arguments.get("separator", ","), into=into)
        except OSError:  # what unpacks the file gives up
            return 0, []

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns what Polars raises into errors of ours that name the file."""
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
                with storage_errors("read", self.uri):  # the place is to blame; else what unpacks the file
                    raise
            raise self._corrupt(first_line(error)) from error

    def _corrupt(self, what: str) -> CorruptFileError:
        return CorruptFileError(f"{self.uri} cannot be read as {self.format}: {what}. Mend it, replace it or leave it out.")


def _bytes(frame: pl.DataFrame) -> int:
    """With every text written out: Polars keeps one that is repeated once, and Arrow does not."""
    texts = frame.select(
        pl.col(pl.String).str.len_bytes().sum(),
        pl.col(pl.Categorical, pl.Enum).cat.len_bytes().sum(),
        pl.col(pl.Binary).bin.size().sum(),
    )
    return int(frame.estimated_size()) + sum(map(int, texts.row(0)) if texts.width else ())
