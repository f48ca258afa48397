"""Numbers of each step or episode of a log: they are appended as the log is read, and read again part by part."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from offline_core.data.store.storage_errors import storage_errors

BLOCK = 2**17
"""Numbers that are written together; fewer stay in memory."""
AT_A_TIME = 2**20
_PLACE = "the folder of temporary files (set TMPDIR to another one)"


class _Spool:
    """A file without a name, in which the blocks of many columns lie. It is gone with them, or with the process."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._end = 0
        self._lock = threading.Lock()

    def write(self, block: bytes) -> int:
        """Write a block, and return where it is."""
        with self._lock, storage_errors("write to", _PLACE):
            if self._file is None:
                with tempfile.TemporaryFile(prefix="offline-", buffering=0) as file:
                    self._file = os.dup(file.fileno())
                weakref.finalize(self, os.close, self._file)
            at = self._end
            while block:
                written = os.pwrite(self._file, block, self._end)
                self._end, block = self._end + written, block[written:]
            return at

    def read(self, at: int, size: int) -> bytes:
        assert self._file is not None, "what is read was written"
        with storage_errors("read", _PLACE):
            return os.pread(self._file, size, at)


_spools: weakref.WeakSet[_Spool] = weakref.WeakSet()
"""The file that columns share as long as there are some."""
os.register_at_fork(after_in_child=lambda: _spools.clear())


class SpooledColumn:
    """(N,) float64: up to `BLOCK` in memory, all before them in a file that columns of this process share."""

    def __init__(self) -> None:
        self._spool = next(iter(_spools), None) or _Spool()
        _spools.add(self._spool)
        self._blocks: list[int] = []
        """Where each block is."""
        self._rest = np.empty(0)
        """The numbers after the last block."""

    def append(self, values: np.ndarray) -> None:
        """Add (n,) numbers at the end.

        Raises:
            StorageError: The disk of temporary files is full.
        """
        rest = np.concatenate([self._rest, values], dtype=np.float64)
        whole = len(rest) // BLOCK * BLOCK
        for begin in range(0, whole, BLOCK):
            self._blocks.append(self._spool.write(rest[begin : begin + BLOCK].tobytes()))
        self._rest = rest[whole:].copy()

    def __len__(self) -> int:
        return len(self._blocks) * BLOCK + len(self._rest)

    def __getitem__(self, part: slice) -> np.ndarray:
        """Read a slice of the numbers, which may have no step.

        Raises:
            StorageError: The file cannot be read.
        """
        begin, end, step = part.indices(len(self))
        if step != 1:
            raise IndexError("A column is read without a step.")
        numbers = np.empty(max(0, end - begin))
        at = begin
        while at < end:
            number, first = divmod(at, BLOCK)
            last = min(BLOCK, first + end - at)
            numbers[at - begin : at - begin + last - first] = self._read(number, first, last)
            at += last - first
        return numbers

    def _read(self, number: int, first: int, last: int) -> np.ndarray:
        """Numbers of one block, or of the rest."""
        if number == len(self._blocks):
            return self._rest[first:last]
        return np.frombuffer(self._spool.read(self._blocks[number] + 8 * first, 8 * (last - first)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype)


Numbers: TypeAlias = np.ndarray | SpooledColumn
"""Numbers of which any slice is an array."""


def blocks_of(numbers: Numbers) -> Iterator[np.ndarray]:
    """Yield all numbers, `AT_A_TIME` of them at a time."""
    return (numbers[begin : begin + AT_A_TIME] for begin in range(0, len(numbers), AT_A_TIME))


def those_of(numbers: Numbers, chosen: np.ndarray) -> np.ndarray:
    """(n,) the numbers, out of (N,), where `chosen` is True."""
    places = range(0, max(1, len(numbers)), AT_A_TIME)
    return np.concatenate([numbers[at : at + AT_A_TIME][chosen[at : at + AT_A_TIME]] for at in places])
