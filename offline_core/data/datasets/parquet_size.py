"""Upper bounds on the size of rows in a Parquet file, so that a file ends before it grows too large."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

CHUNK_BYTES = 192
"""Upper bound on the metadata of one column of one row group, in pages and footer; long text may add to it."""


def stored_bytes(rows: pa.Table) -> int:
    """Upper bound on the bytes of `rows` in a file without its footer, uncompressed.

    Parquet has no integers below 32 bits, and stores where each list begins. Codecs add up to 1/128 to noise.
    """
    widening = 0.0
    for kind, count in _leaves(rows.schema):
        widening += count / 4 if count > 1 else 0
        widening += count * (4 - kind.byte_width) if pa.types.is_integer(kind) and kind.byte_width < 4 else 0
    return int((rows.nbytes + rows.num_rows * widening) * 129 / 128) + chunk_bytes(rows.schema)


def chunk_bytes(schema: pa.Schema) -> int:
    """Bytes that one more row group adds to a file besides its values."""
    return CHUNK_BYTES * sum(1 for _ in _leaves(schema))


def footer_bytes(schema: pa.Schema) -> int:
    """Upper bound on the footer of a file without rows: it has the schema with its metadata twice, once in base64."""
    return 3 * int(schema.serialize().size) + 1024


def _leaves(kinds: pa.Schema | pa.StructType) -> Iterator[tuple[pa.DataType, int]]:
    """(type, values a step) of each leaf."""
    for field in kinds:
        kind, count = field.type, 1
        while isinstance(kind, pa.BaseExtensionType) or pa.types.is_fixed_size_list(kind):
            if isinstance(kind, pa.BaseExtensionType):
                kind = kind.storage_type
            else:
                kind, count = kind.value_type, count * kind.list_size
        if pa.types.is_struct(kind):
            yield from _leaves(kind)
        else:
            yield kind, count
