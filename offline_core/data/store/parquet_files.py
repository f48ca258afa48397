"""Opening Parquet files, and their errors.

Each page of a dataset's file has a checksum, verified when the page is read; the manifest has the checksum of the footer. So
every part of a file is verified, whichever is read.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import as_os_error, storage_errors
from offline_core.errors import CorruptFileError

_TAIL_BYTES = 64 * 2**10
"""More than most footers, so that one request reads them."""
_END_BYTES = 8
"""The length of the footer, and the magic number."""


def read_footer(location: Location, sha256: str | None = None) -> pq.FileMetaData:
    """Return the footer of a Parquet file.

    Arguments:
        sha256: the footer's digest in the manifest; None: unknown, as for imported files.

    Raises:
        CorruptFileError: the file is truncated, is not Parquet, or its footer is not the one that was written.
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
    """Open a Parquet file; pages with checksums are verified when they are read.

    Arguments:
        footer: from `read_footer`; None: read it.

    Raises:
        CorruptFileError: the file is truncated, or is not Parquet.
        UnsafeDataError: reading a column could run code, see `refuse_extension_types`.
    """
    with parquet_errors(location.uri):
        file = pq.ParquetFile(
            location.path,
            filesystem=location.filesystem,
            metadata=footer,
            pre_buffer=not location.is_local,  # one request for adjacent columns
            page_checksum_verification=True,
        )
    try:
        refuse_extension_types(file.schema_arrow, location.uri)
    except BaseException:
        file.close(force=True)
        raise
    return file


def footer_of(file: IO[bytes] | pa.NativeFile, size: int) -> bytes:
    """Return the bytes of a Parquet footer, with the length and the magic number after it."""
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if length > min(size, len(tail)):
        file.seek(max(0, size - length))
        tail = file.read(length)
    return tail[-length:]


@contextlib.contextmanager
def parquet_errors(uri: str) -> Iterator[None]:
    """Turn errors of reading a Parquet file into a `StorageError` if the storage failed, else a `CorruptFileError`."""
    try:
        yield
    except Exception as error:
        if as_os_error(error) is not None:
            with storage_errors("read", uri):
                raise
        if not isinstance(error, OSError | pa.ArrowException):  # Arrow's decoders raise OSError, too
            raise
        raise CorruptFileError(
            f"{uri} is no readable Parquet file (truncated or damaged?): {str(error).strip()}. Restore it from a copy, "
            "or make it again.",
            uri=uri,
        ) from error
