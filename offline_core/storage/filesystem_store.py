"""Any filesystem of PyArrow's or fsspec's: Google's and Azure's stores, Hadoop's, SFTP servers, and those that users make."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import itertools
import json
import logging
import os
import posixpath
import re
import shutil
import string
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, Any

import fsspec
import pyarrow as pa
from pyarrow import fs

from offline_core.errors import ConfigError, LocationError, first_line
from offline_core.storage.cloud_errors import NoBucketError, RefusedError, as_os_error
from offline_core.storage.lease import lease
from offline_core.storage.stores import LINK_SECONDS, TEMPORARY, Spooling

EXCLUSIVE = ("gs", "gcs", "abfs", "abfss", "az")
"""Protocols of fsspec whose `pipe_file(mode="create")` lets exactly one writer win."""

_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
_COPY_BYTES = 16 * 2**20
_NO_ACCOUNT = (
    "no account was named: set AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_NAME, or write "
    "abfs://container@account.dfs.core.windows.net/folder"
)
_TALKERS = ("gcsfs", "azure")
CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 15.0
_TEMPORARY = re.compile(f".*?{re.escape(TEMPORARY)}[0-9a-f]{{32}}(?=/|$)")
_CHANGED = ("mtime", "last_modified", "LastModified", "modified")
"""What filesystems of fsspec call the time of the last change."""
_MARKER = ".folder"
"""Where there are no folders, a file makes one."""


@dataclass(frozen=True)
class FilesystemStore(Spooling):
    """See `Store`. What is put is there whole or not at all if the filesystem sees to it, as object stores do."""

    maker: str
    """A protocol of fsspec, or module:callable."""
    arguments: str = field(repr=False)
    """For it, as JSON; `${NAME}` stands for an environment variable, whose value never leaves the process."""
    one_writer: bool
    """There is never a second run that writes to the same folder."""

    @property
    def filesystem(self) -> fs.FileSystem:
        return _opened(self.maker, self.arguments)[0]

    def put(self, path: str, data: bytes) -> None:
        if self.maker in EXCLUSIVE:
            with _bucket_there():
                self._native.pipe_file(path, data)
            return
        with self._moved_to(path) as temporary, self.filesystem.open_output_stream(temporary) as stream:
            stream.write(data)

    def create(self, path: str, data: bytes) -> None:
        if self.maker in EXCLUSIVE:
            try:
                with _bucket_there():
                    self._native.pipe_file(path, data, mode="create")
            except FileExistsError:  # a put whose answer was lost was sent again, and has then found itself
                if self._native.cat_file(path) != data:
                    raise
            return
        if not self.one_writer:
            raise RefusedError(
                errno.EACCES,
                f"{self.maker} cannot create a file that only one of two writers gets; if no two runs ever write to the same "
                "place there, say so with one_writer in OFFLINE_FILESYSTEMS",
            )
        if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
            raise FileExistsError(errno.EEXIST, "exists already", path)
        self.put(path, data)

    def make_folder(self, path: str) -> None:
        self.put(posixpath.join(path, _MARKER), b"")

    def put_file(self, file: IO[bytes], path: str) -> None:
        file.flush()
        file.seek(0)
        if self.maker in EXCLUSIVE:
            # Not by a stream: one that is closed after an error leaves what it had got, under its name.
            with _bucket_there():
                self._native.put_file(f"/dev/fd/{file.fileno()}", path)
        else:
            with self._moved_to(path) as temporary, self.filesystem.open_output_stream(temporary) as stream:
                shutil.copyfileobj(file, stream, _COPY_BYTES)
        file.close()

    @contextlib.contextmanager
    def _moved_to(self, path: str) -> Iterator[str]:
        """A name to write to, which becomes `path` if nothing goes wrong."""
        folder = posixpath.dirname(path)
        temporary = posixpath.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}")
        if folder.strip("/"):
            self.filesystem.create_dir(folder, recursive=True)
        try:
            yield temporary
            self.filesystem.move(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):  # the error that brought us here is the one to see
                self.filesystem.delete_file(temporary)
            raise

    def lock(self, path: str) -> AbstractContextManager[None]:
        return lease(self, path)

    def link(self, path: str) -> str | None:
        with contextlib.suppress(Exception):  # not all can, and not with all credentials
            return str(self._native.sign(path, expiration=LINK_SECONDS))
        return None

    def remove_leftovers(self, path: str, *, older_than_days: float) -> int:
        """Uploads that were broken off go by themselves, after a week at most; what lies under a temporary name does not."""
        try:
            return self._remove_temporary(path, older_than_days)
        except Exception as error:
            if (known := as_os_error(error)) is None:
                raise
            raise known from error

    def _remove_temporary(self, path: str, older_than_days: float) -> int:
        files = self.filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        temporary: dict[str, list[fs.FileInfo]] = {}
        for file in files:
            if file.type == fs.FileType.File and (name := _TEMPORARY.match(file.path.removeprefix(path))):
                temporary.setdefault(name[0], []).append(file)
        before_ns = (time.time() - older_than_days * 24 * 3600) * 1e9
        old = [group for group in temporary.values() if all(0 < (file.mtime_ns or 0) < before_ns for file in group)]
        for file in itertools.chain.from_iterable(old):
            self.filesystem.delete_file(file.path)
        return len(old)

    @property
    def _native(self) -> Any:
        return _opened(self.maker, self.arguments)[1]


def place_of(protocol: str, rest: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(path, arguments) of `<protocol>://<rest>`, whose host may name a server or an account, as fsspec reads it.

    Raises:
        LocationError: there is no such protocol, or what serves it is not installed.
    """
    try:
        kind: Any = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        raise LocationError(
            f"{protocol}:// needs the package {package}: pip install {package}." if package else f"{protocol}://: {error}."
        ) from error
    except ValueError as error:
        raise LocationError(f"{protocol}:// is no protocol of fsspec: {error}.") from error
    url = f"{protocol}://{rest}"
    found = kind._get_kwargs_from_urls(url)
    if found.keys() & arguments.keys():  # the server is named already, so this begins with no server
        return kind._strip_protocol(rest), arguments
    return kind._strip_protocol(url), found | arguments


class _Handler(fs.FSSpecHandler):  # type: ignore[misc]
    """PyArrow's, without its asking before it opens or lists: the answer is that nothing is there whatever goes wrong."""

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        try:
            return list(self._below(selector.base_dir, recursive=selector.recursive))
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def _below(self, folder: str, *, recursive: bool) -> Iterator[fs.FileInfo]:
        for info in self.fs.ls(folder, detail=True):
            path = info["name"]
            if path.strip("/") == folder.strip("/"):
                if info["type"] == "file" and not path.endswith("/"):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
                continue  # what marks the folder itself
            yield self._create_file_info(path, info)
            if recursive and info["type"] == "directory":
                with contextlib.suppress(FileNotFoundError):  # meanwhile
                    yield from self._below(path, recursive=True)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")

    open_input_file = open_input_stream

    @staticmethod
    def _create_file_info(path: str, info: dict[str, Any]) -> fs.FileInfo:
        changed = next((info[name] for name in _CHANGED if info.get(name)), None)
        return fs.FSSpecHandler._create_file_info(path, info | {"mtime": changed})

    def delete_file(self, path: str) -> None:
        self.fs.rm_file(path)


@contextlib.contextmanager
def _bucket_there() -> Iterator[None]:
    """Nothing else can be missing where something is written and there are no folders."""
    try:
        yield
    except FileNotFoundError as error:
        raise NoBucketError(errno.ENOENT, "there is no such bucket: create it, or correct its name") from error


@functools.lru_cache(maxsize=32)
def _opened(maker: str, arguments: str) -> tuple[fs.FileSystem, Any]:
    """(as PyArrow's, as it is)"""
    values = filled_in(json.loads(arguments))
    module, _, name = maker.partition(":")
    try:
        made = (
            getattr(importlib.import_module(module), name)(**values)
            if name
            else fsspec.filesystem(maker, **_defaults(maker) | values)
        )
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        if "Must provide either" in str(error):  # adlfs
            raise RefusedError(errno.EACCES, _NO_ACCOUNT) from error
        raise ConfigError(f"The filesystem {maker} cannot be made of its arguments: {first_line(error)}.") from error
    if isinstance(made, fs.FileSystem):
        return made, made
    if isinstance(made, fsspec.AbstractFileSystem):
        return fs.PyFileSystem(_Handler(made)), made
    raise ConfigError(f"{maker} makes a {type(made).__name__}, which is neither PyArrow's nor fsspec's filesystem.")


def _defaults(protocol: str) -> dict[str, Any]:
    defaults: dict[str, Any] = {"use_listings_cache": False}  # what is listed has to be what is there, and not what was
    if protocol in EXCLUSIVE:
        for name in _TALKERS:  # what they log is raised as well, and they log whole tracebacks
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if protocol in ("gs", "gcs"):
        from aiohttp import ClientTimeout

        defaults["requests_timeout"] = ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=REQUEST_SECONDS)
    return defaults


def filled_in(value: Any) -> Any:
    """The same with the variables that `${NAME}` stands for.

    Raises:
        ConfigError: one is not set.
    """
    match value:
        case dict():
            return {key: filled_in(each) for key, each in value.items()}
        case list():
            return [filled_in(each) for each in value]
        case str():
            try:
                return string.Template(value).substitute(os.environ)
            except KeyError as error:
                raise ConfigError(f"OFFLINE_FILESYSTEMS asks for the variable {error.args[0]}, which is not set.") from None
            except ValueError as error:
                raise ConfigError("OFFLINE_FILESYSTEMS: a $ that begins no ${NAME} is written $$.") from error
    return value
