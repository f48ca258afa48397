"""Parse text columns, as CSV has them or a single wrong cell makes them, as numbers, lists of numbers or times."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.episodes import arrow
from offline_core.errors import SchemaError
from offline_core.formats.packed import PACKED

LISTS = pa.list_(pa.float64())
"""Stands for lists of numbers of any depth."""

_LIST = r"^\s*\[[\s\[]*[+-]?\.?\d"
_REAL = r"^\s*[+-]?(\d+\.\d*|\.\d+|\d+[eE])"
"""How numbers begin that are no whole ones."""
_DATE = r"^\s*\d{4}-\d\d-\d\d"
_ZONED = _DATE + r".*(Z|[+-]\d\d:?\d\d)\s*$"
"""Times by ISO 8601, alone and with their distance from UTC."""


def is_text(column: pa.ChunkedArray) -> bool:
    """Text, and not what RLlib packs as such."""
    return arrow.is_text(column.type) and not pc.any(pc.starts_with(column, PACKED)).as_py()


def has_lists(texts: pa.ChunkedArray) -> bool:
    """Whether one is a list of numbers, such as `[0.5, 1]`."""
    return _any_matches(texts, _LIST)


def number_type(texts: pa.ChunkedArray, *, may_be_time: bool) -> pa.DataType:
    """What texts are numbers of: whole ones if none is more than that."""
    if may_be_time and _any_matches(texts, _DATE):
        return pa.timestamp("us", "UTC" if _any_matches(texts, _ZONED) else None)
    return pa.float64() if _any_matches(texts, _REAL) else pa.int64()


def parsed(texts: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.Array | pa.ChunkedArray:
    """The texts as numbers or times of that type, or as `LISTS`.

    Raises:
        SchemaError: one is none.
    """
    if kind == LISTS:
        return _lists(texts, name)
    try:
        return pc.utf8_trim_whitespace(texts.cast(pa.string())).cast(kind)
    except pa.ArrowInvalid as error:
        what = "time" if pa.types.is_timestamp(kind) else "number"
        raise SchemaError(f"Column {name!r} has text that is no {what}: {error}.") from error


def _lists(texts: pa.ChunkedArray, name: str) -> pa.Array:
    arrow.check_no_nulls(texts, name)
    try:
        array = np.array(json.loads(f"[{','.join(texts.to_pylist())}]"))
    except (ValueError, RecursionError) as error:  # no JSON, or lists of several lengths
        raise _no_lists(name, str(error)) from error
    if len(array) != len(texts) or array.dtype.kind not in "iuf" or (array.ndim == 1 and len(array)):
        raise _no_lists(name, f"{texts[0].as_py()!r:.40}")
    return arrow.to_arrow(array, name)


def _no_lists(name: str, what: str) -> SchemaError:
    return SchemaError(
        f"Column {name!r} has text that is no list of numbers like [0.5, 1] as long as the others: {what}. Write it so, or a "
        "column a number and a list of their names as mapping; if it is text, declare a Text space."
    )


def _any_matches(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())
