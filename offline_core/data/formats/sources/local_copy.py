"""Copy remote files to a local disk for libraries that only read local files."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator, Sequence

import pyarrow as pa

from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import CorruptFileError
from offline_core.runtime.prefetch import several

_COPY_BYTES = 16 * 2**20


@contextlib.contextmanager
def local_file(file: Location) -> Iterator[Location]:
    """The file itself, or a temporary copy of the same name if it is remote."""
    if file.is_local:
        yield file
        return
    with tempfile.TemporaryDirectory(prefix="offline-") as folder:
        yield _copied(file, os.path.join(folder, posixpath.basename(file.path)))


@contextlib.contextmanager
def local_files(files: Sequence[Location]) -> Iterator[list[Location]]:
    """`local_file` of each; several threads copy remote ones."""
    with contextlib.ExitStack() as stack:
        contexts = [local_file(file) for file in files]
        if all(file.is_local for file in files):
            yield [stack.enter_context(context) for context in contexts]
        else:
            yield several(stack.enter_context, contexts)


@contextlib.contextmanager
def local_stream(file: Location) -> Iterator[pa.NativeFile]:
    """The file, opened for random access on a local disk."""
    with local_file(file) as copy:
        with storage_errors("read", file.uri):
            stream = copy.filesystem.open_input_file(copy.path)
        with stream:
            yield stream


@contextlib.contextmanager
def local_folder(folder: Location) -> Iterator[Location]:
    """The folder itself, or a temporary copy of it if it is remote."""
    if folder.is_local:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="offline-") as copy:
        for name in folder.files():
            _copied(folder.child(name), os.path.join(copy, _contained(name, folder)))
        yield Location.on_disk(copy)


def standing_for(file: Location, path: str) -> Location:
    """A local file under the URI of the one that it comes from."""
    return Location(file.uri, Location.on_disk(path).store, path)


def _contained(name: str, folder: Location) -> str:
    """The name, unless as a path it leads out of the copy: names in an object store are any text."""
    if name.startswith("/") or ".." in name.split("/"):
        raise CorruptFileError(f"{folder.child(name).uri} cannot be copied to a disk: '..' leads out of the folder. Rename it.")
    return name


def _copied(file: Location, path: str) -> Location:
    with storage_errors("read", file.uri):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with file.filesystem.open_input_stream(file.path, compression=None) as stream, open(path, "wb") as copy:
            shutil.copyfileobj(stream, copy, _COPY_BYTES)
    return Location.on_disk(path)
