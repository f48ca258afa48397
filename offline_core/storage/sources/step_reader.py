"""The one protocol of a source of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from offline_core.errors import OfflineError


class Unreadable(NamedTuple):
    """A row, or several, that cannot be read."""

    uri: str
    row: int | None
    """Its number in the file; None for all rows that were read together, or for the rest of a file."""
    rows: int
    """How many these are; 0: not known."""
    error: OfflineError
    terminations: int = 0
    """How many of them terminate an episode, as far as that can be read."""

    def __str__(self) -> str:
        return f"{self.place}: {self.error}"

    @property
    def place(self) -> str:
        """The file, and the row in it if it is one."""
        return self.uri if self.row is None else f"{self.uri}, row {self.row:,}"

    @property
    def num_rows(self) -> int:
        """As a table has it; at least one, lest the rows around it seem to be neighbours."""
        return max(1, self.rows)


@runtime_checkable
class StepReader(Protocol):
    """Reads steps that lie in one place: a file, usually. A source is a list of them.

    Each can be read alone, in another process (so it can be pickled, and opens nothing before `batches` is called), and
    more than once with the same result.
    """

    @property
    def uri(self) -> str:
        """Where the steps lie, for errors and reports."""

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """The steps, a moderate number at a time, one row a step, in the order they lie in.

        Column names and types are the source's own; a column mapping makes them canonical. Values are what `from_arrow`
        reads: numbers, text, lists of equal length, tensors, structs; infos are structs, or msgpack bytes. A reader that
        leaves rows out numbers the others by a column `_source_row`. In place of what it can read nothing of but go on
        after, it gives an `Unreadable`.

        Raises:
            DataError: the rest cannot be read; the message names the place.
            StorageError: the place cannot be read.
        """
