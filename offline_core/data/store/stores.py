"""What differs between kinds of storage: how to put a file there whole, create it only once, and lock a folder.

A store is a PyArrow filesystem, which reads and lists alike everywhere, and the operations that PyArrow lacks.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import posixpath
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, NoReturn

from pyarrow import fs

from offline_core.data.store.storage_errors import RefusedError
from offline_core.data.store.temporary_names import temporary_name

_LOCK = ".lock"

WRITER = ".writer-"
"""Prefix of the files of those who write beside each other, as long as they do: see `Store.share`."""

LINK_SECONDS = 24 * 3600
"""Lifetime of a link to a file."""


class Store:
    """Storage of files by path; small, and equal after pickling. The base class only reads.

    Methods raise an `OSError` with a number, or an `OfflineError`.
    """

    @property
    def has_buckets(self) -> bool:
        """Whether the first name of a path is a bucket."""
        return False

    @property
    def filesystem(self) -> fs.FileSystem:
        raise NotImplementedError

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing the one that exists, whole or not at all."""
        _refuse()

    def create(self, path: str, data: bytes) -> None:
        """Write a file, whole, if none exists.

        Raises:
            FileExistsError: one does.
        """
        _refuse()

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        _refuse()

    def make_folder(self, path: str) -> None:
        """Create the folder and its parents, and check that it can be written to."""
        _refuse()

    def remove_empty_folder(self, path: str) -> None:
        """Undo `make_folder`.

        Raises:
            OSError: the folder is not empty.
        """
        _refuse()

    def new_file(self, path: str) -> IO[bytes]:
        """Open an invisible file, until `put_file` moves it to `path` or a path next to it."""
        _refuse()

    def put_file(self, file: IO[bytes], path: str) -> None:
        """Move a `new_file` there, whole or not at all, and close it."""
        _refuse()

    def discard(self, file: IO[bytes]) -> None:
        """Close and remove a `new_file`."""
        _refuse()

    def lock(self, path: str) -> contextlib.AbstractContextManager[None]:
        """Lock a folder inside the block.

        Raises:
            BlockingIOError: another process holds it.
        """
        _refuse()

    def is_locked(self, path: str) -> bool:
        """Whether a process that is alive holds the lock of a folder."""
        _refuse()

    def share(self, path: str) -> contextlib.AbstractContextManager[None]:
        """Be one of the writers of a folder inside the block. Locks do not hold them up, nor they locks: see `holds`."""
        _refuse()

    def has_writers(self, path: str) -> bool:
        """Whether a process that is alive is one of the writers of a folder."""
        _refuse()

    def link(self, path: str) -> str | None:
        """Return a URL that shows the file in a browser for `LINK_SECONDS`; None if the store has none."""
        return None

    def abort_uploads(self, path: str, *, older_than_days: float) -> int:
        """Abort unfinished uploads to this folder, which no listing shows, and return how many there were."""
        return 0


def _refuse() -> NoReturn:
    raise RefusedError(errno.EACCES, "a filesystem object is only read from; define it in OFFLINE_FILESYSTEMS to write there")


@dataclass(frozen=True)
class LocalStore(Store):
    """This machine's files, and mounted ones."""

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
        return open(posixpath.join(folder, temporary_name()), "w+b")

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
        with _file_lock(posixpath.join(path, _LOCK)) as is_mine:
            if not is_mine:
                raise BlockingIOError(errno.EWOULDBLOCK, "another process holds it", path)
            yield

    def is_locked(self, path: str) -> bool:
        file = posixpath.join(path, _LOCK)
        if not os.path.exists(file):
            return False
        with _file_lock(file) as is_mine:
            return not is_mine

    @contextlib.contextmanager
    def share(self, path: str) -> Iterator[None]:
        os.makedirs(path, exist_ok=True)
        self.has_writers(path)  # which deletes the files of dead ones
        while True:
            file = posixpath.join(path, f"{WRITER}{uuid.uuid4().hex}")
            with _file_lock(file) as is_mine:
                if not is_mine or not os.path.exists(file):  # `has_writers` took it for a dead one's before it was locked
                    continue
                try:
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        os.unlink(file)
                return

    def has_writers(self, path: str) -> bool:
        is_alive = False
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(path):
                if not name.startswith(WRITER):
                    continue
                with _file_lock(file := posixpath.join(path, name)) as is_mine:
                    is_alive |= not is_mine
                    if is_mine:
                        self.delete(file)
        return is_alive


@contextlib.contextmanager
def _file_lock(path: str) -> Iterator[bool]:
    """Lock a file inside the block; False: another process has it. The lock ends with the process, however that ends."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


@functools.cache
def _local() -> fs.LocalFileSystem:
    return fs.LocalFileSystem()


@contextlib.contextmanager
def _written(path: str, data: bytes) -> Iterator[str]:
    folder = posixpath.dirname(path)
    temporary = posixpath.join(folder, temporary_name())
    try:
        try:
            os.makedirs(folder, exist_ok=True)
        except FileExistsError as error:  # a file in place of a folder; `create` means something else
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from error
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # the error before is the one to report
            os.unlink(temporary)
