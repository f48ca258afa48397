"""Convert the columns of a SampleBatch in JSON, lists or packed, to arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.packed import PACKED, unpack_column, unpack_infos, unpack_values
from offline_core.errors import SchemaError, within

_NAN = "null"
"""RLlib writes a float32 NaN in a list like this."""


def batch_column(value: Any, name: str, count: int | None) -> Nested:
    """Arrays of shape (N, …); `count` is N if it is known, and tells a tuple of columns from a column."""
    match value:
        case str() if value.startswith(PACKED):
            return _unpacked(value, name)
        case dict() if value:
            return {key: batch_column(child, f"{name}/{key}", count) for key, child in value.items()}
        case [str(first), *_] if first.startswith(PACKED):
            return _unpacked(value, name)
        case list():
            if value and len(value) != count and all(isinstance(part, list) and len(part) == count for part in value):
                return tuple(batch_column(part, f"{name}/{i}", count) for i, part in enumerate(value))
            return _numbers_or_text(value, name)
    raise SchemaError(f"Column {name!r} is {str(value)[:40]!r}; it must be a list with one value a step, or packed arrays.")


def _unpacked(value: str | list[Any], name: str) -> Nested:
    with within(column=name):
        tree = unpack_column(value) if isinstance(value, str) else unpack_values(value, name)
    arrays = nested.leaves(tree)
    if not arrays or any(array.ndim == 0 for array in arrays):
        raise SchemaError(f"Column {name!r} is packed as a single value and not as one value a step.")
    return tree


def _numbers_or_text(values: list[Any], name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise SchemaError(f"Column {name!r} has steps of different shapes; all need the same.") from error
    if array.dtype.kind in "biu" or (array.dtype.kind == "f" and not (np.abs(array) >= 2.0**63).any()):
        return array
    items: Iterable[Any] = values
    for _ in range(array.ndim - 1):
        items = itertools.chain.from_iterable(items)
    items = list(items)
    if all(type(item) is int for item in items):  # so no int64 holds them all
        low, high = min(items), max(items)
        if low >= 0 and high < 2**64:
            return np.asarray(items, np.uint64).reshape(array.shape)
        raise SchemaError(
            f"Column {name!r} holds whole numbers from {low} to {high}, which no type of 64 bits holds together. "
            "Write them as text, or as floats."
        )
    if array.dtype.kind == "f":
        return array
    kinds = sorted({type(item).__name__ for item in items})
    if kinds == ["str"] and not all(item == _NAN for item in items):
        return array
    if (
        "str" in kinds
        and set(kinds) <= {"str", "int", "float"}
        and all(item == _NAN for item in items if isinstance(item, str))
    ):
        return np.asarray([np.nan if item == _NAN else item for item in items], np.float64).reshape(array.shape)
    raise SchemaError(f"Column {name!r} holds {', '.join(kinds)}; its values must be all numbers or all text.")


def batch_ids(ids: Nested, name: str) -> np.ndarray:
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise SchemaError(f"Column {name!r} must be one whole number or text a step.")
    return ids.astype(np.str_)


def batch_infos(values: Any) -> list[dict[str, Any]]:
    """One dict a step; a value that is not a dict (RLlib writes other objects as text) becomes `{"info": value}`."""
    if isinstance(values, str) and values.startswith(PACKED):
        values = unpack_infos(values)
    elif isinstance(values, list):
        values = [unpack_infos(info) if isinstance(info, str) and info.startswith(PACKED) else info for info in values]
    if not isinstance(values, list):
        raise SchemaError(f"Column 'infos' is {str(values)[:40]!r}; it must be a list with one dict a step.")
    return [info if isinstance(info, dict) else {} if _is_none(info) else {"info": info} for info in values]


def _is_none(info: Any) -> bool:
    return info is None or (isinstance(info, str) and info == _NAN)
