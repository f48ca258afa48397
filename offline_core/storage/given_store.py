"""A filesystem object that a caller in Python opened, to read from."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass, field
from typing import IO, Any, NoReturn

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from offline_core.storage.cloud_errors import RefusedError
from offline_core.storage.opened import as_pyarrow


def is_filesystem(value: Any) -> bool:
    """One of PyArrow's or fsspec's."""
    return isinstance(value, fs.FileSystem | fsspec.AbstractFileSystem)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise RefusedError(errno.EACCES, "a filesystem object is only read from; define it in OFFLINE_FILESYSTEMS to write there")


@dataclass(frozen=True, eq=False)
class GivenStore:
    """See `Store`. Sent to another process as the object pickles itself."""

    given: Any = field(repr=False)
    """A filesystem of PyArrow's or fsspec's."""

    @property
    def filesystem(self) -> fs.FileSystem:
        return as_pyarrow(self.given)

    @property
    def is_local(self) -> bool:
        """It is this machine's."""
        return isinstance(self.given, fs.LocalFileSystem | LocalFileSystem)

    @property
    def scheme(self) -> str:
        """What URIs of it begin with, for people."""
        if isinstance(self.given, fs.FileSystem):
            return str(self.given.type_name).replace("::", "-")
        protocol = self.given.protocol
        return str(protocol if isinstance(protocol, str) else protocol[0])

    @property
    def has_buckets(self) -> bool:
        return False

    def link(self, path: str) -> str | None:
        return None

    def abort_uploads(self, path: str, *, older_than_days: float) -> int:
        return 0

    def put(self, path: str, data: bytes) -> None:
        _refuse()

    def create(self, path: str, data: bytes) -> None:
        _refuse()

    def delete(self, path: str) -> None:
        _refuse()

    def make_folder(self, path: str) -> None:
        _refuse()

    def remove_empty_folder(self, path: str) -> None:
        _refuse()

    def new_file(self, path: str) -> IO[bytes]:
        _refuse()

    def put_file(self, file: IO[bytes], path: str) -> None:
        _refuse()

    def discard(self, file: IO[bytes]) -> None:
        _refuse()

    def lock(self, path: str) -> contextlib.AbstractContextManager[None]:
        _refuse()
