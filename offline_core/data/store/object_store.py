"""Objects in buckets: what S3, Google's store, Azure's and one in memory have in common, by obstore."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import math
import mimetypes
import os
import posixpath
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import IO, Any

from pyarrow import fs

from offline_core.data.store.cloud_errors import RefusedError, RemoteError, obstore_errors, set_up_errors
from offline_core.data.store.lease import LeasingStore
from offline_core.data.store.object_filesystem import FOLDER_MARKER, ObjectFilesystem
from offline_core.data.store.stores import LINK_SECONDS
from offline_core.runtime.config import Config

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 15.0
"""How long a server may take to accept a connection, and to answer or to send the next bytes."""

UPLOAD_SECONDS, SMALL_BYTES = 300.0, 2**20
"""How long it may take to answer where more bytes are sent: obstore counts from the first one, however slow the line is."""

RETRY_SECONDS = 20.0
"""How long a request is tried again, with growing pauses, before the store is given up for now; one without an answer, too."""

CREATE_ATTEMPTS = 5
"""Most attempts of a conditional put while another one is under way, up to 0.8 s apart."""

PART_BYTES, MOST_PARTS = 8 * 2**20, 10_000
"""Larger files are uploaded in parts of this size, which appear together; in larger ones where more parts are not allowed."""

TRUE = ("1", "true", "yes")
"""Of variables that switch something on."""

_FORKED = (
    "this process was forked from one that used an object store, and would wait forever: start it anew, as with "
    "multiprocessing.get_context('spawn')"
)

_MARGIN = timedelta(minutes=5)
"""Credentials are renewed so long before they expire."""


class FoundCredentials:
    """Credentials that a library finds, kept until shortly before they expire, or until they do if they cannot be renewed.

    obstore calls it, as `ObjectStore.client` does before.
    """

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find
        self._found: Any = None
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            now, expires_at = datetime.now(UTC), self._found and self._found["expires_at"]
            if self._found is None or (expires_at and now > expires_at - _MARGIN):
                try:
                    self._found = self._find()
                except Exception:
                    if expires_at is None or now >= expires_at:
                        raise
            return self._found


class Cloud(Config):
    """Where the buckets are, and who asks for them."""

    @property
    def server(self) -> str:
        """The URL of the server; only one that begins with http: is asked without TLS."""
        return ""

    def credentials(self) -> FoundCredentials | None:
        """Return what finds the credentials; None: they are given, or none are needed."""
        return None

    def authorities(self) -> bytes | None:
        """Return certificates to trust beside those of this machine."""
        return None

    def open(self, bucket: str, options: dict[str, Any]) -> Any:
        """Return obstore's store of a bucket, made with these options."""
        raise NotImplementedError


@functools.lru_cache(maxsize=64)
def _client(cloud: Cloud, bucket: str, answer_seconds: float, retry_seconds: float) -> Any:
    authorities = cloud.authorities()
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=answer_seconds),
        "timeout": timedelta(hours=1),
        "allow_http": cloud.server.startswith("http:"),
        **({"root_certificate": authorities} if authorities else {}),
    }
    backoff = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2}
    retries = {"max_retries": 1000, "retry_timeout": timedelta(seconds=retry_seconds), "backoff": backoff}
    more = {"credential_provider": credentials} if (credentials := cloud.credentials()) else {}
    return cloud.open(bucket, {"client_options": options, "retry_config": retries, **more})


@functools.cache
def _first_process() -> int:
    """The one that asked for the first client: obstore's threads are there, and not in processes that are forked from it."""
    return os.getpid()


class ObjectStore(LeasingStore):
    """See `Store`. Paths are bucket/key. Clients are made where they are used, once a process, and never sent."""

    def cloud(self) -> Cloud:
        """Return its settings, completed by variables of this process."""
        raise NotImplementedError

    def client(self, bucket: str, *, upload_bytes: int = 0) -> Any:
        """Return obstore's store of a bucket, for requests that send so many bytes.

        Raises:
            RefusedError: its configuration is wrong, there are no credentials, or this process was forked.
            RemoteError: what gives credentials does not answer.
        """
        if _first_process() != os.getpid():
            raise RefusedError(errno.EACCES, _FORKED)
        cloud = self.cloud()
        with set_up_errors():
            if find := cloud.credentials():
                find()  # here, where an error has the type that its library gave it
            answer_seconds = UPLOAD_SECONDS if upload_bytes > SMALL_BYTES else ANSWER_SECONDS
            return _client(cloud, bucket, answer_seconds, RETRY_SECONDS)

    @property
    def has_buckets(self) -> bool:
        return True

    @property
    def filesystem(self) -> fs.FileSystem:
        return fs.PyFileSystem(ObjectFilesystem(self))

    def put(self, path: str, data: bytes) -> None:
        client, key = self._at(path, upload_bytes=len(data))
        with obstore_errors():
            client.put(key, data, attributes=_attributes(key), chunk_size=PART_BYTES)

    def create(self, path: str, data: bytes) -> None:
        client, key = self._at(path, upload_bytes=len(data))
        try:
            _retried(lambda: client.put(key, data, mode="create", attributes=_attributes(key)))
        except FileExistsError:  # a put that was sent again as its first answer was lost finds its own bytes
            with contextlib.suppress(FileNotFoundError), obstore_errors():
                if bytes(client.get(key).bytes()) == data:
                    return
            raise

    def delete(self, path: str) -> None:
        client, key = self._at(path)
        with contextlib.suppress(FileNotFoundError):
            _retried(lambda: client.delete(key))

    def make_folder(self, path: str) -> None:
        self.put(posixpath.join(path, FOLDER_MARKER), b"")

    def remove_empty_folder(self, path: str) -> None:
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        if any(info.base_name != FOLDER_MARKER for info in self.filesystem.get_file_info(selector)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.delete(posixpath.join(path, FOLDER_MARKER))

    def delete_folder(self, path: str) -> None:
        """Delete what is in a folder, and its marker."""
        infos = self.filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        for info in infos:
            if info.type == fs.FileType.File:
                self.delete(info.path)

    def put_file(self, file: IO[bytes], path: str) -> None:
        size = file.seek(0, os.SEEK_END)
        client, key = self._at(path, upload_bytes=size)
        part_bytes = max(PART_BYTES, math.ceil(size / MOST_PARTS))
        file.seek(0)
        with obstore_errors():
            client.put(key, file, attributes=_attributes(key), chunk_size=part_bytes, max_concurrency=4)
        file.close()

    def link(self, path: str) -> str | None:
        import obstore

        client, key = self._at(path)
        with contextlib.suppress(Exception):  # not every kind of credentials can sign
            return str(obstore.sign(client, "GET", key, timedelta(seconds=LINK_SECONDS)))
        return None

    def _at(self, path: str, *, upload_bytes: int = 0) -> tuple[Any, str]:
        bucket, _, key = path.strip("/").partition("/")
        return self.client(bucket, upload_bytes=upload_bytes), key


def _attributes(key: str) -> dict[str, str]:
    """Return what lets a browser show the file that a link leads to."""
    return {"Content-Type": mimetypes.guess_type(key)[0] or "application/octet-stream"}


def _retried(ask: Callable[[], object]) -> None:
    """Do what obstore itself does not try again, as it cannot know that it does no harm: creating and deleting."""
    give_up_at = time.monotonic() + RETRY_SECONDS
    for attempt in itertools.count(1):
        try:
            with obstore_errors():
                ask()
            return
        except RemoteError as error:
            if error.errno != errno.ETIMEDOUT or attempt == CREATE_ATTEMPTS or time.monotonic() > give_up_at:
                raise
        time.sleep(0.05 * 2**attempt)
