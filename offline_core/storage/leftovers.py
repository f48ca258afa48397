"""What killed writers leave: temporary files and folders, which nobody reads and nobody else would remove."""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator

from pyarrow import fs

from offline_core.errors import StorageError
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors
from offline_core.storage.stores import TEMPORARY

log = logging.getLogger(__name__)

MIN_AGE_DAYS = 7
"""Longer than a writer may take from one write to the next."""

_NAME = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{32}")
_BELOW = re.compile(f".*?/{_NAME.pattern}(?=/|$)")


def remove_leftovers(root: Location, *, recursive: bool = True) -> None:
    """Deletes what has a temporary name in the folder `root`, and in which nothing has changed for `MIN_AGE_DAYS`.

    In an object store, gives up the uploads that nobody will finish. Never raises: what cannot be deleted is a warning.

    Arguments:
        recursive: look into the folders below as well.
    """
    if root.is_local:
        _remove_files(root, recursive=recursive)
        return
    try:
        with storage_errors("look for what killed runs left at", root.uri):
            removed = _remove_remote(root) + root.store.abort_uploads(root.path, older_than_days=MIN_AGE_DAYS)
    except StorageError as error:
        log.warning("%s", error)
        return
    if removed:
        log.info("Removed what killed runs left at %s: %d temporary places and unfinished uploads", root.uri, removed)


def _remove_remote(root: Location) -> int:
    """Where folders are no more than what their files have in common: by the age of the youngest one."""
    found = root.filesystem.get_file_info(fs.FileSelector(root.path, recursive=True, allow_not_found=True))
    temporary: dict[str, list[fs.FileInfo]] = {}
    for file in found:
        if file.type == fs.FileType.File and (name := _BELOW.match(file.path.removeprefix(root.path))):
            temporary.setdefault(name[0], []).append(file)
    before_ns = (time.time() - MIN_AGE_DAYS * 24 * 3600) * 1e9
    old = [files for files in temporary.values() if all(0 < (file.mtime_ns or 0) < before_ns for file in files)]
    for file in itertools.chain.from_iterable(old):
        root.store.delete(file.path)
    return len(old)


def _remove_files(root: Location, *, recursive: bool) -> None:
    before = time.time() - MIN_AGE_DAYS * 24 * 3600
    removed = freed_bytes = 0
    for path in _temporary(root.path, recursive=recursive):
        try:
            changed, size = _last_change_and_bytes(path)
            if changed > before:
                continue
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:  # who wrote it is done, or somebody else removes it
            continue
        except OSError as error:
            log.warning("Cannot remove %s, which a killed run left: %s. Remove it by hand.", path, error)
            continue
        removed, freed_bytes = removed + 1, freed_bytes + size
    if removed:
        log.info("Removed what killed runs left at %s: %d files and folders, %s bytes", root.uri, removed, f"{freed_bytes:,}")


def _temporary(root: str, *, recursive: bool) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        found = [name for name in (*folders, *files) if _NAME.fullmatch(name)]
        yield from (path for name in found if not os.path.islink(path := os.path.join(folder, name)))
        folders[:] = [name for name in folders if recursive and name not in found]


def _last_change_and_bytes(path: str) -> tuple[float, int]:
    """Of a file, or of a folder and all that is in it."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_mtime, status.st_size
    with os.scandir(path) as entries:
        inside = [_last_change_and_bytes(entry.path) for entry in entries]
    return max([status.st_mtime, *(changed for changed, _ in inside)]), sum(size for _, size in inside)
