"""A lease on a folder where there are no locks: a numbered file, created exclusively, with a heartbeat.

The process with the highest number holds the folder as long as that file changes. Clocks are not compared: a process that
finds the file looks at it every `POLL_SECONDS`, for `LEASE_SECONDS` at least, and creates the next number if it never changes.
Looks are counted, not seconds: a machine that is too busy to send heartbeats is as slow to look.

Those who may write beside each other have a file each, likewise with a heartbeat: see `LeasingStore.share`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import posixpath
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO

from pyarrow import fs

from offline_core.data.store.storage_errors import os_errors
from offline_core.data.store.stores import WRITER, Store
from offline_core.errors import StorageUnavailableError

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
POLL_SECONDS = 1.0

FOLDER_MARKER = ".folder"
"""An empty file that makes a folder exist; Amazon's console and earlier versions of this package write `folder/` instead."""

_PREFIX = ".lock-"
_RELEASED = b"released"


class LeaseLostError(OSError):
    """Another run may hold the folder, as this one sent no heartbeat for too long."""


@contextlib.contextmanager
def lease(store: Store, folder: str) -> Iterator[None]:
    """Hold `folder` inside the block; after a process dies, others wait for `LEASE_SECONDS`.

    Raises:
        BlockingIOError: another process holds it, and is alive.
        LeaseLostError: at the end of the block; another process took it meanwhile.
    """
    known = _numbers(store, folder)
    if known and _is_alive(store, _path(folder, known[-1])):
        raise BlockingIOError(errno.EWOULDBLOCK, "held by another process", folder)
    holding = _Holding(store, folder, known[-1] + 1 if known else 1)
    with holding:
        for old in known:
            with contextlib.suppress(OSError):
                store.delete(_path(folder, old))
        yield
    if holding.is_lost:
        raise LeaseLostError(errno.EBUSY, "this run sent no heartbeat for too long, and another may hold it now", folder)


class LeasingStore(Store):
    """Base of stores without locks: of remote ones, whose files are written to a temporary file of this machine first.

    A kill removes that file.
    """

    def new_file(self, path: str) -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="offline-")

    def discard(self, file: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            file.close()

    def make_folder(self, path: str) -> None:
        self.put(posixpath.join(path, FOLDER_MARKER), b"")

    def remove_empty_folder(self, path: str) -> None:
        infos = self.filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        if any(info.base_name != FOLDER_MARKER for info in infos):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.delete(posixpath.join(path, FOLDER_MARKER))

    def lock(self, path: str) -> contextlib.AbstractContextManager[None]:
        return lease(self, path)

    def is_locked(self, path: str) -> bool:
        numbers = _numbers(self, path)
        if not numbers or _read(self, _path(path, numbers[-1])) in (_RELEASED, b""):
            return False
        try:
            with lease(self, path):  # of a process that died: the next run need not wait for it
                return False
        except BlockingIOError:
            return True

    @contextlib.contextmanager
    def share(self, path: str) -> Iterator[None]:
        file = f"{path}/{WRITER}{uuid.uuid4().hex}"
        name = f"{socket.gethostname()}-{os.getpid()}"

        def send(beat: int) -> bool:
            self.put(file, f"{name} {beat}".encode())
            return True

        send(0)
        heartbeats = _Heartbeats(path, send)
        heartbeats.start()
        try:
            yield
        except StorageUnavailableError:
            heartbeats.stop(wait=False)  # a deletion would fail as well: others wait a little longer
            raise
        except BaseException:
            _leave(self, file, heartbeats)
            raise
        _leave(self, file, heartbeats)

    def has_writers(self, path: str) -> bool:
        """See `Store`; the files of dead writers are deleted after `LEASE_SECONDS`."""
        is_alive, dead = _watch(self, [f"{path}/{name}" for name in _names(self, path) if name.startswith(WRITER)])
        for file in dead:
            log.warning("%s got no heartbeat for %g s: its run was killed. It is deleted.", file, LEASE_SECONDS)
            self.delete(file)
        return is_alive


def _leave(store: Store, file: str, heartbeats: _Heartbeats) -> None:
    heartbeats.stop()
    try:
        store.delete(file)
    except Exception as error:  # others wait a little longer
        log.warning("Cannot delete %s: %s", file, error)


class _Heartbeats:
    """A thread that calls `send` with 1, 2 and so on, every `HEARTBEAT_SECONDS`, until it returns False."""

    def __init__(self, folder: str, send: Callable[[int], bool]) -> None:
        self._folder, self._send = folder, send
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        self._done.set()
        if wait:
            self._thread.join()

    def _run(self) -> None:
        beat = 0
        while not self._done.wait(HEARTBEAT_SECONDS):
            beat += 1
            try:
                if not self._send(beat):
                    return
            except Exception as error:  # of any kind: the next heartbeat may succeed
                log.warning("Cannot send a heartbeat for %s: %s", self._folder, error)


class _Holding:
    """A number that this process created, and its heartbeats."""

    def __init__(self, store: Store, folder: str, number: int) -> None:
        self.store, self.folder, self.number = store, folder, number
        self.path = _path(folder, number)
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
        self.is_lost = False
        self._held_at = 0.0
        """time.monotonic() when it was last verified."""
        self._heartbeats = _Heartbeats(folder, self._send)

    def __enter__(self) -> None:
        try:
            self.store.create(self.path, self._sign(0))
        except FileExistsError as error:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process was first", self.folder) from error
        if self._is_superseded():  # another process took and released this number, and a later one followed
            with contextlib.suppress(OSError):
                self.store.delete(self.path)
            raise BlockingIOError(errno.EWOULDBLOCK, "others were first", self.folder)
        self._heartbeats.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, StorageUnavailableError):
            self._heartbeats.stop(wait=False)
            return  # the release would fail as well: others wait a little longer
        self._heartbeats.stop()
        try:
            self.is_lost = self.is_lost or self._is_superseded()
            self.store.put(self.path, _RELEASED)
        except Exception as error:  # others wait a little longer
            log.warning("Cannot release %s: %s", self.folder, error)
            self.is_lost = self.is_lost or time.monotonic() - self._held_at > LEASE_SECONDS

    def _send(self, beat: int) -> bool:
        self.store.put(self.path, self._sign(beat))
        self.is_lost = self._is_superseded()
        if self.is_lost:
            log.error(
                "Lease lost: another run holds %s now, as this one sent no heartbeat for %g s.", self.folder, LEASE_SECONDS
            )
        return not self.is_lost

    def _is_superseded(self) -> bool:
        asked_at = time.monotonic()
        if _numbers(self.store, self.folder)[-1:] > [self.number]:
            return True
        self._held_at = asked_at
        return False

    def _sign(self, beat: int) -> bytes:
        return f"{self.name} {beat}".encode()


def _is_alive(store: Store, path: str) -> bool:
    """Whether the holder of that file changes it within `LEASE_SECONDS` and has not released it."""
    is_alive, dead = _watch(store, [path])
    if dead:
        log.warning(
            "The holder of %s sent no heartbeat for %g s: this run takes it over.", posixpath.dirname(path), LEASE_SECONDS
        )
    return is_alive


def _watch(store: Store, paths: list[str]) -> tuple[bool, list[str]]:
    """(whether one of the files gets a heartbeat within `LEASE_SECONDS`, else those that are neither released nor deleted)."""
    watched = {path: text for path in paths if (text := _read(store, path)) not in (_RELEASED, b"")}
    if watched:
        folder = posixpath.dirname(paths[0])
        log.info("Another run holds %s, or was killed: waiting %g s for a heartbeat.", folder, LEASE_SECONDS)
    for _ in range(math.ceil(LEASE_SECONDS / POLL_SECONDS)):
        if not watched:
            break
        time.sleep(POLL_SECONDS)
        now = {path: _read(store, path) for path in watched}
        if any(text not in (watched[path], _RELEASED, b"") for path, text in now.items()):
            return True, []
        watched = {path: text for path, text in watched.items() if now[path] == text}
    return False, [*watched]


def _numbers(store: Store, folder: str) -> list[int]:
    names = [name.removeprefix(_PREFIX) for name in _names(store, folder) if name.startswith(_PREFIX)]
    return sorted(int(name) for name in names if name.isdigit())


@os_errors()
def _names(store: Store, folder: str) -> list[str]:
    return [info.base_name for info in store.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))]


def _path(folder: str, number: int) -> str:
    return f"{folder}/{_PREFIX}{number:06d}"


@os_errors()
def _read(store: Store, path: str) -> bytes:
    try:
        with store.filesystem.open_input_stream(path) as stream:
            return stream.read()  # type: ignore[no-any-return]
    except FileNotFoundError:
        return b""
