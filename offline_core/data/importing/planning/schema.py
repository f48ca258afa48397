"""The columns of a source, by the rows that were read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.episodes import arrow
from offline_core.data.formats.packed import PACKED
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.importing.column_values import SampleRows, column_at
from offline_core.runtime.units import cut_text

MAX_SHOWN = 24
"""Characters of a value."""


class Column(BaseModel):
    """One column of the source, as far as it was read."""

    model_config = ConfigDict(frozen=True)

    name: str
    types: dict[str, int] = Field(description="How many of the files that were read have it as which type.")
    nulls: int = Field(description="Rows without a value, or with NaN; those of files without the column included.")
    distinct: int | None = Field(None, description="Different values; None: they cannot be counted (lists, structs).")
    minimum: str | None = None
    median: str | None = Field(None, description="Of numbers, one of the values.")
    maximum: str | None = None
    missing_files: int = Field(0, description="Files that were read and lack it.")

    @property
    def type(self) -> str:
        """The most frequent one."""
        return max(self.types, key=lambda kind: self.types[kind])

    @property
    def is_number(self) -> bool:
        """It holds single numbers."""
        return self.type.startswith(("int", "uint", "float"))

    @property
    def is_uniform(self) -> bool:
        """All files that were read have it, as one type."""
        return len(self.types) == 1 and not self.missing_files


def columns_of(readers: Sequence[FirstRows], rows: SampleRows) -> list[Column]:
    """The columns in the order in which they appear."""
    schemas = [reader.tables[0].schema for reader in readers if reader.tables]
    names = dict.fromkeys(name for schema in schemas for name in schema.names if name != SOURCE_ROW)
    return [_column(name, schemas, rows) for name in names]


def fields_of(names: Iterable[str], readers: Sequence[FirstRows], rows: SampleRows) -> list[Column]:
    """Of these names, those of fields inside structs, such as `pose.x`, as columns of their own."""
    inside = [name for name in names if name not in rows.table.column_names]
    tables = [_fields(reader.tables[0], inside) for reader in readers if reader.tables]
    fields = SampleRows(_fields(rows.table, inside), rows.file)
    return [_column(name, [table.schema for table in tables], fields) for name in fields.table.column_names]


def _fields(table: pa.Table, names: Iterable[str]) -> pa.Table:
    fields = {name: column_at(table, name) for name in names}
    return pa.table({name: column for name, column in fields.items() if column is not None})


def _column(name: str, schemas: Sequence[pa.Schema], rows: SampleRows) -> Column:
    kinds = Counter(type_name(schema.field(name).type) for schema in schemas if name in schema.names)
    missing = len(schemas) - kinds.total()
    if len(kinds) > 1 and "null" in kinds:  # a column without values fits any type
        del kinds["null"]
    facts: dict[str, Any] = {}
    nulls = 0
    if name in rows.table.column_names:
        column = rows.table[name]
        nulls = column.null_count + _nan_count(column)
        facts = _values(column)
    return Column(name=name, types=dict(kinds), nulls=nulls, missing_files=missing, **facts)


def _nan_count(column: pa.ChunkedArray) -> int:
    """How many values are NaN, which is missing as null is."""
    return pc.sum(pc.is_nan(column)).as_py() or 0 if pa.types.is_floating(column.type) else 0


def _values(column: pa.ChunkedArray) -> dict[str, Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if arrow.is_text(kind):
        column = column.cast(pa.large_string())
    elif pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or pa.types.is_null(kind) or _is_binary(kind):
        return {}
    if pa.types.is_duration(kind):  # which Arrow counts as whole numbers only
        column = column.cast(pa.int64())
    try:
        summary: dict[str, Any] = {"distinct": pc.count_distinct(column).as_py()}
        if not pa.types.is_boolean(kind) and len(column) > column.null_count:
            ends = pc.min_max(column)
            summary |= {name: shown(ends[name[:3]].cast(kind).as_py()) for name in ("minimum", "maximum")}
            is_number = pa.types.is_integer(kind) or (pa.types.is_floating(kind) and not pa.types.is_float16(kind))
            if is_number and (median := pc.quantile(column, interpolation="lower")[0].as_py()) is not None:
                summary["median"] = shown(median)
    except pa.ArrowNotImplementedError:
        return {}
    return summary


def type_name(kind: pa.DataType) -> str:
    """Return the name of a type as people write it."""
    if arrow.is_text(kind):
        return "text"
    if _is_binary(kind):
        return "bytes"
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    if pa.types.is_dictionary(kind):
        return "text"
    if isinstance(kind, pa.FixedShapeTensorType):
        return f"{type_name(kind.value_type)}{list(kind.shape)}"
    if pa.types.is_fixed_size_list(kind):
        return f"{type_name(kind.value_type)}[{kind.list_size}]"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {type_name(kind.value_type)}"
    if pa.types.is_struct(kind):
        return f"struct of {', '.join(field.name for field in kind)}"
    return str(kind)


def shown(value: Any) -> str:
    """Return a value as short text; what RLlib packed is not written out."""
    if isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, str):
        text = "(packed)" if value.startswith(PACKED) else value
    elif isinstance(value, bytes):
        text = f"({len(value):,} bytes)"
    elif value is None:
        text = "null"
    else:
        text = json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)
    return cut_text(text, MAX_SHOWN)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))
