"""Where the paths of a source lie: as their URIs say, or in a filesystem object that the caller gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsspec import AbstractFileSystem

from offline_core.errors import ConfigError, LocationError
from offline_core.storage.given_store import GivenStore, is_filesystem
from offline_core.storage.hadoop import hadoop_place, hadoop_uri
from offline_core.storage.location import Location

FILESYSTEM = "filesystem"
"""The argument that names it, as in Ray Data's functions."""
HDFS = "hdfs"


def located(paths: Sequence[str], arguments: Mapping[str, Any]) -> list[Location]:
    """The places at `paths`; none for those that are not for us to find.

    Raises:
        ConfigError: the filesystem is no object of PyArrow's or fsspec's.
    """
    filesystem = arguments.get(FILESYSTEM)
    if filesystem is not None:
        return [inside(filesystem, path) for path in paths]
    found = []
    for path in paths:
        try:
            found.append(Location.of(path))
        except LocationError:  # a place that only a reader of the user's own, or of Ray's, understands
            continue
    return found


def inside(filesystem: Any, path: str) -> Location:
    """The place at `path`, which may have a scheme before it, in a filesystem object.

    Raises:
        ConfigError: it is none.
    """
    if not is_filesystem(filesystem):
        raise ConfigError(
            f"source.arguments.{FILESYSTEM} is {type(filesystem).__name__}, and has to be a filesystem object of PyArrow's or "
            "fsspec's, given from Python. In forms and files, a URI names the filesystem: s3://bucket/folder; others are "
            "defined in OFFLINE_FILESYSTEMS."
        )
    store = GivenStore(filesystem)
    within = _within(store, path)
    if store.is_local:
        return Location.of(within)
    uri = within.rstrip("/") if "://" in within else f"{store.scheme}://{within.strip('/')}"  # http has URLs for paths
    return Location(uri, store, within.rstrip("/") or "/")


def _within(store: GivenStore, path: str) -> str:
    """The path as the filesystem itself names it."""
    if isinstance(store.given, AbstractFileSystem):
        return str(store.given._strip_protocol(path))
    if store.scheme == HDFS and path.startswith(f"{HDFS}:"):
        return hadoop_place(hadoop_uri(path.removeprefix(f"{HDFS}:")), {})[0]
    return path.partition("://")[2] or path
