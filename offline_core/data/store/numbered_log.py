"""A folder of numbered JSON files, each made by one exclusive create: of two writers, one gets the number.

    <folder>/000001.json        an entry; it ends with a checksum
    <folder>/last-000007        the highest number that an entry ever had, also if entries were deleted

Some logs are chained: no number is missing, and each entry holds the SHA-256 of the whole file before it. So an entry that
was edited, deleted or brought from elsewhere is found by its neighbours. Moves of aliases and of tags are chained: what they
say must stay as it was. Versions of a dataset are not: old ones are deleted, and episodes are forgotten from any. The mark
keeps their numbers from being used again; in a chained log it tells that the last entry is missing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, StorageError
from offline_core.runtime.prefetch import several

log = logging.getLogger(__name__)

_ENTRY = re.compile(r"(\d{6,18})\.json")
_MARK = re.compile(r"last-(\d{1,18})")
_RESTORE = "Restore the log from a copy."


class LogFiles(NamedTuple):
    """The names in the folder of a log."""

    numbers: list[int]
    """Numbers of the entries, in order."""
    marks: list[int]
    """Numbers that are marked as used, in order."""
    others: list[str]
    """Names of other files, in order."""

    @property
    def highest(self) -> int:
        """The highest number that was ever used; 0: there is none."""
        return max(self.numbers[-1:] + self.marks[-1:], default=0)


@dataclass(frozen=True, slots=True)
class NumberedLog:
    """The log in the folder `name` below `root`."""

    root: Location
    name: str

    @property
    def folder(self) -> Location:
        return self.root.child(self.name)

    def file(self, number: int) -> Location:
        """The file of an entry, which may not exist."""
        return self.folder.child(f"{number:06d}.json")

    def listed(self) -> LogFiles:
        """List what is in the folder; nothing if the folder does not exist."""
        files = LogFiles([], [], [])
        for name in self.folder.files(recursive=False):
            if match := _ENTRY.fullmatch(name):
                files.numbers.append(int(match[1]))
            elif match := _MARK.fullmatch(name):
                files.marks.append(int(match[1]))
            else:
                files.others.append(name)
        return LogFiles(*map(sorted, files))  # type: ignore[arg-type]

    def mark_used(self, number: int, marks: Sequence[int]) -> None:
        """Reserve `number` and all lower numbers, also if their entries are deleted later.

        The entry comes first: its exclusive create decides between two writers. If this writer dies before it writes the
        mark, the next one marks the highest entry that it finds.

        Arguments:
            marks: those that exist; lower ones go.
        """
        if number <= max(marks, default=0):
            return
        try:
            self.folder.child(f"last-{number:06d}").write(b"The highest number that an entry ever had.\n")
            for lower in marks:
                self.folder.child(f"last-{lower:06d}").delete()
        except StorageError as error:  # the entry itself is there
            log.warning("%s is written, but its number could not be marked as used: %s", self.file(number).uri, error)

    def count(self) -> int:
        """The number of entries of a chained log, by a listing.

        Raises:
            CorruptFileError: one is missing, the last one included.
        """
        while True:
            listed = self.listed()
            known = {*listed.numbers}
            missing = next((number for number in range(1, listed.highest + 1) if number not in known), None)
            if missing is None:
                return listed.highest
            if not (file := self.file(missing)).is_file():  # else it was written while the folder was listed
                raise CorruptFileError(
                    f"{file.uri} is missing: the log has had {listed.highest} entries. {_RESTORE}", uri=file.uri
                )

    def append(self, values: Mapping[str, Any], *, after: int) -> int:
        """Add the entry that follows entry `after` of a chained log, and return its number.

        Raises:
            VersionExistsError: another writer added one first; nothing was written.
        """
        number = after + 1
        before = _digest(self.file(after).read()) if after else None
        entry = {**values, "number": number, "before": before}
        self.file(number).create(with_checksum(json.dumps(entry, indent=2)))
        self.mark_used(number, [after] if after else [])
        return number

    def entries(self) -> list[dict[str, Any]]:
        """All entries of a chained log, the first one first.

        Raises:
            CorruptFileError: one is missing, damaged, or does not follow from the one before it.
        """
        entries = several(self._read, range(1, self.count() + 1))
        for before, entry in itertools.pairwise(entries):
            self._check(entry, before)
        return [entry.values for entry in entries]

    def newest_first(self) -> Iterator[dict[str, Any]]:
        """The entries of a chained log from the last one on, each read when it is asked for.

        Raises:
            CorruptFileError: as `entries`, of those that are read.
        """
        later: _Entry | None = None
        for number in range(self.count(), 0, -1):
            entry = self._read(number)
            if later is not None:
                self._check(later, entry)
            yield entry.values
            later = entry

    def _read(self, number: int) -> _Entry:
        file = self.root.inside(f"{self.name}/{number:06d}.json")
        data = file.read()
        try:
            values = json.loads(without_checksum(data, file.uri, is_required=True))
            recorded_number = values["number"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptFileError(f"{file.uri} is no entry of a log. {_RESTORE}", uri=file.uri) from error
        if recorded_number != number:
            raise CorruptFileError(f"{file.uri} is a copy of entry {recorded_number}. {_RESTORE}", uri=file.uri)
        return _Entry(values, _digest(data))

    def _check(self, entry: _Entry, before: _Entry) -> None:
        """Check that an entry follows from the one before it.

        Entries of earlier versions of this package do not name the one before. Leaving the name out hides nothing that
        could not be hidden by writing it anew.
        """
        if "before" in entry.values and entry.values["before"] != before.sha256:
            file, other = (self.file(log_entry.values["number"]).uri for log_entry in (entry, before))
            raise CorruptFileError(f"{file} does not follow from {other}: one of the two was edited. {_RESTORE}", uri=other)


class _Entry(NamedTuple):
    values: dict[str, Any]
    sha256: str
    """SHA-256 of the whole file."""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
