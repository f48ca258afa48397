"""Cache the result of a stage next to its output, so that the same stage is reused instead of run again."""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, StorageError, StorageUnavailableError
from offline_core.runtime.config import problems

log = logging.getLogger(__name__)

RESULT_FILE = "result.json"
SIDECAR_FILES = frozenset({RESULT_FILE, "card.md", "card.html", "card.png"})
"""Files that describe the output next to them, and are not part of it."""

Result = TypeVar("Result", bound=BaseModel)


def store_result(
    location: Location,
    identity: str,
    result: BaseModel,
    *,
    fingerprints: Mapping[str, str],
    final: Location | None = None,
) -> None:
    """Writes the result to the file `location`, replacing an older one.

    Arguments:
        identity: of the stage, see `identity_of`.
        fingerprints: of the outputs without which the result is void, by URI or any name that `load_result` is given a
            `fingerprint` function for.
        final: where the file is moved to later; None: it stays.
    """
    # Infinity and NaN are written as JavaScript's words for them, which `json` reads as well.
    values = {
        "place": (final or location).uri,
        "identity": identity,
        "made": dict(fingerprints),
        "result": result.model_dump(mode="python"),
    }
    location.write(with_checksum(json.dumps(values, indent=2, default=str)))


def load_result(
    location: Location, identity: str, model: type[Result], *, fingerprint: Callable[[str], str | None]
) -> Result | None:
    """The stored result of the same stage, with `reused` set; None if none is stored or one of its outputs has changed.

    A copied or moved file is not used: its URIs lead back to the original.

    Arguments:
        model: of the result; it has a field `reused`.
        fingerprint: current fingerprint of an output by its name; None if it is missing or incomplete.

    Raises:
        StorageUnavailableError: the storage does not answer, so whether a result exists is unknown.
    """
    if not location.is_file():
        return None
    try:
        values = json.loads(without_checksum(location.read(), location.uri))
        if (values["place"], values["identity"]) != (location.uri, identity):
            return None
        result = model.model_validate(values["result"] | {"reused": True})
        if far := [name for name in values["made"] if not location.is_near(name)]:
            raise ValueError(f"it names {far[0][:200]!r}, which is in another bucket")
        changed = [name for name, expected in values["made"].items() if fingerprint(name) != expected]
    except StorageUnavailableError:  # an outage does not make a result invalid
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CorruptFileError, StorageError) as error:
        what = problems(error) if isinstance(error, ValidationError) else error
        log.warning("The result stored at %s cannot be used: %s", location.uri, what)
        return None
    if changed:
        log.warning("%s has changed since it was made: it is made again.", changed[0])
        return None
    log.info("Reused: %s", location.uri)
    return result


def stored_result(location: Location, model: type[Result]) -> Result | None:
    """The stored result of whatever stage wrote it, if it is of this kind; None if there is none."""
    if not location.is_file() or not is_result(location):
        return None
    try:
        return model.model_validate(json.loads(without_checksum(location.read(), location.uri))["result"])
    except (ValueError, CorruptFileError):
        return None


def is_result(location: Location) -> bool:
    """Whether `store_result` wrote this file."""
    if posixpath.basename(location.path) != RESULT_FILE:
        return False
    try:
        return bool({"place", "identity", "made", "result"} <= json.loads(location.read()).keys())
    except (ValueError, AttributeError, RecursionError):
        return False


def invalidate_result(location: Location) -> None:
    """Deletes the result at `location`, if one exists: its output is about to be replaced."""
    if location.is_file():
        location.delete()
