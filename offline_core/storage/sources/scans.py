"""Files that Polars scans: Parquet, CSV, NDJSON and Arrow IPC, with projection and row filter pushed down into the file."""

from __future__ import annotations

import contextlib
import functools
import glob
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from offline_core.errors import ConfigError, CorruptFileError, SchemaError
from offline_core.storage.location import Location, storage_errors
from offline_core.storage.sources.text_lines import first_bad_line

SOURCE_ROW = "_source_row"
"""A column beside the step columns: the number of the row in its file, from 0."""

BATCH_BYTES = 32 * 2**20
_MEASURED_ROWS = 100
"""By these is told how many rows make a batch."""

# All rows say what type a column has: a reward may be 1 for ten thousand steps, and 0.5 then.
SCANS: dict[str, Callable[..., pl.LazyFrame]] = {
    "parquet": functools.partial(pl.scan_parquet, glob=False),
    "csv": functools.partial(pl.scan_csv, glob=False, infer_schema_length=None),
    "ndjson": lambda path, **arguments: pl.scan_ndjson(glob.escape(path), **{"infer_schema_length": None} | arguments),
    "ipc": functools.partial(pl.scan_ipc, glob=False),
}


@dataclass(frozen=True)
class ScannedFile:
    """One file; only the chosen columns and the row groups that can meet the condition are read."""

    location: Location
    format: str
    """A key of `SCANS`."""
    columns: tuple[str, ...] | None = None
    where: str | None = None
    """SQL condition on the file's own columns."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further ones for Polars' scan function, such as `separator`."""

    @property
    def uri(self) -> str:
        return self.location.uri

    def is_empty(self) -> bool:
        """There is not a byte in it, as in the log of a system that had nothing to say; Parquet has a header at least."""
        if self.format not in ("csv", "ndjson"):
            return False
        with storage_errors("read", self.uri):
            return bool(self.location.filesystem.get_file_info(self.location.path).size == 0)

    def batches(self) -> Iterator[pa.Table]:
        """See `StepReader`; with the column `SOURCE_ROW`."""
        if self.is_empty():
            return
        with self._errors():
            rows = self._scanned(self.arguments)
            schema = {name: kind for name, kind in rows.collect_schema().items() if name != SOURCE_ROW}
            if self.format in ("csv", "ndjson"):  # lest Polars looks at all rows again, every time it is asked
                rows = self._scanned({**self.arguments, "schema": schema})
            present = list(schema)
            wanted = present if self.columns is None else list(self.columns)
            if missing := sorted(set(wanted) - set(present)):
                raise SchemaError(f"{self.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
            measured = rows.select(SOURCE_ROW, *wanted).head(_MEASURED_ROWS).collect()
            width = max(1, int(measured.estimated_size()) // max(1, measured.height))
            if self.where is not None:
                rows = rows.filter(_condition(self.where, rows))
            chosen = rows.select(SOURCE_ROW, *wanted)
            for batch in chosen.collect_batches(chunk_size=max(1, BATCH_BYTES // width), maintain_order=True):
                yield batch.to_arrow()

    def _scanned(self, arguments: Mapping[str, Any]) -> pl.LazyFrame:
        try:
            return SCANS[self.format](self.location.path, row_index_name=SOURCE_ROW, **arguments)
        except TypeError as error:
            raise ConfigError(f"polars.scan_{self.format} does not take these arguments: {error}.") from error

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns what Polars raises into errors of ours that name the file, and the line if it is text."""
        try:
            yield
        except pl.exceptions.ColumnNotFoundError as error:
            raise ConfigError(f"The condition cannot be used on {self.uri}: {_short(error)}.") from error
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
                with storage_errors("read", self.uri):  # the place is to blame; else what unpacks the file
                    raise
            line = first_bad_line(self.location, self.format, separator=self.arguments.get("separator", ","))
            raise CorruptFileError(
                f"{self.uri} cannot be read as {self.format}: {line or _short(error)}. Mend it, replace it or leave it out."
            ) from error


def _condition(where: str, rows: pl.LazyFrame) -> pl.Expr:
    try:
        condition = pl.sql_expr(where)
        kind = rows.select(condition).collect_schema().dtypes()[0]
    except (pl.exceptions.SQLSyntaxError, pl.exceptions.SQLInterfaceError) as error:
        raise ConfigError(f"The condition {where!r} cannot be understood: {_short(error)}.") from error
    if kind != pl.Boolean:
        raise ConfigError(f"The condition {where!r} gives {kind} and not true or false.")
    return condition


def _short(error: BaseException) -> str:
    """What Polars says, without its plan and its advice on its own functions."""
    return str(error).strip().partition("\n")[0].rstrip(".")
