"""The one protocol of a source of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import pyarrow as pa


@runtime_checkable
class StepReader(Protocol):
    """Reads steps that lie in one place: a file, usually. A source is a list of them.

    Each can be read alone, in another process (so it can be pickled, and opens nothing before `batches` is called), and
    more than once with the same result.
    """

    @property
    def uri(self) -> str:
        """Where the steps lie, for errors and reports."""

    def batches(self) -> Iterator[pa.Table]:
        """The steps, a moderate number at a time, one row a step, in the order they lie in.

        Column names and types are the source's own; a column mapping makes them canonical. Values are what `from_arrow`
        reads: numbers, text, lists of equal length, tensors, structs; infos are structs, or msgpack bytes.

        Raises:
            DataError: what is there cannot be read; the message names the place.
            StorageError: the place cannot be read.
        """
