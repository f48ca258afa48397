"""Whatever Ray Data can read, by the name of its function."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from offline_core.errors import ConfigError, CorruptFileError, OfflineError, SchemaError, UnsafeDataError
from offline_core.storage.filesystems import schemes
from offline_core.storage.location import Location
from offline_core.storage.sources.out_of_reach import raise_if_out_of_reach
from offline_core.storage.sources.sent_filesystem import sent_filesystem

_NO_PICKLES = "reading them would run code. Save arrays of numbers or text instead."


@dataclass(frozen=True)
class RayRead:
    """`ray.data.<method>(paths, **arguments)`; needs Ray to be up when it is read."""

    method: str
    paths: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return ", ".join(self.paths)

    def dataset(self) -> Any:
        """The `ray.data.Dataset`, lazily.

        Raises:
            ConfigError: Ray Data has no such function.
            UnsafeDataError: pickles are asked for.
        """
        import ray.data

        if _allows_pickles(self.arguments):
            raise UnsafeDataError(f"ray.data.{self.method} may not be called with allow_pickle: {_NO_PICKLES}")
        read = getattr(ray.data, self.method, None)
        if read is None:
            known = ", ".join(name for name in sorted(dir(ray.data)) if name.startswith("read_"))
            raise ConfigError(f"Ray Data has no {self.method!r}; it has {known}.")
        paths, elsewhere = self._places(read)
        return read(paths, **elsewhere, **self.arguments)

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
                    f"ray.data.{self.method} cannot read {self.uri} with the arguments {dict(self.arguments)}: {reason}."
                ) from error
            raise CorruptFileError(f"ray.data.{self.method} cannot read {self.uri}: {reason}.") from error

    def _places(self, read: Any) -> tuple[list[str], dict[str, Any]]:
        """(paths, arguments that say where these are): Ray would find other settings for the same URI than we do.

        Raises:
            ConfigError: they are not all in one place, or Ray cannot be told where they are.
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
        if "filesystem" not in inspect.signature(read).parameters:
            raise ConfigError(f"ray.data.{self.method} reads local files alone; use another format, or copy {self.uri}.")
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
