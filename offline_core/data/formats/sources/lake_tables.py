"""Read tables of Delta, Iceberg and Lance, with columns and row filter pushed down."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from offline_core.data.episodes.extension_types import refuse_extension_types
from offline_core.data.formats.iceberg_files import check_files, open_table
from offline_core.data.formats.published.iceberg import latest_metadata
from offline_core.data.formats.sources.access_errors import raise_if_out_of_reach
from offline_core.data.formats.sources.located_reader import BATCH_BYTES
from offline_core.data.formats.sources.scans import SOURCE_ROW, condition_on, frame_bytes
from offline_core.data.store.allowed_roots import is_limited
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, OfflineError, SchemaError, first_line
from offline_core.runtime.extras import require_extra
from offline_core.secrets import masked_text

_MEASURED_ROWS = 1000
_DELTA_COMMIT = re.compile(r"_delta_log/\d{20}\.(?:json|checkpoint\.parquet)")
"""Delta's protocol: commits are numbered by 20 digits."""


def _delta(location: Location, arguments: Mapping[str, Any]) -> pl.LazyFrame:
    with require_extra("delta"):
        import deltalake  # noqa: F401
    return pl.scan_delta(location.uri, **arguments)


def _iceberg(location: Location, arguments: Mapping[str, Any]) -> pl.LazyFrame:
    with require_extra("iceberg"):
        import pyiceberg  # noqa: F401
    metadata = location if location.uri.endswith(".json") else latest_metadata(location)
    if metadata is None:
        raise CorruptFileError(f"{location.uri} has no metadata of Iceberg. Name the folder above metadata/, or its file.")
    table = open_table(metadata, arguments.get("storage_options") or {})
    if is_limited():
        check_files(table, arguments.get("snapshot_id"))
    return pl.scan_iceberg(table, **arguments)


def _lance(location: Location, arguments: Mapping[str, Any]) -> pl.LazyFrame:
    with require_extra("lance"):
        import lance
    table = lance.dataset(location.uri, **arguments)
    for base in table.base_paths().values() if is_limited() else ():  # of a clone
        Location.of(base.path)
    return pl.scan_pyarrow_dataset(table)


_SCANS: Mapping[str, Callable[[Location, Mapping[str, Any]], pl.LazyFrame]] = {
    "delta": _delta,
    "iceberg": _iceberg,
    "lance": _lance,
}
TABLES = tuple(_SCANS)


def table_format(names: Collection[str]) -> str | None:
    """The format of the table whose folder has these files; None: it is no table."""
    if any(re.fullmatch(r"_versions/\d{6,}\.json", name) for name in names):
        return None  # a dataset of this package, perhaps published as a table
    if any(_DELTA_COMMIT.fullmatch(name) for name in names):
        return "delta"
    if any(name.startswith("metadata/") and name.endswith(".metadata.json") for name in names):
        return "iceberg"
    if any(posixpath.dirname(name) == "_versions" and name.endswith(".manifest") for name in names):
        return "lance"
    return None


@dataclass(frozen=True)
class LakeTable:
    """The rows of one version of a table, in the order of its files; the latest unless the arguments name one."""

    location: Location
    format: str
    """One of `TABLES`."""
    columns: tuple[str, ...] | None = None
    where: str | None = None
    """SQL condition on the table's own columns."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of `polars.scan_delta` (version: a number or time), `polars.scan_iceberg` (snapshot_id) or `lance.dataset` (version)."""

    @property
    def uri(self) -> str:
        return self.location.uri

    def batches(self) -> Iterator[pa.Table]:
        """See `StepReader`; with the column `SOURCE_ROW`, which counts the rows that meet the condition.

        Raises:
            ConfigError: the extra of the format is missing, or it does not take the arguments.
            CorruptFileError: the table cannot be read.
            LocationError: a file of it is outside of `OFFLINE_ROOTS`.
            UnsafeDataError: its metadata names code, or another server.
        """
        try:
            yield from self._batches()
        except (OfflineError, MemoryError):
            raise
        except TypeError as error:
            told = masked_text(first_line(error), self.arguments)
            raise ConfigError(f"The format {self.format} does not take these arguments: {told}.") from error
        except Exception as error:  # each library has errors of its own
            raise_if_out_of_reach(error, self.uri)
            told = masked_text(first_line(error), self.arguments)
            raise CorruptFileError(f"{self.uri} cannot be read as {self.format}: {told}.", uri=self.uri) from error

    def _batches(self) -> Iterator[pa.Table]:
        if is_limited():
            self.location.listed()  # which refuses links that lead outside
        rows = _SCANS[self.format](self.location, self.arguments)
        schema = rows.collect_schema()
        wanted = list(schema) if self.columns is None else list(self.columns)
        if missing := sorted(set(wanted) - set(schema)):
            raise SchemaError(f"{self.uri} has no column {', '.join(missing)}; it has {', '.join(schema)}.", uri=self.uri)
        if self.where is not None:
            rows = rows.filter(condition_on(self.where, schema, self.uri))
        rows = rows.select(wanted)
        measured = rows.head(_MEASURED_ROWS).collect()
        refuse_extension_types(measured.clear().to_arrow().schema, self.uri)
        width = max(1, frame_bytes(measured) // max(1, measured.height))
        read = 0
        for batch in rows.collect_batches(chunk_size=max(1, BATCH_BYTES // width), maintain_order=True):
            if batch.height:
                yield batch.with_row_index(SOURCE_ROW, read).to_arrow()
                read += batch.height
