"""Refuse archive bombs: files that unpack to thousands of times their size.

Formats that declare sizes are checked before anything is read, others while they are unpacked.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, UnsafeDataError

MAX_EXPANSION = 100
"""Recordings compress 2 to 20 times, sparse images 50 times; a bomb 1,000 times and more."""
FLOOR_BYTES = 64 * 2**20
"""Files that unpack to less are never refused."""
COLUMNAR = 10
"""Parquet and Arrow store a repeated value once before they compress, so they may expand this much more."""
MAX_HEADER_BYTES = 2**20
"""A longer first line of CSV has more columns than can be read."""

_READ_BYTES = 2**20
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


@dataclass
class Expansion:
    """Counts the bytes that one file unpacks to."""

    uri: str
    file_bytes: int
    max_expansion: float = MAX_EXPANSION
    unpacked: int = 0

    @property
    def limit(self) -> int:
        return max(FLOOR_BYTES, int(self.file_bytes * self.max_expansion))

    def add(self, size: int) -> None:
        """Counts bytes that are about to be unpacked, or just were.

        Raises:
            UnsafeDataError: the file unpacks to more than the limit.
        """
        self.unpacked += size
        if self.unpacked > self.limit:
            raise UnsafeDataError(
                f"{self.uri} has {self.file_bytes:,} bytes and unpacks to more than {self.limit:,}, like an archive "
                "bomb. If you trust it, raise source.max_expansion, or unpack it first."
            )


def check_text(file: Location, expansion: Expansion, *, line_end: bytes | None) -> None:
    """Unpacks a text file, compressed or not, without keeping it. As in Polars, its first bytes name the codec.

    Arguments:
        line_end: must occur in the first `MAX_HEADER_BYTES`; None: no check.

    Raises:
        UnsafeDataError: it unpacks to too much.
        CorruptFileError: the first line is too long.
    """
    with file.filesystem.open_input_file(file.path) as stream:
        head = b""
        for data in _unpacked(stream):
            if expansion.unpacked < MAX_HEADER_BYTES:
                head += data[: MAX_HEADER_BYTES - len(head)]
            expansion.add(len(data))
            if len(head) == MAX_HEADER_BYTES and line_end is not None and line_end not in head:
                raise CorruptFileError(
                    f"The first line of {expansion.uri} is longer than {MAX_HEADER_BYTES:,} bytes, so it is not a CSV "
                    "header. Check its line ends, and source.format."
                )


def check_parquet(file: Location, expansion: Expansion) -> None:
    """Checks a Parquet file by its footer: the values and bytes of pages that it declares.

    Raises:
        UnsafeDataError: it unpacks to too much.
    """
    try:
        footer = pq.read_metadata(file.path, filesystem=file.filesystem)
    except (OSError, pa.ArrowException):
        return  # reading it raises the error
    check_footer(footer, expansion)


def check_footer(footer: pq.FileMetaData, expansion: Expansion) -> None:
    """Checks a Parquet file by its footer, see `check_parquet`.

    Raises:
        UnsafeDataError: it unpacks to too much.
    """
    for i in range(footer.num_row_groups):
        group = footer.row_group(i)
        for column in map(group.column, range(group.num_columns)):
            values = column.num_values * _VALUE_BYTES.get(column.physical_type, 1)
            expansion.add(max(values, column.total_uncompressed_size, 0))


def check_hdf5(file: Any, expansion: Expansion) -> None:
    """Checks an open HDF5 file by its links and the shapes that it declares.

    Raises:
        UnsafeDataError: it unpacks to too much, refers to other files, or has several names for one array or group.
    """
    import h5py

    elsewhere: list[str] = []
    again: list[str] = []
    objects = set[Any]()

    def look_at_link(name: bytes, info: Any) -> None:
        if info.type == h5py.h5l.TYPE_EXTERNAL:
            elsewhere.append(name.decode(errors="replace"))
            return
        with contextlib.suppress(KeyError, ValueError):  # a link to nothing, which reading it tells
            address = h5py.h5o.get_info(h5py.h5o.open(file.id, name)).addr
            if address in objects:
                again.append(name.decode(errors="replace"))
            objects.add(address)

    def look_at(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.is_virtual or item.external:
            elsewhere.append(name)
        shape, chunks = item.shape or (), item.chunks or ()  # a chunk is unpacked as a whole, and may be larger than the array
        expansion.add(max(math.prod(shape), math.prod(chunks)) * item.dtype.itemsize)

    file.id.links.visit(look_at_link, info=True)
    file.visititems(look_at)
    if again:
        raise UnsafeDataError(
            f"{expansion.uri} has several names for {', '.join(again[:5])}, each of which would be read. Copy the data "
            "into one file without links."
        )
    if elsewhere:
        raise UnsafeDataError(
            f"{expansion.uri} refers to other files for {', '.join(elsewhere[:5])}; they are not read. "
            "Copy the data into one file."
        )


def _unpacked(stream: IO[bytes]) -> Iterator[bytes]:
    """The bytes in a file that is compressed by gzip, zlib or zstd; of other files only the first ones.

    It ends silently at damage, which reading the file reports.
    """
    head = stream.read(_READ_BYTES)
    stream.seek(0)
    codec = {b"\x1f\x8b": "gzip", b"\x28\xb5": "zstd"}.get(head[:2])
    try:
        if codec is not None:
            unpacked = pa.CompressedInputStream(stream, codec)
            while data := unpacked.read(_READ_BYTES):
                yield data
        elif head[:2] in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"):
            unpacker = zlib.decompressobj()
            while not unpacker.eof and (packed := unpacker.unconsumed_tail or stream.read(_READ_BYTES)):
                yield unpacker.decompress(packed, _READ_BYTES)
        else:
            yield head
    except (OSError, zlib.error):
        return
