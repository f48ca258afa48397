"""Resolve the paths of a source, by their URIs or in a filesystem object of the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsspec import AbstractFileSystem

from offline_core.data.store.allowed_roots import is_limited
from offline_core.data.store.filesystem_store import UserFilesystemStore, is_filesystem
from offline_core.data.store.hadoop import hadoop_place, hadoop_uri
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, LocationError

FILESYSTEM = "filesystem"
"""The argument with the filesystem object, as in Ray Data's functions."""
HDFS = "hdfs"


def located(paths: Sequence[str], arguments: Mapping[str, Any]) -> list[Location]:
    """The locations of `paths`, without those that only a user's reader or Ray understands.

    Raises:
        ConfigError: the filesystem is not an object of PyArrow or fsspec.
    """
    filesystem = arguments.get(FILESYSTEM)
    if filesystem is not None:
        return [inside(filesystem, path) for path in paths]
    locations = []
    for path in paths:
        try:
            locations.append(Location.of(path))
        except LocationError:  # only a user's reader or Ray understands it
            if is_limited():
                raise
            continue
    return locations


def inside(filesystem: Any, path: str) -> Location:
    """The location of `path`, with or without a scheme, in a filesystem object.

    Raises:
        ConfigError: the object is not a filesystem.
    """
    if not is_filesystem(filesystem):
        raise ConfigError(
            f"source.arguments.{FILESYSTEM} is {type(filesystem).__name__}; it must be a filesystem object of PyArrow or "
            "fsspec, given from Python. In forms and files, a URI names the filesystem: s3://bucket/folder; others are "
            "defined in OFFLINE_FILESYSTEMS."
        )
    store = UserFilesystemStore(filesystem)
    within = _within(store, path)
    if store.is_local:
        return Location.of(within)
    uri = within.rstrip("/") if "://" in within else f"{store.scheme}://{within.strip('/')}"  # http has URLs for paths
    return Location(uri, store, within.rstrip("/") or "/")


def _within(store: UserFilesystemStore, path: str) -> str:
    """The path as the filesystem itself names it."""
    if isinstance(store.user_filesystem, AbstractFileSystem):
        return str(store.user_filesystem._strip_protocol(path))
    if store.scheme == HDFS and path.startswith(f"{HDFS}:"):
        return hadoop_place(hadoop_uri(path.removeprefix(f"{HDFS}:")), {})[0]
    return path.partition("://")[2] or path
