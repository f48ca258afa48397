"""Objects in buckets: what S3, Google's store, Azure's and one in memory have in common, by obstore.

PyArrow lists and reads them by `ObjectFilesystem`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import math
import mimetypes
import os
import posixpath
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Any, NoReturn, Self

import pyarrow as pa
from pyarrow import fs
from pydantic import Field

from offline_core.data.store.lease import FOLDER_MARKER, LeasingStore
from offline_core.data.store.storage_errors import (
    NoBucketError,
    RefusedError,
    RemoteError,
    ReplacedError,
    obstore_errors,
    set_up_errors,
)
from offline_core.data.store.stores import LINK_SECONDS
from offline_core.runtime.config import Config, parse

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

RANGE_BYTES, MOST_REQUESTS = 32 * 2**20, 16
"""More are fetched by several requests, so many at the same time."""

FIRST_BYTES, MOST_BYTES = 2**20, 32 * 2**20
"""What a stream fetches at a time: little at first, as perhaps only the first rows are wanted, then twice as much each time."""

OPENED = 20
"""How often a stream opens an object that is replaced again and again, as a heartbeat is."""

_AZURE_FOLDER = "hdi_isfolder"
"""What Azure's stores with real folders say of one."""

TRUE = ("1", "true", "yes")
"""Values of variables that switch something on."""

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
    """Where the buckets are, and who asks for them; made of arguments of `OFFLINE_FILESYSTEMS`."""

    anonymous: bool = Field(False, description="Anonymous access.")

    @classmethod
    def of(cls, arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Self:
        """Complete these arguments by the usual environment variables."""
        return parse(cls, dict(arguments))

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


@dataclass(frozen=True)
class ObjectFilesystem(fs.FileSystemHandler):  # type: ignore[misc]
    """Paths are bucket/key. It is pickled as its store's settings. It only reads and deletes."""

    store: ObjectStore

    def get_type_name(self) -> str:
        return type(self.store).__name__

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return what is below a folder. A folder is there if anything is below it, or its marker is there."""
        bucket, _, key = selector.base_dir.strip("/").partition("/")
        try:
            client = self.store.client(bucket)
            with obstore_errors():
                objects = _all_below(client, key) if selector.recursive else _directly_below(client, key)
            infos = [_info(f"{bucket}/{path}", meta) for path, meta in objects.items() if path != key]
            if not objects and key and not selector.allow_not_found:
                raise FileNotFoundError(errno.ENOENT, "does not exist", selector.base_dir)
            return infos
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def _info(self, path: str) -> fs.FileInfo:
        bucket, _, key = path.strip("/").partition("/")
        client = self.store.client(bucket)
        if key:
            with contextlib.suppress(FileNotFoundError), obstore_errors():
                response = client.get(key, options={"head": True})
                return _info(path, None if response.attributes.get(_AZURE_FOLDER) == "true" else response.meta)
        with contextlib.suppress(NoBucketError), obstore_errors():
            if next(iter(client.list(key or None, chunk_size=1)), None) is not None or not key:
                return _info(path, None)
        return fs.FileInfo(path, fs.FileType.NotFound)

    def open_input_file(self, path: str) -> pa.PythonFile:
        """Open a file for random access: nothing is fetched that is not asked for."""
        return pa.PythonFile(self._opened(_Ranges, path), mode="r")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self._opened(_Stream, path), mode="r")

    def _opened(self, kind: type[_Ranges], path: str) -> _Ranges:
        bucket, _, key = path.strip("/").partition("/")
        client = self.store.client(bucket)
        return kind(client, key)

    def delete_file(self, path: str) -> None:
        self.store.delete(path)

    def delete_dir(self, path: str) -> None:
        self.store.delete_folder(path)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Do nothing: a folder is there when something is in it."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("Objects are written by their store.")

    delete_dir_contents = delete_root_dir_contents = move = copy_file = open_output_stream = open_append_stream = _refuse


def _directly_below(client: Any, folder: str) -> dict[str, Any]:
    """Return objects by key, with None for folders; `folder` itself if it has a marker."""
    listing = client.list_with_delimiter(folder or None)
    return dict.fromkeys(listing["common_prefixes"]) | {meta["path"]: meta for meta in listing["objects"]}


def _all_below(client: Any, folder: str) -> dict[str, Any]:
    """Return what `_directly_below` does, at any depth."""
    metas = {meta["path"]: meta for page in client.list(folder or None, chunk_size=1000) for meta in page}
    folders = dict.fromkeys(parent for path in metas for parent in _parents(path, folder))
    # obstore gives the name of an object `a/` as `a`: an empty one is a folder if no object has exactly that name.
    empty = [path for path, meta in metas.items() if not meta["size"] and path not in folders and path != folder]
    for path in empty:
        if posixpath.basename(path) != FOLDER_MARKER and not _is_object(client, path):
            folders[path] = None
    return folders | {path: meta for path, meta in metas.items() if meta["size"] or path not in folders}


def _parents(path: str, folder: str) -> Iterator[str]:
    """Yield the folders between `folder` and the path, without `folder` itself."""
    while len(path := posixpath.dirname(path)) > len(folder):
        yield path


def _is_object(client: Any, path: str) -> bool:
    try:
        with obstore_errors():
            client.head(path)
        return True
    except FileNotFoundError:
        return False


def _info(path: str, meta: Any) -> fs.FileInfo:
    """Return the information on an object, or on a folder if `meta` is None."""
    if meta is None:
        return fs.FileInfo(path, fs.FileType.Directory)
    changed: datetime = meta["last_modified"]
    return fs.FileInfo(path, fs.FileType.File, size=meta["size"], mtime=changed)


def _replaced() -> ReplacedError:
    return ReplacedError(errno.ESTALE, "it was replaced while it was read")


class _Ranges(io.RawIOBase):
    """An object, read by range requests: all of it as it was when it was opened, or an error."""

    def __init__(self, client: Any, key: str) -> None:
        self._client, self._key = client, key
        self._position = 0
        self._look()

    def _look(self) -> None:
        with obstore_errors():
            meta = self._client.head(self._key)
        self._size, tag = meta["size"], meta["e_tag"] or "W/"
        self._same = {} if tag.startswith("W/") else {"if_match": tag}  # no server compares a weak tag

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._position + size)
        data = self._fetched(self._position, end)
        self._position = max(self._position, end)
        return data

    def _fetched(self, start: int, end: int) -> bytes:
        if start < 0:  # as a damaged footer may have it
            raise pa.ArrowInvalid(f"{start} is no position in a file")
        ranges = [(begin, min(end, begin + RANGE_BYTES)) for begin in range(start, end, RANGE_BYTES)]
        with obstore_errors():
            if len(ranges) <= 1:
                return b"".join(self._one(span) for span in ranges)
            with ThreadPoolExecutor(min(len(ranges), MOST_REQUESTS)) as pool:
                return b"".join(pool.map(self._one, ranges))

    def _one(self, limits: tuple[int, int]) -> Any:
        from obstore.exceptions import PreconditionError

        try:
            data = self._client.get(self._key, options={"range": limits, **self._same}).bytes()
        except PreconditionError as error:
            raise _replaced() from error
        if len(data) != limits[1] - limits[0]:
            raise _replaced()
        return data


class _Stream(_Ranges):
    """An object that is read from its begin to its end, ahead of what is asked for."""

    def __init__(self, client: Any, key: str) -> None:
        super().__init__(client, key)
        self._ahead = memoryview(b"")
        self._step_bytes = FIRST_BYTES

    def seekable(self) -> bool:
        return False

    def read(self, size: int | None = -1) -> bytes:
        wanted = sys.maxsize if size is None or size < 0 else size
        parts = []
        while wanted > 0 and (self._ahead or self._position < self._size):
            if not self._ahead:
                self._ahead = memoryview(self._next(max(min(wanted, MOST_BYTES), self._step_bytes)))
                self._step_bytes = min(2 * self._step_bytes, MOST_BYTES)
            part, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
            wanted -= len(part)
            parts.append(part)
        return b"".join(parts)

    def _next(self, size: int) -> bytes:
        """What follows. An object that is replaced before anything of it was read is opened anew."""
        for _ in range(OPENED - 1):
            try:
                return super().read(size)
            except ReplacedError:
                if self._position:
                    raise
                self._look()
        return super().read(size)

    def tell(self) -> int:
        return self._position - len(self._ahead)
