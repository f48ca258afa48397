"""From a place and the name of a format to the readers of the steps that lie there."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq
from fsspec.implementations.arrow import ArrowFSWrapper
from pydantic import Field, ImportString, TypeAdapter, ValidationError

from offline_core.config import Config
from offline_core.episodes import columns
from offline_core.errors import ConfigError, DatasetNotFoundError, EmptyDatasetError
from offline_core.storage.dataset import VERSIONS, parquet_errors
from offline_core.storage.location import TEMPORARY, Location, storage_errors
from offline_core.storage.sources.ray_reads import RayRead
from offline_core.storage.sources.scans import ScannedFile
from offline_core.storage.sources.step_reader import StepReader

EPISODES = "episodes"
"""Not a format of steps: Parquet files whose column `item` holds an episode a row."""

_SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "ndjson",
    ".jsonl": "ndjson",
    ".ndjson": "ndjson",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".npz": "npz",
    ".hdf5": "d4rl",
    ".h5": "d4rl",
}
_SCANNED = ("parquet", "csv", "ndjson", "ipc")
FORMATS = (*_SCANNED, "sample_batch", "npz", "d4rl", "minari", EPISODES)
_WILDCARDS = frozenset("*?[")


class SourceConfig(Config):
    """Where steps come from."""

    format: str = Field(
        "auto",
        title="Format",
        description="auto (by the names of the files and what is in them), "
        + ", ".join(FORMATS)
        + "; the name of a Ray Data function such as read_parquet; or package.module:Reader, a class or function of your "
        "own that is called with the path and the arguments below and gives an object with uri and batches().",
    )
    columns: list[str] | None = Field(
        None, title="Columns", description="Read only these, by the names they have in the files; None: all."
    )
    where: str | None = Field(
        None, title="Where", description="Read only rows that meet this SQL condition on the columns of the files."
    )
    arguments: dict[str, Any] = Field(
        {},
        title="Arguments",
        description="For the reader, as JSON: for csv those of polars.scan_csv, for read_… those of Ray Data, for "
        "sample_batch module_id.",
    )


def open_source(paths: Sequence[str], config: SourceConfig = SourceConfig()) -> list[StepReader]:
    """The readers of what lies at `paths`: files, folders (with all below them), or patterns with * or **.

    Raises:
        ConfigError: the format is unknown, cannot be told, or does not take the arguments.
        DatasetNotFoundError: a path leads nowhere.
        EmptyDatasetError: there are no files of that format.
    """
    if config.format.startswith("read_"):
        _refuse_pushdown(config, "Ray Data's own arguments: arguments: {columns: […], filter: …}")
        return [RayRead(config.format, tuple(paths), config.arguments)]
    if ":" in config.format:
        _refuse_pushdown(config, "arguments of your reader")
        return [_custom(config, path) for path in paths]
    if config.format not in ("auto", *FORMATS):
        raise ConfigError(f"There is no format {config.format!r}; there are auto, {', '.join(FORMATS)}.")
    return [reader for path in paths for reader in _open(Location.of(path), config)]


def episode_files(paths: Sequence[str]) -> list[Location]:
    """The Parquet files at `paths`, which hold episodes; see `open_source`."""
    return [file for path in paths for file in _files(Location.of(path), "parquet")]


def format_of(paths: Sequence[str], config: SourceConfig) -> str:
    """The format that `auto` stands for here, else the one that was named; the same for all paths.

    Raises:
        ConfigError: it cannot be told, or the paths differ.
    """
    if config.format != "auto":
        return config.format
    found = {_told(Location.of(path)) for path in paths}
    if len(found) != 1:
        raise ConfigError(f"{', '.join(paths)} are of different formats: {', '.join(sorted(found))}; import each by itself.")
    return found.pop()


def _open(location: Location, config: SourceConfig) -> Iterator[StepReader]:
    format = _told(location) if config.format == "auto" else config.format
    if format in _SCANNED:
        chosen = None if config.columns is None else tuple(config.columns)
        for file in _files(location, format):
            yield ScannedFile(file, format, chosen, config.where, config.arguments)
        return
    _refuse_pushdown(config, "a mapping and pruning")
    if format == EPISODES:
        raise ConfigError(f"{location.uri} holds episodes and not steps.")
    make = _factories()[format]
    places = [location] if format == "minari" else _files(location, format)
    for place in places:
        try:
            yield make(place, **config.arguments)
        except TypeError as error:
            raise ConfigError(f"The format {format} does not take these arguments: {error}.") from error


@functools.cache
def _factories() -> dict[str, Callable[..., StepReader]]:
    from offline_core.storage.sources.hdf5 import D4rlFile
    from offline_core.storage.sources.minari import MinariDataset
    from offline_core.storage.sources.npz import NpzFile
    from offline_core.storage.sources.sample_batch import SampleBatchFile

    return {"sample_batch": SampleBatchFile, "npz": NpzFile, "d4rl": D4rlFile, "minari": MinariDataset}


def _custom(config: SourceConfig, path: str) -> StepReader:
    try:
        made = TypeAdapter(ImportString).validate_python(config.format)(path, **config.arguments)
    except (ValidationError, TypeError) as error:
        raise ConfigError(f"The reader {config.format} cannot be made for {path}: {error}") from error
    if not isinstance(made, StepReader):
        raise ConfigError(f"{config.format} gives {type(made).__name__}, which has no uri and batches().")
    return made


def _refuse_pushdown(config: SourceConfig, instead: str) -> None:
    if config.columns is not None or config.where is not None:
        raise ConfigError(f"columns and where are not for the format {config.format}; use {instead}.")


def _told(location: Location) -> str:
    """The format of what lies there, by its name and first bytes."""
    if location.is_folder() and (
        location.child("data/main_data.hdf5").is_file() or location.child("data/metadata.json").is_file()
    ):
        return "minari"
    file = _files(location, None)[0]
    format = _SUFFIXES[posixpath.splitext(file.path)[1].lower()]
    if format == "parquet":
        with parquet_errors(file.uri):
            return EPISODES if columns.ITEM in pq.read_schema(file.path, filesystem=file.filesystem).names else format
    if format == "ndjson":
        with storage_errors("read", file.uri), file.filesystem.open_input_stream(file.path) as stream:
            return "sample_batch" if b'"type"' in stream.read(200) else format
    return format


def _files(location: Location, format: str | None) -> list[Location]:
    """The files below a folder or pattern that are named like `format` (None: like any), or the one file it is."""
    if location.is_file():
        return [location]
    if _WILDCARDS & set(location.path):
        with storage_errors("list", location.uri):
            paths = ArrowFSWrapper(location.filesystem).glob(location.path)
        found = [Location.of(path) for path in sorted(paths)]
        return [file for place in found for file in (_files(place, format) if place.is_folder() else [place])] or _none(
            location
        )
    if not location.is_folder():
        raise DatasetNotFoundError(f"There is nothing at {location.uri}. Check the path; a pattern needs * or **.")
    if location.child(VERSIONS).is_folder():
        raise ConfigError(f"{location.uri} is a dataset of ours; convert, prune or train on it as it is.")
    suffixes = {s for s, f in _SUFFIXES.items() if format in (None, f) or (format == "sample_batch" and f == "ndjson")}
    names = [
        name
        for name in location.files()
        if posixpath.splitext(name)[1].lower() in suffixes and not posixpath.basename(name).startswith(TEMPORARY)
    ]
    return [location.child(name) for name in names] or _none(location)


def _none(location: Location) -> list[Location]:
    raise EmptyDatasetError(
        f"There are no files at {location.uri} that look like data ({', '.join(_SUFFIXES)}); name the format if yours differ."
    )
