"""What the blocks of an Avro file come to: Polars reads such a file as a whole, and has no limit.

A block says how many rows it has, not how many bytes; so blocks are unpacked here, piece by piece, and not kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any

from offline_core.data.formats.sources.expansion import Expansion
from offline_core.errors import UnsafeDataError

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_PIECE_BYTES = 2**20
_BROKEN = (EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error)
"""What looking at a damaged one raises."""


def check_avro(path: str, expansion: Expansion) -> None:
    """Checks an Avro file by the rows that its blocks declare, and by the bytes that they unpack to.

    Raises:
        UnsafeDataError: it unpacks to too much, or its schema has values without bytes, of which any number fits.
    """
    with contextlib.suppress(*_BROKEN), open(path, "rb") as file:  # reading raises the error
        if file.read(len(_MAGIC)) != _MAGIC:
            return
        header = dict(_pairs(file))
        file.read(_SYNC_BYTES)
        if (name := _of_nothing(json.loads(header[b"avro.schema"]))) is not None:
            raise UnsafeDataError(
                f"{expansion.uri} has lists in {name!r} whose values take no bytes, so that it may unpack to any size. Write "
                "the file without them."
            )
        while (rows := _long(file, is_end=True)) is not None:
            packed = _bytes(file)
            expansion.add(max(0, rows))
            for size in _unpacked_sizes(packed, header.get(b"avro.codec", b"null")):
                expansion.add(size)
            file.read(_SYNC_BYTES)


def _pairs(file: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A map of bytes, as headers have it: in blocks that say their length, the last of which is empty."""
    while count := _long(file):
        if count < 0:  # then its bytes follow
            _long(file)
        for _ in range(abs(count)):
            yield _bytes(file), _bytes(file)


def _bytes(file: IO[bytes]) -> bytes:
    """Raises:
    EOFError: there are fewer than it says.
    """
    size = _long(file) or 0
    if not 0 <= size <= os.fstat(file.fileno()).st_size - file.tell():
        raise EOFError
    return file.read(size)


def _long(file: IO[bytes], *, is_end: bool = False) -> int | None:
    """A number as Avro writes it: seven bits a byte, the sign in the lowest.

    Arguments:
        is_end: the file may end here; then it is None.
    """
    value = shift = 0
    while True:
        byte = file.read(1)
        if not byte and is_end and shift == 0:
            return None
        if not byte or shift > 63:
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7


def _unpacked_sizes(packed: bytes, codec: bytes) -> Iterator[int]:
    """Yield sizes of pieces that add up to the unpacked size of a block; Polars knows no other codecs."""
    if codec == b"deflate":
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        while not unpacker.eof and packed:
            yield len(unpacker.decompress(packed, _PIECE_BYTES))
            packed = unpacker.unconsumed_tail
    elif codec == b"snappy":  # begins with its size when unpacked
        yield sum((byte & 0x7F) << 7 * position for position, byte in enumerate(_preamble(packed)))
    else:
        yield len(packed)


def _preamble(packed: bytes) -> Iterator[int]:
    for byte in packed[:5]:
        yield byte
        if byte < 0x80:
            return


def _of_nothing(schema: Any, inside: str = "") -> str | None:
    """Return the name of a field with lists or maps of values that take no bytes; None if there is none."""
    if isinstance(schema, list):
        return next(filter(None, (_of_nothing(branch, inside) for branch in schema)), None)
    if not isinstance(schema, dict):
        return None
    for field in schema.get("fields", ()):
        if (name := _of_nothing(field.get("type"), str(field.get("name")))) is not None:
            return name
    for values in (schema.get("items"), schema.get("values")):
        if values is not None and (_takes_nothing(values) or _of_nothing(values, inside) is not None):
            return inside
    return _of_nothing(schema["type"], inside) if isinstance(schema.get("type"), dict | list) else None


def _takes_nothing(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return bool(schema == "null")
    kind = schema.get("type")
    if kind == "record":
        return all(_takes_nothing(field.get("type")) for field in schema.get("fields", ()))
    return bool(kind == "fixed" and schema.get("size") == 0) or _takes_nothing(kind)
