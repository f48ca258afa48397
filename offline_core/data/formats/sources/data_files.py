"""Find data files, and their format by name."""

from __future__ import annotations

import posixpath

from pyarrow import fs

from offline_core.data.datasets.dataset import VERSIONS
from offline_core.data.datasets.result_cache import is_result
from offline_core.data.formats.sources.listing import WILDCARDS, Listing
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, DatasetNotFoundError, EmptyDatasetError

SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".tab": "csv",
    ".json": "ndjson",
    ".json.gz": "ndjson",
    ".jsonl": "ndjson",
    ".jsonl.gz": "ndjson",
    ".ndjson": "ndjson",
    ".ndjson.gz": "ndjson",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".avro": "avro",
    ".npz": "npz",
    ".hdf5": "d4rl",
    ".h5": "d4rl",
    ".zip": "sample_batch",
}
"""Formats by suffix; RLlib's recorder writes SampleBatch as .json, .json.gz or .zip."""


DESCRIPTIONS = ("dataset_info.json", "state.json", "dataset_dict.json")
"""What Hugging Face's `save_to_disk` writes beside its files of Arrow: no steps."""


def format_by_name(path: str) -> str | None:
    return next((format for suffix, format in SUFFIXES.items() if path.lower().endswith(suffix)), None)


def data_files(location: Location, format: str | None, listing: Listing) -> list[Location]:
    """The file itself, or the files that match a pattern, or those below a folder with a suffix of `format` (None: any)."""
    is_there = listing.info(location).type != fs.FileType.NotFound
    places = [location] if is_there else _matches(location, listing)
    found = [file for place in places for file in ([place] if listing.is_file(place) else _below(place, format, listing))]
    if not found:
        raise EmptyDatasetError(
            f"There are no data files ({', '.join(suffixes_of(format))}) at {location.uri}. For other names, give the format "
            "and a pattern such as folder/**/*.dat."
        )
    return list({file.uri: file for file in found}.values())


def _matches(pattern: Location, listing: Listing) -> list[Location]:
    """The files and folders that match, without hidden ones."""
    folder, parts = pattern, list[str]()
    while WILDCARDS & set(folder.path):
        folder, parts = folder.parent, [posixpath.basename(folder.uri), *parts]
    found = sorted(listing.matches(folder, parts), key=lambda place: place.uri) if parts else []
    if not found:
        pattern.check_bucket()
        raise DatasetNotFoundError(f"There is nothing at {pattern.uri}. Check the path; a pattern needs * or **.")
    return [place for place in found if not _is_hidden(posixpath.basename(place.uri))]


def _below(folder: Location, format: str | None, listing: Listing) -> list[Location]:
    """The files below a folder, without hidden ones and those of datasets."""
    there = listing.below(folder)
    datasets = tuple(name.removesuffix(VERSIONS) for name in there if posixpath.basename(name) == VERSIONS)
    if "" in datasets:
        raise ConfigError(f"{folder.uri} is a dataset already; convert, prune or train on it as it is.")
    described = {posixpath.dirname(name) for name in there if name.endswith(".arrow")}
    folders = described | {posixpath.dirname(name) for name in described}
    return [
        folder.child(name)
        for name, info in there.items()
        if info.type == fs.FileType.File
        and name.lower().endswith(suffixes_of(format))
        and not any(map(_is_hidden, name.split("/")))
        and not name.startswith(datasets)
        and not is_result(folder.child(name))
        and not (posixpath.basename(name) in DESCRIPTIONS and posixpath.dirname(name) in folders)
    ]


def suffixes_of(format: str | None) -> tuple[str, ...]:
    kinds = {"ndjson", "sample_batch"} if format == "sample_batch" else {format}
    return tuple(suffix for suffix, kind in SUFFIXES.items() if format is None or kind in kinds)


def _is_hidden(name: str) -> bool:
    """As in Arrow and Spark: neither `.tmp-…` nor `_SUCCESS` is data."""
    return name.startswith((".", "_"))
