"""Stores on any filesystem of PyArrow or fsspec: Hadoop, SFTP, those that users name, and objects opened in Python."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pyarrow import fs

from offline_core.data.store.fsspec_adapter import as_pyarrow, open_filesystem
from offline_core.data.store.lease import LeasingStore
from offline_core.data.store.storage_errors import RefusedError, os_errors
from offline_core.data.store.stores import LINK_SECONDS, Store
from offline_core.data.store.temporary_names import temporary_name

_COPY_BYTES = 16 * 2**20


@dataclass(frozen=True)
class FilesystemStore(LeasingStore):
    """See `Store`. A file is written under a temporary name and moved."""

    maker: str
    """A protocol of fsspec, or module:callable."""
    arguments: str = field(repr=False)
    """Arguments for it, as JSON; the value of a variable `${NAME}` never leaves the process."""
    one_writer: bool
    """No two runs write to the same folder."""

    @property
    @os_errors()
    def filesystem(self) -> fs.FileSystem:
        return open_filesystem(self.maker, self.arguments)[0]

    @os_errors()
    def put(self, path: str, data: bytes) -> None:
        with self._moved_to(path) as temporary, self.filesystem.open_output_stream(temporary) as stream:
            stream.write(data)

    @os_errors()
    def create(self, path: str, data: bytes) -> None:
        if not self.one_writer:
            raise RefusedError(
                errno.EACCES,
                f"{self.maker} cannot create a file that only one of two writers gets; if no two runs ever write to the same "
                "folder, set one_writer in OFFLINE_FILESYSTEMS",
            )
        if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
            raise FileExistsError(errno.EEXIST, "exists already", path)
        self.put(path, data)

    @os_errors()
    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    @os_errors()
    def remove_empty_folder(self, path: str) -> None:
        super().remove_empty_folder(path)
        self.filesystem.delete_dir(path)

    @os_errors()
    def put_file(self, file: IO[bytes], path: str) -> None:
        file.flush()
        file.seek(0)
        with self._moved_to(path) as temporary, self.filesystem.open_output_stream(temporary) as stream:
            shutil.copyfileobj(file, stream, _COPY_BYTES)
        file.close()

    @contextlib.contextmanager
    def _moved_to(self, path: str) -> Iterator[str]:
        """Yield a temporary name, and move it to `path` if the block succeeds."""
        folder = posixpath.dirname(path)
        temporary = posixpath.join(folder, temporary_name())
        if folder.strip("/"):
            self.filesystem.create_dir(folder, recursive=True)
        try:
            yield temporary
            self.filesystem.move(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):  # the error before is the one to report
                self.filesystem.delete_file(temporary)
            raise

    def link(self, path: str) -> str | None:
        with contextlib.suppress(Exception):  # not every filesystem can, nor with every kind of credentials
            return str(open_filesystem(self.maker, self.arguments)[1].sign(path, expiration=LINK_SECONDS))
        return None


def is_filesystem(value: Any) -> bool:
    """Whether it is a filesystem of PyArrow or fsspec."""
    return isinstance(value, fs.FileSystem | fsspec.AbstractFileSystem)


@dataclass(frozen=True, eq=False)
class UserFilesystemStore(Store):
    """A store on an object that the caller opened, which only reads; another process gets the object as it pickles itself."""

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
