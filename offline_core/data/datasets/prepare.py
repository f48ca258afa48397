"""Hold the folder of a dataset while it is written: every operation that writes a version does it in here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from offline_core.data.datasets.commit import prepare_dataset
from offline_core.data.datasets.dataset import VERSIONS
from offline_core.data.store.holds import writing
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError


@contextlib.contextmanager
def prepared(uri: str) -> Iterator[Location]:
    """The folder of a dataset, see `prepare_dataset`, while a version is written and committed.

    Others may write versions meanwhile; vacuum and forget leave the dataset alone, or are waited for. On failure, the folders
    that were created for it are removed if they are empty.

    Raises:
        StorageError: no permission, no space, or a file is in the way.
    """
    location = Location.of(uri)
    created = _missing(location.child(VERSIONS))
    try:
        prepare_dataset(uri)
        with writing(location.child(VERSIONS)):
            yield location
    except BaseException:
        for folder in created:
            try:
                folder.remove_empty_folder()
            except OfflineError:  # not empty, or the storage does not answer; the first error is raised
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
