"""What the messages of an Arrow file or stream declare, read without unpacking any of them.

Arrow's libraries allocate what a message declares before they unpack it, and a few kilobytes can declare gigabytes. Arrow
writes its metadata as FlatBuffers: a table finds its fields by offsets that another table, its vtable, lists.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from offline_core.data.formats.sources.expansion import Expansion

_MAGIC = b"ARROW1"
_FOOTER_END = struct.Struct(f"<i{len(_MAGIC)}s")
_CONTINUES = 0xFFFF_FFFF
"""Stands before the length of a message; not in files of Arrow before 0.15."""
_BLOCK = np.dtype([("offset", "<i8"), ("metadata_bytes", "<i4"), ("padding", "<i4"), ("body_bytes", "<i8")])
_NODE = np.dtype([("length", "<i8"), ("nulls", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
"""Kinds of messages that have values."""
_UNPACKED_PREFIX_BYTES = 8
"""A compressed buffer begins with its size when unpacked, or -1 if it is not compressed after all."""


def is_arrow_file(path: str) -> bool:
    """Whether it is a file of Arrow, and not a stream."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def check_arrow(path: str, expansion: Expansion) -> None:
    """Checks a file or stream of Arrow by the bytes and the values that each of its batches declares.

    Raises:
        UnsafeDataError: it unpacks to too much.
    """
    with (
        contextlib.suppress(OSError, ValueError, LookupError, OverflowError, struct.error),  # reading it raises the error
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        for message, body_at in _of_file(data) if is_arrow_file(path) else _of_stream(data):
            expansion.add(_unpacked_bytes(data, message, body_at))


class _Table(NamedTuple):
    """A table of FlatBuffers."""

    data: mmap.mmap
    at: int

    def field(self, number: int) -> int | None:
        """Return the position of a field; None if it is left out."""
        vtable = self.at - _int32(self.data, self.at)
        entry = 4 + 2 * number
        offset = _uint16(self.data, vtable + entry) if entry < _uint16(self.data, vtable) else 0
        return self.at + offset if offset else None

    def table(self, number: int) -> _Table | None:
        at = self.field(number)
        return None if at is None else _Table(self.data, at + _uint32(self.data, at))

    def structs(self, number: int, kind: np.dtype) -> np.ndarray:
        """A vector of structs; empty if it is left out."""
        at = self.field(number)
        if at is None:
            return np.zeros(0, kind)
        at += _uint32(self.data, at)
        count = _uint32(self.data, at)
        return np.frombuffer(self.data[at + 4 : at + 4 + count * kind.itemsize], kind, count)


def _of_file(data: mmap.mmap) -> Iterator[tuple[_Table, int]]:
    """(each message that the footer of a file lists, where its body begins)"""
    end = len(data) - _FOOTER_END.size
    footer_bytes, _ = _FOOTER_END.unpack_from(data, end)
    footer = _root(data, end - footer_bytes)
    for number in (2, 3):  # of dictionaries, and of rows
        for offset, metadata_bytes, _, _ in footer.structs(number, _BLOCK).tolist():
            yield _root(data, offset + (8 if _uint32(data, offset) == _CONTINUES else 4)), offset + metadata_bytes


def _of_stream(data: mmap.mmap) -> Iterator[tuple[_Table, int]]:
    """(each message of a stream, where its body begins)"""
    at = 0
    while at < len(data):
        at += 4 if _uint32(data, at) == _CONTINUES else 0
        metadata_bytes = _int32(data, at)
        if metadata_bytes <= 0:  # the end of the stream
            return
        message, body_at = _root(data, at + 4), at + 4 + metadata_bytes
        yield message, body_at
        body_bytes = message.field(3)
        at = body_at + max(0, 0 if body_bytes is None else _int64(data, body_bytes))


def _unpacked_bytes(data: mmap.mmap, message: _Table, body_at: int) -> int:
    """What the values of a message come to: their bytes, or one for each value where they have fewer."""
    kind, batch = message.field(1), message.table(2)
    if kind is None or batch is None or data[kind] not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return 0
    if data[kind] == _DICTIONARY_BATCH and (batch := batch.table(1)) is None:
        return 0
    is_compressed = batch.field(3) is not None
    size = values = 0
    for offset, length in batch.structs(2, _BUFFER).tolist():
        unpacked = _int64(data, body_at + offset) if is_compressed and length >= _UNPACKED_PREFIX_BYTES else -1
        size += max(0, length if unpacked < 0 else unpacked)
    for length, _ in batch.structs(1, _NODE).tolist():
        values += max(0, length)
    return max(size, values)


def _root(data: mmap.mmap, at: int) -> _Table:
    return _Table(data, at + _uint32(data, at))


def _uint16(data: mmap.mmap, at: int) -> int:
    return _number("<H", data, at)


def _uint32(data: mmap.mmap, at: int) -> int:
    return _number("<I", data, at)


def _int32(data: mmap.mmap, at: int) -> int:
    return _number("<i", data, at)


def _int64(data: mmap.mmap, at: int) -> int:
    return _number("<q", data, at)


def _number(format: str, data: mmap.mmap, at: int) -> int:
    """Raises:
    ValueError: the place is outside the file.
    """
    if at < 0:  # which would count from the end
        raise ValueError(f"{at} is before the file")
    number: int = struct.unpack_from(format, data, at)[0]
    return number
