"""Nested numpy arrays ⇄ Arrow columns, by view in both directions wherever the types allow it.

A step of shape () is a plain column, a step with axes is Arrow's canonical `fixed_shape_tensor`, a dict or tuple is a
struct. Everything is non-null, so that reading is a matter of looking at the value buffer.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.episodes.nested import Nested
from offline_core.errors import SchemaError, SpaceError

_TUPLE_FIELD = re.compile(r"_\d+")


def to_arrow(tree: Nested, what: str) -> pa.Array:
    """Nested arrays of shape (N, …) → one Arrow array of length N.

    Raises:
        SpaceError: a dtype or shape that Arrow cannot hold.
    """
    if isinstance(tree, dict):
        if tree and all(map(_TUPLE_FIELD.fullmatch, tree)):
            raise SpaceError(f"The keys {sorted(tree)} of {what} stand for a tuple here; rename one of them.")
        return _struct({str(key): to_arrow(child, f"{what}/{key}") for key, child in tree.items()}, what)
    if isinstance(tree, tuple):
        return _struct({f"_{i}": to_arrow(child, f"{what}/{i}") for i, child in enumerate(tree)}, what)
    array = np.asarray(tree)
    if array.dtype.kind not in "biufSU" or array.dtype == np.longdouble:
        raise SpaceError(f"{what} have dtype {array.dtype}; only numbers, booleans and text can be stored.")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim == 1:
        return pa.array(array)
    if array.dtype.kind in "SU" or 0 in array.shape[1:]:
        raise SpaceError(f"{what} have {array.dtype} values of shape {array.shape[1:]} a step, which cannot be a column.")
    size = int(np.prod(array.shape[1:]))
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    list_type = pa.list_(pa.field("item", values.type, nullable=False), size)
    storage = pa.FixedSizeListArray.from_arrays(values, type=list_type)
    tensor = pa.fixed_shape_tensor(values.type, array.shape[1:])
    return pa.ExtensionArray.from_storage(tensor, storage.cast(tensor.storage_type))


def from_arrow(array: pa.Array | pa.ChunkedArray, what: str) -> Nested:
    """The nested arrays in an Arrow array: ours, or lists and Ray tensors as other tools write them.

    Raises:
        SchemaError: the column has nulls, ragged lists or a type that holds no numbers or text.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps extension arrays chunked when there are none
            array = pa.array([], type=array.type) if array.num_chunks == 0 else array.chunk(0)
    if array.null_count:
        raise SchemaError(f"Column {what!r} has {array.null_count} nulls among {len(array)} rows; fill or drop them first.")
    kind = array.type
    if pa.types.is_struct(kind):
        children = {field.name: from_arrow(array.field(i), f"{what}/{field.name}") for i, field in enumerate(kind)}
        if children and all(map(_TUPLE_FIELD.fullmatch, children)):
            return tuple(children[f"_{i}"] for i in range(len(children)))
        return children
    if isinstance(kind, pa.FixedShapeTensorType):
        shape = tuple(kind.shape)
        return _numpy(array.storage.flatten()).reshape(len(array), *shape)
    if isinstance(kind, pa.BaseExtensionType):
        # Ray's tensors, when Ray has registered its types in this process.
        return from_arrow(array.storage, what).reshape(len(array), *getattr(kind, "shape", (-1,)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        values = from_arrow(array.flatten(), what)
        widths = np.diff(array.offsets.to_numpy()) if not pa.types.is_fixed_size_list(kind) else np.array([kind.list_size])
        if len(widths) and (widths != widths[0]).any():
            raise SchemaError(f"Column {what!r} has lists of {widths.min()} to {widths.max()} values; every step needs the same.")
        return values.reshape(len(array), *((-1,) if len(array) else (0,)), *values.shape[1:])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.asarray(array.to_pylist(), dtype=np.str_)
    if pa.types.is_dictionary(kind):
        return from_arrow(array.dictionary_decode(), what)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise SchemaError(f"Column {what!r} has type {kind}, neither numbers nor text.")
    return _numpy(array)


def _numpy(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _struct(children: dict[str, pa.Array], what: str) -> pa.Array:
    if not children:
        raise SpaceError(f"{what} are an empty dict or tuple, which cannot be a column.")
    fields = [pa.field(name, child.type, nullable=False) for name, child in children.items()]
    return pa.StructArray.from_arrays(list(children.values()), fields=fields)


def field(name: str, array: pa.Array, *, nullable: bool = False, metadata: Any = None) -> pa.Field:
    """The schema field of a column made by `to_arrow`."""
    return pa.field(name, array.type, nullable=nullable, metadata=metadata)
