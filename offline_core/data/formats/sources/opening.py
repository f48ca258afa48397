"""Open a source: from its paths and format to the readers of its steps."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pydantic import Field, field_validator

from offline_core.data.datasets.dataset import VERSIONS
from offline_core.data.datasets.result_cache import is_result
from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.formats.sources import hdf5, lake_tables, lerobot, minari, npz, sample_batch, text_files, zip_files  # noqa: F401
from offline_core.data.formats.sources.access_errors import raise_if_out_of_reach
from offline_core.data.formats.sources.expansion import MAX_EXPANSION
from offline_core.data.formats.sources.listing import WILDCARDS, Listing
from offline_core.data.formats.sources.locations import FILESYSTEM, inside
from offline_core.data.formats.sources.partitions import named_values, typed
from offline_core.data.formats.sources.ray_reads import HARMLESS, OF_FILES, RayRead
from offline_core.data.formats.sources.readers import FORMATS, format_by_content, formats_by_name, readers_of, refuse_pushdown
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.data.store import allowed_roots
from offline_core.data.store.allowed_roots import is_limited
from offline_core.data.store.location import Location, refuse_credentials
from offline_core.errors import ConfigError, CorruptFileError, DatasetNotFoundError, EmptyDatasetError, OfflineError
from offline_core.runtime import allowed_imports
from offline_core.runtime.config import Config
from offline_core.runtime.parameter_names import did_you_mean
from offline_core.runtime.python_object import Arguments, Code, PythonObject, unwrapped
from offline_core.runtime.user_code import import_object, making, texts

CURES = {
    (".xlsx", ".xls", ".ods"): "it is a workbook of Excel: save each of its sheets as CSV.",
    (".pkl", ".pickle", ".pt", ".pth"): "It may hold code, so it is never read: save its arrays by numpy.savez, or as Parquet.",
    (".npy",): "Save the arrays of a step together, by numpy.savez.",
    (".db", ".sqlite", ".sqlite3"): "Read a query by source.format: read_sql.",
    (".tfrecord", ".tfrecords"): "Read it by source.format: read_tfrecords, or save its dataset as Parquet.",
    (".orc", ".txt"): "Read it by source.format: read_orc, or csv.",
    (".rar", ".7z", ".tar", ".tgz"): "Unpack it.",
}
"""What helps where a name says a format that is not read."""


class SourceConfig(Config):
    """The source of steps."""

    format: Code = Field(
        "auto",
        description="auto (by the names of the files and what is in them), "
        + ", ".join(sorted(FORMATS))
        + "; the name of a Ray Data function such as read_parquet; or package.module:Reader, a class or function of your "
        "own that is called with the path and the arguments below and gives an object with uri and batches().",
    )
    columns: list[str] | None = Field(None, description="Read only these, by the names they have in the files; None: all.")
    where: str | None = Field(None, description="Read only rows that meet this SQL condition on the columns of the files.")
    arguments: Arguments = Field(
        {},
        description="For the reader, as JSON: for csv those of polars.scan_csv, for csv and ndjson encoding (such as cp1252), "
        "for delta and lance version, for iceberg snapshot_id, for read_… those of Ray Data, for sample_batch module_id. From "
        "Python any objects; a filesystem among them is where the paths lie.",
    )

    max_expansion: float = Field(
        MAX_EXPANSION,
        ge=1,
        description="A file that unpacks to more than so many times its size, and to more than 64 MiB, is refused, lest it "
        "fill the memory; ten times that for parquet and ipc.",
    )

    @field_validator("arguments")
    @classmethod
    def _without_credentials(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Refuse credentials, which would be stored. From Python, `named` keeps a value out of records."""
        for text in texts(arguments):
            refuse_credentials(text)
        return arguments

    @property
    def user_code(self) -> dict[str, Any]:
        return {str(self.format): self.arguments} if self.is_own else {}

    @property
    def is_own(self) -> bool:
        """Whether user code reads it."""
        return isinstance(self.format, PythonObject) or ":" in self.format

    @property
    def is_rays(self) -> bool:
        """Whether a function of Ray Data reads it."""
        return isinstance(self.format, str) and self.format.startswith("read_")

    def places(self, paths: Sequence[str]) -> list[Location]:
        """The locations of paths.

        Raises:
            ConfigError: the argument filesystem is not a filesystem.
            LocationError: a path is not a location.
        """
        filesystem = unwrapped(self.arguments.get(FILESYSTEM))
        return [Location.of(path) if filesystem is None else inside(filesystem, path) for path in paths]


def open_source(
    paths: Sequence[str], config: SourceConfig = SourceConfig(), listing: Listing | None = None
) -> list[StepReader]:
    """The readers of `paths`: files, folders (with all below them), or patterns with * or **.

    Raises:
        ConfigError: there are no paths, or the format is unknown, ambiguous, or does not take the arguments, or a variable
            that limits runs does not allow these.
        DatasetNotFoundError: a path does not exist.
        EmptyDatasetError: there are no files of that format.
        LocationError: there are credentials in a path.
    """
    _check(paths)
    if not config.is_own:
        _check_limits(str(config.format), config.arguments)
    if config.is_rays:
        refuse_pushdown(str(config.format), vars(config))
        if is_limited():
            config.places(paths)
        return [RayRead(str(config.format), tuple(paths), unwrapped(config.arguments))]
    if config.is_own:
        refuse_pushdown(str(config.format), vars(config))
        return [_custom(config, path) for path in paths]
    if config.format not in ("auto", *FORMATS):
        meant = did_you_mean(str(config.format), ("auto", *FORMATS))
        raise ConfigError(f"There is no format {config.format!r}{meant}; there are auto, {', '.join(sorted(FORMATS))}.")
    listing, locations = listing or Listing(), config.places(paths)
    formats = {_detected(location, listing) for location in locations} if config.format == "auto" else {str(config.format)}
    if len(formats) > 1:
        raise ConfigError(f"{', '.join(paths)} are of different formats: {', '.join(sorted(formats))}; import each by itself.")
    [format] = formats
    files = {file.uri: (file, values) for location in locations for file, values in _files(location, format, listing)}
    how = {
        "columns": None if config.columns is None else tuple(config.columns),
        "where": config.where,
        "arguments": {name: value for name, value in unwrapped(config.arguments).items() if name != FILESYSTEM},
        "max_expansion": config.max_expansion,
    }
    partitions = typed([values for _, values in files.values()])
    return [
        reader
        for (file, _), values in zip(files.values(), partitions, strict=True)
        for reader in readers_of(format, file, values, **how)
    ]


def _check_limits(format: str, arguments: Mapping[str, object]) -> None:
    """Check a built-in format or a function of Ray Data where a variable limits what runs may do; see also `allowed_imports`.

    Arguments can be locations, servers and modules by names of their own, so only those are allowed that are known to be none.

    Raises:
        ConfigError: a variable limits what runs may do, and it may lead elsewhere.
    """
    variables = (allowed_roots.VARIABLE, allowed_imports.VARIABLE)
    if (variable := next((name for name in variables if os.environ.get(name, "").strip()), None)) is None:
        return
    if format.startswith("read_") and format not in HARMLESS:
        raise ConfigError(
            f"source.format: {format} may lead to other places than the source, so it cannot be used where {variable} is set. "
            f"Choose auto, a format such as delta or iceberg, or one of {', '.join(HARMLESS)}."
        )
    if format in HARMLESS:
        known = {*OF_FILES.split(), *HARMLESS[format].split()}
    else:  # auto takes the arguments of any
        known = {FILESYSTEM}.union(*(form.arguments.split() for name, form in FORMATS.items() if format in ("auto", name)))
    if other := next((name for name in arguments if name not in known), None):
        raise ConfigError(
            f"source.arguments.{other} of {format} may name code or another place, so it cannot be used where {variable} is "
            f"set. Leave it out; allowed are {', '.join(sorted(known))}."
        )


def _files(location: Location, format: str, listing: Listing) -> list[tuple[Location, dict[str, str | None]]]:
    """Return (file or folder of a reader, the values in the names of its folders) for all that a location holds."""
    if FORMATS[format].folder is not None:
        return [(file, {}) for file in FORMATS[format].reader.inside(location, listing)]
    return [(file, named_values(file, location)) for file in data_files(location, format, listing)]


def _custom(config: SourceConfig, path: str) -> StepReader:
    reader = import_object(config.format, "reader")
    with making("reader", f"{config.format} of {path}", config.arguments):
        made = reader(path, **unwrapped(config.arguments))
    if not isinstance(made, StepReader):
        raise ConfigError(f"{config.format} gives {type(made).__name__}, which has no uri and batches().")
    refuse_credentials(made.uri)
    return CustomReader(str(config.format), made)


def _check(paths: Sequence[str]) -> None:
    """Refuse credentials in paths, which end up in manifests and logs."""
    if not paths:
        raise ConfigError("There is nothing to import: name at least one source.")
    for path in paths:
        refuse_credentials(path)


def _detected(location: Location, listing: Listing) -> str:
    """Detect the format of a location by names and first bytes."""
    if listing.is_folder(location):
        names = listing.below(location).keys()
        if (whole := next((name for name, form in FORMATS.items() if form.folder and form.folder(names)), None)) is not None:
            return whole
    first_of_kind: dict[tuple[str, ...], Location] = {}
    for file in data_files(location, None, listing):
        first_of_kind.setdefault(formats_by_name(file.path), file)
    if other := first_of_kind.get(()):
        cure = _cure(other.path) or f"set the format: {', '.join(sorted(FORMATS))}."
        raise ConfigError(f"The name of {other.uri} has no known suffix; {cure}")
    formats = {format_by_content(file, kinds): file.uri for kinds, file in first_of_kind.items()}
    if len(formats) > 1:
        differ = "; ".join(f"{format}, as {uri}" for format, uri in formats.items())
        raise ConfigError(f"There are files of different formats at {location.uri} ({differ}). Name the format to import.")
    return next(iter(formats))


def _cure(*names: str) -> str:
    return next((cure for kinds, cure in CURES.items() for name in names if name.lower().endswith(kinds)), "")


def data_files(location: Location, format: str | None, listing: Listing) -> list[Location]:
    """Return the file itself, the files that match a pattern, or those in a folder with a suffix of `format` (None: any)."""
    is_there = listing.info(location).type != fs.FileType.NotFound
    locations = [location] if is_there else _matches(location, listing)
    files = [file for entry in locations for file in ([entry] if listing.is_file(entry) else _below(entry, format, listing))]
    if not files:
        cure = _cure(*(name for entry in locations for name in listing.below(entry)))
        there = f"There are no data files ({', '.join(suffixes_of(format))}) at {location.uri}."
        told = f"{there} {cure}" if cure else there
        raise EmptyDatasetError(f"{told} For other names, give the format and a pattern such as folder/**/*.dat.")
    return list({file.uri: file for file in files}.values())


def _matches(pattern: Location, listing: Listing) -> list[Location]:
    """Return the files and folders that match a pattern, without hidden ones."""
    folder, parts = pattern, list[str]()
    while WILDCARDS & set(folder.path):
        folder, parts = folder.parent, [posixpath.basename(folder.uri), *parts]
    matches = sorted(listing.matches(folder, parts), key=lambda match: match.uri) if parts else []
    if not matches:
        pattern.check_bucket()
        raise DatasetNotFoundError(f"There is nothing at {pattern.uri}. Check the path; a pattern needs * or **.")
    return [match for match in matches if not _is_hidden(posixpath.basename(match.uri))]


def _below(folder: Location, format: str | None, listing: Listing) -> list[Location]:
    """The files below a folder, without hidden ones and those of datasets."""
    there = listing.below(folder)
    datasets = tuple(name.removesuffix(VERSIONS) for name in there if posixpath.basename(name) == VERSIONS)
    if "" in datasets:
        raise ConfigError(
            f"{folder.uri} is a dataset already; convert, prune or train on it as it is. If it is "
            "what the import writes, name it by -o, or in Python by output."
        )
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
    """Return the suffixes of a format; None: of all formats."""
    return tuple(dict.fromkeys(end for name, form in FORMATS.items() if format in (None, name) for end in form.suffixes))


def _is_hidden(name: str) -> bool:
    """Whether a file is hidden, as Arrow and Spark define it: neither `.tmp-…` nor `_SUCCESS` is data."""
    return name.startswith((".", "_"))


@dataclass(frozen=True)
class CustomReader:
    """A user's reader, whose errors name it and its source."""

    name: str
    """The import path of the reader, as `package.module:Reader`."""
    reader: StepReader

    @property
    def uri(self) -> str:
        return self.reader.uri

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`."""
        try:
            for batch in self.reader.batches():
                if isinstance(batch, pa.Table):
                    refuse_extension_types(batch.schema, self.uri)
                yield batch
        except (OfflineError, MemoryError):
            raise
        except Exception as error:
            raise_if_out_of_reach(error, self.uri)
            raise CorruptFileError(
                f"The reader {self.name} cannot read {self.uri}: {error!r}. Fix the reader, or raise an OfflineError there."
            ) from error
