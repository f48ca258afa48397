"""Temporary files and folders of killed writers, which no reader sees.

They go when the next run writes there if their names say that their writer is dead (see `temporary_names`). Those of other
machines and containers, whose processes are not seen from here, go by their age.
"""

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

from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.data.store.temporary_names import DIGITS, TEMPORARY, is_of_dead_process, is_of_other_living_process
from offline_core.errors import StorageError

log = logging.getLogger(__name__)

MIN_AGE_DAYS = 7
"""Of what an unknown process writes: longer than any takes between two writes."""
ENDING_SECONDS = 3.0
"""For the workers of a run that failed to end."""

_NAME = re.compile(re.escape(TEMPORARY) + f"[0-9a-f]{{{DIGITS}}}")
_BELOW = re.compile(f".*?/{_NAME.pattern}(?=/|$)")


def remove_partial_files(root: Location, *, recursive: bool = True) -> None:
    """Delete files and folders with a temporary name below `root` whose writer is dead, or that did not change for
    `MIN_AGE_DAYS`.

    In an object store, abort uploads of that age too. Never raises: a failed deletion is a warning.

    Arguments:
        recursive: look into the folders below as well.
    """
    if root.is_local:
        _remove_files(root, recursive=recursive)
        return
    try:
        with storage_errors("look for partial files of killed runs at", root.uri):
            removed = _remove_remote(root) + root.store.abort_uploads(root.path, older_than_days=MIN_AGE_DAYS)
    except StorageError as error:
        log.warning("%s", error)
        return
    if removed:
        log.info("Removed partial files of killed runs at %s: %d temporary paths and unfinished uploads", root.uri, removed)


def remove_partial_files_on_disk(root: Location, *, recursive: bool = True) -> None:
    """The same where `root` is on a disk. Elsewhere small files appear whole, and looking for others takes requests."""
    if root.is_local:
        remove_partial_files(root, recursive=recursive)


def remove_partial_files_of_failed_run(root: Location) -> None:
    """The same where `root` is on a disk and a run has just failed: its workers may take a moment to end."""
    if not root.is_local:
        return
    until = time.monotonic() + ENDING_SECONDS
    while time.monotonic() < until and any(
        is_of_other_living_process(os.path.basename(path)) for path in _temporary(root.path)
    ):
        time.sleep(0.05)
    remove_partial_files(root)


def _remove_remote(root: Location) -> int:
    """The age of a temporary name is that of the youngest file below it: object stores have no folders."""
    infos = root.filesystem.get_file_info(fs.FileSelector(root.path, recursive=True, allow_not_found=True))
    temporary: dict[str, list[fs.FileInfo]] = {}
    for file in infos:
        if file.type == fs.FileType.File and (name := _BELOW.match(file.path.removeprefix(root.path))):
            temporary.setdefault(name[0], []).append(file)
    before_ns = (time.time() - MIN_AGE_DAYS * 24 * 3600) * 1e9
    old = [
        files
        for name, files in temporary.items()
        if is_of_dead_process(name.rpartition("/")[2]) or all(0 < (file.mtime_ns or 0) < before_ns for file in files)
    ]
    for file in itertools.chain.from_iterable(old):
        root.store.delete(file.path)
    return len(old)


def _remove_files(root: Location, *, recursive: bool) -> None:
    before = time.time() - MIN_AGE_DAYS * 24 * 3600
    removed = freed_bytes = 0
    for path in _temporary(root.path, recursive=recursive):
        try:
            changed, size = _last_change_and_bytes(path)
            if changed > before and not is_of_dead_process(os.path.basename(path)):
                continue
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:  # its writer finished, or another process removed it
            continue
        except OSError as error:
            log.warning("Cannot remove %s, which a killed run left: %s. Remove it by hand.", path, error)
            continue
        removed, freed_bytes = removed + 1, freed_bytes + size
    if removed:
        log.info(
            "Removed partial files of killed runs at %s: %d files and folders, %s bytes", root.uri, removed, f"{freed_bytes:,}"
        )


def _temporary(root: str, *, recursive: bool = True) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        names = [name for name in (*folders, *files) if _NAME.fullmatch(name)]
        yield from (path for name in names if not os.path.islink(path := os.path.join(folder, name)))
        folders[:] = [name for name in folders if recursive and name not in names]


def _last_change_and_bytes(path: str) -> tuple[float, int]:
    """Return the last change and the size of a file, or of a folder and all inside."""
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        return status.st_mtime, status.st_size
    with os.scandir(path) as entries:
        inside = [_last_change_and_bytes(entry.path) for entry in entries]
    return max([status.st_mtime, *(changed for changed, _ in inside)]), sum(size for _, size in inside)
