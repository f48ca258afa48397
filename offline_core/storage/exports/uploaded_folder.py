"""A folder that is filled on a local disk and then goes, file by file, to where there are no folders to be renamed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

from offline_core.storage.exports.older import refusal, strange_files, visible_files
from offline_core.storage.kept import RESULT_FILE
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors


class UploadedFolder:
    """What a sink writes to, for object stores; a context manager as `NewFolder`, and with the same arguments.

    There is no moment at which all files appear. But `result.json`, with the names and sizes of them all, goes first: what an
    upload that was broken off left is known for what it is, and the next one replaces it.

    Raises:
        StorageError: something else is there already, or the place cannot be written.
        BusyError: another run writes there.
    """

    def __init__(
        self, location: Location, *, finish: Callable[[], None], complete: Callable[[Location], None] | None = None
    ) -> None:
        self.location = location
        self.finish = finish
        self.complete = complete

    def __enter__(self) -> Location:
        self._older_files()
        self.location.make_folder()
        self._disk = tempfile.TemporaryDirectory(prefix="offline-")
        return Location.of(self._disk.name)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._disk as path:
            if kind is None:
                folder = Location.of(path)
                self.finish()
                if self.complete is not None:
                    self.complete(folder)
                with self.location.locked():
                    self._upload(folder)

    def _upload(self, folder: Location) -> None:
        for name in self._older_files():
            if name != RESULT_FILE:  # which tells what the others are, as long as there are any
                self.location.child(name).delete()
        for name in sorted(folder.files(), key=lambda name: name != RESULT_FILE):
            place = self.location.child(name)
            with storage_errors("write", place.uri), open(folder.child(name).path, "rb") as file:
                place.store.put_file(file, place.path)

    def _older_files(self) -> list[str]:
        """Those of the export that lies there.

        Raises:
            StorageError: it is no export.
        """
        older = visible_files(self.location)
        if older and (strange := strange_files(self.location)) != []:
            raise refusal(self.location, strange)
        return older
