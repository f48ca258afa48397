"""Read tables of Delta, Iceberg and Lance, with columns and row filter pushed down."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from offline_core.data.formats.published.iceberg import check_files, latest_metadata, open_table
from offline_core.data.formats.sources.readers import SOURCE_ROW, reader
from offline_core.data.formats.sources.scans import FrameReader
from offline_core.data.store.allowed_roots import is_limited
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError
from offline_core.runtime.extras import require_extra

_VERSION = re.compile(r"_versions/\d{6,}\.json")
_DELTA_COMMIT = re.compile(r"_delta_log/\d{20}\.(?:json|checkpoint\.parquet)")
"""Delta's protocol: commits are numbered by 20 digits."""


def _holds(is_of_table: Callable[[str], object]) -> Callable[[Collection[str]], bool]:
    """Whether a folder with these files is a table, and no dataset of this package that is published as one."""
    return lambda names: any(map(is_of_table, names)) and not any(map(_VERSION.fullmatch, names))


class LakeTable(FrameReader):
    """The rows of one version of a table, in the order of its files; the latest unless the arguments name one."""

    def scan(self) -> pl.LazyFrame:
        """The rows, lazily."""
        raise NotImplementedError

    def read(self) -> Iterator[pa.Table]:
        """See `FileReader`; with the column `SOURCE_ROW`, which counts the rows that meet the condition.

        Raises:
            ConfigError: the extra of the format is missing, or it does not take the arguments.
            CorruptFileError: the table cannot be read.
            LocationError: a file of it is outside of `OFFLINE_ROOTS`.
            UnsafeDataError: its metadata names code, or another server.
        """
        with self.reading():
            if is_limited():
                self.location.listed()  # which refuses links that lead outside
            try:
                rows, count = self.scan(), 0
            except TypeError as error:
                raise ConfigError(f"The format {self.format} does not take these arguments: {self.told(error)}.") from error
            for batch in self.frames(rows, rows.collect_schema()):
                if batch.height:
                    yield batch.with_row_index(SOURCE_ROW, count).to_arrow()
                    count += batch.height


@reader("delta", arguments="version", folder=_holds(_DELTA_COMMIT.fullmatch))
@dataclass(frozen=True)
class DeltaTable(LakeTable):
    """Arguments are those of `polars.scan_delta`, such as version: a number or a time."""

    def scan(self) -> pl.LazyFrame:
        with require_extra("delta"):
            import deltalake  # noqa: F401
        return pl.scan_delta(self.location.uri, **self.arguments)


@reader(
    "iceberg",
    arguments="snapshot_id",
    folder=_holds(lambda name: name.startswith("metadata/") and name.endswith(".metadata.json")),
)
@dataclass(frozen=True)
class IcebergTable(LakeTable):
    """Arguments are those of `polars.scan_iceberg`, such as snapshot_id."""

    def scan(self) -> pl.LazyFrame:
        with require_extra("iceberg"):
            import pyiceberg  # noqa: F401
        metadata = self.location if self.uri.endswith(".json") else latest_metadata(self.location)
        if metadata is None:
            raise CorruptFileError(f"{self.uri} has no metadata of Iceberg. Name the folder above metadata/, or its file.")
        table = open_table(metadata, self.arguments.get("storage_options") or {})
        if is_limited():
            check_files(table, self.arguments.get("snapshot_id"))
        return pl.scan_iceberg(table, **self.arguments)


@reader(
    "lance",
    arguments="version",
    folder=_holds(lambda name: posixpath.dirname(name) == "_versions" and name.endswith(".manifest")),
)
@dataclass(frozen=True)
class LanceTable(LakeTable):
    """Arguments are those of `lance.dataset`, such as version."""

    def scan(self) -> pl.LazyFrame:
        with require_extra("lance"):
            import lance
        table = lance.dataset(self.location.uri, **self.arguments)
        for base in table.base_paths().values() if is_limited() else ():  # of a clone
            Location.of(base.path)
        return pl.scan_pyarrow_dataset(table)
