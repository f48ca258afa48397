"""What cannot be read: raised at once, or listed while the rest goes through."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple

from offline_core.errors import OfflineError
from offline_core.storage.location import Location
from offline_core.storage.manifest import digest

log = logging.getLogger(__name__)

QUARANTINE = "_quarantine"


class Unreadable(NamedTuple):
    """A row, or several, that cannot be read."""

    uri: str
    row: int | None
    """Its number in the file; None for all rows that were read together, or for the rest of a file."""
    rows: int
    """How many these are; 0: not known."""
    error: OfflineError

    def __str__(self) -> str:
        return f"{self.uri}{'' if self.row is None else f', row {self.row:,}'}: {self.error}"


def refuse(found: Unreadable, rule: Literal["fail", "quarantine"], listed: list[Unreadable]) -> None:
    """Adds `found` to `listed`, or raises its error with its place."""
    if rule == "fail":
        raise type(found.error)(f"{found} With unreadable: quarantine, such rows are listed and the rest goes on.")
    listed.append(found)


def list_unreadable(root: Location, unreadable: Sequence[Unreadable]) -> str:
    """Writes a JSON line for each below `root`; returns where."""
    lines = [
        json.dumps(
            {"uri": each.uri, "row": each.row, "rows": each.rows, "error": type(each.error).__name__, "reason": str(each.error)}
        )
        for each in unreadable
    ]
    place = root.child(f"{QUARANTINE}/{digest(lines)}.ndjson")
    place.write(("\n".join(lines) + "\n").encode())
    log.warning("%d rows or files cannot be read; they are listed in %s", len(unreadable), place.uri)
    return place.uri
