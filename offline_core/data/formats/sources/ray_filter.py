"""Filter rows of Ray's `read_parquet`, which has no filter itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from offline_core.errors import ConfigError

FILTER = "filter"


def read_filtered(read: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The `ray.data.Dataset` of `read(**arguments)` with the rows that match `filter`; each block is filtered where it is read.

    `filter` is a PyArrow expression, or lists of (column, operator, value) as in PyArrow's Parquet functions. Columns that
    only the filter needs are read and dropped.

    Raises:
        ConfigError: the filter is something else.
    """
    expression = _expression(arguments[FILTER])
    rest = {name: value for name, value in arguments.items() if name != FILTER}
    wanted = rest.get("columns")
    if wanted is not None:
        stored = read(**{name: value for name, value in rest.items() if name != "columns"}).schema().names
        rest["columns"] = [*wanted, *(name for name in stored if name in str(expression) and name not in wanted)]
    return read(**rest).map_batches(
        partial(_filtered, expression=expression, columns=wanted), batch_size=None, batch_format="pyarrow", zero_copy_batch=True
    )


def _expression(given: Any) -> pc.Expression:
    try:
        return given if isinstance(given, pc.Expression) else pq.filters_to_expression(given)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"source.arguments.{FILTER} is not a filter: {error}. From Python it is an expression such as "
            'pyarrow.dataset.field("t") < 50; in forms a list such as [["t", "<", 50]], or use format auto with source.where.'
        ) from error


def _filtered(rows: pa.Table, *, expression: pc.Expression, columns: list[str] | None) -> pa.Table:
    kept = rows.filter(expression)
    return kept if columns is None else kept.select([name for name in columns if name in kept.column_names])
