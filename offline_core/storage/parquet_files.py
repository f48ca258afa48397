"""Parquet files: how they are opened, and what is wrong with them.

A dataset's file has a checksum in each page, verified whenever the page is read, and the manifest has that of its footer: what
is read is what was written, whichever part of a file is read.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.errors import CorruptFileError
from offline_core.storage.cloud_errors import as_os_error
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors

_TAIL_BYTES = 64 * 2**10
"""Most footers are smaller: one request is enough for them."""
_END_BYTES = 8
"""The length of the footer, and the magic number."""


class _Seekable(Protocol):
    def seek(self, offset: int, whence: int = 0, /) -> int: ...

    def read(self, size: int, /) -> bytes: ...


def read_footer(location: Location, sha256: str | None = None) -> pq.FileMetaData:
    """The footer of one Parquet file.

    Arguments:
        sha256: what the manifest says of it; None: not known, as of files of others.

    Raises:
        CorruptFileError: it is truncated, no Parquet file, or its footer is not the one that was written.
    """
    with parquet_errors(location.uri):
        if sha256 is None:
            return pq.read_metadata(location.path, filesystem=location.filesystem)
        with location.filesystem.open_input_file(location.path) as file:
            footer = footer_of(file, file.size())
        if hashlib.sha256(footer).hexdigest() != sha256:
            raise pa.ArrowInvalid("its footer is not the one that was written")
        return pq.read_metadata(pa.BufferReader(footer))


def open_parquet(location: Location, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """One Parquet file, whose pages are verified when they are read, as far as they have checksums.

    Arguments:
        footer: see `read_footer`; None: it is read.
    """
    far = not location.is_local  # then columns that lie side by side are asked for at once
    with parquet_errors(location.uri):
        return pq.ParquetFile(
            location.path,
            filesystem=location.filesystem,
            metadata=footer,
            pre_buffer=far,
            page_checksum_verification=True,
        )


def footer_of(file: _Seekable, size: int) -> bytes:
    """The bytes of the footer of a Parquet file, with the length and the magic number behind it."""
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if length > min(size, len(tail)):
        file.seek(max(0, size - length))
        tail = file.read(length)
    return tail[-length:]


@contextlib.contextmanager
def parquet_errors(uri: str) -> Iterator[None]:
    """Turns what reading a Parquet file raises into a `StorageError` if the place is to blame, else a `CorruptFileError`."""
    try:
        yield
    except Exception as error:
        if as_os_error(error) is not None:
            with storage_errors("read", uri):
                raise
        if not isinstance(error, OSError | pa.ArrowException):  # Arrow's decoders raise OSError, too
            raise
        raise CorruptFileError(
            f"{uri} is no readable Parquet file (truncated or damaged?): {str(error).strip()}. Delete or replace it."
        ) from error
