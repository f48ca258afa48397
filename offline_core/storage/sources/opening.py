"""From a place and the name of a format to the readers of the steps that lie there."""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyarrow import fs
from pydantic import Field

from offline_core.config import Config
from offline_core.episodes import columns
from offline_core.errors import ConfigError, DatasetNotFoundError, EmptyDatasetError, OfflineError
from offline_core.own_code import imported
from offline_core.storage.dataset import VERSIONS
from offline_core.storage.location import Location, refuse_credentials
from offline_core.storage.parquet_files import read_footer
from offline_core.storage.sources.custom import CustomReader
from offline_core.storage.sources.expansion import MAX_EXPANSION
from offline_core.storage.sources.listing import WILDCARDS, Listing
from offline_core.storage.sources.partitions import PartitionedReader, Values, named_values, typed
from offline_core.storage.sources.ray_reads import RayRead
from offline_core.storage.sources.scans import ScannedFile
from offline_core.storage.sources.step_reader import StepReader
from offline_core.storage.storage_errors import storage_errors

EPISODES = "episodes"
"""Not a format of steps: Parquet files whose column `item` holds an episode a row."""

_SUFFIXES = {
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
_SAMPLE_BATCH = re.compile(rb'\s*\{\s*"type"\s*:\s*"(SampleBatch|MultiAgentBatch)"')
_SCANNED = ("parquet", "csv", "ndjson", "ipc")
_NAMED_ARRAYS = ("npz", "d4rl")
"""Of these, columns can be chosen too."""
_MINARI = {"data/main_data.hdf5", "data/metadata.json"}
FORMATS = (*_SCANNED, "sample_batch", "npz", "d4rl", "minari", EPISODES)


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

    max_expansion: float = Field(
        MAX_EXPANSION,
        ge=1,
        title="Largest expansion",
        exclude_if=lambda value: value == MAX_EXPANSION,
        description="A file that unpacks to more than so many times its size, and to more than 64 MiB, is refused, lest it "
        "fill the memory; ten times that for parquet and ipc.",
    )

    @property
    def own_code(self) -> dict[str, Any]:
        return {self.format: self.arguments} if ":" in self.format else {}


def open_source(
    paths: Sequence[str], config: SourceConfig = SourceConfig(), listing: Listing | None = None
) -> list[StepReader]:
    """The readers of what lies at `paths`: files, folders (with all below them), or patterns with * or **.

    Raises:
        ConfigError: there are no paths, or the format is unknown, cannot be told, or does not take the arguments.
        DatasetNotFoundError: a path leads nowhere.
        EmptyDatasetError: there are no files of that format.
        LocationError: there are credentials in a path.
    """
    _check(paths)
    if config.format.startswith("read_"):
        _refuse_pushdown(config, "the arguments that Ray Data has for it, or format auto")
        return [RayRead(config.format, tuple(paths), config.arguments)]
    if ":" in config.format:
        _refuse_pushdown(config, "arguments of your reader for that")
        return [_custom(config, path) for path in paths]
    if config.format not in ("auto", *FORMATS):
        raise ConfigError(f"There is no format {config.format!r}; there are auto, {', '.join(FORMATS)}.")
    listing, found = listing or Listing(), dict[str, tuple[StepReader, dict[str, str | None]]]()
    for place in map(Location.of, paths):
        for reader, values in _open(place, config, listing):
            found[reader.uri] = (reader, values)  # a file that two paths lead to is read once
    partitions = typed([values for _, values in found.values()])
    return [_partitioned(reader, values, config) for (reader, _), values in zip(found.values(), partitions, strict=True)]


def episode_files(paths: Sequence[str], listing: Listing | None = None) -> list[Location]:
    """The Parquet files at `paths`, which hold episodes; see `open_source`."""
    files = (file for path in paths for file in _files(Location.of(path), "parquet", listing or Listing()))
    return list({file.uri: file for file in files}.values())


def format_of(paths: Sequence[str], config: SourceConfig, listing: Listing | None = None) -> str:
    """The format that `auto` stands for here, else the one that was named; the same for all paths.

    Raises:
        ConfigError: there are no paths, or it cannot be told, or they differ.
        LocationError: there are credentials in a path.
    """
    _check(paths)
    if config.format != "auto":
        return config.format
    found = {_told(Location.of(path), listing or Listing()) for path in paths}
    if len(found) != 1:
        raise ConfigError(f"{', '.join(paths)} are of different formats: {', '.join(sorted(found))}; import each by itself.")
    return found.pop()


def _partitioned(reader: StepReader, values: Values, config: SourceConfig) -> StepReader:
    if isinstance(reader, ScannedFile):
        return dataclasses.replace(reader, partition=values)
    wanted = {name: value for name, value in values.items() if config.columns is None or name in config.columns}
    return PartitionedReader(reader, wanted) if wanted else reader


def _open(location: Location, config: SourceConfig, listing: Listing) -> Iterator[tuple[StepReader, dict[str, str | None]]]:
    """The readers, each with what the names of its folders say."""
    format = _told(location, listing) if config.format == "auto" else config.format
    if format in _SCANNED:
        chosen = None if config.columns is None else tuple(config.columns)
        for file in _files(location, format, listing):
            scanned = ScannedFile(file, format, chosen, config.where, config.arguments, max_expansion=config.max_expansion)
            yield scanned, named_values(file, location)
        return
    if format == EPISODES:
        raise ConfigError(f"{location.uri} holds episodes and not steps.")
    arguments = {"max_expansion": config.max_expansion, **config.arguments}
    if format not in _NAMED_ARRAYS:
        _refuse_pushdown(config, "a mapping, and prune what you imported")
    elif config.where is not None:
        raise ConfigError(f"where is not for the format {format}; prune what you imported.")
    make = _factories()[format]
    places = [location] if format == "minari" else _files(location, format, listing)
    for place in places:
        values = {} if format == "minari" else named_values(place, location)
        if config.columns is not None:
            arguments = {**arguments, "columns": tuple(name for name in config.columns if name not in values)}
        try:
            yield make(place, **arguments), values
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
    reader = imported(config.format, "reader")
    try:
        made = reader(path, **config.arguments)
    except OfflineError:
        raise
    except Exception as error:  # somebody else's code raises what it likes
        raise ConfigError(f"The reader {config.format} cannot be made for {path}: {error!r}") from error
    if not isinstance(made, StepReader):
        raise ConfigError(f"{config.format} gives {type(made).__name__}, which has no uri and batches().")
    refuse_credentials(made.uri)
    return CustomReader(config.format, made)


def _check(paths: Sequence[str]) -> None:
    """Before anything else, whoever reads there: what paths say ends up in manifests and logs."""
    if not paths:
        raise ConfigError("There is nothing to import: name at least one source.")
    for path in paths:
        refuse_credentials(path)


def _refuse_pushdown(config: SourceConfig, instead: str) -> None:
    if config.columns is not None or config.where is not None:
        raise ConfigError(f"columns and where are not for the format {config.format}; use {instead}.")


def _told(location: Location, listing: Listing) -> str:
    """The format of what lies there, by its names and first bytes."""
    if listing.is_folder(location) and listing.below(location).keys() & _MINARI:
        return "minari"
    first_of_kind: dict[str | None, Location] = {}
    for file in _files(location, None, listing):
        first_of_kind.setdefault(_by_name(file.path), file)
    if other := first_of_kind.get(None):
        raise ConfigError(f"The name of {other.uri} does not tell its format; name it: {', '.join(FORMATS)}.")
    found = {_by_content(file, str(kind)): file.uri for kind, file in first_of_kind.items()}
    if len(found) > 1:
        differ = "; ".join(f"{format}, as {uri}" for format, uri in found.items())
        raise ConfigError(f"There are files of different formats at {location.uri} ({differ}). Name the format to import.")
    return next(iter(found))


def _by_name(path: str) -> str | None:
    return next((format for suffix, format in _SUFFIXES.items() if path.lower().endswith(suffix)), None)


def _by_content(file: Location, format: str) -> str:
    """Tells steps from episodes in Parquet, and SampleBatch from other JSON."""
    if format == "parquet":
        return EPISODES if columns.ITEM in read_footer(file).schema.to_arrow_schema().names else format
    if format == "ndjson":
        with storage_errors("read", file.uri), file.filesystem.open_input_stream(file.path) as stream:
            return "sample_batch" if _SAMPLE_BATCH.match(stream.read(200)) else format
    return format


def _files(location: Location, format: str | None, listing: Listing) -> list[Location]:
    """The file it is, or those that a pattern matches, or those below a folder that are named like `format` (None: any)."""
    is_there = listing.info(location).type != fs.FileType.NotFound
    places = [location] if is_there else _matches(location, listing)
    found = [file for place in places for file in ([place] if listing.is_file(place) else _below(place, format, listing))]
    if not found:
        raise EmptyDatasetError(
            f"There are no data files ({', '.join(_suffixes(format))}) at {location.uri}. If yours have other names, give "
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
        and name.lower().endswith(_suffixes(format))
        and not any(map(_is_hidden, name.split("/")))
        and not name.startswith(datasets)
    ]


def _suffixes(format: str | None) -> tuple[str, ...]:
    kinds = {"ndjson", "sample_batch"} if format == "sample_batch" else {format}
    return tuple(suffix for suffix, kind in _SUFFIXES.items() if format is None or kind in kinds)


def _is_hidden(name: str) -> bool:
    """By the custom of Arrow and Spark: neither `.tmp-…` nor `_SUCCESS` is data."""
    return name.startswith((".", "_"))
