"""Where a run's steps come from, and what is known of the place before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.datasets.manifest import Parent, digest
from offline_core.data.formats.sources.fingerprint import FileFacts, changes_show, facts, files_of, fingerprint
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.step_reader import StepReader
from offline_core.data.store.location import Location, refuse_credentials
from offline_core.errors import LocationError


@dataclass(frozen=True, slots=True)
class DataSource:
    """A dataset, or files that have no manifest."""

    ref: DatasetRef
    """Its name and size. Version 0, no episodes and no steps if it has no manifest: they were not counted."""
    parent: Parent
    """It, as what a policy is made from."""
    changes_show: bool
    """The fingerprint changes with what is there: it is a dataset, or files that say when they were changed."""

    @classmethod
    def of(cls, dataset: Dataset) -> DataSource:
        return cls(dataset.ref, dataset.parent_entry, changes_show=True)

    @classmethod
    def of_readers(cls, uri: str, readers: Sequence[StepReader]) -> DataSource:
        """By the files that are read, as they are now."""
        listing = Listing()
        return cls._of_files(
            uri,
            [file for reader in readers for file in files_of(reader, listing)],
            fingerprint=fingerprint(readers, listing),
            changes_show=changes_show(readers, listing),
        )

    @classmethod
    def of_place(cls, uri: str) -> DataSource:
        """By the files below it; none if only user code understands the location."""
        files = facts(uri, Listing())
        show = bool(files) and all(changed is not None for _, _, changed in files)
        return cls._of_files(uri, files, fingerprint=digest([uri, files]), changes_show=show)

    @classmethod
    def _of_files(cls, uri: str, files: Sequence[FileFacts], *, fingerprint: str, changes_show: bool) -> DataSource:
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
    except LocationError:  # a location that only user code understands
        return uri
