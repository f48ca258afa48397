"""The folder of a dataset while it is written for the first time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from offline_core.errors import OfflineError
from offline_core.storage.committing import prepare_dataset
from offline_core.storage.dataset import VERSIONS
from offline_core.storage.location import Location


@contextlib.contextmanager
def prepared(uri: str) -> Iterator[Location]:
    """The folder of a dataset, see `prepare_dataset`, for as long as a version is written and committed.

    If that fails before anything is written, the folders that were created for it are removed again; what is not empty stays.

    Raises:
        StorageError: no permission, no space, or a file is in the way.
    """
    location = Location.of(uri)
    created = _missing(location.child(VERSIONS))
    try:
        yield prepare_dataset(uri)
    except BaseException:
        for folder in created:
            try:
                folder.remove_empty_folder()
            except OfflineError:  # it is not empty, or the place does not answer; the first error is the one to see
                break
        raise


def _missing(folder: Location) -> list[Location]:
    """This folder and those above it that do not exist, innermost first; in an object store there is only the folder itself."""
    if not folder.is_local:
        return [] if folder.is_folder() else [folder]
    found = []
    while not folder.is_folder() and folder.parent != folder:
        found.append(folder)
        folder = folder.parent
    return found
