"""A URI and the filesystem that serves it: the one place where a string becomes a place.

Paths stay URIs from end to end; nothing here or above joins them with `pathlib`, which would turn `s3://` into `s3:/`.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyarrow import fs

from offline_core.errors import LocationError, StorageError, VersionExistsError

TEMPORARY = ".tmp-"
"""Prefix of files that are still being written; readers never see them, and a crash leaves nothing else behind."""


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder on a filesystem."""

    uri: str
    """An absolute local path, or a URI with its scheme."""
    filesystem: fs.FileSystem
    path: str
    """The same place as the filesystem names it."""

    @classmethod
    def of(cls, uri: str) -> Location:
        """The location of a local path (relative ones from the working directory) or of a `file://` URI.

        Raises:
            LocationError: an empty name, or a scheme that cannot be opened.
        """
        if not uri or not uri.strip():
            raise LocationError("An empty path names no place; give a folder such as 'runs/cartpole'.")
        scheme = urlsplit(uri).scheme
        if scheme == "file":
            path = fs.FileSystem.from_uri(uri)[1]
        elif scheme and "://" in uri:
            raise LocationError(f"{uri!r}: {scheme}:// locations are not supported yet; use a local path or file:// URI.")
        else:
            path = os.path.abspath(os.path.expanduser(uri))
        return cls(uri=path, filesystem=fs.LocalFileSystem(), path=path)

    def child(self, relative: str) -> Location:
        """The place at `relative` below this one."""
        return Location(_join(self.uri, relative), self.filesystem, _join(self.path, relative))

    @property
    def parent(self) -> Location:
        """The folder this place is in."""
        return Location(posixpath.dirname(self.uri), self.filesystem, posixpath.dirname(self.path))

    def is_file(self) -> bool:
        return bool(self._type() == fs.FileType.File)

    def is_folder(self) -> bool:
        return bool(self._type() == fs.FileType.Directory)

    def files(self, *, recursive: bool = True) -> list[str]:
        """Paths relative to this folder of the files below it, sorted; none if there is no folder."""
        with storage_errors("list", self.uri):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=recursive, allow_not_found=True))
        return sorted(posixpath.relpath(info.path, self.path) for info in found if info.type == fs.FileType.File)

    def read(self) -> bytes:
        """The whole file.

        Raises:
            StorageError: it is not there or cannot be read.
        """
        with storage_errors("read", self.uri), self.filesystem.open_input_stream(self.path) as stream:
            return stream.read()  # type: ignore[no-any-return]

    def write(self, data: bytes) -> None:
        """Puts `data` there, replacing what was there, whole or not at all."""
        with self._written(data) as temporary, storage_errors("write", self.uri):
            os.replace(temporary, self.path)

    def create(self, data: bytes) -> None:
        """Puts `data` there, whole, if nothing is there yet.

        Raises:
            VersionExistsError: somebody else was first.
        """
        with self._written(data) as temporary, storage_errors("write", self.uri):
            try:
                os.link(temporary, self.path)  # unlike a rename, fails if the name is taken; unlike O_EXCL, never half there
            except FileExistsError as error:
                raise VersionExistsError(f"{self.uri} exists already: another writer was first.") from error

    def make_folder(self) -> Location:
        """This folder, created with its parents if need be and shown to be writable.

        Raises:
            StorageError: no permission, no space, or a file is in the way.
        """
        with storage_errors("write to", self.uri):
            self.filesystem.create_dir(self.path, recursive=True)
            probe = _join(self.path, f"{TEMPORARY}{uuid.uuid4().hex}")
            with self.filesystem.open_output_stream(probe) as stream:
                stream.write(b"writable")
            self.filesystem.delete_file(probe)
        return self

    def _type(self) -> fs.FileType:
        with storage_errors("look at", self.uri):
            return self.filesystem.get_file_info(self.path).type

    @contextlib.contextmanager
    def _written(self, data: bytes) -> Iterator[str]:
        temporary = _join(posixpath.dirname(self.path), f"{TEMPORARY}{uuid.uuid4().hex}")
        try:
            with storage_errors("write", self.uri):
                self.filesystem.create_dir(posixpath.dirname(self.path), recursive=True)
                with open(temporary, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(temporary)


def _join(base: str, relative: str) -> str:
    return f"{base.rstrip('/')}/{relative}"


@contextlib.contextmanager
def storage_errors(action: str, uri: str) -> Iterator[None]:
    """Turns what filesystems raise into a `StorageError` that says what was tried, where, and what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"Cannot {action} {uri}: it is not there.") from error
    except PermissionError as error:
        raise StorageError(
            f"Cannot {action} {uri}: no permission. Choose another place or change its owner or mode."
        ) from error
    except OSError as error:
        hint = {28: "The disk is full: free some space or choose another place.", 122: "Your disk quota is used up."}
        raise StorageError(f"Cannot {action} {uri}: {error}. {hint.get(error.errno or 0, '')}".rstrip()) from error
