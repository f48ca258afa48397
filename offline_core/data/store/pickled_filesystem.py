"""A filesystem for Ray's workers: pickled as its settings, without credentials; each worker opens it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from offline_core.data.store.stores import Store


def pickled_filesystem(store: Store) -> fs.PyFileSystem:
    """Return the filesystem of `store`, read-only; PyArrow's own pickles with its credentials."""
    return fs.PyFileSystem(_Handler(store))


def _refuse(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("Sources are only read.")


@dataclass(frozen=True)
class _Handler(fs.FileSystemHandler):  # type: ignore[misc]
    store: Store

    def get_type_name(self) -> str:
        return str(self.store.filesystem.type_name)

    def normalize_path(self, path: str) -> str:
        return str(self.store.filesystem.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        return self.store.filesystem.get_file_info(paths)

    get_file_info_selector = get_file_info

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.store.filesystem.open_input_stream(path, compression=None)  # the caller decompresses

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.store.filesystem.open_input_file(path)

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
