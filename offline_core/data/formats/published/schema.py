"""The columns of a dataset version as other programs read them: tensors as lists, all of them nullable."""

from __future__ import annotations

import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.store.parquet_files import read_footer
from offline_core.errors import SchemaError

_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
"""Neither Delta nor Iceberg has unsigned numbers."""


def published_schema(dataset: Dataset) -> pa.Schema:
    """Return the columns of all files, in the order of their first occurrence.

    Raises:
        SchemaError: two files differ in the type of a column, or a table cannot hold its type.
    """
    fields: dict[str, pa.Field] = {}
    for entry in dataset.manifest.files:
        for field in read_footer(dataset.location.child(entry.path), entry.footer_sha256).schema.to_arrow_schema():
            plain = pa.field(field.name, _plain(field.type, field.name, dataset), nullable=True)
            if fields.setdefault(field.name, plain) != plain:
                raise SchemaError(
                    f"{dataset.location.child(entry.path).uri} has {plain.type} in column {field.name}, and an earlier file "
                    f"{fields[field.name].type}: a table has one type a column. Convert the dataset first."
                )
    return pa.schema([*fields.values()])


def _plain(kind: pa.DataType, name: str, dataset: Dataset) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type, name, dataset)
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type, name, dataset)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type, name, dataset), nullable=True))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type, name, dataset), nullable=True) for field in kind])
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_uint64(kind) or pa.types.is_float16(kind):
        raise SchemaError(f"Column {name} of {dataset.ref} is {kind}, which Delta and Iceberg do not have; export the dataset.")
    return _SIGNED.get(kind, kind)
