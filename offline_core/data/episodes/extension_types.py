"""Arrow extension types: tensors are read, others are refused, since the code of a type may unpickle its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from offline_core.errors import UnsafeDataError

READ_TYPES = frozenset(
    {
        *(f"arrow.{name}" for name in ("fixed_shape_tensor", "variable_shape_tensor", "bool8", "json", "uuid")),
        *(f"ray.data.arrow_{name}" for name in ("tensor", "tensor_v2", "variable_shaped_tensor")),
        *(f"datasets.features.features.Array{axes}DExtensionType" for axes in range(2, 6)),
    }
)
"""Tensors of Arrow, Ray and Hugging Face, and Arrow's own types of plain values, which its own code reads."""
_NAME = b"ARROW:extension:name"


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
