"""Whatever Ray Data can read, by the name of its function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from offline_core.errors import ConfigError, CorruptFileError


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
        """
        import ray.data

        read = getattr(ray.data, self.method, None)
        if read is None:
            known = ", ".join(name for name in sorted(dir(ray.data)) if name.startswith("read_"))
            raise ConfigError(f"Ray Data has no {self.method!r}; it has {known}.")
        return read(list(self.paths), **self.arguments)

    def batches(self) -> Iterator[pa.Table]:
        """See `StepReader`; in the order of the files.

        Raises:
            ConfigError: Ray Data has no such function, or it does not take these arguments.
        """
        import ray.data
        import ray.exceptions

        context = ray.data.DataContext.get_current()
        before = context.execution_options.preserve_order
        context.execution_options.preserve_order = True
        try:
            dataset = self.dataset()
            yield from dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        except (ray.exceptions.RayTaskError, pa.ArrowException, OSError, TypeError) as error:
            cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error  # without Ray's own traceback
            if isinstance(cause, TypeError):  # some functions pass arguments on, and find out only while reading
                raise ConfigError(f"ray.data.{self.method} does not take these arguments: {cause}.") from error
            reason = str(cause).strip().partition("\n")[0].rstrip(".")
            raise CorruptFileError(f"ray.data.{self.method} cannot read {self.uri}: {reason}.") from error
        finally:
            context.execution_options.preserve_order = before
