"""A URI and the filesystem that serves it: the one place where a string becomes a place.

Paths stay URIs from end to end; nothing here or above joins them with `pathlib`, which would turn `s3://` into `s3:/`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import posixpath
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from pyarrow import fs

from offline_core.errors import BusyError, LocationError, StorageError, StorageUnavailableError, VersionExistsError

TEMPORARY = ".tmp-"
"""Prefix of files that are still being written; readers never see them, and a crash leaves nothing else behind."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
"""Of two letters at least, for `C:/` is a drive."""

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space or choose another place.",
    errno.EDQUOT: "Your disk quota is used up: free some space or choose another place.",
    errno.EROFS: "Choose another place, or mount it for writing.",
    errno.ENOTDIR: "A file is where a folder has to be: choose another place or move it away.",
    errno.EEXIST: "A file is where a folder has to be: choose another place or move it away.",
}

_MAY_PASS = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.EIO,
    errno.ENETUNREACH,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


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
        if not uri or not uri.strip() or "\0" in uri:
            raise LocationError(f"{uri!r} names no place; give a folder such as 'runs/cartpole'.")
        path = os.path.expanduser(uri)
        if scheme := _SCHEME.match(uri):
            if scheme[1].lower() != "file":
                raise LocationError(
                    f"{uri!r}: {scheme[1]}:// locations are not supported yet; use a local path or file:// URI."
                )
            path = unquote(uri[scheme.end() :].removeprefix("//localhost").removeprefix("//"))
            if not path.startswith("/"):
                raise LocationError(f"{uri!r} names another machine; a file:// URI has three slashes, as in file:///data/runs.")
        path = os.path.abspath(path)
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
        return sorted(self.sizes(recursive=recursive))

    def sizes(self, *, recursive: bool = True) -> dict[str, int]:
        """Bytes of the files below this folder, by their paths relative to it."""
        with storage_errors("list", self.uri):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=recursive, allow_not_found=True))
        return {posixpath.relpath(info.path, self.path): info.size for info in found if info.type == fs.FileType.File}

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

    def sync(self) -> None:
        """Sees to it that this file is on the disk and not only on its way there."""
        with storage_errors("write", self.uri), open(self.path, "rb") as file:
            os.fsync(file.fileno())

    def make_folder(self) -> Location:
        """This folder, created with its parents if need be and shown to be writable.

        Raises:
            StorageError: no permission, no space, or a file is in the way.
        """
        with self.child("probe")._written(b"writable"):
            return self

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """This folder is ours alone inside the block; the lock ends with the process, however that ends.

        Raises:
            BusyError: another run holds it.
        """
        with contextlib.ExitStack() as stack:
            with storage_errors("lock", self.uri):  # and not around what is done meanwhile
                file = stack.enter_context(open(self.child(".lock").path, "a+b"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise BusyError(
                        f"Another run is writing to {self.uri}. Wait until it is done, or choose another output."
                    ) from error
            yield

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
            with contextlib.suppress(OSError):  # it may never have been there, and its error is the one to see
                os.unlink(temporary)


@contextlib.contextmanager
def temporary_folder(parent: Location) -> Iterator[Location]:
    """A new folder below `parent` that readers never see, and that is gone afterwards."""
    folder = parent.child(f"{TEMPORARY}{uuid.uuid4().hex}")
    with storage_errors("write", folder.uri):
        folder.filesystem.create_dir(folder.path, recursive=True)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.filesystem.delete_dir(folder.path)


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
        if error.errno in _MAY_PASS:
            raise StorageUnavailableError(
                f"Cannot {action} {uri} now: {str(error).rstrip('.')}. Try again when the place answers."
            ) from error
        remedy = _REMEDIES.get(error.errno or 0, "")
        raise StorageError(f"Cannot {action} {uri}: {str(error).rstrip('.')}. {remedy}".rstrip()) from error
