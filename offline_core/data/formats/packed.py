"""Read columns that RLlib packed as base64(lz4(pickle)), and the tensors of Ray Data."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa

from offline_core.data.episodes import nested
from offline_core.data.episodes.arrow import is_text, read_column
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.unpickle import load_alike, load_array, load_nested, load_plain
from offline_core.data.formats.packed_alike import Pattern
from offline_core.errors import CorruptFileError, DataError, SchemaError, UnsafeDataError, within

PACKED = "BCJNG"
"""Prefix of an lz4 frame in base64; what follows differs for values above 64 KiB."""
MAX_VALUE_BYTES = 256 * 2**20
"""One packed value that unpacks to more is refused."""
MAX_VALUES_EXPANSION = 32
"""Values that are read together are refused if they also expand more than this; lz4 expands up to 255 times."""
FEW_TEXTS = 16
"""Fewer are unpacked one by one."""
MAX_PATTERNS = 8


def read_foreign_column(table: pa.Table, name: str) -> Nested:
    """The nested arrays in a column, unpacked if RLlib packed its values one by one.

    Raises:
        DataError: a value is missing, differs in shape from the others, or cannot be unpacked.
    """
    column = table[name]
    if is_text(column.type) and len(column) and str(column[0]).startswith(PACKED):
        return unpack_values(column, name)
    return read_column(table, name)


def unpack_values(texts: Sequence[Any] | pa.ChunkedArray, name: str) -> np.ndarray:
    """One array from a column whose values are packed one by one.

    Raises:
        DataError: one is not packed, cannot be unpacked, or differs from the others in shape.
    """
    if (alike := _alike(texts)) is not None:
        return alike
    pickles, packed, unpacked = [], 0, 0
    for text in texts.to_pylist() if isinstance(texts, pa.ChunkedArray) else texts:
        if not isinstance(text, str) or not text.startswith(PACKED):
            raise SchemaError(f"Column {name!r} mixes packed arrays with other text: {str(text)[:40]!r}.")
        pickles.append(_unpacked(text))
        packed, unpacked = packed + len(text), unpacked + len(pickles[-1])
        if unpacked > _limit(packed):
            raise UnsafeDataError(
                f"Column {name!r} unpacks to more than {unpacked:,} bytes from {packed:,}, like an archive bomb; refused. "
                "If you trust it, unpack it first."
            )
    if (found := load_alike(pickles)) is not None:
        return found
    return nested.stack([load_array(data) for data in pickles], name)  # type: ignore[no-any-return]


def _alike(texts: Sequence[Any] | pa.ChunkedArray) -> np.ndarray | None:
    """(N, …) of texts of which nearly all fit a few patterns, see `Pattern`; None of any others, and of damaged ones."""
    if len(texts) < FEW_TEXTS:
        return None
    try:
        column = texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([pa.array(texts, pa.large_string())])
        left = column.cast(pa.large_string()).combine_chunks()
        if left.null_count:
            return None
        rows, parts, packed, unpacked = np.arange(len(left)), list[tuple[np.ndarray, np.ndarray]](), 0, 0
        while len(left):
            if not (text := left[0].as_py()).startswith(PACKED):
                return None
            if len(parts) < MAX_PATTERNS and (pattern := Pattern.of(text, _unpacked)) is not None:
                fits, values = pattern.read(left)
                size = pattern.pickle_bytes * len(values)
            elif len(left) * 10 > len(column):
                return None
            else:
                data = _unpacked(text)
                fits, values, size = rows == rows[0], load_array(data)[np.newaxis], len(data)
            packed, unpacked = packed + len(text) * len(values), unpacked + size
            parts.append((rows[fits], values))
            rows, left = rows[~fits], left.filter(pa.array(~fits))
    except (DataError, pa.ArrowException, TypeError):  # unpacking one by one finds which it is
        return None
    if unpacked > _limit(packed) or len({(values.dtype, values.shape[1:]) for _, values in parts}) > 1:
        return None
    joined = np.empty((len(column), *parts[0][1].shape[1:]), parts[0][1].dtype)
    for numbers, values in parts:
        joined[numbers] = values
    return joined


def _limit(packed: int) -> int:
    """Bytes that so many bytes may unpack to."""
    return max(MAX_VALUE_BYTES, MAX_VALUES_EXPANSION * packed)


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
