"""A lease on a folder where there are no locks: a numbered file, created exclusively, with a heartbeat.

The process with the highest number holds the folder as long as that file changes. Clocks are not compared: a process that
finds the file looks at it every `POLL_SECONDS`, for `LEASE_SECONDS` at least, and creates the next number if it never changes.
Looks are counted, not seconds: a machine that is too busy to send heartbeats is as slow to look.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import posixpath
import socket
import threading
import time
import uuid
from collections.abc import Iterator

from pyarrow import fs

from offline_core.errors import StorageUnavailableError
from offline_core.storage.cloud_errors import os_errors
from offline_core.storage.stores import Store

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
POLL_SECONDS = 1.0

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


class _Holding:
    """A number that this process created, and the thread that sends heartbeats."""

    def __init__(self, store: Store, folder: str, number: int) -> None:
        self.store, self.folder, self.number = store, folder, number
        self.path = _path(folder, number)
        self.name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
        self.is_lost = False
        self._held_at = 0.0
        """time.monotonic() when it was last verified."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> None:
        try:
            self.store.create(self.path, self._sign(0))
        except FileExistsError as error:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process was first", self.folder) from error
        if self._is_superseded():  # another process took and released this number, and a later one followed
            with contextlib.suppress(OSError):
                self.store.delete(self.path)
            raise BlockingIOError(errno.EWOULDBLOCK, "others were first", self.folder)
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        if kind is not None and issubclass(kind, StorageUnavailableError):
            return  # the release would fail as well: others wait a little longer
        self._thread.join()
        try:
            self.is_lost = self.is_lost or self._is_superseded()
            self.store.put(self.path, _RELEASED)
        except Exception as error:  # others wait a little longer
            log.warning("Cannot release %s: %s", self.folder, error)
            self.is_lost = self.is_lost or time.monotonic() - self._held_at > LEASE_SECONDS

    def _beat(self) -> None:
        beat = 0
        while not self._done.wait(HEARTBEAT_SECONDS) and not self.is_lost:
            beat += 1
            try:
                self.store.put(self.path, self._sign(beat))
                self.is_lost = self._is_superseded()
            except Exception as error:  # of any kind: the next heartbeat may succeed
                log.warning("Cannot send a heartbeat for %s: %s", self.folder, error)
        if self.is_lost:
            log.error(
                "Lease lost: another run holds %s now, as this one sent no heartbeat for %g s.", self.folder, LEASE_SECONDS
            )

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
    first = _read(store, path)
    if first in (_RELEASED, b""):
        return False
    log.info("Another run holds %s, or was killed: waiting %g s for a heartbeat.", posixpath.dirname(path), LEASE_SECONDS)
    for _ in range(math.ceil(LEASE_SECONDS / POLL_SECONDS)):
        time.sleep(POLL_SECONDS)
        now = _read(store, path)
        if now != first:
            return now not in (_RELEASED, b"")
    log.warning("The holder of %s sent no heartbeat for %g s: this run takes it over.", posixpath.dirname(path), LEASE_SECONDS)
    return False


@os_errors()
def _numbers(store: Store, folder: str) -> list[int]:
    found = store.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    names = [info.base_name.removeprefix(_PREFIX) for info in found if info.base_name.startswith(_PREFIX)]
    return sorted(int(name) for name in names if name.isdigit())


def _path(folder: str, number: int) -> str:
    return f"{folder}/{_PREFIX}{number:06d}"


@os_errors()
def _read(store: Store, path: str) -> bytes:
    try:
        with store.filesystem.open_input_stream(path) as stream:
            return stream.read()  # type: ignore[no-any-return]
    except FileNotFoundError:
        return b""
