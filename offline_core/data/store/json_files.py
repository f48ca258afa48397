"""JSON files of this package: without secrets, and each ends with a checksum of the bytes before it, verified at each read.

In a file of JSON lines, which grows, each line has a checksum of its own, so that a damaged line is found.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from offline_core.errors import CorruptFileError
from offline_core.runtime.parameter_errors import problems
from offline_core.secrets import masked

_CHECKSUM = re.compile(rb',\s*"checksum":\s*"([^"]*)"\s*\}\s*$')
_LINE_CHECKSUM = re.compile(rb', "checksum": "([0-9a-f]{8})"\}')


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


def line_of(values: Mapping[str, Any]) -> bytes:
    """Numbers by name as a line, whose last field is the CRC-32 of the text before it."""
    body = json.dumps(values).encode()[:-1]
    return body + b', "checksum": "%08x"}\n' % zlib.crc32(body)


def read_lines(data: bytes, where: str) -> list[dict[str, Any]]:
    """The values of all lines, without a last one that is cut off, of a writer that is at work or was killed.

    Arguments:
        where: URI of the file.

    Raises:
        CorruptFileError: a line is not what was written.
    """
    lines = []
    for number, values in enumerate(whole_lines(data), start=1):
        if values is None:
            raise CorruptFileError(
                f"{where} is not what was written: line {number} is damaged, or was edited. Restore it from a copy.", uri=where
            )
        lines.append(values)
    return lines


def whole_lines(data: bytes) -> Iterator[dict[str, Any] | None]:
    """The values of each line; None: it is damaged."""
    *lines, rest = data.split(b"\n")
    if _LINE_CHECKSUM.search(rest):  # all but the end of the line is there
        lines.append(rest)
    for line in lines:
        yield _line_values(line.rstrip(b"\r"))


def _line_values(line: bytes) -> dict[str, Any] | None:
    match = _LINE_CHECKSUM.search(line)
    if match is None or match.end() != len(line):
        return None
    body = line[: match.start()]
    if zlib.crc32(body) != int(match[1], 16):
        return None
    try:
        values = json.loads(body + b"}")
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
