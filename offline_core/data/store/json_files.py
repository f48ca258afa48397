"""JSON files of this package: without secrets, and each ends with a checksum of the bytes before it, verified at each read."""

from __future__ import annotations

import hashlib
import json
import re

from pydantic import ValidationError

from offline_core.errors import CorruptFileError
from offline_core.runtime.parameter_errors import problems
from offline_core.secrets import masked

_CHECKSUM = re.compile(rb',\s*"checksum":\s*"([^"]*)"\s*\}\s*$')


def with_checksum(text: str) -> bytes:
    """Append the SHA-256 of the text to a JSON object, as its last field `checksum`; secrets in it are masked."""
    text = without_secrets(text)
    body = text.rstrip().removesuffix("}").rstrip().encode()
    return body + b',\n  "checksum": "' + _digest(body) + b'"\n}'


def without_secrets(text: str) -> str:
    """The same JSON with secrets masked; text without any stays as it is, to the last blank."""
    values = json.loads(text)
    told = masked(values)
    return text if told == values else json.dumps(told, indent=2)


def without_checksum(data: bytes, where: str, *, is_required: bool = False) -> bytes:
    """Verify and remove the checksum; files of earlier versions have none.

    Arguments:
        where: the URI of the file.
        is_required: a file without a checksum is an edited one.

    Raises:
        CorruptFileError: the file is not what was written.
    """
    field = data.rfind(b'"checksum"')
    match = None if field < 0 else _CHECKSUM.match(data, data.rfind(b",", 0, field))
    if match is None and not is_required:
        return data
    body = data if match is None else data[: match.start()]
    if match is None or _digest(body) != match[1]:
        differs = "is missing or differs" if is_required else "differs"
        advice = "" if is_required else "; if it was edited on purpose, delete its last field, checksum"
        raise CorruptFileError(
            f"{where} is not what was written: it is damaged, or was edited (its checksum {differs}). Restore it from a copy"
            f"{advice}.",
            uri=where,
        )
    return body + b"\n}"


def reason_of(error: ValidationError, field: str, reads: int) -> str:
    """Describe why a file cannot be read: another version of this package wrote it, or its fields are wrong.

    Arguments:
        field: holds the format of the file.
        reads: the newest format that this version reads.
    """
    for problem in error.errors(include_url=False):
        if problem["loc"] == (field,) and isinstance(format := problem["input"], int):
            if format > reads:
                return f"it was written by a newer version of this package (format {format}; this one reads {reads}): upgrade"
            return f"it was written by an older version of this package (format {format}; this one reads {reads})"
    return problems(error)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
