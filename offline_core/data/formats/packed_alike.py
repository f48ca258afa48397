"""Packed arrays whose texts differ in nothing but the numbers, read without unpacking each of them.

lz4 stores numbers as they are unless they repeat, and base64 keeps three bytes in four characters. So the numbers of a column
stand at one place of texts that are otherwise equal.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes.unpickle import load_array, numbers_in

Unpack = Callable[[str], bytes]

_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)


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
        """None if the numbers do not stand in the text at one place.

        Raises:
            DataError: it cannot be unpacked.
        """
        pickle = unpack(text)
        array = load_array(pickle)
        found = numbers_in(pickle, array.nbytes) if array.nbytes else None
        if found is None:
            return None
        frame, size = base64.b64decode(text), array.nbytes
        at = frame.find(pickle[found])
        first, last = at // 3, -(-(at + size) // 3)
        if at < 0 or 4 * last >= len(text):  # the last characters may be padding
            return None
        probe = np.random.default_rng(0).bytes(size)
        for other in (probe, bytes(byte ^ 0xFF for byte in probe)):  # or a copy of the numbers, or their order, would differ
            expected = pickle[: found.start] + other + pickle[found.stop :]
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
        found = (digits < 64).all(axis=1)
        own = _joined(_DIGITS[self.text[np.newaxis, self.characters]])
        start, stop = self.characters.start, self.characters.stop
        first, last = self.numbers.start, self.numbers.stop
        around = ((rows, self.text, slice(start)), (rows, self.text, slice(stop, None)))
        for there, wanted, where in (*around, (data, own[0], slice(first)), (data, own[0], slice(last, None))):
            found &= (there[:, where] == wanted[where]).all(axis=1)
        fits[fits] = found
        numbers = np.ascontiguousarray(data[found][:, self.numbers])
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
