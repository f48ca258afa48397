"""Read columns that RLlib packed as base64(lz4(pickle)), and the tensor and pickle types of Ray Data."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa

from offline_core.episodes import nested
from offline_core.episodes.arrow import check_no_nulls, is_text, read_column
from offline_core.episodes.nested import Nested
from offline_core.episodes.unpickle import load_alike, load_array, load_nested, load_plain
from offline_core.errors import CorruptFileError, SchemaError, UnsafeDataError, within

PACKED = "BCJNG"
"""Prefix of an lz4 frame in base64; what follows differs for values above 64 KiB."""
_PICKLED = "ray.data.arrow_pickled_object"
"""Ray's type for values without an Arrow type, such as observations of Tuple spaces."""
MAX_VALUE_BYTES = 256 * 2**20
"""One packed value that unpacks to more is refused."""
MAX_VALUES_EXPANSION = 32
"""Values that are read together are refused if they also expand more than this; lz4 expands up to 255 times."""


def read_foreign_column(table: pa.Table, name: str) -> Nested:
    """The nested arrays in a column, unpacked if RLlib or Ray packed its values one by one.

    Raises:
        DataError: a value is missing, differs in shape from the others, or cannot be unpacked.
    """
    column, field = table[name], table.schema.field(name)
    if is_text(field.type) and len(column) and str(column[0]).startswith(PACKED):
        return unpack_values(column.to_pylist(), name)
    extension = getattr(field.type, "extension_name", (field.metadata or {}).get(b"ARROW:extension:name", b"").decode())
    if extension == _PICKLED:
        check_no_nulls(column, name)
        with within(column=name):
            return nested.stack([load_nested(item) for item in column.cast(pa.binary()).to_pylist()], name)
    return read_column(table, name)


def unpack_values(texts: Iterable[Any], name: str) -> np.ndarray:
    """One array from a column whose values are packed one by one.

    Raises:
        DataError: one is not packed, cannot be unpacked, or differs from the others in shape.
    """
    pickles, packed, unpacked = [], 0, 0
    for text in texts:
        if not isinstance(text, str) or not text.startswith(PACKED):
            raise SchemaError(f"Column {name!r} mixes packed arrays with other text: {str(text)[:40]!r}.")
        pickles.append(_unpacked(text))
        packed, unpacked = packed + len(text), unpacked + len(pickles[-1])
        if unpacked > max(MAX_VALUE_BYTES, MAX_VALUES_EXPANSION * packed):
            raise UnsafeDataError(
                f"Column {name!r} unpacks to more than {unpacked:,} bytes from {packed:,}, like an archive bomb; refused. "
                "If you trust it, unpack it first."
            )
    if (alike := load_alike(pickles)) is not None:
        return alike
    return nested.stack([load_array(data) for data in pickles], name)  # type: ignore[no-any-return]


def unpack_column(text: str) -> Nested:
    """A column that RLlib packed as a whole: an array, or dicts or tuples of arrays for composite spaces.

    Raises:
        CorruptFileError: broken base64 or lz4.
        UnsafeDataError: the pickle is more than arrays, or unpacks to too much.
    """
    return load_nested(_unpacked(text))


def unpack_infos(text: str) -> Any:
    """Infos that RLlib packed: a list of dicts, or one dict, of numbers, text and arrays.

    Raises:
        CorruptFileError: broken base64 or lz4.
        UnsafeDataError: it holds anything else, or unpacks to too much.
    """
    with within(column="infos"):
        return load_plain(_unpacked(text))


def _unpacked(text: str) -> bytes:
    try:
        frame = base64.b64decode(text, validate=True)
        size = lz4.frame.get_frame_info(frame)["content_size"] or MAX_VALUE_BYTES  # allocated at once
        decompressor = lz4.frame.LZ4FrameDecompressor()
        data = decompressor.decompress(frame, max_length=min(size, MAX_VALUE_BYTES) + 1)
    except (binascii.Error, RuntimeError, ValueError) as error:
        raise CorruptFileError(f"A packed value cannot be unpacked: {error}.") from error
    if not decompressor.eof:
        if len(data) > MAX_VALUE_BYTES:
            raise UnsafeDataError(f"A packed value unpacks to more than {MAX_VALUE_BYTES:,} bytes; refused.")
        raise CorruptFileError("A packed value is cut off.")
    return data  # type: ignore[no-any-return]
