"""Columns of a source that are not mapped: kept beside the steps where they can be, left out and said where not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.packed import read_foreign_column
from offline_core.data.importing.values import like
from offline_core.errors import DataError, OfflineError, SchemaError


def extra_columns(
    table: pa.Table, names: Collection[str], templates: Mapping[str, Nested] | None
) -> tuple[dict[str, pa.Array], dict[str, str]]:
    """(the extra columns of good rows; those that cannot be kept, and why).

    A column that some rows lack is dropped as a whole, as each row has all columns; here it is filled with zeros.

    Arguments:
        names: the columns of `table` that are not mapped.
        templates: empty arrays of the types in the first rows; None: these are the first.
    """
    there = [field.name for field in table.schema if field.name in names and not pa.types.is_null(field.type)]
    arrays: dict[str, pa.Array] = {}
    left_out: dict[str, str] = {}
    if templates is not None:
        left_out = dict.fromkeys((name for name in there if name not in templates), "the rows before have none")
    for name in there if templates is None else templates:
        template = None if templates is None else templates[name]
        try:
            arrays[name] = _array(table, name, template)
        except (OfflineError, pa.ArrowException) as error:
            if not isinstance(error, DataError | pa.ArrowException):
                raise
            left_out[name] = str(error).removeprefix(f"Column {name!r} ").rstrip(".")
            if template is not None:
                arrays[name] = _zeros(template, table.num_rows, name)
    return arrays, left_out


def check_alike(left_out: Mapping[str, str], templates: Collection[str]) -> None:
    """Raises:
    SchemaError: a column is not what it was in the first rows.
    """
    for name in left_out.keys() & {*templates}:
        raise SchemaError(f"Column {name!r}: {left_out[name]}. Choose the others by source.columns.")


def _array(table: pa.Table, name: str, template: Nested | None) -> pa.Array:
    if name not in table.column_names:
        raise SchemaError("later rows have none")
    tree = read_foreign_column(table, name)
    return to_arrow(tree if template is None else like(tree, template, name), name)


def note_on(left_out: Mapping[str, str]) -> list[str]:
    """One note on all columns that are left out, if there are any."""
    if not left_out:
        return []
    reasons = "; ".join(f"{name} ({why})" for name, why in sorted(left_out.items()))
    return [
        f"Columns that are not mapped are left out where they cannot be kept: {reasons}. What you need of them make by "
        "columns.fill or columns.computed."
    ]


def _zeros(template: Nested, count: int, name: str) -> pa.Array:
    return to_arrow(nested.map_leaves(lambda leaf: np.zeros((count, *leaf.shape[1:]), leaf.dtype), template), name)
