"""The protocol of a source of steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from offline_core.errors import OfflineError

_NOTE = b"offline_core.note"
_RECOGNISED = _NOTE + b"_recognised"
_SINGLE = b"offline_core.single_values"
_EMPTY = b"offline_core.empty_rows"


class Recognised(str):
    """A note on what was recognised. Others may be of something that is wrong."""

    __slots__ = ()


class Unreadable(NamedTuple):
    """One or more rows that cannot be read."""

    uri: str
    row: int | None
    """Its number in the file; None for several rows, or for the rest of a file."""
    rows: int
    """The number of rows; 0: unknown."""
    error: OfflineError
    terminations: int = 0
    """How many of them terminate an episode, as far as can be read."""
    eps_id: str | None = None
    """Of a single row, as far as can be read; None: it may be of any episode."""

    def __str__(self) -> str:
        return str(self.located_error)

    @property
    def place(self) -> str:
        """The file, and the row if it is a single one."""
        return self.uri if self.row is None else f"{self.uri}, row {self.row:,}"

    @property
    def located_error(self) -> OfflineError:
        """The error with its place, to be raised."""
        return self.error.within(self.place, uri=self.uri)

    @property
    def num_rows(self) -> int:
        """Like `pa.Table.num_rows`; at least 1, so that the rows around it are not adjacent."""
        return max(1, self.rows)


def with_note(table: pa.Table, note: str) -> pa.Table:
    """The rows with a sentence on what their reader took for granted, for the report of the import."""
    key, metadata = _RECOGNISED if isinstance(note, Recognised) else _NOTE, table.schema.metadata or {}
    known = str(metadata.get(key, b""), "utf-8")
    return table.replace_schema_metadata({**metadata, key: f"{known} {note}" if known else note})


def notes_of(rows: pa.Table | Unreadable) -> list[str]:
    """The sentences that came with rows: what was recognised of their form, and what else their reader took for granted."""
    metadata = (rows.schema.metadata or {}) if isinstance(rows, pa.Table) else {}
    kinds = {_RECOGNISED: Recognised, _NOTE: str}
    return [kind(str(metadata[key], "utf-8")) for key, kind in kinds.items() if key in metadata]


def note_of(rows: pa.Table | Unreadable) -> str | None:
    """All of `notes_of` in one."""
    return " ".join(notes_of(rows)) or None


def with_single_values(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows, marked: the file has one value of each of these columns, which is repeated in each row."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _SINGLE: json.dumps(names)})


def single_values_of(rows: pa.Table | Unreadable) -> list[str]:
    """The columns of which the file has one value, as `with_single_values` says."""
    metadata = (rows.schema.metadata or {}) if isinstance(rows, pa.Table) else {}
    return [str(name) for name in json.loads(metadata.get(_SINGLE, b"[]"))]


def with_empty_rows(table: pa.Table, count: int) -> pa.Table:
    """The rows, marked: so many rows of the file have no value at all, and are left out."""
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _EMPTY: str(count)}) if count else table


def empty_rows_of(rows: pa.Table | Unreadable) -> int:
    """How many rows are left out, as `with_empty_rows` says."""
    metadata = (rows.schema.metadata or {}) if isinstance(rows, pa.Table) else {}
    return int(metadata.get(_EMPTY, b"0"))


@runtime_checkable
class StepReader(Protocol):
    """Reads the steps of one file, usually; a source is a list of readers.

    Each is read alone, may be read in another process (so it is picklable, and opens nothing before `batches` is called), and
    gives the same result every time.
    """

    @property
    def uri(self) -> str:
        """The location of the steps, for errors and reports."""

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """The steps in their stored order, one row a step, in tables of moderate size.

        Column names and types are the source's own; a column mapping makes them canonical. Values are what `from_arrow`
        reads: numbers, text, lists of equal length, tensors, structs; infos are structs, or msgpack bytes. A reader that
        skips rows numbers the others in a column `_source_row`. For rows that it cannot read, but can continue after, it
        gives an `Unreadable`.

        Raises:
            DataError: the rest cannot be read; the message names the file.
            StorageError: the storage cannot be read.
        """
