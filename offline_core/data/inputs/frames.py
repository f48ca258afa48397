"""Tables of any kind as Polars frames, and the columns inside of structs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from offline_core.errors import SchemaError, first_line

Rows: TypeAlias = "pl.DataFrame | pa.Table | Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]"
"""Raw rows: a Polars or PyArrow table, columns by name, or a mapping for each row."""


def frame_of(rows: Rows) -> pl.DataFrame:
    """The rows as a Polars frame.

    Raises:
        SchemaError: they are no table.
    """
    try:
        if isinstance(rows, pl.DataFrame):
            return rows
        if isinstance(rows, pa.Table):
            frame = pl.from_arrow(rows)
        else:
            data = dict(rows) if hasattr(rows, "keys") else [dict(row) for row in rows]  # of pandas, too
            frame = pl.DataFrame(data, strict=False, infer_schema_length=None)  # of every row, as of a column
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"The rows are no table: {first_line(error)}.") from error
    assert isinstance(frame, pl.DataFrame)
    return frame


def with_nested(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """The frame with a column `sensors.tin` for the field `tin` of the struct `sensors`, where such names are asked for.

    Raises:
        SchemaError: there is no such column.
    """
    expressions = {name: nested(frame.schema, name) for name in names if name not in frame.columns}
    if missing := sorted(name for name, expression in expressions.items() if expression is None):
        raise SchemaError(no_column(missing, frame.schema))
    return frame.with_columns(**{name: expression for name, expression in expressions.items() if expression is not None})


def nested(schema: Mapping[str, Any], name: str) -> pl.Expr | None:
    """The column of a dotted name inside a struct; None if there is none."""
    root = next((root for root in _starts(name) if isinstance(schema.get(root), pl.Struct)), None)
    if root is None:
        return None
    expression, kind, rest = pl.col(root), schema[root], name[len(root) + 1 :]
    while rest:
        fields = dict(kind) if isinstance(kind, pl.Struct) else {}
        part = next((part for part in (rest, *_starts(rest)) if part in fields), None)
        if part is None:
            return None
        expression, kind, rest = expression.struct.field(part), fields[part], rest[len(part) + 1 :]
    return expression


def root_of(schema: Mapping[str, Any], name: str) -> str:
    """The column of the source that holds the column of this name."""
    return name if name in schema else next((root for root in _starts(name) if root in schema), name)


def no_column(missing: Sequence[str], there: Iterable[str]) -> str:
    """The sentence that says what there is instead."""
    there = list(there)
    close = difflib.get_close_matches(missing[0], there, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"There is no column {', '.join(missing)}.{hint} There are {', '.join(there) or 'no columns'}."


def _starts(name: str) -> list[str]:
    """What stands before each point, the longest first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
