"""The objects of a store as PyArrow's filesystem, to be looked at, listed and read."""

from __future__ import annotations

import contextlib
import errno
import io
import posixpath
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn, Protocol

import pyarrow as pa
from pyarrow import fs

from offline_core.data.store.cloud_errors import NoBucketError, ReplacedError, obstore_errors

RANGE_BYTES, MOST_REQUESTS = 32 * 2**20, 16
"""More are fetched by several requests, so many at the same time."""

FIRST_BYTES, MOST_BYTES = 2**20, 32 * 2**20
"""What a stream fetches at a time: little at first, as perhaps only the first rows are wanted, then twice as much each time."""

OPENED = 20
"""How often a stream opens an object that is replaced again and again, as a heartbeat is."""

FOLDER_MARKER = ".folder"
"""An empty object that makes a folder exist; Amazon's console and earlier versions of this package write `folder/` instead."""

_AZURE_FOLDER = "hdi_isfolder"
"""What Azure's stores with real folders say of one."""


class Buckets(Protocol):
    """What a filesystem needs of its store."""

    def client(self, bucket: str) -> Any: ...

    def delete(self, path: str) -> None: ...

    def delete_folder(self, path: str) -> None: ...


@dataclass(frozen=True)
class ObjectFilesystem(fs.FileSystemHandler):  # type: ignore[misc]
    """Paths are bucket/key. It is pickled as its store's settings. It only reads and deletes."""

    store: Buckets

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
    """As `_directly_below`, at any depth."""
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
