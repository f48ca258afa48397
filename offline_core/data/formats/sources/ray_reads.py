"""Read with any function of Ray Data, by its name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.formats.sources.access_errors import raise_if_out_of_reach
from offline_core.data.formats.sources.locations import FILESYSTEM, located
from offline_core.data.store.filesystems import schemes
from offline_core.data.store.location import Location
from offline_core.data.store.stores import Store
from offline_core.errors import ConfigError, CorruptFileError, OfflineError, SchemaError, UnsafeDataError
from offline_core.secrets import masked_text

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NO_PICKLES = "reading them would run code. Save arrays of numbers or text instead."

FILTER = "filter"

OF_FILES = (
    f"{FILESYSTEM} arrow_open_stream_args partition_filter partitioning include_paths ignore_missing_paths shuffle "
    "file_extensions parallelism concurrency override_num_blocks num_cpus num_gpus memory"
)
HARMLESS = {
    "read_avro": "",
    "read_binary_files": "",
    "read_csv": "",
    "read_images": "size mode",
    "read_json": "lines",
    "read_numpy": "allow_pickle numpy_load_args",
    "read_orc": "",
    "read_parquet": "columns filter tensor_column_schema include_row_hash",
    "read_text": "encoding drop_empty_lines",
    "read_tfrecords": "",
}
"""Functions of Ray Data that read files at their paths and nothing else → arguments that are no places, besides `OF_FILES`."""


@dataclass(frozen=True)
class RayRead:
    """`ray.data.<method>(paths, **arguments)`; needs Ray to be up when it is read."""

    method: str
    paths: tuple[str, ...]
    """Or the one text of a function that reads no files: a query, a table, an address."""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return ", ".join(self.paths)

    @property
    def places(self) -> list[Location]:
        """The locations it reads, as far as known: Ray may read other URIs, and a query has none.

        Raises:
            ConfigError: the argument filesystem is not a filesystem.
        """
        return located(self.paths, self.arguments) if self.reads_files else []

    def dataset(self) -> Any:
        """The `ray.data.Dataset`, lazily.

        Raises:
            ConfigError: Ray Data has no such function, or it does not take these arguments.
            UnsafeDataError: the arguments allow pickles.
        """
        if _allows_pickles(self.arguments):
            raise UnsafeDataError(f"ray.data.{self.method} may not be called with allow_pickle: {_NO_PICKLES}")
        arguments = {**self._source_arguments(), **self.arguments}
        try:
            inspect.signature(self._function).bind(**arguments)
        except TypeError as error:
            raise ConfigError(
                f"ray.data.{self.method} does not take these arguments: {masked_text(str(error), self.arguments)}."
            ) from error
        if self.method == "read_parquet" and arguments.get(FILTER) is not None:
            return read_filtered(self._function, arguments)
        return self._function(**arguments)

    @property
    def reads_files(self) -> bool:
        """Whether the function takes paths, not a query or the name of a table."""
        return "filesystem" in inspect.signature(self._function).parameters

    @property
    def _function(self) -> Callable[..., Any]:
        import ray.data

        read = getattr(ray.data, self.method, None)
        if callable(read):
            return read  # type: ignore[no-any-return]
        known = ", ".join(name for name in sorted(dir(ray.data)) if callable(getattr(ray.data, name)) and "read_" in name)
        raise ConfigError(f"Ray Data has no {self.method!r}; it has {known}.")

    def batches(self) -> Iterator[pa.Table]:
        """See `StepReader`; in the order of the files.

        Raises:
            ConfigError: Ray Data has no such function, or it does not take these arguments.
            SchemaError: columns that the arguments name are missing.
            StorageError: the storage cannot be read.
            UnsafeDataError: the data has pickles.
        """
        import ray.exceptions

        try:
            with in_order():
                for batch in self.dataset().iter_batches(batch_size=None, batch_format="pyarrow"):
                    refuse_extension_types(batch.schema, self.uri)
                    self._check_columns(batch)
                    yield batch
        except OfflineError:
            raise
        except (ray.exceptions.RayTaskError, pa.ArrowException, OSError, TypeError, ValueError) as error:
            cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error  # without Ray's own traceback
            raise_if_out_of_reach(cause, self.uri)
            reason = masked_text(str(cause).strip().partition("\n")[0].rstrip("."), self.arguments)
            if "allow_pickle" in reason or "unpickl" in reason:  # of NumPy, of Ray
                raise UnsafeDataError(f"ray.data.{self.method} finds pickles in {self.uri}: {_NO_PICKLES}") from error
            if isinstance(cause, TypeError):  # some functions check their arguments only while reading
                raise ConfigError(f"ray.data.{self.method} does not take these arguments: {reason}.") from error
            if isinstance(cause, ValueError) and not isinstance(cause, pa.ArrowException):
                raise ConfigError(
                    f"ray.data.{self.method} cannot read {self.uri} with the arguments {', '.join(self.arguments)}: {reason}."
                ) from error
            raise CorruptFileError(f"ray.data.{self.method} cannot read {self.uri}: {reason}.") from error

    def _source_arguments(self) -> dict[str, Any]:
        """Return the arguments for the source: paths, or else the first required argument that is missing.

        Raises:
            ConfigError: the function takes one text, and there are several.
        """
        parameters = inspect.signature(self._function).parameters.values()
        asked = [parameter.name for parameter in parameters if parameter.kind not in _MANY]
        if self.reads_files:
            if asked[0] in self.arguments:
                raise ConfigError(f"Give the paths of ray.data.{self.method} as the source, not as its argument {asked[0]}.")
            paths, elsewhere = self._paths()
            return {asked[0]: paths if asked[0] == "paths" or len(paths) > 1 else paths[0], **elsewhere}
        needed = [
            parameter.name
            for parameter in parameters
            if parameter.kind not in _MANY and parameter.default is inspect.Parameter.empty
        ]
        unnamed = [name for name in needed if name not in self.arguments]
        if unnamed and len(self.paths) > 1:
            raise ConfigError(f"ray.data.{self.method} reads one {unnamed[0]} at a time; import each by itself.")
        return {unnamed[0]: self.paths[0]} if unnamed else {}

    def _paths(self) -> tuple[list[str], dict[str, Any]]:
        """(paths, their filesystem as an argument): Ray alone would use other settings for the same URI.

        Raises:
            ConfigError: they are in different filesystems.
        """
        if "filesystem" in self.arguments or not any("://" in path for path in self.paths):
            return list(self.paths), {}
        if any(path.partition("://")[0].lower() not in ("file", *schemes()) for path in self.paths if "://" in path):
            return list(self.paths), {}  # only Ray knows the scheme
        locations = [Location.of(path) for path in self.paths]
        if all(location.is_local for location in locations):
            return [location.path for location in locations], {}
        if len({location.store for location in locations}) > 1:
            raise ConfigError(f"{self.uri} are in different filesystems; import each by itself.")
        return [location.path for location in locations], {"filesystem": pickled_filesystem(locations[0].store)}

    def _check_columns(self, batch: pa.Table) -> None:
        """Raise for missing columns, which Ray ignores."""
        names = self.arguments.get("columns")
        if isinstance(names, list) and (missing := [name for name in names if name not in batch.column_names]):
            raise SchemaError(f"ray.data.{self.method} finds no column {', '.join(map(str, missing))} in {self.uri}.")


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """Make Ray Data give blocks in the order of its input, not of completion."""
    import ray.data

    options = ray.data.DataContext.get_current().execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before


def _allows_pickles(arguments: Mapping[str, Any]) -> bool:
    return any(
        _allows_pickles(value) if isinstance(value, Mapping) else name == "allow_pickle" and bool(value)
        for name, value in arguments.items()
    )


def read_filtered(read: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """The `ray.data.Dataset` of `read(**arguments)` with the rows that match `filter`; each block is filtered where it is read.

    Ray's `read_parquet` has no filter itself. `filter` is a PyArrow expression, or lists of (column, operator, value) as in
    PyArrow's Parquet functions. Columns that only the filter needs are read and dropped.

    Raises:
        ConfigError: the filter is something else.
    """
    expression = _expression(arguments[FILTER])
    rest = {name: value for name, value in arguments.items() if name != FILTER}
    wanted = rest.get("columns")
    if wanted is not None:
        stored = read(**{name: value for name, value in rest.items() if name != "columns"}).schema().names
        rest["columns"] = [*wanted, *(name for name in stored if name in str(expression) and name not in wanted)]
    return read(**rest).map_batches(
        partial(_filtered, expression=expression, columns=wanted), batch_size=None, batch_format="pyarrow", zero_copy_batch=True
    )


def _expression(condition: Any) -> pc.Expression:
    try:
        return condition if isinstance(condition, pc.Expression) else pq.filters_to_expression(condition)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"source.arguments.{FILTER} is not a filter: {error}. From Python it is an expression such as "
            'pyarrow.dataset.field("t") < 50; in forms a list such as [["t", "<", 50]], or use format auto with source.where.'
        ) from error


def _filtered(rows: pa.Table, *, expression: pc.Expression, columns: list[str] | None) -> pa.Table:
    kept = rows.filter(expression)
    return kept if columns is None else kept.select([name for name in columns if name in kept.column_names])


def pickled_filesystem(store: Store) -> fs.PyFileSystem:
    """Return the filesystem of `store`, read-only, for Ray's workers.

    It is pickled as its settings, without credentials, and each worker opens it; PyArrow's own pickles with its credentials.
    """
    return fs.PyFileSystem(_ReadOnlyHandler(store))


def _refuse(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("Sources are only read.")


@dataclass(frozen=True)
class _ReadOnlyHandler(fs.FileSystemHandler):  # type: ignore[misc]
    store: Store

    def get_type_name(self) -> str:
        return str(self.store.filesystem.type_name)

    def normalize_path(self, path: str) -> str:
        return str(self.store.filesystem.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> Any:
        return self.store.filesystem.get_file_info(paths)

    get_file_info_selector = get_file_info

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.store.filesystem.open_input_stream(path, compression=None)  # the caller decompresses

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.store.filesystem.open_input_file(path)

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
