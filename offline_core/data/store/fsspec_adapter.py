"""Filesystems of PyArrow and fsspec, made from a name and arguments, all with PyArrow's interface."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import json
import os
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
from pyarrow import fs

from offline_core.data.store.hadoop import NO_CLIENT, is_missing_client
from offline_core.data.store.storage_errors import RefusedError
from offline_core.data.store.variables import with_variables
from offline_core.errors import ConfigError, LocationError, first_line

_MODIFIED = ("mtime", "last_modified", "LastModified", "modified")
"""Names of the modification time in fsspec's filesystems."""


def parse_url(protocol: str, rest: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return (path, arguments) of `<protocol>://<rest>`; its host may name a server, as fsspec reads it.

    Raises:
        LocationError: the protocol is unknown, or its package is not installed.
    """
    try:
        kind: Any = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise LocationError(f"{protocol}://: {error}.") from error
    except ValueError as error:
        raise LocationError(f"{protocol}:// is no protocol of fsspec: {error}.") from error
    url = f"{protocol}://{rest}"
    url_arguments = kind._get_kwargs_from_urls(url)
    if url_arguments.keys() & arguments.keys():  # the arguments name the server, so the URL does not
        return kind._strip_protocol(rest), arguments
    return kind._strip_protocol(url), url_arguments | arguments


@functools.lru_cache(maxsize=32)
def open_filesystem(maker: str, arguments: str) -> tuple[fs.FileSystem, Any]:
    """Return the filesystem with PyArrow's interface, and as it is."""
    values = with_variables(json.loads(arguments))
    module, _, name = maker.partition(":")
    try:
        made = (
            getattr(importlib.import_module(module), name)(**values)
            if name
            else fsspec.filesystem(maker, **{"use_listings_cache": False} | values)  # listings have to be current
        )
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"The filesystem {maker} cannot be made of its arguments: {first_line(error)}.") from error
    except OSError as error:
        if is_missing_client(error):
            raise RefusedError(errno.ENOENT, NO_CLIENT) from error
        raise
    if isinstance(made, fs.FileSystem | fsspec.AbstractFileSystem):
        return as_pyarrow(made), made
    raise ConfigError(f"{maker} makes a {type(made).__name__}, which is neither PyArrow's nor fsspec's filesystem.")


def as_pyarrow(filesystem: Any) -> fs.FileSystem:
    """Return the filesystem with PyArrow's interface."""
    return filesystem if isinstance(filesystem, fs.FileSystem) else fs.PyFileSystem(_Handler(filesystem))


class _Handler(fs.FSSpecHandler):  # type: ignore[misc]
    """PyArrow's handler without its check before opening or listing, which takes any error for absence."""

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
                continue  # the marker of the folder itself
            yield self._create_file_info(path, info)
            if recursive and info["type"] == "directory":
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    yield from self._below(path, recursive=True)

    def open_input_stream(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(self.fs.open(path, mode="rb"), mode="r")

    def move(self, src: str, dest: str) -> None:
        if type(self.fs).mv is not fsspec.AbstractFileSystem.mv:
            self.fs.mv(src, dest)
            return
        self.fs.cp_file(src, dest)  # fsspec's own takes * and [ in names for patterns
        self.fs.rm_file(src)

    @staticmethod
    def _create_file_info(path: str, info: dict[str, Any]) -> fs.FileInfo:
        changed = next((info[name] for name in _MODIFIED if info.get(name)), None)
        return fs.FSSpecHandler._create_file_info(path, info | {"mtime": changed})

    def delete_file(self, path: str) -> None:
        self.fs.rm_file(path)
