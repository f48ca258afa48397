"""Whatever Ray Data can read, by the name of its function."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from offline_core.errors import ConfigError, CorruptFileError, OfflineError, SchemaError, UnsafeDataError
from offline_core.storage.filesystems import schemes
from offline_core.storage.location import Location
from offline_core.storage.sources.located import located
from offline_core.storage.sources.out_of_reach import raise_if_out_of_reach
from offline_core.storage.sources.ray_filter import FILTER, read_filtered
from offline_core.storage.sources.sent_filesystem import sent_filesystem

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NO_PICKLES = "reading them would run code. Save arrays of numbers or text instead."


@dataclass(frozen=True)
class RayRead:
    """`ray.data.<method>(paths, **arguments)`; needs Ray to be up when it is read."""

    method: str
    paths: tuple[str, ...]
    """Or the one text that a function needs which reads no files: a query, a table, an address."""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return ", ".join(self.paths)

    @property
    def places(self) -> list[Location]:
        """Where it reads, as far as that is known; Ray alone may know a place, and a query is none.

        Raises:
            ConfigError: the filesystem among the arguments is none.
        """
        return located(self.paths, self.arguments) if self.reads_files else []

    def dataset(self) -> Any:
        """The `ray.data.Dataset`, lazily.

        Raises:
            ConfigError: Ray Data has no such function, or it does not take these arguments.
            UnsafeDataError: pickles are asked for.
        """
        if _allows_pickles(self.arguments):
            raise UnsafeDataError(f"ray.data.{self.method} may not be called with allow_pickle: {_NO_PICKLES}")
        arguments = {**self._told(), **self.arguments}
        try:
            inspect.signature(self._function).bind(**arguments)
        except TypeError as error:
            raise ConfigError(f"ray.data.{self.method} does not take these arguments: {error}.") from error
        if self.method == "read_parquet" and arguments.get(FILTER) is not None:
            return read_filtered(self._function, arguments)
        return self._function(**arguments)

    @property
    def reads_files(self) -> bool:
        """It takes paths, and not a query or the name of a table."""
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
            SchemaError: columns that the arguments name are not there.
            StorageError: the place cannot be read.
            UnsafeDataError: there are pickles.
        """
        import ray.exceptions

        try:
            with in_order():
                for batch in self.dataset().iter_batches(batch_size=None, batch_format="pyarrow"):
                    self._check_columns(batch)
                    yield batch
        except OfflineError:
            raise
        except (ray.exceptions.RayTaskError, pa.ArrowException, OSError, TypeError, ValueError) as error:
            cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error  # without Ray's own traceback
            raise_if_out_of_reach(cause, self.uri)
            reason = str(cause).strip().partition("\n")[0].rstrip(".")
            if "allow_pickle" in reason:
                raise UnsafeDataError(f"ray.data.{self.method} finds pickles in {self.uri}: {_NO_PICKLES}") from error
            if isinstance(cause, TypeError):  # some functions pass arguments on, and find out only while reading
                raise ConfigError(f"ray.data.{self.method} does not take these arguments: {reason}.") from error
            if isinstance(cause, ValueError) and not isinstance(cause, pa.ArrowException):
                raise ConfigError(
                    f"ray.data.{self.method} cannot read {self.uri} with the arguments {', '.join(self.arguments)}: {reason}."
                ) from error
            raise CorruptFileError(f"ray.data.{self.method} cannot read {self.uri}: {reason}.") from error

    def _told(self) -> dict[str, Any]:
        """What the source is to the function: paths; or else the first of what it asks for and the arguments do not name.

        Raises:
            ConfigError: it takes one text, and there are several.
        """
        parameters = inspect.signature(self._function).parameters.values()
        asked = [each.name for each in parameters if each.kind not in _MANY]
        if self.reads_files:
            if asked[0] in self.arguments:
                raise ConfigError(f"Name what ray.data.{self.method} reads as the source, and not by its argument {asked[0]}.")
            paths, elsewhere = self._paths()
            return {asked[0]: paths if asked[0] == "paths" or len(paths) > 1 else paths[0], **elsewhere}
        needed = [each.name for each in parameters if each.kind not in _MANY and each.default is inspect.Parameter.empty]
        unnamed = [name for name in needed if name not in self.arguments]
        if unnamed and len(self.paths) > 1:
            raise ConfigError(f"ray.data.{self.method} reads one {unnamed[0]} at a time; import each by itself.")
        return {unnamed[0]: self.paths[0]} if unnamed else {}

    def _paths(self) -> tuple[list[str], dict[str, Any]]:
        """(paths, arguments that say where these are): Ray would find other settings for the same URI than we do.

        Raises:
            ConfigError: they are not all in one place.
        """
        if "filesystem" in self.arguments or not any("://" in path for path in self.paths):
            return list(self.paths), {}
        if any(path.partition("://")[0].lower() not in ("file", *schemes()) for path in self.paths if "://" in path):
            return list(self.paths), {}  # which only Ray knows
        places = [Location.of(path) for path in self.paths]
        if all(place.is_local for place in places):
            return [place.path for place in places], {}
        if len({place.store for place in places}) > 1:
            raise ConfigError(f"{self.uri} are not all in one place; import each by itself.")
        return [place.path for place in places], {"filesystem": sent_filesystem(places[0].store)}

    def _check_columns(self, batch: pa.Table) -> None:
        """Of columns that are not there, Ray says nothing."""
        names = self.arguments.get("columns")
        if isinstance(names, list) and (missing := [name for name in names if name not in batch.column_names]):
            raise SchemaError(f"ray.data.{self.method} finds no column {', '.join(map(str, missing))} in {self.uri}.")


@contextlib.contextmanager
def in_order() -> Iterator[None]:
    """What Ray Data gives within this comes in the order of what it reads, and not in that of completion."""
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
