"""Read columns that RLlib packed as base64(lz4(pickle)), and the tensors of Ray Data.

Texts of one column mostly differ in nothing but the numbers. lz4 stores numbers as they are unless they repeat, and base64
keeps three bytes in four characters. So the numbers stand at one place of texts that are otherwise equal, and are read
without unpacking each text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import nested
from offline_core.data.episodes.arrow import is_text, read_column
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.unpickle import load_alike, load_array, load_nested, load_plain, numbers_in
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

Unpack = Callable[[str], bytes]

_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)


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
    """Unpack a column whose values are packed one by one into one array.

    Raises:
        DataError: a value is not packed, cannot be unpacked, or differs from the others in shape.
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
    if (array := load_alike(pickles)) is not None:
        return array
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


@dataclass(frozen=True, slots=True)
class Pattern:
    """What texts have in common, and where their numbers are."""

    text: np.ndarray
    """(L,) uint8, of one text."""
    characters: slice
    """Whole groups of four that hold the numbers."""
    numbers: slice
    """The numbers among the bytes of these characters."""
    array: np.ndarray
    """What this text holds."""
    pickle_bytes: int

    @classmethod
    def of(cls, text: str, unpack: Unpack) -> Pattern | None:
        """Find the pattern of a text; None if its numbers are not one span of the text.

        Raises:
            DataError: the text cannot be unpacked.
        """
        pickle = unpack(text)
        array = load_array(pickle)
        span = numbers_in(pickle, array.nbytes) if array.nbytes else None
        if span is None:
            return None
        frame, size = base64.b64decode(text), array.nbytes
        at = frame.find(pickle[span])
        first, last = at // 3, -(-(at + size) // 3)
        if at < 0 or 4 * last >= len(text):  # the last characters may be padding
            return None
        probe = np.random.default_rng(0).bytes(size)
        for other in (probe, bytes(byte ^ 0xFF for byte in probe)):  # or a copy of the numbers, or their order, would differ
            expected = pickle[: span.start] + other + pickle[span.stop :]
            changed = base64.b64encode(frame[:at] + other + frame[at + size :]).decode()
            if not _unpacks_to(changed, expected, unpack) or load_array(expected).tobytes() != other:
                return None
        numbers = slice(at - 3 * first, at - 3 * first + size)
        return cls(np.frombuffer(text.encode(), np.uint8), slice(4 * first, 4 * last), numbers, array, len(pickle))

    def read(self, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """((N,) bool which of N texts fit, (F, …) the arrays of those that do)."""
        fits = pc.equal(pc.binary_length(texts), len(self.text)).to_numpy(zero_copy_only=False)
        same = texts if fits.all() else texts.filter(pa.array(fits))
        begin = np.frombuffer(same.buffers()[1], np.int64)[same.offset]
        size = len(same) * len(self.text)
        rows = np.frombuffer(same.buffers()[2], np.uint8)[begin : begin + size].reshape(len(same), -1)
        digits = _DIGITS[rows[:, self.characters]]
        data = _joined(digits)
        matches = (digits < 64).all(axis=1)
        own = _joined(_DIGITS[self.text[np.newaxis, self.characters]])
        start, stop = self.characters.start, self.characters.stop
        first, last = self.numbers.start, self.numbers.stop
        around = ((rows, self.text, slice(start)), (rows, self.text, slice(stop, None)))
        for there, wanted, where in (*around, (data, own[0], slice(first)), (data, own[0], slice(last, None))):
            matches &= (there[:, where] == wanted[where]).all(axis=1)
        fits[fits] = matches
        numbers = np.ascontiguousarray(data[matches][:, self.numbers])
        return fits, numbers.view(self.array.dtype).reshape(len(numbers), *self.array.shape)


def _unpacks_to(text: str, expected: bytes, unpack: Unpack) -> bool:
    try:
        return unpack(text) == expected
    except Exception:  # the frame has a checksum, or is no frame any longer
        return False


def _joined(digits: np.ndarray) -> np.ndarray:
    """(N, 3 Q) bytes of (N, 4 Q) digits of six bits."""
    a, b, c, d = (digits[:, i::4] for i in range(4))
    data = np.empty((len(digits), a.shape[1], 3), np.uint8)
    data[..., 0] = (a << 2) | (b >> 4)
    data[..., 1] = (b << 4) | (c >> 2)
    data[..., 2] = (c << 6) | d
    return data.reshape(len(digits), -1)
