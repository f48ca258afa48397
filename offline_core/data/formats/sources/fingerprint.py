"""Identify a source without reading it, by its files with their sizes and times."""

from __future__ import annotations

from collections.abc import Sequence

from pyarrow import fs

from offline_core.data.datasets.manifest import digest
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.locations import located
from offline_core.data.formats.sources.step_reader import StepReader
from offline_core.data.store.location import Location
from offline_core.secrets import masked

FileFacts = tuple[str, int, int | None]
"""(path, bytes, time of its last change in nanoseconds)"""


def files_of(reader: StepReader, listing: Listing) -> list[FileFacts]:
    """The files that a reader reads, or those below its folder; empty if it does not read files."""
    return [file for location in _places(reader) for file in _facts(location, listing)]


def located_files(reader: StepReader, listing: Listing) -> list[tuple[Location, fs.FileInfo]]:
    """Return the files of `files_of`, each with its location."""
    return [
        (location.child(name) if name else location, info)
        for location in _places(reader)
        for name, info in _below(location, listing).items()
        if info.type == fs.FileType.File
    ]


def changes_show(readers: Sequence[StepReader], listing: Listing) -> bool:
    """Whether the fingerprint detects changes: all sources are files whose storage has times of changes."""
    by_reader = [[_facts(location, listing) for location in _places(reader)] or [[]] for reader in readers]
    every = [files for locations in by_reader for files in locations]
    return all(files and all(changed is not None for _, _, changed in files) for files in every)


def fingerprint(readers: Sequence[StepReader], listing: Listing) -> str:
    """16 hex digits that change with the files, not with a token in a URL."""
    return digest([(masked(reader.uri), files_of(reader, listing)) for reader in readers])


def facts(uri: str, listing: Listing) -> list[FileFacts]:
    """The facts of a file, or of those below a folder; empty for a URI that only a user's reader or Ray understands."""
    return [file for location in located([uri], {}) for file in _facts(location, listing)]


def _places(reader: StepReader) -> Sequence[Location]:
    """What a reader says in `places`; what a user's reader reads is known only if its URI is a location."""
    places: Sequence[Location] | None = getattr(reader, "places", None)
    return located([reader.uri], {}) if places is None else places


def _below(location: Location, listing: Listing) -> dict[str, fs.FileInfo]:
    return listing.below(location) if listing.is_folder(location) else {"": listing.info(location)}


def _facts(location: Location, listing: Listing) -> list[FileFacts]:
    infos = _below(location, listing).values()
    return sorted((info.path, info.size, info.mtime_ns) for info in infos if info.type == fs.FileType.File)
