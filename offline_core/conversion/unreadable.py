"""What cannot be read: raised at once, or listed while the rest goes through."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Literal

from offline_core.errors import SchemaError
from offline_core.storage.location import Location
from offline_core.storage.manifest import digest
from offline_core.storage.sources.step_reader import Unreadable

__all__ = ["QUARANTINE", "Unreadable", "list_unreadable", "refuse"]

log = logging.getLogger(__name__)

QUARANTINE = "_quarantine"


def refuse(found: Unreadable, rule: Literal["fail", "quarantine"], listed: list[Unreadable]) -> None:
    """Adds `found` to `listed`, or raises its error with its place."""
    if rule == "fail":
        is_one_of_many = found.row is not None or not isinstance(found.error, SchemaError)  # columns are wrong for all rows
        advice = " With unreadable: quarantine, such rows are listed and the rest goes on." if is_one_of_many else ""
        raise type(found.error)(f"{found}{advice}")
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
