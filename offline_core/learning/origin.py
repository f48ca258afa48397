"""Where a run's steps come from, and what is known of the place before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offline_core.errors import LocationError
from offline_core.storage.dataset import Dataset, DatasetRef
from offline_core.storage.location import Location, refuse_credentials
from offline_core.storage.manifest import Parent, digest
from offline_core.storage.sources.fingerprint import FileFacts, changes_show, facts, files_of, fingerprint
from offline_core.storage.sources.listing import Listing
from offline_core.storage.sources.step_reader import StepReader


@dataclass(frozen=True, slots=True)
class Origin:
    """A dataset of ours, or files that have no manifest."""

    ref: DatasetRef
    """Names it, with its size. Version 0, and no episodes and steps, if it is no dataset of ours: nobody has counted."""
    parent: Parent
    """It, as what a policy is made from."""
    changes_show: bool
    """The fingerprint changes with what is there: it is a dataset, or files that say when they were changed."""

    @classmethod
    def of(cls, dataset: Dataset) -> Origin:
        return cls(dataset.ref, dataset.parent_entry, changes_show=True)

    @classmethod
    def of_readers(cls, uri: str, readers: Sequence[StepReader]) -> Origin:
        """By the files that are read, as they are now."""
        listing = Listing()
        return cls._of_files(
            uri,
            [file for reader in readers for file in files_of(reader, listing)],
            fingerprint=fingerprint(readers, listing),
            changes_show=changes_show(readers, listing),
        )

    @classmethod
    def of_place(cls, uri: str) -> Origin:
        """By the files below it; there are none if it is a place that only code of the user's own understands."""
        files = facts(uri, Listing())
        show = bool(files) and all(changed is not None for _, _, changed in files)
        return cls._of_files(uri, files, fingerprint=digest([uri, files]), changes_show=show)

    @classmethod
    def _of_files(cls, uri: str, files: Sequence[FileFacts], *, fingerprint: str, changes_show: bool) -> Origin:
        size = sum(size for _, size, _ in files)
        ref = DatasetRef(uri=uri, version=0, fingerprint=fingerprint, episodes=0, steps=0, bytes=size)
        return cls(ref, Parent(kind="files", uri=uri, fingerprint=fingerprint), changes_show=changes_show)


def place_of(uri: str) -> str:
    """The same wherever it is read: what has no scheme is a local path.

    Raises:
        LocationError: there are credentials in it.
    """
    refuse_credentials(uri)
    try:
        return Location.of(uri).uri
    except LocationError:  # a place that only code of the user's own understands
        return uri
