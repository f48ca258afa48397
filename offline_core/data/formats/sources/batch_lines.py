"""Read the lines of a file of SampleBatches, plain or compressed, with their numbers."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from offline_core.data.formats.sources.expansion import CountedStream, Expansion
from offline_core.data.store.cloud_errors import as_os_error
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import CorruptFileError, SchemaError

MAX_LINE_BYTES = 64 * 2**20
"""A line is parsed as a whole, which takes about ten times its size."""


def numbered_lines(location: Location, max_expansion: float) -> Iterator[tuple[str, bytes]]:
    """(position, text) of every line that is not blank."""
    with storage_errors("read", location.uri):
        expansion = Expansion(location.uri, location.filesystem.get_file_info(location.path).size, max_expansion)
    with _unpacking_errors(location.uri):
        if posixpath.splitext(location.path)[1].lower() != ".zip":
            with location.filesystem.open_input_stream(location.path) as stream:  # decompresses by the file's name
                yield from _numbered(_counted(stream, expansion), "")
            return
        try:
            with location.filesystem.open_input_file(location.path) as file, zipfile.ZipFile(file) as archive:
                for name in sorted(name for name in archive.namelist() if name.lower().endswith(".json")):
                    with archive.open(name) as member:
                        yield from _numbered(_counted(member, expansion), f"member {name}, ")
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, pa.ArrowException) as error:
            raise CorruptFileError(f"{location.uri} is a broken or encrypted zip file: {error}.") from error


@contextlib.contextmanager
def _unpacking_errors(uri: str) -> Iterator[None]:
    with storage_errors("read", uri):
        try:
            yield
        except OSError as error:
            if as_os_error(error) is None:  # raised by the decompressor, not the storage
                raise CorruptFileError(f"{uri} cannot be unpacked: {error}. Fetch it again, or leave it out.") from error
            raise


def _counted(stream: Any, expansion: Expansion) -> io.BufferedReader:
    return io.BufferedReader(CountedStream(stream, expansion))


def _numbered(stream: io.BufferedReader, place: str) -> Iterator[tuple[str, bytes]]:
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise CorruptFileError(f"{place}line {number} is longer than {MAX_LINE_BYTES:,} bytes; write shorter batches.")
        if not line:
            return
        if line.strip():
            yield f"{place}line {number}", line


def parsed(text: bytes) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        cut_off = "" if text.endswith(b"\n") else " The line is incomplete, as if its recorder was killed: delete it."
        raise CorruptFileError(f"Character {error.colno} is not JSON: {error.msg}.{cut_off}") from error
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8, a number of 5,000 digits, [[[[…
        raise CorruptFileError(f"The line is not JSON: {error}.") from error
    if not isinstance(record, dict):
        raise SchemaError(f"The line is a {type(record).__name__} and not a batch of steps.")
    return record
