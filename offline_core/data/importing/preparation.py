"""Prepare the rows of a source: the good ones in canonical columns and types, and the reason of every other one."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import arrow, columns, nested
from offline_core.data.episodes.spaces import StoredSpaces, spaces_of
from offline_core.data.formats.packed import PACKED, read_foreign_column
from offline_core.data.formats.sources.names import ENDS, named
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.small_files import FilesRows
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable, empty_rows_of, notes_of, single_values_of
from offline_core.data.importing.conversion import CLIPPED, Conversion, Types, clock_of
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.extras import extra_columns
from offline_core.data.importing.mapping import ColumnMapping, check_names, joined_ids, notes_on_names, sources_of
from offline_core.data.importing.masked import masked_spaces
from offline_core.data.importing.recognised import recognised
from offline_core.data.importing.report import Findings, Place
from offline_core.data.importing.values import empty_arrays, flags
from offline_core.errors import ConfigError, DataError, SchemaError

PROBES = 64
"""So many rows of a table are tried one by one, evenly spread, to learn what its rows are like."""
SEARCHED_ROWS = 4096
"""Up to so many rows are searched for good ones to the last; of more, none is taken for good if no probe is."""

Convert: TypeAlias = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True)
class Preparation(Conversion):
    """Converts the good rows of tables to the types of the first table, or of most of its rows, and tells of all others why."""

    notes: tuple[str, ...] = ()
    """What was recognised by its name."""

    def of_readers(self, readers: Mapping[int, StepReader], findings: Findings) -> Generator[tuple[pa.Table, Preparation]]:
        """(the good rows of each table of some readers, what prepared them): the first ones say what the columns of all are.

        Arguments:
            readers: by the numbers of their files.
            findings: lists or raises what cannot be read, and counts what became of the good rows.

        Raises:
            ConfigError: one gives something else than tables, or the parameters do not fit each other.
            DataError: something cannot be read, and the findings do not list it.
        """
        preparation = self
        for number, reader in readers.items():
            row, reached = 0, 0
            try:
                for batch in reader.batches():
                    _check_single_ends(batch, preparation.mapping, reader.uri)
                    preparation = preparation.settled(batch, reader.uri)
                    findings.note(*notes_of(batch))
                    findings.empty_rows += empty_rows_of(batch)
                    table, bad = preparation(batch, file=number, first_row=row, uri=reader.uri, findings=findings)
                    for failure in bad:
                        findings.refuse(failure)
                        findings.places.append(Place(number, reached if failure.row is None else failure.row, failure.eps_id))
                    if table is not None:
                        reached = table[SOURCE_ROW][-1].as_py() + 1
                        yield table, preparation
                    row += batch.num_rows
                if row == 0:
                    findings.empty_files.add(number)
            except DataError as error:  # and no StorageError: what is out of reach is not damaged
                if findings.rule == "fail":
                    raise
                findings.refuse(Unreadable(reader.uri, None, 0, error))
                findings.places.append(Place(number, reached))

    def settled(self, table: Any, uri: str) -> Preparation:
        """Return a preparation with the types of this table; the same preparation if no row of the table is good.

        Raises:
            ConfigError: the parameters do not fit each other.
        """
        if self.is_settled or not isinstance(table, pa.Table) or table.num_rows == 0:
            return self
        with contextlib.suppress(DataError):
            stated = self._stated(table.schema)
            table, rows = self._rows(table, 0)
            table, *_ = self._with_made(table, rows, uri)
            return self._for(table, stated)
        return self

    def _for(self, table: pa.Table, stated: StoredSpaces) -> Preparation:
        """`settled`, of a table with the columns that are made; without types if no row of it is good.

        Raises:
            ConfigError: a mapping's name is nearly a canonical one.
            DataError: the columns are not those of steps.
        """
        pairs = zip(self.spaces, stated, strict=True)
        observation, action = (said if declared is None else declared for declared, said in pairs)
        notes_on_mapping = list[str]()
        if self.types is None:  # of an append the version before it says the names
            check_names(self.mapping, table.column_names)
            notes_on_mapping = notes_on_names(self.mapping, table.column_names)
        mapping, notes = recognised(table, self.mapping, self.made.changed)
        prepared = replace(
            self,
            spaces=masked_spaces((observation, action), self.mapping),
            mapping=mapping,
            notes=(*notes, *notes_on_mapping),
        )
        table = prepared._with_fillers(table)
        numbers = prepared._numbers_in_text(table)
        mapped = prepared._mapped(table, numbers)
        convert = functools.partial(prepared._convert, numbers=numbers)
        if table.num_rows == 0:
            return prepared
        if self.types is not None:
            return replace(prepared, types=self.types._replace(clock=clock_of(mapped), stated=stated))
        try:
            kind, kept = convert(table), table
        except DataError:
            if (kind := _usual(convert, table)) is None:
                return prepared
            rows = [numbers for _, numbers in good_rows(convert, table, np.arange(table.num_rows), "", [])]
            kept = table.take(pa.array(np.concatenate(rows)))
        types = Types(empty_arrays(_without_clipped(kind)), {}, {}, clock_of(mapped), stated)
        arrays, left_out = extra_columns(kept, replace(prepared, types=types)._extras(table), None)
        extras = {name: read_foreign_column(pa.table({name: array[:0]}), name) for name, array in arrays.items()}
        return replace(prepared, types=types._replace(extras=extras, left_out=left_out))

    def without_extras(self, names: Iterable[str]) -> Preparation:
        """Return the same preparation without these extra columns."""
        if self.types is None:
            return self
        left = {name: template for name, template in self.types.extras.items() if name not in {*names}}
        return replace(self, types=self.types._replace(extras=left))

    def __call__(
        self, table: Any, *, file: int, first_row: int, uri: str, findings: Findings
    ) -> tuple[pa.Table | None, list[Unreadable]]:
        """(the good rows in the types of `settled`, with `SOURCE_FILE` and `SOURCE_ROW`, None if there are none; the others).

        Arguments:
            findings: gets what became of the good rows.

        Raises:
            ConfigError: the reader gives something else than tables, or the parameters do not fit each other.
        """
        if isinstance(table, Unreadable):
            return None, [table]
        if not isinstance(table, pa.Table):
            raise ConfigError(f"The reader of {uri} gives {type(table).__name__} and not pyarrow tables.")
        if table.num_rows == 0:
            return None, []
        table, rows = self._rows(table, first_row)
        bad: list[Unreadable] = []
        try:
            stated = self._stated(table.schema)
            self._check_stated(stated)
            findings.note(self.made.note_on(table.column_names))
            table, rows, bad, without_partner = self._with_made(table, rows, uri)
            findings.without_partner.update({join: count for join, count in enumerate(without_partner) if count})
            findings.waiting |= {file} if any(without_partner) else set()
            if table.num_rows == 0:
                return None, bad
            prepared = self if self.is_settled else self._for(table, stated)
            table = prepared._with_fillers(table)
            numbers = prepared._numbers_in_text(table)
            findings.note(*prepared._notes_on_rounded(prepared._mapped(table, numbers)))
        except DataError as error:
            return None, [*bad, Unreadable(uri, None, table.num_rows, error)]
        more: list[Unreadable] = []
        convert = functools.partial(prepared._convert, numbers=numbers)
        parts = good_rows(convert, table, rows, uri, more)
        bad = sorted([*bad, *prepared._with_terminations(more, table, rows)], key=lambda failure: failure.row or 0)
        if not parts:
            return None, bad
        kept = np.concatenate([numbers for _, numbers in parts])
        if len(kept) < len(rows):
            table = table.take(pa.array(np.searchsorted(rows, kept)))
        good, left_out = prepared._with_extras(pa.concat_tables([part for part, _ in parts]), table)
        return _placed(good, np.full(len(kept), file), kept, left_out, findings), bad

    def together(self, rows: FilesRows, findings: Findings) -> pa.Table | None:
        """The rows of several files; None if each has to be looked at by itself.

        That is where a row is bad, or where what a file holds decides how its columns are read.
        """
        table = rows.table
        if (
            not self.made.is_idle
            or not self.is_settled
            or table.num_rows == 0
            or any(map(_is_mixed, table.columns))
            or self._numbers_in_text(table)
        ):
            return None
        try:
            self._check_stated(self._stated(table.schema))
            table = self._with_fillers(table)
            findings.note(*self._notes_on_rounded(self._mapped(table, {})))
            good, left_out = self._with_extras(self._convert(table, numbers={}), table)
        except DataError:
            return None
        return _placed(good, rows.file, rows.row, left_out, findings)

    def _notes_on_rounded(self, mapped: pa.Table) -> list[str]:
        """Note observations and actions of more digits than those of earlier rows; a declared type is meant so.

        Arguments:
            mapped: no row of the table, under canonical names.
        """
        declared = dict(zip((columns.OBS, columns.ACTIONS), self.spaces, strict=True))
        notes = []
        for name in (name for name, space in declared.items() if space is None and name in self.templates):
            known = {array.dtype for array in nested.leaves(self.templates[name])}
            is_known = np.dtype(np.float64) in known or np.dtype(np.float32) not in known
            if not is_known and "double" in str(mapped.schema.field(name).type):
                notes.append(
                    f"Some rows have {name} in float64 where earlier ones have float32: all are kept in float32, to 7 digits. "
                    "To keep more, declare the space."
                )
        return notes

    @property
    def is_settled(self) -> bool:
        """It is known what the columns of all rows are."""
        return self.types is not None and self.types.clock is not None

    @staticmethod
    def _rows(table: pa.Table, first_row: int) -> tuple[pa.Table, np.ndarray]:
        """(the table without the numbers of rows in their file, those)"""
        if SOURCE_ROW not in table.column_names:
            return table, first_row + np.arange(table.num_rows)
        return table.drop_columns([SOURCE_ROW]), table[SOURCE_ROW].to_numpy()

    def _with_made(
        self, table: pa.Table, rows: np.ndarray, uri: str
    ) -> tuple[pa.Table, np.ndarray, list[Unreadable], Sequence[int]]:
        """(the good rows with the computed columns, their numbers, the bad rows, how many rows have no partner by join)."""
        table, bad_rows, without_partner = self.made(table, uri)
        if not bad_rows:
            return table, rows, [], without_partner
        bad = self._with_terminations(
            [Unreadable(uri, int(rows[row]), 1, error) for row, error in sorted(bad_rows)], table, rows
        )
        good = np.ones(len(rows), bool)
        good[[row for row, _ in bad_rows]] = False
        return table.filter(pa.array(good)), rows[good], bad, without_partner

    def _with_terminations(self, bad: list[Unreadable], table: pa.Table, rows: np.ndarray) -> list[Unreadable]:
        """Return the same rows, marked if they terminate an episode, with its id."""
        if not bad:
            return []
        numbers = np.array([failure.row for failure in bad], np.int64)
        left = table.take(pa.array(np.searchsorted(rows, numbers)))
        told = zip(bad, self._terminations(left), self._ids(left), strict=True)
        return [failure._replace(terminations=int(flag), eps_id=eps_id) for failure, flag, eps_id in told]

    def _ids(self, bad: pa.Table) -> list[str | None]:
        """The id of each row, whatever else is wrong with it; None where it cannot be read."""
        sources = sources_of(self.mapping, [columns.EPS_ID])
        if {*sources} <= {*bad.column_names}:
            with contextlib.suppress(DataError):
                return [name or None for name in joined_ids(bad, sources).to_pylist()]
        return [None] * bad.num_rows

    def _with_extras(self, good: pa.Table, table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
        """(converted rows with those columns of their source that are not mapped, those that cannot be kept)"""
        known, left_out = (None, {}) if self.types is None else (self.types.extras, self.types.left_out)
        arrays, more = extra_columns(table, self._extras(table) - left_out.keys(), known)
        left_out = {**left_out, **more}
        for name, array in arrays.items():
            good = good.append_column(pa.field(name, array.type, nullable=False), array)
        return good, left_out

    def _terminations(self, bad: pa.Table) -> np.ndarray:
        """(N,) bool: the row says that it terminates an episode, whatever else is wrong with it."""
        terminated = np.zeros(bad.num_rows, bool)
        for name in (columns.TERMINATEDS, columns.DONES, columns.IS_LAST):
            source = self.mapping.get(name, name)
            if isinstance(source, str) and source in bad.column_names:
                with contextlib.suppress(DataError):
                    there = bad[source].is_valid().to_numpy()
                    terminated[there] |= flags(read_foreign_column(bad.filter(pa.array(there)), source), source)
                break
        return terminated

    def _with_fillers(self, table: pa.Table) -> pa.Table:
        """The rows, of which those that are no steps have an action and a reward of another: theirs may be anything."""
        source = self.mapping.get(columns.IS_LAST)
        if not isinstance(source, str) or source not in table.column_names:
            return table
        try:
            last = flags(read_foreign_column(table, source), source)
        except DataError:
            return table
        steps = np.flatnonzero(~last)
        if len(steps) in (0, len(last)):
            return table
        rows = np.arange(len(last))
        rows[last] = steps[np.maximum(np.searchsorted(steps, rows[last]) - 1, 0)]
        own = {columns.OBS, columns.EPS_ID, columns.T, columns.AGENT_ID, *ENDS, columns.IS_FIRST}
        kept = {*sources_of(self.mapping, own)}
        for number, name in enumerate(table.column_names):
            if name not in kept:
                table = table.set_column(number, table.schema.field(number), table[name].take(pa.array(rows)))
        return table

    def _stated(self, schema: pa.Schema) -> StoredSpaces:
        """The spaces that a source states with columns `obs` and `actions` of its own."""
        own = (self.mapping.get(name, name) == name for name in (columns.OBS, columns.ACTIONS))
        observation, action = (space if is_own else None for space, is_own in zip(spaces_of(schema), own, strict=True))
        return observation, action

    def _check_stated(self, stated: StoredSpaces) -> None:
        """Raises:
        SchemaError: a table states other spaces than the first one, which are those of the import.
        """
        if self.types is None or not self.is_settled:
            return
        names = ("observation_space", "action_space")
        for name, space, before, chosen in zip(names, stated, self.types.stated, self.spaces, strict=True):
            if chosen is before is not None and space not in (None, before):
                raise SchemaError(
                    f"The source states the {name} {space} where earlier rows have {before}. Declare one for all by "
                    f"{name}, or import the files separately."
                )


def _without_clipped(table: pa.Table) -> pa.Table:
    return table.drop_columns([CLIPPED]) if CLIPPED in table.column_names else table


def _placed(good: pa.Table, file: np.ndarray, row: np.ndarray, left_out: Mapping[str, str], findings: Findings) -> pa.Table:
    """Converted rows with the place each comes from; clipped actions and columns that are left out are noted."""
    findings.extras = {**left_out, **findings.extras}
    if CLIPPED in good.column_names:
        findings.clipped_actions += int(good[CLIPPED].to_numpy().sum())
        good = good.drop_columns([CLIPPED])
    good = good.append_column(SOURCE_FILE, pa.array(file.astype(np.int32)))
    return good.append_column(SOURCE_ROW, pa.array(row.astype(np.int64)))


def _is_mixed(column: pa.ChunkedArray) -> bool:
    """Whether some texts of a column are packed and others are not."""
    if not arrow.is_text(column.type):
        return False
    packed = pc.starts_with(column, PACKED)
    return pc.any(packed).as_py() is True and not pc.all(packed, skip_nulls=False).as_py()


def good_rows(
    convert: Convert, table: pa.Table, rows: np.ndarray, uri: str, bad: list[Unreadable]
) -> list[tuple[pa.Table, np.ndarray]]:
    """Leaves out the rows that an error names; where it names none, halves the table until what is left is good or one."""
    try:
        return [(convert(table), rows)]
    except DataError as error:
        if error.rows:
            bad += [
                Unreadable(uri, int(rows[row]), 1, type(error)(said, column=error.column)) for row, said in error.rows.items()
            ]
            good = np.ones(len(rows), bool)
            good[[*error.rows]] = False
            return good_rows(convert, table.filter(pa.array(good)), rows[good], uri, bad) if good.any() else []
        if len(rows) <= 1 or (len(rows) > SEARCHED_ROWS and not _probes(convert, table)):
            bad += [Unreadable(uri, int(row), 1, error) for row in rows]
            return []
    half = len(rows) // 2
    left = good_rows(convert, table.slice(0, half), rows[:half], uri, bad)
    return left + good_rows(convert, table.slice(half), rows[half:], uri, bad)


def _usual(convert: Convert, table: pa.Table) -> pa.Table | None:
    """One of the rows that can be converted, of the kind of most of them; None if there is none."""
    good = _probes(convert, table)
    kinds = [str(part.schema) for part in good]
    return good[kinds.index(max(kinds, key=kinds.count))] if good else None


def _probes(convert: Convert, table: pa.Table) -> list[pa.Table]:
    """Convert `PROBES` rows, each by itself, and return those that can be converted."""
    good = []
    for row in np.unique(np.linspace(0, table.num_rows - 1, PROBES).astype(int)).tolist():
        with contextlib.suppress(DataError):
            good.append(convert(table.slice(row, 1)))
    return good


def _check_single_ends(batch: pa.Table | Unreadable, mapping: ColumnMapping, uri: str) -> None:
    """Raises:
    ConfigError: an end or a beginning is mapped to what the file has one value of, which would be that of each row.
    """
    for name in single_values_of(batch):
        roles = (role for role in (*ENDS, columns.IS_FIRST) if mapping.get(role) == name and not named(role, [name]))
        if role := next(roles, None):
            raise ConfigError(
                f"{uri} has one value of {name} for all steps, and mapping.{role} needs one a step, or each step would be "
                f"taken for an episode. Save {name} with a value a step, or under the name {role}, so that it counts once."
            )
