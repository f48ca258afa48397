"""Nested numpy arrays ⇄ Arrow columns, by view in both directions wherever the types allow it.

A step of shape () is a plain column, a step with axes is Arrow's canonical `fixed_shape_tensor`, a dict or tuple is a
struct. Everything is non-null, so that reading is a matter of looking at the value buffer.

Of Arrow's extension types tensors are read and others are refused, since the code of a type may unpickle its values.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.unpickle import load_array
from offline_core.errors import SchemaError, SpaceError, UnsafeDataError
from offline_core.runtime.units import count_text

READ_TYPES = frozenset(
    {
        *(f"arrow.{name}" for name in ("fixed_shape_tensor", "variable_shape_tensor", "bool8", "json", "uuid")),
        *(f"ray.data.arrow_{name}" for name in ("tensor", "tensor_v2", "variable_shaped_tensor")),
        *(f"datasets.features.features.Array{axes}DExtensionType" for axes in range(2, 6)),
    }
)
"""Tensors of Arrow, Ray and Hugging Face, and Arrow's own types of plain values, which its own code reads."""
_NAME, _METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"

_RAY_TENSORS = ("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2")


def to_arrow(tree: Nested, what: str) -> pa.Array:
    """Nested arrays of shape (N, …) → one Arrow array of length N.

    Raises:
        SpaceError: a dtype or shape that Arrow cannot hold.
    """
    if isinstance(tree, dict):
        if _is_tuple(tree):
            raise SpaceError(f"The keys {sorted(tree)} of {what} stand for a tuple here; rename one of them.")
        return _struct({str(key): to_arrow(child, f"{what}/{key}") for key, child in tree.items()}, what)
    if isinstance(tree, tuple):
        arrays = [to_arrow(child, f"{what}/{i}") for i, child in enumerate(tree)]
        return _struct(dict(zip(_tuple_keys(tree), arrays, strict=True)), what)
    array = np.asarray(tree)
    if array.dtype.kind not in "biufU" or array.dtype == np.longdouble:
        raise SpaceError(f"{what} have dtype {array.dtype}; only numbers, booleans and text can be stored.")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.ndim == 1:
        return pa.array(array)
    if array.dtype.kind == "U" or 0 in array.shape[1:]:
        raise SpaceError(f"{what} have {array.dtype} values of shape {array.shape[1:]} a step, which cannot be a column.")
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    storage = pa.FixedSizeListArray.from_arrays(values, math.prod(array.shape[1:]))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(values.type, array.shape[1:]), storage)


def empty_table(schema: pa.Schema) -> pa.Table:
    """No row of a schema; Arrow's own makes none with tensors inside of structs."""
    return pa.table([_empty(field.type) for field in schema], schema=schema)


def _empty(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _empty(kind.storage_type))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.StructArray.from_arrays([_empty(field.type) for field in kind], fields=[*kind])
    return pa.array([], kind)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def without_decimals(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Decimals as float64, or as int64 where their type has no fraction and all fit."""
    if array.type.scale <= 0:
        with contextlib.suppress(pa.ArrowInvalid):
            return array.cast(pa.int64())
    return array.cast(pa.float64())


def check_no_nulls(column: pa.Array | pa.ChunkedArray, what: str) -> None:
    """Raises:
    SchemaError: there is a null.
    """
    if column.null_count:
        rows = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
        nulls, every = count_text(column.null_count, "null"), count_text(len(column), "row")
        said = f"Column {what!r} has {nulls} among {every}; fill or drop them first."
        raise SchemaError(said).with_rows(dict.fromkeys(rows, said))


def from_arrow(array: pa.Array | pa.ChunkedArray, what: str, metadata: Mapping[bytes, bytes] | None = None) -> Nested:
    """The nested arrays in an Arrow array: as `to_arrow` makes it, or lists and Ray tensors of other tools.

    `metadata` of the array's field holds the shape of Ray's tensors in a process without Ray.

    Raises:
        SchemaError: the column has nulls, ragged lists or a type that holds no numbers or text.
    """
    if isinstance(array, pa.ChunkedArray):
        chunks = array.chunks or [pa.nulls(0, array.type)]
        array = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    check_no_nulls(array, what)
    kind = array.type
    if isinstance(kind, pa.FixedShapeTensorType):
        tensor = _reshape(from_arrow(array.storage, what), kind.shape, what)
        return tensor if kind.permutation is None else tensor.transpose(0, *(1 + axis for axis in kind.permutation))
    if isinstance(kind, pa.BaseExtensionType):  # Ray's, where Ray has registered its types in this process
        return _extension(array.storage, kind.extension_name, getattr(kind, "shape", None), what)
    if metadata and _NAME in metadata:
        name = metadata[_NAME].decode()
        return _extension(array, name, _stored_shape(metadata.get(_METADATA), name), what)
    if pa.types.is_struct(kind):
        children = {f.name: from_arrow(array.field(i), f"{what}/{f.name}", f.metadata) for i, f in enumerate(kind)}
        return tuple(children[key] for key in _tuple_keys(children)) if _is_tuple(children) else children
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array, what)
    if is_text(kind):
        return np.asarray(array.to_pylist(), dtype=np.str_)
    if pa.types.is_dictionary(kind):
        return from_arrow(array.dictionary_decode(), what)
    if pa.types.is_decimal(kind):
        return from_arrow(without_decimals(array), what)
    if pa.types.is_null(kind):
        raise SchemaError(f"Column {what!r} has no value in any row here; fill it by columns.fill, or leave these rows out.")
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise SchemaError(f"Column {what!r} has type {kind}, neither numbers nor text.")
    return array.to_numpy(zero_copy_only=False)


def read_column(table: pa.Table, name: str) -> Nested:
    """The nested arrays in a column of `table`; see `from_arrow`."""
    return from_arrow(table[name], name, table.schema.field(name).metadata)


def _lists(array: pa.Array, what: str) -> np.ndarray:
    if rows := _rows_with_nulls(array):
        raise SchemaError(f"Column {what!r} has nulls in {rows} of {len(array)} rows; fill or drop them first.")
    try:
        values = from_arrow(array.flatten(), what)
    except SchemaError as error:
        error.rows = {}  # which count what is in the lists, and not the lists
        raise
    if not isinstance(values, np.ndarray):
        raise SchemaError(f"Column {what!r} has type {array.type}: lists of numbers can be read, lists of structs cannot.")
    if pa.types.is_fixed_size_list(array.type):
        return values.reshape(len(array), array.type.list_size, *values.shape[1:])
    widths = np.diff(array.offsets.to_numpy())
    if (widths != widths[:1]).any():
        raise SchemaError(f"Column {what!r} has lists of {widths.min()} to {widths.max()} values; all steps need the same.")
    return values.reshape(len(array), widths[0] if len(array) else 0, *values.shape[1:])


def _rows_with_nulls(array: pa.Array) -> int:
    """How many lists have a null in them, however deep."""
    inner, row = array, None
    while pa.types.is_list(inner.type) or pa.types.is_large_list(inner.type) or pa.types.is_fixed_size_list(inner.type):
        inner, below = inner.flatten(), inner
        if row is None and inner.null_count == 0 and not pa.types.is_nested(inner.type):
            return 0
        parents = pc.list_parent_indices(below)
        row = parents if row is None else row.take(parents)
        if inner.null_count:
            return len(pc.unique(row.filter(inner.is_null())))
    return 0


def _extension(storage: pa.Array, name: str, shape: Sequence[int] | None, what: str) -> Nested:
    if name.startswith("ray.") and name not in _RAY_TENSORS:
        raise SchemaError(f"Column {what!r} has Ray's type {name}; write it with one shape for all steps, as numbers.")
    values = from_arrow(storage, what)
    return values if shape is None else _reshape(values, shape, what)


def _stored_shape(stored: bytes | None, name: str) -> Sequence[int] | None:
    if stored is None or name not in _RAY_TENSORS:
        return None
    try:
        return json.loads(stored)  # type: ignore[no-any-return]
    except ValueError:  # Ray 2.49 to 2.54 pickled the tuple
        return load_array(stored).tolist()  # type: ignore[no-any-return]


def _reshape(values: np.ndarray, shape: Sequence[int], what: str) -> np.ndarray:
    try:
        return values.reshape(len(values), *shape)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"Column {what!r} claims steps of shape {shape} and has others: {error}.") from error


def _tuple_keys(children: Sized) -> list[str]:
    return [f"_{i}" for i in range(len(children))]


def _is_tuple(children: Mapping[str, Any]) -> bool:
    """Whether a struct of these fields is how a tuple is stored."""
    return bool(children) and children.keys() == set(_tuple_keys(children))


def _struct(children: dict[str, pa.Array], what: str) -> pa.Array:
    if not children:
        raise SpaceError(f"{what} are an empty dict or tuple, which cannot be a column.")
    fields = [pa.field(name, child.type, nullable=False) for name, child in children.items()]
    return pa.StructArray.from_arrays(list(children.values()), fields=fields)


def refuse_extension_types(schema: pa.Schema, uri: str) -> None:
    """Refuse data whose values Python code of an extension type would make, such as Ray's for pickled objects.

    Arguments:
        uri: of the data, for the message.

    Raises:
        UnsafeDataError: a column, or what is in its lists, structs, maps or dictionaries, has another type than `READ_TYPES`.
    """
    for field in schema:
        for name in _extensions(field.type, field.metadata):
            if name not in READ_TYPES:
                raise UnsafeDataError(
                    f"Column {field.name!r} of {uri} has the Arrow extension type {name}, and reading one may run code. "
                    "Of these only tensors are read: write the column as numbers or text. An import leaves it out if "
                    "source.columns names the other columns.",
                    uri=uri,
                    column=field.name,
                )


def _extensions(kind: pa.DataType, metadata: Mapping[bytes, bytes] | None) -> Iterator[str]:
    """The names of all extension types in a type, registered in this process or not."""
    if isinstance(kind, pa.BaseExtensionType):
        yield kind.extension_name
        yield from _extensions(kind.storage_type, None)
    elif metadata and _NAME in metadata:
        yield metadata[_NAME].decode(errors="replace")
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        yield from _extensions(kind.value_type, None)
    for child in _children(kind):
        yield from _extensions(child.type, child.metadata)


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)] if pa.types.is_nested(kind) else []
