"""Join columns of other files to the rows of a source, by keys or as of a time."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.scans import EpisodeFile
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable, notes_of
from offline_core.data.importing.columns_config import Join
from offline_core.errors import ConfigError, SchemaError, first_line

_FOUND, _AT, _ROW = "_found_by_join", "_asof_of_join", "_row_of_join"
"""Columns while rows are joined."""


def open_join(join: Join, listing: Listing) -> list[StepReader]:
    """The readers of the other files.

    Raises:
        ConfigError: their format is unknown, or they hold episodes.
    """
    readers = open_source(join.paths, SourceConfig(format=join.format), listing)
    if isinstance(readers[0], EpisodeFile):
        raise ConfigError(f"The join with {', '.join(join.paths)} needs a row a step; those files hold episodes.")
    return readers


@dataclass(frozen=True)
class OtherRows:
    """The rows of a join's files, in memory."""

    join: Join
    rows: pl.DataFrame
    notes: tuple[str, ...] = ()
    """What their readers took for granted."""

    @classmethod
    def read(cls, join: Join, readers: list[StepReader]) -> OtherRows:
        """Raises:
        ConfigError: a column is missing, or several rows have the same keys.
        DataError: a file cannot be read.
        """
        names, where = [*join.key_columns, *join.columns], ", ".join(join.paths)
        tables, notes = [], dict[str, None]()
        for batch in (batch for reader in readers for batch in reader.batches()):
            if isinstance(batch, Unreadable):
                raise batch.located_error
            if missing := [name for name in names if name not in batch.column_names]:
                raise ConfigError(
                    f"{where} has no column {', '.join(missing)} to join; it has {', '.join(batch.column_names)}."
                )
            tables.append(batch.select(names))
            notes |= dict.fromkeys(notes_of(batch))
        if not tables:
            raise ConfigError(f"There are no rows in {where} to join.")
        rows = pl.from_arrow(pa.concat_tables(tables, promote_options="permissive"))
        assert isinstance(rows, pl.DataFrame)
        rows = rows.drop_nulls(join.key_columns)
        keys = rows.select(join.key_columns)
        if join.asof is not None:  # the same time may be written in two ways
            keys = keys.with_columns(_clock(keys[join.asof]).alias(join.asof)).drop_nulls(join.asof)
        twice = keys.filter(keys.is_duplicated())
        if len(twice):
            first = ", ".join(f"{name} {twice[name][0]}" for name in join.key_columns)
            raise ConfigError(
                f"{len(twice):,} rows of {where} share their keys with others, {first} first: which one belongs to a row is "
                "not known. Add a key to on, or make these files unique."
            )
        return cls(join, rows, tuple(notes))

    def joined(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """(the same rows in the same order with the columns of the join, null without a partner; how many keys lack a partner).

        Raises:
            SchemaError: a key has different types on the two sides.
            ConfigError: a key of the other side does not fit the type of this one, such as 1.5 where keys are whole numbers.
        """
        join = self.join
        there = self.rows.with_columns(pl.lit(True).alias(_FOUND))
        try:
            there = there.with_columns(_cast(join, there[name], frame.schema[name]) for name in join.on)
            if join.asof is None:
                joined = frame.join(there, on=join.on, how="left", maintain_order="left")
            else:
                joined = self._as_of(frame, there)
        except ConfigError:
            raise
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError) as error:
            types = ", ".join(f"{name} ({frame.schema[name]}, there {self.rows.schema[name]})" for name in join.key_columns)
            raise SchemaError(f"The join with {', '.join(join.paths)} by {types} fails: {first_line(error)}.") from error
        has_keys = joined.select(pl.all_horizontal(pl.col(join.key_columns).is_not_null())).to_series()
        return joined.drop(_FOUND), int((has_keys & joined[_FOUND].is_null()).sum())

    def _as_of(self, frame: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame:
        join = self.join
        assert join.asof is not None
        at, their_at = _clock(frame[join.asof]), _clock(there[join.asof])
        if at.cast(their_at.dtype, strict=False).cast(at.dtype, strict=False).equals(at):
            at = at.cast(their_at.dtype)  # the finer one of two types, such as fractions of seconds
        own = frame.with_columns(at).with_row_index(_ROW).sort(_AT)
        theirs = there.with_columns(_cast(join, their_at, at.dtype)).drop(join.asof).sort(_AT)
        seconds = None if join.tolerance is None else datetime.timedelta(seconds=join.tolerance)
        joined = own.join_asof(
            theirs,
            on=_AT,
            by=join.on or None,
            strategy=join.strategy,
            tolerance=seconds if own.schema[_AT].is_temporal() else join.tolerance,
            check_sortedness=False,
        )
        return joined.sort(_ROW).drop(_ROW, _AT)


def _cast(join: Join, values: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Cast keys to the type that they have in the source.

    Raises:
        ConfigError: a key changes by the cast.
    """
    converted = values.cast(dtype)
    changed = values.filter(converted.cast(values.dtype).ne_missing(values))
    if len(changed):
        raise ConfigError(
            f"{len(changed):,} keys of {', '.join(join.paths)} ({values.dtype}) change when they become {dtype} as in the "
            f"source, {changed[0]!r} first: make both columns of one type."
        )
    return converted


def _clock(values: pl.Series) -> pl.Series:
    """Times, also out of text, or numbers."""
    times = values.str.to_datetime(time_unit="us", strict=False) if values.dtype == pl.String else values
    return times.alias(_AT)
