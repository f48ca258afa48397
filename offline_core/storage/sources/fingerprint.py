"""What identifies a source without reading it: its files with their sizes and times."""

from __future__ import annotations

from collections.abc import Sequence

from pyarrow import fs

from offline_core.storage.location import Location
from offline_core.storage.manifest import digest
from offline_core.storage.sources.listing import Listing
from offline_core.storage.sources.located import located
from offline_core.storage.sources.partitions import PartitionedReader
from offline_core.storage.sources.ray_reads import RayRead
from offline_core.storage.sources.step_reader import StepReader

FileFacts = tuple[str, int, int | None]
"""(path, bytes, time of its last change in nanoseconds)"""


def files_of(reader: StepReader | Location, listing: Listing) -> list[FileFacts]:
    """The files that a reader reads, or those below its folder; none if it reads something else."""
    return [file for place in _places(reader) for file in _facts(place, listing)]


def changes_show(readers: Sequence[StepReader | Location], listing: Listing) -> bool:
    """Whether the fingerprint would tell: all that they read lies in files, and not in places that only a reader knows, nor
    in those that do not say when a file was changed."""
    found = [[_facts(place, listing) for place in _places(reader)] or [[]] for reader in readers]
    every = [files for places in found for files in places]
    return all(files and all(changed is not None for _, _, changed in files) for files in every)


def fingerprint(readers: Sequence[StepReader | Location], listing: Listing) -> str:
    """16 hex digits; changes with the files."""
    return digest([(reader.uri, files_of(reader, listing)) for reader in readers])


def facts(uri: str, listing: Listing) -> list[FileFacts]:
    """Of the file there, or of those below the folder; none if it is a place that only a reader understands."""
    return [file for place in located([uri], {}) for file in _facts(place, listing)]


def _places(reader: StepReader | Location) -> Sequence[Location]:
    match reader:
        case Location():
            return [reader]
        case RayRead():
            return reader.places
        case PartitionedReader():
            return _places(reader.reader)
    place = getattr(reader, "location", None)
    return [place] if isinstance(place, Location) else located([reader.uri], {})


def _facts(location: Location, listing: Listing) -> list[FileFacts]:
    is_folder = listing.is_folder(location)
    infos = listing.below(location).values() if is_folder else [listing.info(location)]
    return sorted((info.path, info.size, info.mtime_ns) for info in infos if info.type == fs.FileType.File)
