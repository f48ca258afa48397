"""JSON files of this package: each ends with a checksum of what stands before it, which is verified when the file is read."""

from __future__ import annotations

import hashlib
import re

from pydantic import ValidationError

from offline_core.config import problems
from offline_core.errors import CorruptFileError

_CHECKSUM = re.compile(rb',\s*"checksum":\s*"([^"]*)"\s*\}\s*$')


def with_checksum(text: str) -> bytes:
    """A JSON object, with the SHA-256 of its text as the last field, `checksum`."""
    body = text.rstrip().removesuffix("}").rstrip().encode()
    return body + b',\n  "checksum": "' + _digest(body) + b'"\n}'


def without_checksum(data: bytes, where: str) -> bytes:
    """The object itself, once its checksum was verified. Files of earlier versions have none, and are taken as they are.

    Raises:
        CorruptFileError: it is not what was written; the message names `where`.
    """
    found = _CHECKSUM.search(data)
    if found is None:
        return data
    body = data[: found.start()]
    if _digest(body) != found[1]:
        raise CorruptFileError(
            f"{where} is not what was written: it is damaged, or was edited (its checksum differs). Restore it from a copy; "
            "if it was edited on purpose, delete its last field, checksum."
        )
    return body + b"\n}"


def reason_of(error: ValidationError, field: str, reads: int) -> str:
    """Why a file cannot be read: a newer version of this package wrote it, or whatever else does not fit.

    Arguments:
        field: that says which format the file has.
        reads: the format that can be read here.
    """
    for found in error.errors(include_url=False):
        if found["loc"] == (field,) and isinstance(found["input"], int) and found["input"] > reads:
            return (
                f"it was written by a newer version of this package (format {found['input']}; this one reads {reads}): upgrade"
            )
    return problems(error)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
