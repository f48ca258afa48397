"""A file for HDF5 to write.

HDF5 crashes the process some time after a write of its own has failed. So a failure is kept from it: what cannot be written
stays in memory, and the error is raised when the library is done with its call.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Hdf5Output(io.RawIOBase):
    """A new file, for `h5py.File(output, …)`, also several times; closing that does not close this."""

    def __init__(self, path: str) -> None:
        self._file = io.FileIO(path, "w+")
        self._at = self._size = 0
        self._unwritten: list[tuple[int, bytes]] = []
        self._error: OSError | None = None

    def raise_error(self) -> None:
        """Raise the first error since the file was opened, if there is one."""
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def written(self) -> Iterator[Self]:
        """Raise such an error after the block, in place of what HDF5 raises because of it."""
        try:
            yield self
        except Exception:
            self.raise_error()
            raise
        self.raise_error()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def write(self, data: Buffer) -> int:
        view = memoryview(data).cast("B")
        try:
            self.raise_error()
            self._file.seek(self._at)
            done = 0
            while done < len(view):
                done += self._file.write(view[done:])
        except OSError as error:
            self._error = error
            self._unwritten.append((self._at, bytes(view)))
        self._at += len(view)
        self._size = max(self._size, self._at)
        return len(view)

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")[: max(0, self._size - self._at)]
        self._file.seek(self._at)
        read = self._file.readinto(view)
        view[read:] = bytes(len(view) - read)
        for start, data in self._unwritten:
            first, last = max(start, self._at), min(start + len(data), self._at + len(view))
            if first < last:
                view[first - self._at : last - self._at] = data[first - start : last - start]
        self._at += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._size = self._at if size is None else size
        if self._error is None:
            try:
                self._file.truncate(self._size)
            except OSError as error:
                self._error = error
        return self._size

    def close(self) -> None:
        self._file.close()
        super().close()
