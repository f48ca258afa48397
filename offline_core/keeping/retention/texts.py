"""Names of what was forgotten in other files than data: replaced on cards and in conditions, and found everywhere."""

from __future__ import annotations

import contextlib
import functools
import gzip
import html
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.keeping.contents import Contents

MIN_LENGTH = 4
"""Shorter names are in any text by chance."""
BLOCK_BYTES = 8 * 2**20
FORGOTTEN = b"(forgotten)"
_CARD = re.compile(r"(?:.*/)?(?:_cards/[^/]+|card)\.(?:md|html|svg)")
"""Files that are for people alone: no program reads them, so words in them can be replaced."""
_CONDITIONS = ("where", "where_steps", "expression")
"""Parameters that hold conditions: of prunings, sources, guardrails."""
_LITERAL = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True)
class Names:
    """What must not stand anywhere any more: ids, and the texts of the condition."""

    names: tuple[bytes, ...]
    """Plain, and as JSON and HTML write them; the longest first."""

    @classmethod
    def of(cls, ids: Iterable[str], where: str) -> Names:
        literals = (match.replace("''", "'") for match in _LITERAL.findall(where))
        plain = {name for name in (*ids, *literals) if len(name) >= MIN_LENGTH}
        written = {form.encode() for name in plain for form in (name, json.dumps(name)[1:-1], html.escape(name))}
        return cls(tuple(sorted(written, key=lambda name: (-len(name), name))))

    @functools.cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        """Whole words: `p-17` is no part of `p-170`. Without names it matches nothing."""
        words = b"|".join(map(re.escape, self.names)) or rb"(?!)"
        return re.compile(rb"(?<![A-Za-z0-9_])(?:" + words + rb")(?![A-Za-z0-9_])")

    def stand_in(self, file: Location) -> bool:
        """Whether a file holds a name: its bytes do, or what gzip and Parquet unpack them to."""
        overlap = 2 + max(map(len, self.names), default=0)
        return bool(self.names) and any(data in self for data in unpacked(file, overlap))

    def __contains__(self, data: object) -> bool:
        return isinstance(data, bytes) and self._pattern.search(data) is not None

    def removed(self, data: bytes) -> bytes:
        """The same text with other words in their place."""
        return self._pattern.sub(FORGOTTEN, data)

    def redacted(self, value: Any, *, everywhere: bool) -> Any:
        """A JSON value whose texts lost the names: all texts, or those of conditions alone.

        Names of operations, files, columns and categories stay as they are: programs go by them.
        """
        match value:
            case str():
                return self.removed(value.encode()).decode() if everywhere else value
            case dict():
                inside = {key: everywhere or key in _CONDITIONS for key in value}
                return {key: self.redacted(inner, everywhere=inside[key]) for key, inner in value.items()}
            case list():
                return [self.redacted(inner, everywhere=everywhere) for inner in value]
        return value


def mentions(contents: Contents, names: Names) -> tuple[list[str], list[str]]:
    """(cards that hold a name, other files that do), relative to the root; neither data nor manifests of datasets."""
    own = {f"{name}/{file}" if name else file for name in contents.datasets for file in contents.files_of(name)}
    for name, known in contents.datasets.items():
        late = (file.path for dataset in known for file in dataset.manifest.all_files)
        own |= {f"{name}/{path}" if name else path for path in late}
    cards: list[str] = []
    others: list[str] = []
    for file in sorted(contents.catalogue.files):
        if file not in own and "_versions/" not in file and names.stand_in(contents.root.child(file)):
            (cards if _CARD.fullmatch(file) else others).append(file)
    return cards, others


def unpacked(file: Location, overlap_bytes: int) -> Iterator[bytes]:
    """The bytes of a file block by block, and what they unpack to: of gzip all, of Parquet each text once.

    Arguments:
        overlap_bytes: of each block with the one before, so that no name is cut.
    """
    with storage_errors("read", file.uri), file.filesystem.open_input_file(file.path) as stream:
        start = stream.read(4)
        stream.seek(0)
        yield from _blocks(stream, overlap_bytes)
        stream.seek(0)
        with _until_damage():
            if start[:2] == b"\x1f\x8b":
                yield from _blocks(gzip.GzipFile(fileobj=stream), overlap_bytes)
            elif start == b"PAR1":
                for batch in pq.ParquetFile(stream).iter_batches():
                    for column in batch.columns:
                        yield from _texts(column)


@contextlib.contextmanager
def _until_damage() -> Iterator[None]:
    """Ends where a file is damaged, or of another kind than it begins like; fails where it cannot be read."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException):
        pass
    except OSError as error:
        if error.errno is not None:  # PyArrow has none for what it cannot decompress
            raise


def _blocks(stream: Any, overlap_bytes: int) -> Iterator[bytes]:
    block = b""
    while more := stream.read(BLOCK_BYTES):
        block = block[-overlap_bytes:] + more
        yield block


def _texts(column: pa.Array) -> Iterator[bytes]:
    """The texts in a column, however deep they lie in lists and structs."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _texts(column.storage)
    elif pa.types.is_dictionary(kind):
        yield from _texts(column.dictionary)
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _texts(child)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _texts(column.flatten())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        yield from (text if isinstance(text, bytes) else text.encode() for text in column.drop_null().unique().to_pylist())


def rewrite(contents: Contents, card: str, names: Names) -> None:
    """Replace the names on a card."""
    file = contents.root.child(card)
    file.write(names.removed(file.read()))
