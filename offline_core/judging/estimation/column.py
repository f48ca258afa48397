"""Numbers of each step or episode of a log: they are appended as the log is read, and read again part by part."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from offline_core.data.store.storage_errors import storage_errors

MEMORY_BYTES = 4 * 2**20
AT_A_TIME = 2**20


class Column:
    """(N,) float64: in memory up to `MEMORY_BYTES`, beyond that in a temporary file.

    The file has no name. It is gone with the column, or with the process, however that ends.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(MEMORY_BYTES, prefix="offline-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._length = 0

    def append(self, values: np.ndarray) -> None:
        """Add (n,) numbers at the end.

        Raises:
            StorageError: The disk of temporary files is full.
        """
        with storage_errors("write", tempfile.gettempdir()):
            self._file.seek(8 * self._length)
            self._file.write(np.ascontiguousarray(values, np.float64).tobytes())
        self._length += len(values)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice) -> np.ndarray:
        begin, end, _ = part.indices(self._length)
        self._file.seek(8 * begin)
        return np.frombuffer(self._file.read(8 * max(0, end - begin)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)


Numbers: TypeAlias = np.ndarray | Column
"""Of which any slice is an array."""


def blocks_of(numbers: Numbers) -> Iterator[np.ndarray]:
    """All of them, `AT_A_TIME` of them at a time."""
    return (numbers[begin : begin + AT_A_TIME] for begin in range(0, len(numbers), AT_A_TIME))


def those_of(numbers: Numbers, chosen: np.ndarray) -> np.ndarray:
    """(n,) those of the (N,) where bool is True."""
    places = range(0, max(1, len(numbers)), AT_A_TIME)
    return np.concatenate([numbers[at : at + AT_A_TIME][chosen[at : at + AT_A_TIME]] for at in places])
