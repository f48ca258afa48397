"""What can only be read from this machine's disks, on this machine's disks."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator

from offline_core.errors import CorruptFileError
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors

_COPY_BYTES = 16 * 2**20


@contextlib.contextmanager
def local_file(file: Location) -> Iterator[Location]:
    """The file itself, or if it lies elsewhere a copy of the same name, which is gone afterwards."""
    if file.is_local:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="offline-") as folder:
        yield _copied(file, os.path.join(folder, posixpath.basename(file.path)))


@contextlib.contextmanager
def local_folder(folder: Location) -> Iterator[Location]:
    """The folder itself, or if it lies elsewhere a copy with all that is below, which is gone afterwards."""
    if folder.is_local:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="offline-") as copy:
        for name in folder.files():
            _copied(folder.child(name), os.path.join(copy, _contained(name, folder)))
        yield Location.of(copy)


def _contained(name: str, folder: Location) -> str:
    """In a store names are any text; as a path on a disk, this one could lead out of the copy."""
    if name.startswith("/") or ".." in name.split("/"):
        raise CorruptFileError(f"{folder.child(name).uri} cannot be copied to a disk: '..' leads elsewhere there. Rename it.")
    return name


def _copied(file: Location, path: str) -> Location:
    with storage_errors("read", file.uri):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with file.filesystem.open_input_stream(file.path, compression=None) as stream, open(path, "wb") as copy:
            shutil.copyfileobj(stream, copy, _COPY_BYTES)
    return Location.of(path)
