"""The result of a step, kept beside what it made, so that the same step need not be done again."""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from offline_core.config import problems
from offline_core.errors import CorruptFileError, StorageError, StorageUnavailableError
from offline_core.storage.json_files import with_checksum, without_checksum
from offline_core.storage.location import Location

log = logging.getLogger(__name__)

RESULT_FILE = "result.json"
BESIDE = frozenset({RESULT_FILE, "card.md", "card.png"})
"""Files that tell about what lies beside them, and are no part of it."""

Result = TypeVar("Result", bound=BaseModel)


def keep(
    place: Location,
    identity: str,
    result: BaseModel,
    *,
    made: Mapping[str, str],
    at: Location | None = None,
) -> None:
    """Writes the result to the file `place`, replacing what was there.

    Arguments:
        identity: of the step, see `identity_of`.
        made: fingerprints by name of what the step left, and without which the result is worth nothing. Names are URIs, or
            whatever else the `fingerprint` of `kept` understands.
        at: where the file will be moved to; None: it stays.
    """
    # Infinity and NaN are written as JavaScript's words for them, which `json` reads as well.
    values = {
        "place": (at or place).uri,
        "identity": identity,
        "made": dict(made),
        "result": result.model_dump(mode="python"),
    }
    place.write(with_checksum(json.dumps(values, indent=2, default=str)))


def kept(place: Location, identity: str, model: type[Result], *, fingerprint: Callable[[str], str | None]) -> Result | None:
    """The result of the same step, with `reused` set; None if there is none, or if something it made is not there any more.

    Nor is there one in a copy, or after a move: its URIs would lead back to where it was made.

    Arguments:
        model: of the result; it has a field `reused`.
        fingerprint: of what has that name now, None if there is nothing whole.

    Raises:
        StorageUnavailableError: it cannot be seen now whether there is one.
    """
    if not place.is_file():
        return None
    try:
        values = json.loads(without_checksum(place.read(), place.uri))
        if (values["place"], values["identity"]) != (place.uri, identity):
            return None
        result = model.model_validate(values["result"] | {"reused": True})
        if far := [name for name in values["made"] if not place.is_near(name)]:
            raise ValueError(f"it names {far[0][:200]!r}, which another bucket holds")
        gone = [name for name, expected in values["made"].items() if fingerprint(name) != expected]
    except StorageUnavailableError:  # what is only away is not made again, over what is there
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, CorruptFileError, StorageError) as error:
        what = problems(error) if isinstance(error, ValidationError) else error
        log.warning("The result kept at %s cannot be used: %s", place.uri, what)
        return None
    if gone:
        log.warning("%s is not what it was when it was made: it is made again.", gone[0])
        return None
    log.info("Found, and not made again: %s", place.uri)
    return result


def is_result(place: Location) -> bool:
    """Whether it is a file that `keep` wrote, and no data."""
    if posixpath.basename(place.path) != RESULT_FILE:
        return False
    try:
        return bool({"place", "identity", "made", "result"} <= json.loads(place.read()).keys())
    except (ValueError, AttributeError, RecursionError):
        return False


def forget(place: Location) -> None:
    """Deletes the result at `place`, if there is one: what it tells of is about to be replaced."""
    if place.is_file():
        place.delete()
