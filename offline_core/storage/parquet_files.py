"""Parquet files, and what is wrong with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.errors import CorruptFileError
from offline_core.storage.cloud_errors import as_os_error
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors


def read_footer(location: Location) -> pq.FileMetaData:
    """The footer of one Parquet file.

    Raises:
        CorruptFileError: it is truncated or no Parquet file.
    """
    with parquet_errors(location.uri):
        return pq.read_metadata(location.path, filesystem=location.filesystem)


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
            f"{uri} is no readable Parquet file (truncated?): {str(error).strip()}. Delete or replace it."
        ) from error
