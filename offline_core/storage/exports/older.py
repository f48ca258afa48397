"""What lies where an export is to be: an older one may be replaced, anything else may not."""

from __future__ import annotations

import json
import posixpath

from offline_core.errors import CorruptFileError, StorageError, StorageUnavailableError
from offline_core.storage.json_files import without_checksum
from offline_core.storage.kept import BESIDE, RESULT_FILE
from offline_core.storage.location import Location
from offline_core.storage.stores import TEMPORARY

_HIDDEN = (TEMPORARY, ".lock", ".folder")
"""How files begin that are of no concern: unfinished ones, locks, and what marks a folder where there are none."""


def strange_files(folder: Location) -> list[str] | None:
    """Files in an export that it was not made with; None if nothing there says how it was made.

    Raises:
        StorageUnavailableError: what it says cannot be read now.
    """
    try:
        made = json.loads(without_checksum(folder.child(RESULT_FILE).read(), folder.uri))["made"]
        return [name for name in visible_files(folder) if name not in made and name not in BESIDE]
    except StorageUnavailableError:
        raise
    except (CorruptFileError, StorageError, ValueError, KeyError, TypeError):
        return None


def visible_files(folder: Location) -> list[str]:
    """Files below the folder but for those that are of no concern."""
    return [name for name in folder.files() if not posixpath.basename(name).startswith(_HIDDEN)]


def refusal(folder: Location, strange: list[str] | None) -> StorageError:
    """What to say about it."""
    why = "is no export of a dataset" if strange is None else f"holds {strange[0]}, which no export wrote"
    return StorageError(
        f"{folder.uri} exists already and is not overwritten: it {why}. Choose another output, or move it away."
    )
