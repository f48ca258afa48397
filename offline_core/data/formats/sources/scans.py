"""Read Parquet, Arrow IPC and Avro by lazy frames of Polars, with columns and row filter pushed down."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.episodes.codecs import CODECS, codec_of
from offline_core.data.episodes.spaces import stated_spaces
from offline_core.data.formats.sources.arrow_messages import check_arrow, is_arrow_file
from offline_core.data.formats.sources.avro_blocks import check_avro
from offline_core.data.formats.sources.episode_rows import may_hold_episodes, steps_in
from offline_core.data.formats.sources.expansion import COLUMNAR, Expansion, check_parquet
from offline_core.data.formats.sources.first_rows import FIRST_ROWS, first_batch, rows_to_read
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.local_copy import local_file
from offline_core.data.formats.sources.readers import BATCH_BYTES, SOURCE_ROW, FileReader, reader
from offline_core.data.formats.sources.step_reader import Unreadable, with_note
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import read_footer
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import ConfigError, CorruptFileError, SchemaError, first_line
from offline_core.runtime.sql import shown, sql_condition

_MEASURED_ROWS = 1000
"""Rows that are measured to choose the rows of a batch."""
FILE_PATHS = "include_file_paths"
"""The argument that names a column for the URI of the file."""
OF_SCANS = f"n_rows low_memory {FILE_PATHS}"
_PARQUET = (".parquet", ".pq", ".parq")


class FrameReader(FileReader):
    """Reads a lazy frame of Polars; a row may be a step, or an episode with a list of steps in its columns."""

    pushes: ClassVar[tuple[str, ...]] = ("columns", "where")
    takes_others: ClassVar[bool] = True
    is_text: ClassVar[bool] = False

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`; with the column `SOURCE_ROW`."""
        return steps_in(self.read(), self.uri, self.columns)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """See `FileReader`; a panic of Polars is no `Exception`."""
        with super().reading():
            try:
                yield
            except pl.exceptions.PanicException as error:
                raise self.corrupt(self.told(error)) from error

    def frames(
        self, rows: pl.LazyFrame, present: pl.Schema, numbers: tuple[str, ...] = (), expansion: Expansion | None = None
    ) -> Iterator[pl.DataFrame]:
        """The chosen columns and rows, in batches of moderate size.

        Arguments:
            present: the columns of the file.
            numbers: a column of `rows` besides these.
        """
        added = self._added(present)
        schema = pl.Schema({**present, **pl.LazyFrame().select(**added).collect_schema()})
        wanted = list(schema) if self.columns is None else list(self.columns)
        if missing := sorted(set(wanted) - set(schema)):
            raise SchemaError(f"{self.uri} has no column {', '.join(missing)}; it has {', '.join(schema)}.", uri=self.uri)
        if may_hold_episodes(schema):
            wanted = list(schema)  # what is not chosen says which rows are episodes
        rows = rows.with_columns(**added)
        measured = rows.select(*numbers, *wanted).head(_MEASURED_ROWS).collect()
        refuse_extension_types(measured.clear().to_arrow().schema, self.uri)
        size = frame_bytes(measured)
        if expansion is not None:
            expansion.add(size)
        if not self.is_text and self.where is None and measured.height < _MEASURED_ROWS and size <= BATCH_BYTES:
            yield measured  # all rows: RLlib writes thousands of such files
            return
        if self.where is not None:
            rows = rows.filter(condition_on(self.where, schema, self.uri))
        width = max(1, size // max(1, measured.height))
        for batch in rows.select(*numbers, *wanted).collect_batches(
            chunk_size=max(1, BATCH_BYTES // width), maintain_order=True
        ):
            if expansion is not None:
                expansion.add(frame_bytes(batch))
            yield batch

    def _added(self, present: Collection[str]) -> dict[str, pl.Expr]:
        """Columns to add that the file lacks."""
        values = {name: value for name, value in self.partition.items() if name not in present}
        if (name := self.arguments.get(FILE_PATHS)) is not None:
            if not isinstance(name, str) or name in present or name in values:
                raise ConfigError(f"{FILE_PATHS} is {name!r}; it must be a name that no column of {self.uri} has.")
            values[name] = self.uri
        return {name: pl.lit(value, pl.Int64 if isinstance(value, int) else pl.String) for name, value in values.items()}


class ScannedFile(FrameReader):
    """One file; only the chosen columns and the row groups that can meet the condition are read.

    A remote file is copied to a local disk first, as Polars does not support all filesystems. Arguments are those of Polars'
    scan function; `include_file_paths` names a column for the URI.
    """

    def scan(self, path: str, **arguments: Any) -> pl.LazyFrame:
        """The rows of a local file, lazily."""
        raise NotImplementedError

    def check_expansion(self, file: Location, expansion: Expansion) -> None:
        """Checks the expansion before Polars allocates memory."""

    def check_columns(self, path: str, schema: pl.Schema) -> None:
        """Checks the expansion by the columns that all rows will have."""

    def stated(self, path: str) -> dict[bytes, bytes] | None:
        """The spaces that the file states."""
        return None

    def read(self) -> Iterator[pa.Table | Unreadable]:
        """See `FileReader`; with the column `SOURCE_ROW`."""
        with local_file(self.location) as file:
            with storage_errors("read", self.uri):
                self.check_expansion(file, self.expansion(file.path))
            yield from self.tables(file.path)

    def expansion(self, path: str) -> Expansion:
        columnar = 1 if self.is_text else COLUMNAR
        return Expansion(self.uri, os.path.getsize(path), self.max_expansion * columnar)

    def tables(self, path: str) -> Iterator[pa.Table]:
        """The rows of a local file."""
        with self.reading():
            schema = self._scanned(path, self.scan_arguments).collect_schema()
            if SOURCE_ROW in schema:
                raise SchemaError(f"{self.uri} has a column {SOURCE_ROW}, a reserved name; rename it in the file.")
            self.check_columns(path, schema)
            spaces = self.stated(path)
            known = {"schema": schema} if self.is_text else {}  # otherwise Polars infers it again from all rows
            rows = self._scanned(path, {**self.scan_arguments, **known, "row_index_name": SOURCE_ROW})
            rows, schema, note = self.understood(rows, schema)
            for batch in self.frames(rows, schema, (SOURCE_ROW,), None if self.is_text else self.expansion(path)):
                if batch.height:
                    table = batch.to_arrow().replace_schema_metadata(spaces)
                    yield table if note is None else with_note(table, note)

    def understood(self, rows: pl.LazyFrame, schema: pl.Schema) -> tuple[pl.LazyFrame, pl.Schema, str | None]:
        """(the rows with texts that can only be numbers as such, their columns, a sentence on them; None: there are none)."""
        large = [name for name, kind in schema.items() if kind in (pl.Int128, pl.UInt128)]
        if not large:
            return rows, schema, None
        texts = dict[str, Any](dict.fromkeys(large, pl.String))
        note = (
            f"Whole numbers of {' and '.join(large)} are beyond what 64 bits hold: they are read as texts. To have real "
            f"numbers, of some 16 digits: source: {{arguments: {{schema_overrides: {{{json.dumps(large[0])}: Float64}}}}}}."
        )
        return rows.with_columns(pl.col(large).cast(pl.String)), pl.Schema({**schema, **texts}), note

    @property
    def scan_arguments(self) -> dict[str, Any]:
        """Arguments for Polars, without the one that would give the path of a local copy."""
        return {name: value for name, value in self.arguments.items() if name != FILE_PATHS}

    @contextlib.contextmanager
    def cut(self) -> Iterator[tuple[Self, bool]]:
        """See `FileReader.cut`; one row more than needed shows whether the file has more."""
        yield dataclasses.replace(self, arguments={**self.arguments, "n_rows": FIRST_ROWS + 1}), False

    def _scanned(self, path: str, arguments: Mapping[str, Any]) -> pl.LazyFrame:
        try:
            return self.scan(path, **arguments)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise ConfigError(f"polars.scan_{self.format} does not take these arguments: {self.told(error)}.") from error


@reader(
    "parquet",
    suffixes=_PARQUET,
    arguments=f"{OF_SCANS} hive_partitioning parallel use_statistics missing_columns extra_columns",
)
@dataclass(frozen=True)
class ParquetFile(ScannedFile):
    """Many small ones are read at a time, see `small_files`."""

    def scan(self, path: str, **arguments: Any) -> pl.LazyFrame:
        return pl.scan_parquet(path, glob=False, **arguments)

    def check_expansion(self, file: Location, expansion: Expansion) -> None:
        check_parquet(file, expansion)

    def stated(self, path: str) -> dict[bytes, bytes] | None:
        return stated_spaces(pq.read_metadata(path).metadata)  # which Polars drops

    @contextlib.contextmanager
    def cut(self) -> Iterator[tuple[Self, bool]]:
        rows = rows_to_read(self.location)
        if rows is None:
            yield self, False
            return
        with first_batch(self.location, rows) as file:
            yield dataclasses.replace(self, location=file), True


def _holds_episodes(file: Location) -> bool:
    return codec_of(read_footer(file).schema.to_arrow_schema()) is CODECS[EPISODES]


EPISODES = "episodes"


@reader(EPISODES, suffixes=_PARQUET, content=_holds_episodes)
class EpisodeFile(FileReader):
    """Parquet with an episode a row in column `item`. It is no format of steps: an import reads it itself."""

    pushes: ClassVar[tuple[str, ...]] = ("columns", "where")
    takes_others: ClassVar[bool] = True  # what makes sense for steps alone is refused by the import

    def read(self) -> Iterator[pa.Table]:
        raise ConfigError(f"{self.uri} holds episodes and not steps.")


_OF_ARROW = f"{OF_SCANS} hive_partitioning"


@reader("ipc", suffixes=(".arrow", ".arrows", ".feather", ".ipc"), arguments=_OF_ARROW)
@dataclass(frozen=True)
class ArrowFile(ScannedFile):
    """Files and streams of Arrow; Polars scans files only, and reads streams as a whole."""

    def scan(self, path: str, **arguments: Any) -> pl.LazyFrame:
        if is_arrow_file(path):
            return pl.scan_ipc(path, glob=False, **arguments)
        rows = pl.read_ipc_stream(path, n_rows=arguments.pop("n_rows", None)).lazy()
        return _numbered(rows, **arguments)

    def check_expansion(self, file: Location, expansion: Expansion) -> None:
        check_arrow(file.path, expansion)


def _numbered(rows: pl.LazyFrame, *, row_index_name: str | None = None) -> pl.LazyFrame:
    return rows if row_index_name is None else rows.with_row_index(row_index_name)


_DATASET, _SPLITS, _STATE = "dataset_info.json", "dataset_dict.json", "state.json"


def _is_saved(names: Collection[str]) -> bool:
    return _SPLITS in names or (_DATASET in names and any(name.endswith(".arrow") for name in names))


@reader("huggingface", arguments=_OF_ARROW, folder=_is_saved)
@dataclass(frozen=True)
class HuggingFaceFolder(FileReader):
    """The folder of `Dataset.save_to_disk`, or of a `DatasetDict` with one split: streams of Arrow that are one table."""

    pushes: ClassVar[tuple[str, ...]] = ArrowFile.pushes

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`; rows are numbered through all files."""
        rows = 0
        for file in self._files():
            first = rows
            for batch in self._reader(file).batches():
                if isinstance(batch, Unreadable):
                    yield batch if batch.row is None else batch._replace(row=first + batch.row)
                elif batch.num_rows:
                    numbers = first + batch[SOURCE_ROW].to_numpy()
                    rows = max(rows, int(numbers[-1]) + 1)
                    yield batch.set_column(batch.column_names.index(SOURCE_ROW), SOURCE_ROW, pa.array(numbers))

    @contextlib.contextmanager
    def cut(self) -> Iterator[tuple[Any, bool]]:
        files = self._files()
        if len(files) == 1:
            with self._reader(files[0]).cut() as shorter:
                yield shorter
        else:
            yield self, False

    def _reader(self, file: Location) -> ArrowFile:
        how = {name: getattr(self, name) for name in ("columns", "where", "arguments", "partition", "max_expansion")}
        return ArrowFile(file, **how)

    def _files(self) -> list[Location]:
        """Return the files that `state.json` lists, in their order.

        Without it, as in Hugging Face's own folders, these are all files but caches.

        Raises:
            CorruptFileError: `state.json` lists none.
        """
        there = Listing().below(self.location)
        names = [name for name in there if name.endswith(".arrow") and not posixpath.basename(name).startswith("cache-")]
        if _STATE in there:
            state = self.location.child(_STATE)
            try:
                names = [posixpath.basename(file["filename"]) for file in json.loads(state.read())["_data_files"]]
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptFileError(f"{state.uri} does not list the files of the dataset: {error!r}.") from error
            if not names:
                raise CorruptFileError(f"{state.uri} does not list the files of the dataset: there is none in it.")
        return [self.location.child(name) for name in names]

    @classmethod
    def inside(cls, folder: Location, listing: Listing) -> list[Location]:
        """The folder, or that of the only split.

        Raises:
            ConfigError: there are several splits, and none is named.
        """
        there = listing.below(folder)
        if _SPLITS not in there:
            return [folder]
        splits = sorted({name.partition("/")[0] for name in there if name.endswith(".arrow")})
        if len(splits) != 1:
            raise ConfigError(
                f"{folder.uri} has the splits {', '.join(splits)}, whose episodes may have equal ids. Name one, or "
                f"several as a list of sources: {', '.join(folder.child(split).uri for split in splits)}."
            )
        return [folder.child(splits[0])]


@reader("avro", suffixes=(".avro",), arguments="n_rows")
@dataclass(frozen=True)
class AvroFile(ScannedFile):
    """Avro has no scan in Polars: the file is read as a whole."""

    def scan(self, path: str, *, row_index_name: str | None = None, **arguments: Any) -> pl.LazyFrame:
        return _numbered(pl.read_avro(path, **arguments).lazy(), row_index_name=row_index_name)

    def check_expansion(self, file: Location, expansion: Expansion) -> None:
        check_avro(file.path, expansion)


def condition_on(where: str, schema: Mapping[str, Any], uri: str) -> pl.Expr:
    """The SQL condition, checked on an empty frame.

    Raises:
        ConfigError: it cannot be understood, or used on these columns.
    """
    condition = sql_condition(where)
    try:
        kind = pl.DataFrame(schema={SOURCE_ROW: pl.UInt32, **schema}).select(condition).dtypes[0]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ConfigError(f"The condition {shown(where)} cannot be used on {uri}: {first_line(error)}.") from error
    if kind != pl.Boolean:
        raise ConfigError(f"The condition {shown(where)} gives {kind} and not true or false.")
    return condition


def frame_bytes(frame: pl.DataFrame) -> int:
    """Size in Arrow, where a repeated text is stored each time, unlike in Polars."""
    texts = frame.select(
        pl.col(pl.String).str.len_bytes().sum(),
        pl.col(pl.Categorical, pl.Enum).cat.len_bytes().sum(),
        pl.col(pl.Binary).bin.size().sum(),
    )
    return int(frame.estimated_size()) + sum(map(int, texts.row(0)) if texts.width else ())
