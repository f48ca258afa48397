"""The data files at a place, and what their names say of their format."""

from __future__ import annotations

import posixpath

from pyarrow import fs

from offline_core.errors import ConfigError, DatasetNotFoundError, EmptyDatasetError
from offline_core.storage.dataset import VERSIONS
from offline_core.storage.kept import is_result
from offline_core.storage.location import Location
from offline_core.storage.sources.listing import WILDCARDS, Listing

SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".json": "ndjson",
    ".json.gz": "ndjson",
    ".jsonl": "ndjson",
    ".jsonl.gz": "ndjson",
    ".ndjson": "ndjson",
    ".ndjson.gz": "ndjson",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".npz": "npz",
    ".hdf5": "d4rl",
    ".h5": "d4rl",
    ".zip": "sample_batch",
}
"""What names end in; RLlib's recorder writes SampleBatch as .json, .json.gz or .zip."""


def format_by_name(path: str) -> str | None:
    return next((format for suffix, format in SUFFIXES.items() if path.lower().endswith(suffix)), None)


def data_files(location: Location, format: str | None, listing: Listing) -> list[Location]:
    """The file it is, or those that a pattern matches, or those below a folder that are named like `format` (None: any)."""
    is_there = listing.info(location).type != fs.FileType.NotFound
    places = [location] if is_there else _matches(location, listing)
    found = [file for place in places for file in ([place] if listing.is_file(place) else _below(place, format, listing))]
    if not found:
        raise EmptyDatasetError(
            f"There are no data files ({', '.join(suffixes_of(format))}) at {location.uri}. If yours have other names, give "
            "the format and a pattern such as folder/**/*.dat."
        )
    return list({file.uri: file for file in found}.values())


def _matches(pattern: Location, listing: Listing) -> list[Location]:
    """The files and folders that match; none that are hidden."""
    folder, parts = pattern, list[str]()
    while WILDCARDS & set(folder.path):
        folder, parts = folder.parent, [posixpath.basename(folder.uri), *parts]
    found = sorted(listing.matches(folder, parts), key=lambda place: place.uri) if parts else []
    if not found:
        pattern.check_bucket()
        raise DatasetNotFoundError(f"There is nothing at {pattern.uri}. Check the path; a pattern needs * or **.")
    return [place for place in found if not _is_hidden(posixpath.basename(place.uri))]


def _below(folder: Location, format: str | None, listing: Listing) -> list[Location]:
    """The files in a folder and its folders, but for hidden ones and those of datasets of ours."""
    there = listing.below(folder)
    datasets = tuple(name.removesuffix(VERSIONS) for name in there if posixpath.basename(name) == VERSIONS)
    if "" in datasets:
        raise ConfigError(f"{folder.uri} is a dataset of ours; convert, prune or train on it as it is.")
    return [
        folder.child(name)
        for name, info in there.items()
        if info.type == fs.FileType.File
        and name.lower().endswith(suffixes_of(format))
        and not any(map(_is_hidden, name.split("/")))
        and not name.startswith(datasets)
        and not is_result(folder.child(name))
    ]


def suffixes_of(format: str | None) -> tuple[str, ...]:
    kinds = {"ndjson", "sample_batch"} if format == "sample_batch" else {format}
    return tuple(suffix for suffix, kind in SUFFIXES.items() if format is None or kind in kinds)


def _is_hidden(name: str) -> bool:
    """By the custom of Arrow and Spark: neither `.tmp-…` nor `_SUCCESS` is data."""
    return name.startswith((".", "_"))
