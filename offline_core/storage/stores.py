"""What differs between the places where files lie: how one is put there whole, and only once.

A store is a PyArrow filesystem, which reads and lists alike everywhere, and the few things it cannot say: replace at once,
create exclusively, hold a folder alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import posixpath
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, ClassVar, Protocol

from pyarrow import fs

TEMPORARY = ".tmp-"
"""Prefix of files that are still being written; readers never see them, and a crash leaves nothing else behind."""

LINK_SECONDS = 24 * 3600
"""For which a link to a file can be followed."""


class Store(Protocol):
    """A place for files by path; small, and the same after it was sent to another process.

    What its methods raise is an `OSError` with a number, or an `OfflineError`.
    """

    @property
    def filesystem(self) -> fs.FileSystem: ...

    @property
    def has_buckets(self) -> bool:
        """The first name of a path is that of a bucket."""

    def put(self, path: str, data: bytes) -> None:
        """Replaces what is there, whole or not at all."""

    def create(self, path: str, data: bytes) -> None:
        """Puts it there, whole, if nothing is there yet.

        Raises:
            FileExistsError: something is.
        """

    def delete(self, path: str) -> None:
        """This file is not there any more, if it ever was."""

    def make_folder(self, path: str) -> None:
        """The folder is there, with its parents, and can be written to."""

    def remove_empty_folder(self, path: str) -> None:
        """Undoes `make_folder`.

        Raises:
            OSError: there is something in it.
        """

    def new_file(self, path: str) -> IO[bytes]:
        """A file to write to, which nobody sees, until `put_file` moves it to `path` or a place beside it."""

    def put_file(self, file: IO[bytes], path: str) -> None:
        """Moves a `new_file` there, whole or not at all, and closes it."""

    def discard(self, file: IO[bytes]) -> None:
        """Closes a `new_file` that is not wanted; nothing of it is left."""

    def lock(self, path: str) -> contextlib.AbstractContextManager[None]:
        """Holds a folder alone inside the block.

        Raises:
            BlockingIOError: another process holds it.
        """

    def link(self, path: str) -> str | None:
        """An address that shows that file in a browser, to whoever has it, for `LINK_SECONDS`; None if there is none."""

    def abort_uploads(self, path: str, *, older_than_days: float) -> int:
        """Gives up the uploads to this folder that nobody will finish, and that no listing shows; how many there were."""


@dataclass(frozen=True)
class LocalStore:
    """This machine's files, or what it has mounted."""

    has_buckets: ClassVar[bool] = False

    @property
    def filesystem(self) -> fs.FileSystem:
        return _local()

    def put(self, path: str, data: bytes) -> None:
        with _written(path, data) as temporary:
            os.replace(temporary, path)

    def create(self, path: str, data: bytes) -> None:
        with _written(path, data) as temporary:
            os.link(temporary, path)  # unlike a rename, fails if the name is taken; unlike O_EXCL, never half there

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: str) -> None:
        with _written(posixpath.join(path, "probe"), b"writable"):
            pass

    def remove_empty_folder(self, path: str) -> None:
        os.rmdir(path)

    def new_file(self, path: str) -> IO[bytes]:
        folder = posixpath.dirname(path)
        os.makedirs(folder, exist_ok=True)
        return open(posixpath.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}"), "w+b")

    def put_file(self, file: IO[bytes], path: str) -> None:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(file.name, path)

    def discard(self, file: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(file.name)

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[None]:
        with open(posixpath.join(path, ".lock"), "a+b") as file:  # the lock ends with the process, however that ends
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def link(self, path: str) -> str | None:
        return None

    def abort_uploads(self, path: str, *, older_than_days: float) -> int:
        return 0


class Spooling:
    """For stores to which files go over a network: written on this machine first, where no kill can leave them behind."""

    def new_file(self, path: str) -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="offline-")

    def discard(self, file: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            file.close()


@functools.cache
def _local() -> fs.LocalFileSystem:
    return fs.LocalFileSystem()


@contextlib.contextmanager
def _written(path: str, data: bytes) -> Iterator[str]:
    folder = posixpath.dirname(path)
    temporary = posixpath.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError as error:  # a file where a folder has to be; not what `create` means by it
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from error
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # it may never have been there, and its error is the one to see
            os.unlink(temporary)
