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
from offline_core.data.importing.texts import EITHER_FIRST, as_times, first_in_dates, has_other_dates, without_blanks
from offline_core.data.inputs.row_steps import BadRow
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
    first: frozenset[str] = EITHER_FIRST
    """What comes first in dates of the source, see `first_in_dates`."""

    @classmethod
    def read(cls, join: Join, readers: list[StepReader]) -> OtherRows:
        """Raises:
        ConfigError: a column is missing, or several rows have the same keys.
        DataError: a file cannot be read, or a time in it.
        """
        names, where = [*join.key_columns, *join.columns], ", ".join(join.paths)
        tables, notes = [], dict[str, None]()
        for batch in (batch for reader in readers for batch in reader.batches()):
            if isinstance(batch, Unreadable):
                raise batch.located_error
            if missing := [name for name in names if name not in batch.column_names]:
                remedy = ""
                if not {*missing}.isdisjoint(join.key_columns):
                    remedy = (
                        " Keys have one name on both sides: columns.computed: {time: timestamp} gives a column of the source "
                        "the name that it has in the other file."
                    )
                raise ConfigError(
                    f"{where} has no column {', '.join(missing)} to join; it has {', '.join(batch.column_names)}.{remedy}"
                )
            tables.append(batch.select(names))
            notes |= dict.fromkeys(notes_of(batch))
        if not tables:
            raise ConfigError(f"There are no rows in {where} to join.")
        every = pl.from_arrow(pa.concat_tables(tables, promote_options="permissive"))
        assert isinstance(every, pl.DataFrame)
        if join.asof is not None:
            every = every.with_columns(without_blanks(every[join.asof]))
        rows = every.drop_nulls(join.key_columns)
        if lacking := len(every) - len(rows):
            notes[f"Rows of the join without {' or '.join(join.key_columns)} are left out: {lacking:,}."] = None
        if join.asof is not None:  # the same time may be written in two ways
            times, said = _clock(rows[join.asof], join, where, first_in(rows[join.asof]))
            if said:
                raise SchemaError(
                    f"{where}: {next(iter(said.values()))} {len(said):,} of {len(rows):,} rows have no time that can be read. "
                    f"Correct them, set time_format of the join, or leave their {join.asof} empty: such rows are left out.",
                    column=join.asof,
                )
            rows = rows.with_columns(times)
        keys = rows.select(join.key_columns)
        twice = keys.filter(keys.is_duplicated())
        if len(twice):
            first = ", ".join(f"{name} {twice[name][0]}" for name in join.key_columns)
            raise ConfigError(
                f"{len(twice):,} rows of {where} share their keys with others, {first} first: which one belongs to a row is "
                "not known. Add a key to on, or make these files unique."
            )
        return cls(join, rows, tuple(notes))

    def joined(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, int, list[BadRow]]:
        """(the same rows in the same order with the columns of the join, null without a partner; how many keys lack a partner;
        the rows whose time cannot be read).

        Raises:
            SchemaError: a key has different types on the two sides.
            ConfigError: a key of the other side does not fit the type of this one, such as 1.5 where keys are whole numbers; or
                times of the two sides cannot be compared.
        """
        join, bad = self.join, list[BadRow]()
        there = self.rows.with_columns(pl.lit(True).alias(_FOUND))
        try:
            there = there.with_columns(_cast(join, there[name], frame.schema[name]) for name in join.on)
            if join.asof is None:
                joined = frame.join(there, on=join.on, how="left", maintain_order="left")
            else:
                joined, bad = self._as_of(frame, there)
        except ConfigError:
            raise
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError) as error:
            types = ", ".join(f"{name} ({frame.schema[name]}, there {self.rows.schema[name]})" for name in join.key_columns)
            raise SchemaError(f"The join with {', '.join(join.paths)} by {types} fails: {first_line(error)}.") from error
        keys = joined if join.asof is None else joined.with_columns(without_blanks(joined[join.asof]))
        has_keys = keys.select(pl.all_horizontal(pl.col(join.key_columns).is_not_null())).to_series()
        missing = (has_keys & joined[_FOUND].is_null()).to_numpy()
        missing[[row for row, _ in bad]] = False
        return joined.drop(_FOUND), int(missing.sum()), bad

    def _as_of(self, frame: pl.DataFrame, there: pl.DataFrame) -> tuple[pl.DataFrame, list[BadRow]]:
        join = self.join
        assert join.asof is not None
        at, said = _clock(without_blanks(frame[join.asof]), join, "the source", self.first)
        at, their_at, more = self._on_one_clock(at, there[join.asof])
        at, their_at = at.alias(_AT), their_at.alias(_AT)
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
        bad = [
            BadRow(row, SchemaError(f"{text} Correct it, or leave it empty.", column=join.asof))
            for row, text in (more | said).items()
        ]
        return joined.sort(_ROW).drop(_ROW, _AT), bad

    def _on_one_clock(self, at: pl.Series, their_at: pl.Series) -> tuple[pl.Series, pl.Series, dict[int, str]]:
        """(the times of the source, those of the other files, what is said of rows of the source that have none).

        Raises:
            ConfigError: they cannot be compared.
            SchemaError: the other files have times that are none in the zone.
        """
        join, where = self.join, ", ".join(self.join.paths)
        if at.null_count() == len(at):
            return at.cast(their_at.dtype), their_at, {}
        if at.dtype.is_temporal() != their_at.dtype.is_temporal():
            ours, theirs = ("times" if series.dtype.is_temporal() else "numbers" for series in (at, their_at))
            raise ConfigError(
                f"The join with {where} cannot compare {join.asof}: it holds {ours} in the source and {theirs} there. Write "
                "both as times, or both as numbers of one unit."
            )
        has_offset, there_too = (getattr(series.dtype, "time_zone", None) is not None for series in (at, their_at))
        if has_offset == there_too:
            return at, their_at, {}
        if join.time_zone is None:
            has, lacks = ("the source", where) if has_offset else (where, "the source")
            raise ConfigError(
                f"The join with {where} cannot compare {join.asof}: the times of {has} have an offset or a zone, and those of "
                f"{lacks} have none. Say by time_zone of the join which zone these are of: UTC, or a name like Europe/Berlin."
            )
        if there_too:
            at, said = _of_zone(at, join.time_zone)
            return at, their_at, said
        their_at, said = _of_zone(their_at, join.time_zone)
        if said:
            raise SchemaError(f"{where}: {next(iter(said.values()))}", column=join.asof)
        return at, their_at, {}


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


def first_in(values: pl.Series) -> frozenset[str]:
    """What comes first in their dates, if they are texts, see `first_in_dates`."""
    return first_in_dates(_texts(values)) if values.dtype == pl.String else EITHER_FIRST


def may_be_other_dates(values: pl.Series) -> bool:
    """Whether all values are needed to tell what comes first in them: they are such dates, or there are none yet."""
    return values.dtype == pl.Null or (values.dtype == pl.String and has_other_dates(_texts(without_blanks(values))))


def _texts(values: pl.Series) -> pa.ChunkedArray:
    return pa.chunked_array([values.to_arrow()])


def _clock(values: pl.Series, join: Join, where: str, first: frozenset[str]) -> tuple[pl.Series, dict[int, str]]:
    """(times, also out of text, or numbers; what is said of rows whose text is none, which are null).

    Arguments:
        first: what comes first in all dates of this side.

    Raises:
        ConfigError: whether the day or the month of dates comes first is open.
    """
    if values.dtype != pl.String:
        return values, {}
    try:
        return as_times(_texts(values), values.name, join.time_format, first)
    except pl.exceptions.PolarsError as error:
        raise ConfigError(f"time_format {join.time_format!r} of the join with {where} is none: {first_line(error)}") from error
    except SchemaError as error:
        raise ConfigError(f"In {where}: {error} Say it by time_format of the join with {', '.join(join.paths)}.") from error


def _of_zone(values: pl.Series, zone: str) -> tuple[pl.Series, dict[int, str]]:
    """(times of a zone in UTC; what is said of rows that have none there, which are null)."""
    times = values.cast(pl.Datetime("us")).dt.replace_time_zone(zone, ambiguous="null", non_existent="null")
    lost = (values.is_not_null() & times.is_null()).arg_true()
    said = (
        f"Column {values.name!r} has the time {values[row]}, which comes twice or never in {zone}, as the clock is set then. "
        "Write it in UTC, or with its offset."
        for row in lost
    )
    return times.dt.convert_time_zone("UTC"), dict(zip(lost, said, strict=True))
