"""A filesystem object that the caller opened in Python, to read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from offline_core.data.store.fsspec_adapter import as_pyarrow
from offline_core.data.store.stores import Store


def is_filesystem(value: Any) -> bool:
    """Whether it is a filesystem of PyArrow or fsspec."""
    return isinstance(value, fs.FileSystem | fsspec.AbstractFileSystem)


@dataclass(frozen=True, eq=False)
class UserFilesystemStore(Store):
    """A store that only reads; another process gets the object as it pickles itself."""

    user_filesystem: Any = field(repr=False)
    """A filesystem of PyArrow or fsspec."""

    @property
    def filesystem(self) -> fs.FileSystem:
        return as_pyarrow(self.user_filesystem)

    @property
    def is_local(self) -> bool:
        """It serves files of this machine."""
        return isinstance(self.user_filesystem, fs.LocalFileSystem | LocalFileSystem)

    @property
    def scheme(self) -> str:
        """The scheme of its URIs, for messages."""
        if isinstance(self.user_filesystem, fs.FileSystem):
            return str(self.user_filesystem.type_name).replace("::", "-")
        protocol = self.user_filesystem.protocol
        return str(protocol if isinstance(protocol, str) else protocol[0])
