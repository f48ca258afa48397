"""The columns that an import makes of those of its source, once the source is known: applied before the mapping."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import read_column, to_arrow
from offline_core.data.importing.columns_config import InEpisode
from offline_core.data.importing.joins import OtherRows
from offline_core.data.inputs.computing import stepped
from offline_core.data.inputs.frames import nested, root_of, with_nested
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import BadRow, RowSteps

FILE, FOLDER = "_file", "_folder"
"""Columns of every source, for expressions: the name of the row's file, and of the folder that holds it."""

UNKNOWN = float(np.finfo(np.float32).min)
"""What a column has until rows are in order where its last known value is wanted: a number of float32, and of no sensor."""


@dataclass(frozen=True)
class RowColumns:
    """Joins, fills, computes and encodes; as it is by default, it leaves rows as they are."""

    steps: RowSteps = field(default_factory=RowSteps)
    before: RowSteps = field(default_factory=RowSteps)
    """Columns that joins need as keys."""
    joins: Sequence[OtherRows] = ()
    mapped: frozenset[str] = frozenset()
    """The names that the mapping refers to."""
    chosen: frozenset[str] | None = None
    """The columns of the source that are wanted as such; None: all."""
    inputs: InputColumns | None = None
    """What observations are made of, as far as it can be said by the names of columns."""
    labels: list[str] | list[float] | None = None
    """What each choice of an action is called in the source, where they are categories or bins."""
    as_read: Mapping[str, str] = field(default_factory=dict)
    """Columns that are encoded, and are mapped as they are in the source as well: what those are called."""
    late: Mapping[str, InEpisode] = field(default_factory=dict)
    """Columns that become what they are once rows are in order; until then they are what they are of."""

    def __call__(self, table: pa.Table, uri: str) -> tuple[pa.Table, list[BadRow], list[int]]:
        """(the rows with the new columns, the rejected rows, how many rows have no partner by the number of the join).

        Raises:
            SchemaError: a column is missing, or does not have the type that a step needs.
        """
        if self.is_idle:
            return table, [], []
        frame, bad, without_partner = self.frame(table, uri)
        return self._written(table, frame), list({bad_row.row: bad_row for bad_row in reversed(bad)}.values()), without_partner

    def frame(self, table: pa.Table, uri: str) -> tuple[pl.DataFrame, list[BadRow], list[int]]:
        """(the columns that are read and made, the rows that are of no use, rows without a partner by join)."""
        frame, bad = stepped(self.before, self.raw(table, uri))
        without_partner = []
        for other in self.joins:
            frame, missing, unread = other.joined(frame)
            without_partner.append(missing)
            bad += unread
        frame, more = stepped(self.steps, frame)
        return frame, bad + more, without_partner

    def raw(self, table: pa.Table, uri: str) -> pl.DataFrame:
        """The columns of the source that are needed, those inside of structs by their dotted names."""
        there = dict.fromkeys(table.column_names)
        needed = self._needed(table)
        path, _, file = uri.rpartition("/")
        frame = pl.select(
            pl.repeat(file, table.num_rows).alias(FILE), pl.repeat(posixpath.basename(path), table.num_rows).alias(FOLDER)
        )
        if own := [root for root in dict.fromkeys(root_of(there, name) for name in needed) if root in there]:
            read = pl.from_arrow(table.select(own))
            assert isinstance(read, pl.DataFrame)
            frame = read.with_columns(frame[name] for name in (FILE, FOLDER) if name not in read.columns)
        frame = frame.with_columns(
            pl.lit(None, pl.Series([self.steps.fill.get(name, UNKNOWN)]).dtype).alias(name) for name in self.lacking(there)
        )
        return with_nested(frame, (name for name in needed if nested(frame.schema, name) is not None))

    def lacking(self, there: Collection[str]) -> list[str]:
        """The columns that are filled and are not among those of a file: no row of it has a value there."""
        filled = dict.fromkeys([*self.steps.fill, *sorted(self.with_gaps)])
        return [name for name in filled if not {name, root_of(dict.fromkeys(there), name)} & ({*there} | self._made)]

    def note_on(self, there: Collection[str]) -> str | None:
        """What is said of a file that lacks columns; None if it lacks none that is filled."""
        if not (names := self.lacking(there)):
            return None
        return f"A file without the column {', '.join(names)} counts as one of rows without a value there, which are filled."

    def _needed(self, table: pa.Table) -> list[str]:
        read = {*self.steps.columns, *self.before.columns, *(name for other in self.joins for name in other.join.key_columns)}
        return sorted((read | {name for name in self.mapped if name not in table.column_names}) - self._made)

    def _written(self, table: pa.Table, frame: pl.DataFrame) -> pa.Table:
        """The table with the columns that are new or changed, without those that only steps need.

        These are structs of which fields are read, columns of which the last known values are kept, and what is not chosen.
        """
        steps, there = self.steps, dict.fromkeys(table.column_names)
        if self.chosen is None:
            inside = [name for name in self._needed(table) if name not in there]
            dropped = {root_of(there, name) for name in inside} - self.mapped
        else:
            dropped = there.keys() - self.chosen - self.mapped
        dropped |= (self.with_gaps & there.keys()) - self.mapped
        changed = {*steps.fill, *steps.encode, *steps.bins, *(self.inputs.obs if self.inputs else ())} - dropped
        added = {*changed, *self._made, *self.mapped.difference(there)}
        table = table.drop_columns([name for name in there if name in dropped])
        for name, copy in self.as_read.items():
            table = table.append_column(copy, table[name])
        new = frame.select(name for name in frame.columns if name in added).to_arrow()
        for column in new.schema:
            if column.name in table.column_names:
                table = table.set_column(table.column_names.index(column.name), column, new[column.name])
            else:
                table = table.append_column(column, new[column.name])
        return table

    def in_order(self, table: pa.Table, starts: np.ndarray) -> pa.Table:
        """Canonical rows in order, with the columns that need earlier ones.

        Arguments:
            starts: (N,) bool, the row does not follow the one before it.
        """
        part, places = pl.Series(np.cumsum(starts)), self._places()
        for name, late in self.late.items():
            target = columns.OBS if name in places else name
            tree = read_column(table, target)
            assert isinstance(tree, np.ndarray)
            flat = tree.reshape(len(tree), -1).copy()
            flat[:, places.get(name, 0)] = _of_earlier(flat[:, places.get(name, 0)], part, late)
            at = table.column_names.index(target)
            table = table.set_column(at, table.schema.field(at), to_arrow(flat.reshape(tree.shape), target))
        return table

    def _places(self) -> dict[str, int]:
        """The index in the observation vector of each column that needs earlier rows."""
        offsets, offset = dict[str, int](), 0
        for name in self.inputs.obs if self.inputs is not None else ():
            offsets |= {name: offset} if name in self.late else {}
            encoding = self.steps.encode.get(name)
            offset += encoding.size if encoding is not None and encoding.form == "one_hot" else 1
        return offsets

    @property
    def is_idle(self) -> bool:
        """Whether it leaves rows as they are."""
        return not (self.mapped or self.joins or self.steps.columns or self.steps.computed)

    @property
    def _made(self) -> set[str]:
        """The names of columns that are not in the source."""
        return {*self.steps.computed, *(name for other in self.joins for name in other.join.columns)}

    @property
    def changed(self) -> set[str]:
        """The names of columns that are made, or are not what they are in the source."""
        return self._made | {*self.steps.fill, *self.steps.encode, *self.steps.bins, *self.late}

    @property
    def with_gaps(self) -> set[str]:
        """The columns of which the last known values are kept instead."""
        return {late.column for late in self.late.values() if late.how == "last_known" and late.column is not None}

    def notes(self, without_partner: Mapping[int, int]) -> list[str]:
        """What the report says of the joins."""
        said = [type(note)(f"{', '.join(other.join.paths)}: {note}") for other in self.joins for note in other.notes]
        return said + [
            f"{count:,} rows have no partner in the join with {', '.join(other.join.paths)} and got null for "
            f"{', '.join(other.join.columns)}; set columns.fill, or a larger tolerance, if that is not wanted."
            for number, other in enumerate(self.joins)
            if (count := without_partner.get(number, 0))
        ]


def _of_earlier(values: np.ndarray, part: pl.Series, late: InEpisode) -> np.ndarray:
    """(N,) the same column of earlier rows of the part."""
    of = pl.col("value")
    match late.how:
        case "sum":
            expression = of.cum_sum()
        case "lag":
            expression = of.shift(late.steps, fill_value=pl.lit(late.first).cast(pl.Float64))
        case "last_known":
            expression = pl.when(of != UNKNOWN).then(of).forward_fill().fill_null(late.first)
    frame = pl.DataFrame({"value": values.astype(np.float64), "part": part})
    return frame.select(expression.over("part")).to_series().to_numpy()
