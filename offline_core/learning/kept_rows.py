"""Stored rows that stay in memory while they are mapped anew each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa


class KeptRows:
    """Reads once: into this process, or into Ray's object store for a pool of prelearners.

    Memory: the rows as they are stored, without Parquet's compression.
    """

    def __init__(self) -> None:
        self._tables: list[pa.Table] | None = None
        self._blocks: list[Any] | None = None

    def tables(
        self, read: Callable[[], Iterable[pa.Table]], *, order: Sequence[int] | None = None, together: int = 1
    ) -> Iterator[pa.Table]:
        """What `read` gives, in this order, so many of its tables at a time."""
        if self._tables is None:
            self._tables = list(read())
        order = range(len(self._tables)) if order is None else order
        for start in range(0, len(order), together):
            yield pa.concat_tables([self._tables[number] for number in order[start : start + together]])

    def dataset(self, read: Callable[[], Any], *, order: Sequence[int] | None = None) -> Any:
        """The blocks of the `ray.data.Dataset` that `read` gives, in this order."""
        import ray.data

        if self._blocks is None:
            rows = read()
            rows.context.execution_options.preserve_order = True
            self._blocks = rows.materialize().to_arrow_refs()
        return ray.data.from_arrow_refs(self._blocks if order is None else [self._blocks[number] for number in order])
