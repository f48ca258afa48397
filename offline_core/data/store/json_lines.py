"""JSON lines, each with a checksum of its own: a file that grows, in which a damaged line is found."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from offline_core.errors import CorruptFileError

_CHECKSUM = re.compile(rb', "checksum": "([0-9a-f]{8})"\}')


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
    """The values of each line; None: it is damaged. Files of earlier versions have no checksums: if one line has, all have."""
    has_checksums = _CHECKSUM.search(data) is not None
    *lines, rest = data.split(b"\n")
    if rest.rstrip(b"\r").endswith(b"}") or _CHECKSUM.search(rest):  # all but the end of the line is there
        lines.append(rest)
    for line in lines:
        yield _values(line.rstrip(b"\r"), has_checksums)


def _values(line: bytes, has_checksums: bool) -> dict[str, Any] | None:
    match = _CHECKSUM.search(line)
    if match is None and (has_checksums or line.endswith(b'"}')):  # no number of earlier versions is a text
        return None
    if match is not None:
        body = line[: match.start()]
        if match.end() != len(line) or zlib.crc32(body) != int(match[1], 16):
            return None
        line = body + b"}"
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
