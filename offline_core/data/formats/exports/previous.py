"""Recognise an older export at the output: it is replaced, other files are not."""

from __future__ import annotations

import json
import posixpath

from offline_core.data.datasets.result_cache import RESULT_FILE, SIDECAR_FILES
from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.stores import TEMPORARY
from offline_core.errors import CorruptFileError, StorageError, StorageUnavailableError

_HIDDEN = (TEMPORARY, ".lock", ".folder")
"""Prefixes of files to ignore: partial files, locks, and markers of folders in object stores."""


def strange_files(folder: Location) -> list[str] | None:
    """Files in a folder that its export did not write; None if the folder is not an export.

    Raises:
        StorageUnavailableError: its `result.json` cannot be read now.
    """
    try:
        made = json.loads(without_checksum(folder.child(RESULT_FILE).read(), folder.uri))["made"]
        return [name for name in visible_files(folder) if name not in made and name not in SIDECAR_FILES]
    except StorageUnavailableError:
        raise
    except (CorruptFileError, StorageError, ValueError, KeyError, TypeError):
        return None


def visible_files(folder: Location) -> list[str]:
    """Files below the folder except partial files and locks."""
    return [name for name in folder.files() if not posixpath.basename(name).startswith(_HIDDEN)]


def refusal(folder: Location, strange: list[str] | None) -> StorageError:
    """The error for a folder that is not replaced."""
    why = "is not an export of a dataset" if strange is None else f"holds {strange[0]}, which the export did not write"
    return StorageError(
        f"{folder.uri} exists already and is not overwritten: it {why}. Choose another output, or move it away."
    )
