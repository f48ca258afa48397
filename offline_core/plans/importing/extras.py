"""Choose the columns to read: a column that is no role and cannot be an extra output would cost every row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from offline_core.episodes import nested
from offline_core.errors import OfflineError
from offline_core.formats.packed import read_foreign_column
from offline_core.formats.sources.first_rows import FirstRows
from offline_core.plans.importing.schema import Column


def unusable(columns: Iterable[Column], readers: Sequence[FirstRows], empty_rows: int) -> dict[str, str]:
    """Those of these columns that the import would refuse rows for, and why.

    Arguments:
        empty_rows: how many rows have no value at all; they are refused anyway.
    """
    tables = [reader.tables[0] for reader in readers if reader.tables]
    return {column.name: why for column in columns if (why := _problem(column, tables, empty_rows))}


def _problem(column: Column, tables: Sequence[pa.Table], empty_rows: int) -> str:
    if set(column.types) == {"null"}:
        return ""  # the import passes over it
    if column.missing_files:
        return f"{column.missing_files:,} of {len(tables):,} files that were read lack it"
    if column.nulls > empty_rows:
        return f"null in {column.nulls:,} rows that were read"
    found = set()
    for table in tables:
        try:
            leaves = nested.flatten(read_foreign_column(table.select([column.name]).drop_null(), column.name), column.name)
        except (OfflineError, pa.ArrowException) as error:
            return str(error).rstrip(".")
        found.add(str([(path, leaf.dtype.kind, leaf.shape[1:]) for path, leaf in sorted(leaves.items())]))
    return f"files have it as {', '.join(column.types)}" if len(found) > 1 or len(column.types) > 1 else ""
