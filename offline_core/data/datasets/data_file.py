"""One Parquet file of a dataset: written under a temporary name, named by its content when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import footer_of
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import SchemaError
from offline_core.runtime.config import Config
from offline_core.runtime.units import ByteCount

Compression = Literal["zstd", "lz4", "snappy", "none"]
CHUNK_BYTES = 192
"""Upper bound on the metadata of one column of one row group, in pages and footer; long text may add to it."""


class FilesConfig(Config):
    """Size and compression of data files."""

    max_rows_per_file: int | None = Field(
        None, ge=1, description="Start a new file after this many rows (episodes, or steps of a table)."
    )
    max_bytes_per_file: ByteCount = Field(
        128 * 2**20,
        ge=2**16,
        description="Start a new file before it grows beyond this (128 MiB); only one episode alone may be larger.",
    )
    compression: Compression = Field("zstd", description="Parquet codec.")
    column_compression: dict[str, Compression] = Field(
        {},
        description='Another codec for some columns: {"obs": "lz4", "infos": "none"}.',
    )
    compression_level: int | None = Field(
        None, ge=1, le=22, description="For zstd; higher is smaller and slower to write. None: 1."
    )


class DataFile:
    """A Parquet file being written; an error removes it."""

    def __init__(self, root: Location, name: str, schema: pa.Schema, config: FilesConfig) -> None:
        self.root = root
        self.name = name
        self.uri = root.child(name).uri
        self.schema = schema
        self.rows = self.episodes = self.steps = 0
        self.footer_bytes = footer_bytes(schema)
        text = [field.name for field in schema if pa.types.is_string(field.type)]
        blobs = [field.name for field in schema if pa.types.is_binary(field.type)]
        codecs = _codecs(schema, config)
        with storage_errors("write", self.uri):
            self.file = root.store.new_file(root.child(name).path)
        self.sink = _HashingSink(self.file)
        with self._whole_or_gone():
            self.writer = pq.ParquetWriter(
                self.sink,
                schema,
                compression=codecs,
                compression_level={path: config.compression_level or 1 for path, codec in codecs.items() if codec == "zstd"},
                use_dictionary=text,
                write_statistics=[name for name in schema.names if name not in blobs],
                write_page_checksum=True,
            )

    def has_room(self, rows: pa.Table, config: FilesConfig) -> bool:
        too_many = config.max_rows_per_file is not None and self.rows + rows.num_rows > config.max_rows_per_file
        size = self.sink.tell() + self.footer_bytes + stored_bytes(rows)
        return not too_many and size <= config.max_bytes_per_file and rows.schema.equals(self.schema)

    def append(self, rows: pa.Table, lengths: Sequence[int] | np.ndarray = ()) -> None:
        """Adds a row group; `lengths` are those of the episodes in it, in steps."""
        with self._whole_or_gone():
            self.writer.write_table(rows, row_group_size=rows.num_rows)
        self.footer_bytes += chunk_bytes(self.schema)
        self.rows += rows.num_rows
        self.episodes += len(lengths)
        self.steps += int(sum(lengths))

    def finish(self) -> FileEntry:
        with self._whole_or_gone():
            self.writer.close()
            sha256 = self.sink.sha256.hexdigest()
            footer = footer_of(self.file, self.sink.tell())
            metadata = pq.read_metadata(pa.BufferReader(footer))
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            path = f"{self.name}-{sha256[:12]}.parquet"
            self.root.store.put_file(self.file, self.root.child(path).path)
        return FileEntry(
            path=path,
            rows=self.rows,
            episodes=self.episodes,
            steps=self.steps,
            bytes=self.sink.tell(),
            sha256=sha256,
            footer_sha256=hashlib.sha256(footer).hexdigest(),
            group_rows=[group.num_rows for group in groups],
            group_bytes=[group.total_byte_size for group in groups],
        )

    def abandon(self) -> None:
        with contextlib.suppress(Exception):  # the first error is the one to raise
            self.writer.close()
        self.root.store.discard(self.file)

    @contextlib.contextmanager
    def _whole_or_gone(self) -> Iterator[None]:
        try:
            with storage_errors("write", self.uri):
                yield
        except BaseException:
            self.abandon()
            raise


class _HashingSink:
    """A file object that hashes what it writes; closing it leaves the underlying file open."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.sha256 = hashlib.sha256()
        self.closed = False
        self._size = 0

    def write(self, data: Any) -> int:
        self.stream.write(data)
        self.sha256.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self.stream.flush()

    def close(self) -> None:
        self.closed = True


def _codecs(schema: pa.Schema, config: FilesConfig) -> dict[str, Compression]:
    """The codec of each leaf, by its path in Parquet (`obs.list.element`).

    Raises:
        SchemaError: the config names an unknown column.
    """
    if missing := sorted(config.column_compression.keys() - set(schema.names)):
        raise SchemaError(
            f"files.column_compression names the unknown column {missing[0]}; columns are {', '.join(schema.names)}. "
            "In episode format an episode is one value, the column item."
        )
    empty = io.BytesIO()
    pq.ParquetWriter(empty, schema).close()
    leaves = pq.read_metadata(empty).schema
    chosen = config.column_compression.items()
    return {
        path: next((codec for name, codec in chosen if f"{path}.".startswith(f"{name}.")), config.compression)
        for path in (leaves.column(number).path for number in range(len(leaves)))
    }


def stored_bytes(rows: pa.Table) -> int:
    """Upper bound on the bytes of `rows` in a file without its footer, uncompressed.

    Parquet has no integers below 32 bits, and stores where each list begins. Codecs add up to 1/128 to noise.
    """
    widening = 0.0
    for kind, count in _leaves(rows.schema):
        widening += count / 4 if count > 1 else 0
        widening += count * (4 - kind.byte_width) if pa.types.is_integer(kind) and kind.byte_width < 4 else 0
    return int((rows.nbytes + rows.num_rows * widening) * 129 / 128) + chunk_bytes(rows.schema)


def chunk_bytes(schema: pa.Schema) -> int:
    """Bytes that one more row group adds to a file besides its values."""
    return CHUNK_BYTES * sum(1 for _ in _leaves(schema))


def footer_bytes(schema: pa.Schema) -> int:
    """Upper bound on the footer of a file without rows: it has the schema with its metadata twice, once in base64."""
    return 3 * int(schema.serialize().size) + 1024


def _leaves(kinds: pa.Schema | pa.StructType) -> Iterator[tuple[pa.DataType, int]]:
    """(type, values a step) of each leaf."""
    for field in kinds:
        kind, count = field.type, 1
        while isinstance(kind, pa.BaseExtensionType) or pa.types.is_fixed_size_list(kind):
            if isinstance(kind, pa.BaseExtensionType):
                kind = kind.storage_type
            else:
                kind, count = kind.value_type, count * kind.list_size
        if pa.types.is_struct(kind):
            yield from _leaves(kind)
        else:
            yield kind, count
