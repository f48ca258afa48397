"""Fill a folder on a local disk and upload it file by file to an object store, which cannot rename folders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.formats.exports.previous import refusal, strange_files, visible_files
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors


@dataclass
class UploadedFolder:
    """The folder of a sink in an object store; a context manager as `NewFolder`, with the same arguments.

    Files appear one by one. `result.json`, with the names and sizes of them all, goes first, so that an incomplete upload is
    recognised and replaced by the next one.

    Raises:
        StorageError: something else exists there, or it cannot be written.
        BusyError: another run writes there.
    """

    location: Location
    fill: Callable[[Location], None]

    def __enter__(self) -> Location:
        self._older_files()
        self.location.make_folder()
        self._disk = tempfile.TemporaryDirectory(prefix="offline-")
        return Location.on_disk(self._disk.name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._disk as path:
            if kind is None:
                folder = Location.on_disk(path)
                self.fill(folder)
                with self.location.locked():
                    self._upload(folder)

    def _upload(self, folder: Location) -> None:
        for name in self._older_files():
            if name != RESULT_FILE:  # it identifies the others, so it goes last
                self.location.child(name).delete()
        for name in sorted(folder.files(), key=lambda name: name != RESULT_FILE):
            target = self.location.child(name)
            with storage_errors("write", target.uri), open(folder.child(name).path, "rb") as file:
                target.store.put_file(file, target.path)

    def _older_files(self) -> list[str]:
        """The files of an older export there.

        Raises:
            StorageError: these are not an export.
        """
        older = visible_files(self.location)
        if older and (strange := strange_files(self.location)) != []:
            raise refusal(self.location, strange)
        return older
