"""Convert rows of a source to canonical columns and types, and name every row that does not convert."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import arrow, columns
from offline_core.data.episodes.action_masks import ACTION_MASK
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.nested import PATH_SEPARATOR, Nested, flatten
from offline_core.data.episodes.spaces import StoredSpaces, spaces_of
from offline_core.data.formats.packed import PACKED, read_foreign_column
from offline_core.data.formats.sources.names import ENDS, named
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.small_files import FilesRows
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable, note_of
from offline_core.data.importing.action_units import EnvActions, Range, in_env_units
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.extras import extra_columns
from offline_core.data.importing.mapping import REQUIRED, ColumnMapping, map_columns, sources_of
from offline_core.data.importing.masked import MASKS, masked_spaces, with_masks, without_masks
from offline_core.data.importing.recognised import end_names, recognised, with_ends
from offline_core.data.importing.row_columns import RowColumns
from offline_core.data.importing.texts import LISTS, encode_hint, has_lists, is_text, number_type, parsed
from offline_core.data.importing.values import (
    MAPS,
    NAMES,
    check_log_probabilities,
    check_within,
    conform,
    empty_arrays,
    exact,
    finite,
    flags,
    ids,
    like,
    maps,
    nanoseconds,
    one_a_step,
)
from offline_core.data.inputs.row_steps import as_sql
from offline_core.errors import ConfigError, DataError, NonFiniteError, SchemaError

_NUMERIC = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
_CANONICAL = {*columns.STEP_COLUMNS, *ENDS, columns.IS_FIRST, columns.ACTION_LOGP, columns.ACTION_DIST_INPUTS}
"""Names that mean what they mean without a mapping, too."""

PROBES = 64
"""So many rows of a table are tried one by one, evenly spread, to learn what its rows are like."""
SEARCHED_ROWS = 4096
"""Up to so many rows are searched for good ones to the last; of more, none is taken for good if no probe is."""

Convert: TypeAlias = Callable[[pa.Table], pa.Table]

CLIPPED = "_clipped_action"
"""A column beside the others while a table is converted."""


class Types(NamedTuple):
    """What the columns of all rows are, told from the first ones."""

    templates: dict[str, Nested]
    """Empty arrays, by canonical names."""
    extras: dict[str, Nested]
    """Empty arrays of the columns that are not mapped, whose values refuse no row."""
    left_out: Mapping[str, str] = {}
    """Those of them that cannot be kept, and why."""
    clock: str | None = None
    """What column t holds; None: not known yet, as of the version that is appended to."""
    stated: StoredSpaces = (None, None)
    """(observation space, action space) that the source states with its rows."""


class Prepared(NamedTuple):
    """What becomes of the rows of a table."""

    table: pa.Table | None = None
    """The good ones, in canonical columns with `SOURCE_FILE` and `SOURCE_ROW`; None if there are none."""
    bad: Sequence[Unreadable] = ()
    clipped_actions: int = 0
    """Good rows whose action lay outside the range it was recorded in."""
    without_partner: Sequence[int] = ()
    """By the number of the join, rows without one."""
    left_out: Mapping[str, str] = {}
    """Columns that are not mapped and cannot be kept, and why."""
    note: str | None = None
    """What the reader took for granted."""


@dataclass(frozen=True)
class Preparation:
    """Turns tables of a source into tables of one canonical schema: that of the first table, or of most of its rows.

    Arguments:
        mapping: canonical names to names in the source.
        spaces: (observation space, action space) whose shapes and dtypes the columns get, where they are declared.
        recorded_action_range: actions are scaled from this range to the bounds of the action space, and clipped to them.
    """

    mapping: ColumnMapping
    spaces: StoredSpaces = (None, None)
    recorded_action_range: Range | None = None
    made: RowColumns | None = None
    """Columns that are made before the mapping."""
    within: StoredSpaces = (None, None)
    """(observation space, action space) that values have to be in; None: any."""
    types: Types | None = None
    """None: not known yet, see `settled`."""
    notes: tuple[str, ...] = ()
    """What was recognised by its name."""

    def of_reader(self, reader: StepReader, number: int) -> Iterator[tuple[Prepared, Preparation]]:
        """(what becomes of each table of a reader, what prepared it): the first good rows say what the columns of all are.

        Arguments:
            number: of the reader's file.

        Raises:
            ConfigError: it gives something else than tables, or the parameters do not fit each other.
            DataError: the rest cannot be read.
        """
        preparation, row = self, 0
        for batch in reader.batches():
            preparation = preparation.settled(batch, reader.uri)
            prepared = preparation(batch, file=number, first_row=row, uri=reader.uri)
            yield prepared._replace(note=note_of(batch)), preparation
            row += batch.num_rows

    def settled(self, table: Any, uri: str) -> Preparation:
        """The same for tables like this one; as it is if the table says nothing, for no row of it is good.

        Raises:
            ConfigError: the parameters do not fit each other.
        """
        if self.is_settled or not isinstance(table, pa.Table) or table.num_rows == 0:
            return self
        with contextlib.suppress(DataError):
            stated = self._stated(table.schema)
            table, rows = self._rows(table, 0)
            if self.made is not None:
                table, *_ = self._with_made(self.made, table, rows, uri)
            return self._for(table, stated)
        return self

    def _for(self, table: pa.Table, stated: StoredSpaces) -> Preparation:
        """`settled`, of a table with the columns that are made; without types if no row of it is good.

        Raises:
            DataError: the columns are not those of steps.
        """
        pairs = zip(self.spaces, stated, strict=True)
        observation, action = (said if declared is None else declared for declared, said in pairs)
        mapping, notes = recognised(table, self.mapping, () if self.made is None else self.made.changed)
        prepared = replace(
            self,
            spaces=masked_spaces((observation, action), self.mapping),
            mapping=mapping,
            notes=tuple(notes),
        )
        table = prepared._with_fillers(table)
        convert = prepared._converter(table)
        mapped = prepared._mapped(table, convert)
        if table.num_rows == 0:
            return prepared
        if self.types is not None:
            return replace(prepared, types=self.types._replace(clock=_clock(mapped), stated=stated))
        try:
            kind, kept = convert(table), table
        except DataError:
            if (kind := _usual(convert, table)) is None:
                return prepared
            rows = [numbers for _, numbers in good_rows(convert, table, np.arange(table.num_rows), "", [])]
            kept = table.take(pa.array(np.concatenate(rows)))
        types = Types(empty_arrays(_without_clipped(kind)), {}, {}, _clock(mapped), stated)
        arrays, left_out = extra_columns(kept, replace(prepared, types=types)._extras(table), None)
        extras = {name: read_foreign_column(pa.table({name: array[:0]}), name) for name, array in arrays.items()}
        return replace(prepared, types=types._replace(extras=extras, left_out=left_out))

    def without_extras(self, names: Iterable[str]) -> Preparation:
        """The same without these columns that are not mapped."""
        if self.types is None:
            return self
        left = {name: each for name, each in self.types.extras.items() if name not in {*names}}
        return replace(self, types=self.types._replace(extras=left))

    def __call__(self, table: Any, *, file: int, first_row: int, uri: str) -> Prepared:
        """What becomes of a table, in the types of `settled`.

        Raises:
            ConfigError: the reader gives something else than tables, or the parameters do not fit each other.
        """
        if isinstance(table, Unreadable):
            return Prepared(bad=[table])
        if not isinstance(table, pa.Table):
            raise ConfigError(f"The reader of {uri} gives {type(table).__name__} and not pyarrow tables.")
        if table.num_rows == 0:
            return Prepared()
        table, rows = self._rows(table, first_row)
        bad: list[Unreadable] = []
        without_partner: Sequence[int] = ()
        try:
            stated = self._stated(table.schema)
            self._check_stated(stated)
            if self.made is not None:
                table, rows, bad, without_partner = self._with_made(self.made, table, rows, uri)
            if table.num_rows == 0:
                return Prepared(None, bad, 0, without_partner)
            prepared = self if self.is_settled else self._for(table, stated)
            table = prepared._with_fillers(table)
            convert = prepared._converter(table)
            prepared._mapped(table, convert)
        except DataError as error:
            return Prepared(None, [*bad, Unreadable(uri, None, table.num_rows, error)], 0, without_partner)
        more: list[Unreadable] = []
        parts = good_rows(convert, table, rows, uri, more)
        bad = sorted([*bad, *prepared._with_terminations(more, table, rows)], key=lambda each: each.row or 0)
        if not parts:
            return Prepared(None, bad, 0, without_partner)
        kept = np.concatenate([numbers for _, numbers in parts])
        if len(kept) < len(rows):
            table = table.take(pa.array(np.searchsorted(rows, kept)))
        good, left_out = prepared._with_extras(pa.concat_tables([part for part, _ in parts]), table)
        good, clipped = _placed(good, np.full(len(kept), file), kept)
        return Prepared(good, bad, clipped, without_partner, left_out)

    def together(self, rows: FilesRows) -> Prepared | None:
        """The rows of several files; None if each has to be looked at by itself.

        That is where a row is bad, or where what a file holds decides how its columns are read.
        """
        table = rows.table
        if (
            self.made is not None
            or not self.is_settled
            or table.num_rows == 0
            or any(map(_is_mixed, table.columns))
            or self._numbers_in_text(table)
        ):
            return None
        try:
            self._check_stated(self._stated(table.schema))
            table = self._with_fillers(table)
            self._check_columns(map_columns(table.slice(0, 0), self.mapping), table.column_names)
            good, left_out = self._with_extras(self._convert(table, numbers={}), table)
        except DataError:
            return None
        good, clipped = _placed(good, rows.file, rows.row)
        return Prepared(good, (), clipped, (), left_out)

    @property
    def is_settled(self) -> bool:
        """It is known what the columns of all rows are."""
        return self.types is not None and self.types.clock is not None

    def source_of(self, name: str) -> str | None:
        """The column that is mapped to a canonical name as it lies in the source; None: several are, or it is made."""
        source = self.mapping.get(name, name)
        is_made = self.made is not None and source in self.made.changed
        return source if isinstance(source, str) and not is_made else None

    @property
    def templates(self) -> dict[str, Nested]:
        """Empty arrays of the columns' types, once they are known."""
        return {} if self.types is None else self.types.templates

    @staticmethod
    def _rows(table: pa.Table, first_row: int) -> tuple[pa.Table, np.ndarray]:
        """(the table without the numbers of rows in their file, those)"""
        if SOURCE_ROW not in table.column_names:
            return table, first_row + np.arange(table.num_rows)
        return table.drop_columns([SOURCE_ROW]), table[SOURCE_ROW].to_numpy()

    def _converter(self, table: pa.Table) -> functools.partial[pa.Table]:
        return functools.partial(self._convert, numbers=self._numbers_in_text(table))

    def _mapped(self, table: pa.Table, convert: functools.partial[pa.Table]) -> pa.Table:
        """No row of a table, under canonical names.

        Raises:
            SchemaError: its columns are not those of steps, or of earlier rows.
        """
        mapped = map_columns(self._parsed(table.slice(0, 0), convert.keywords["numbers"]), self.mapping)
        self._check_columns(mapped, table.column_names)
        return mapped

    def _with_made(
        self, made: RowColumns, table: pa.Table, rows: np.ndarray, uri: str
    ) -> tuple[pa.Table, np.ndarray, list[Unreadable], Sequence[int]]:
        """(the good rows with the columns that are made, their numbers, the bad ones, rows without a partner by join)."""
        table, found, without_partner = made(table, uri)
        if not found:
            return table, rows, [], without_partner
        bad = self._with_terminations([Unreadable(uri, int(rows[row]), 1, error) for row, error in sorted(found)], table, rows)
        good = np.ones(len(rows), bool)
        good[[row for row, _ in found]] = False
        return table.filter(pa.array(good)), rows[good], bad, without_partner

    def _with_terminations(self, bad: list[Unreadable], table: pa.Table, rows: np.ndarray) -> list[Unreadable]:
        """The same, which say whether they terminate an episode."""
        if not bad:
            return []
        numbers = np.array([each.row for each in bad], np.int64)
        terminated = self._terminations(table.take(pa.array(np.searchsorted(rows, numbers))))
        return [each._replace(terminations=int(flag)) for each, flag in zip(bad, terminated, strict=True)]

    def _with_extras(self, good: pa.Table, table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
        """(converted rows with those columns of their source that are not mapped, those that cannot be kept)"""
        known, left_out = (None, {}) if self.types is None else (self.types.extras, self.types.left_out)
        arrays, more = extra_columns(table, self._extras(table) - left_out.keys(), known)
        left_out = {**left_out, **more}
        for name, array in arrays.items():
            good = good.append_column(pa.field(name, array.type, nullable=False), array)
        return good, left_out

    def _extras(self, table: pa.Table) -> set[str]:
        """Columns that are not mapped, whose name has no meaning, and which the version that is appended to lacks."""
        mapped = sources_of(self.mapping, self.mapping)
        late = () if self.made is None else self.made.late
        return {*table.column_names} - {*self.mapping, *mapped, *late, *self.templates, *_CANONICAL}

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

    def _numbers_in_text(self, table: pa.Table) -> dict[str, pa.DataType]:
        """The columns of text where numbers, lists of them or times have to be, and what they are to be parsed as."""
        spaces = self._columns_spaces
        observations, actions = (isinstance(space, _NUMERIC) for space in spaces)
        actions |= spaces[1] is None
        roles = {columns.OBS: observations, columns.NEW_OBS: observations, columns.ACTIONS: actions}
        of = dict(zip(roles, (spaces[0], *spaces), strict=True))
        found: dict[str, pa.DataType] = {}
        of |= dict.fromkeys(self._masks)
        roles |= dict.fromkeys(self._masks, True)
        for name, is_number in (roles | {columns.REWARDS: True, columns.T: True, columns.ACTION_PROB: True}).items():
            for source in sources_of(self.mapping, [name]):
                if source not in table.column_names or not is_text(table[source]):
                    continue
                if name in of and not isinstance(of[name], gym.spaces.Text) and has_lists(table[source]):
                    found[source] = LISTS
                elif is_number or isinstance(self.mapping.get(name), list):
                    found[source] = number_type(table[source], may_be_time=name == columns.T)
        return found

    def _parsed(self, table: pa.Table, numbers: Mapping[str, pa.DataType]) -> pa.Table:
        """The table with `numbers` in place of their texts."""
        for name, kind in numbers.items():
            try:
                column = parsed(table[name], kind, name)
            except SchemaError as error:
                if name != self.mapping.get(columns.ACTIONS, columns.ACTIONS) or kind == LISTS:
                    raise
                rows = {row: f"{said} {encode_hint(name)}" for row, said in error.rows.items()}
                raise SchemaError(f"{error} {encode_hint(name)}", column=error.column).with_rows(rows) from error
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _check_columns(self, table: pa.Table, in_source: Sequence[str]) -> None:
        """Of a table under canonical names, and what its columns are called in the source.

        Raises:
        SchemaError: a column is missing, or the columns differ from those of earlier tables.
        """
        names = end_names(table.column_names)
        if SOURCE_FILE in names:
            raise SchemaError(f"There is a column {SOURCE_FILE}, a name that is taken here; rename it, or leave it out.")
        if missing := [name for name in REQUIRED if name not in names]:
            likely = {name: found[0] for name in missing if (found := named(name, in_source))}
            line = ", ".join(f"{name}: {source}" for name, source in likely.items())
            hint = f"mapping: {{{line}}}" if likely else f"mapping, as -s mapping.{missing[0]}=NAME does"
            raise SchemaError(
                f"There is no column {', '.join(missing)} and none is mapped to it; there are {', '.join(in_source)}. Say "
                f"which it is by {hint}."
            )
        if not self.templates:
            return
        lost, more = (
            set(self.templates) - set(names) - set(MAPS),
            end_names(self._filled(table)) - set(self.templates) - set(MAPS) - {*self._masks},
        )
        if lost or more:
            differ = [f"{what} {', '.join(sorted(which))}" for what, which in (("no", lost), ("also", more)) if which]
            raise SchemaError(
                f"The columns are not those of earlier rows: {'; '.join(differ)}. Choose the common ones by source.columns, or "
                "import the files separately."
            )
        if self.types is not None and self.types.clock not in (None, _clock(table)):
            raise SchemaError(
                f"Column {columns.T!r} holds {_clock(table)} where earlier rows have {self.types.clock}; write all times in "
                "one way, or import the files separately."
            )

    def _convert(self, table: pa.Table, *, numbers: Mapping[str, pa.DataType]) -> pa.Table:
        """The whole table in canonical types.

        Raises:
            DataError: some row is not what it has to be.
        """
        table = self._parsed(table, numbers)
        try:
            return self._in_canonical_types(map_columns(table, self.mapping))
        except (NonFiniteError, SchemaError) as error:
            if not (said := error.rows or ({0: str(error)} if table.num_rows == 1 else {})):
                raise  # of more rows, it may be of any of them
            fills = self._fills(table, said)
            rows = {row: f"{text}{fills.get(row, '')}" for row, text in said.items()}
            raise type(error)(str(error), column=error.column).with_rows(rows) from error

    def _fills(self, table: pa.Table, rows: Collection[int]) -> dict[int, str]:
        """Of these rows, how the first raw column is filled that is needed and is null or NaN there."""
        found = dict[int, str]()
        for role in (*REQUIRED, *ENDS, columns.IS_FIRST):
            for name in sources_of(self.mapping, [role]):
                if not rows or name not in table.column_names:
                    continue
                value = "0" if role in REQUIRED else "false"
                said = f" To fill it with a value, such as {value}: columns: {{fill: {{{name}: {value}}}}}."
                if role == columns.OBS:
                    late = json.dumps({f"{name}_known": {"of": as_sql(name), "how": "last_known", "first": 0}})
                    said += (
                        f" To go on with the last one of its episode: columns: {{in_episode: {late}}}, and that name in obs."
                    )
                gaps = np.flatnonzero(pc.is_null(table[name], nan_is_null=True).to_numpy())
                found = dict.fromkeys({*gaps.tolist()} & {*rows}, said) | found
        return found

    def _in_canonical_types(self, table: pa.Table) -> pa.Table:
        names = self._filled(table) | {*REQUIRED, *self.templates, *ENDS} & set(table.column_names)
        trees = {name: self._column(table, name) for name in table.column_names if name in names}
        trees = with_ends(trees)
        if columns.ACTION_LOGP in trees and {columns.ACTION_LOGP, columns.ACTION_PROB} & self.mapping.keys():
            check_log_probabilities(trees, self.mapping)
        if self._masks:
            trees = with_masks(trees, self.spaces[1])
        for name in (columns.INFOS, *self.templates):  # maps come and go, for where all are empty some sources leave them out
            trees.setdefault(name, pa.nulls(table.num_rows, pa.binary()))
        found = self._in_env_units(trees)
        if found is not None:
            trees |= found.extras | {columns.ACTIONS: conform(found.actions, self.spaces[1], columns.ACTIONS)}
        if self.templates:
            trees = {name: like(trees[name], template, name) for name, template in self.templates.items()}
        for name, space in (
            (columns.OBS, self.within[0]),
            (columns.NEW_OBS, self.within[0]),
            (columns.ACTIONS, self.within[1]),
        ):
            if space is not None and name in trees:
                check_within(trees[name], space, name)
        if found is not None:
            trees[CLIPPED] = found.clipped
        arrays = {name: tree if isinstance(tree, pa.Array) else to_arrow(tree, name) for name, tree in trees.items()}
        fields = [pa.field(name, array.type, nullable=name in (*MAPS, *NAMES[1:])) for name, array in arrays.items()]
        return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))

    def _filled(self, table: pa.Table) -> set[str]:
        """The columns that have a type, and so may hold something, but for extra ones."""
        return {each.name for each in table.schema if not pa.types.is_null(each.type)} - self._extras(table)

    def _column(self, table: pa.Table, name: str) -> Any:
        if name in MAPS:
            return maps(table[name], name)
        if name in NAMES:
            return ids(table[name], name, nullable=name != columns.EPS_ID)
        if name == columns.T and pa.types.is_temporal(table[name].type):
            return nanoseconds(table[name], name)
        tree = read_foreign_column(table, name)
        match name:
            case columns.REWARDS:
                return finite(one_a_step(tree, name).astype(np.float64), name)
            case columns.T:
                numbers = one_a_step(tree, name)
                if numbers.dtype.kind == "f":
                    return finite(numbers, name)
                return exact(numbers, np.dtype(np.int64), f"Column {name!r} holds {{}}, which 64 bits cannot hold.")
            case columns.TERMINATEDS | columns.TRUNCATEDS | columns.DONES | columns.IS_LAST | columns.IS_FIRST:
                return flags(tree, name)
            case columns.OBS | columns.NEW_OBS:
                return conform(finite(tree, name, infinite=True), self._columns_spaces[0], name)
            case columns.ACTIONS:
                actions = finite(tree, name)
                if self.spaces[1] is None and (text := _text_inside(actions)):
                    inside = f"{self.mapping.get(name, name)}.{text}"
                    line = f"columns: {{encode: {{{inside}: {{form: index}}}}}}, mapping: {{actions: {inside}}}"
                    raise SchemaError(f"Column {name!r} has text in {inside}. If it names actions, number them: {line}.")
                return conform(actions, self.spaces[1] if self.recorded_action_range is None else None, name)
        return tree

    @property
    def _masks(self) -> tuple[str, ...]:
        """The columns that say which actions are allowed: none unless they are mapped, whatever a column is called."""
        return MASKS if ACTION_MASK in self.mapping else ()

    @property
    def _columns_spaces(self) -> StoredSpaces:
        """What the columns of observations and actions are of, before observations get their masks."""
        return without_masks(self.spaces, self.mapping)

    def _in_env_units(self, trees: Mapping[str, Any]) -> EnvActions | None:
        if self.recorded_action_range is None:
            return None
        return in_env_units(trees[columns.ACTIONS], trees, self.recorded_action_range, self.spaces[1])


def _text_inside(tree: Any) -> str | None:
    """Where in a struct the first text lies; None: nowhere."""
    if isinstance(tree, np.ndarray):
        return None
    texts = (path for path, leaf in flatten(tree, "").items() if leaf.dtype.kind == "U")
    return next((path.strip(PATH_SEPARATOR).replace(PATH_SEPARATOR, ".") for path in texts), None)


def _without_clipped(table: pa.Table) -> pa.Table:
    return table.drop_columns([CLIPPED]) if CLIPPED in table.column_names else table


def _placed(good: pa.Table, file: np.ndarray, row: np.ndarray) -> tuple[pa.Table, int]:
    """(converted rows with the place each comes from, how many have a clipped action)"""
    clipped = 0
    if CLIPPED in good.column_names:
        clipped = int(good[CLIPPED].to_numpy().sum())
        good = good.drop_columns([CLIPPED])
    good = good.append_column(SOURCE_FILE, pa.array(file.astype(np.int32)))
    return good.append_column(SOURCE_ROW, pa.array(row.astype(np.int64))), clipped


def _is_mixed(column: pa.ChunkedArray) -> bool:
    """Whether some texts of a column are packed and others are not."""
    if not arrow.is_text(column.type):
        return False
    packed = pc.starts_with(column, PACKED)
    return pc.any(packed).as_py() is True and not pc.all(packed, skip_nulls=False).as_py()


def _clock(table: pa.Table) -> str:
    """What column t holds; times with a zone and without are no common ones."""
    kind = table.schema.field(columns.T).type if columns.T in table.column_names else pa.null()
    if not pa.types.is_temporal(kind):
        return "numbers"
    return f"times {'without' if getattr(kind, 'tz', None) is None else 'with'} a time zone"


def good_rows(
    convert: Convert, table: pa.Table, rows: np.ndarray, uri: str, bad: list[Unreadable]
) -> list[tuple[pa.Table, np.ndarray]]:
    """Leaves out the rows that an error names; where it names none, halves the table until what is left is good or one."""
    try:
        return [(convert(table), rows)]
    except DataError as error:
        if error.rows:
            bad += [Unreadable(uri, int(rows[row]), 1, _alone(error, said)) for row, said in error.rows.items()]
            good = np.ones(len(rows), bool)
            good[[*error.rows]] = False
            return good_rows(convert, table.filter(pa.array(good)), rows[good], uri, bad) if good.any() else []
        if len(rows) <= 1 or (len(rows) > SEARCHED_ROWS and not _probes(convert, table)):
            bad += [Unreadable(uri, int(row), 1, error) for row in rows]
            return []
    half = len(rows) // 2
    left = good_rows(convert, table.slice(0, half), rows[:half], uri, bad)
    return left + good_rows(convert, table.slice(half), rows[half:], uri, bad)


def _alone(error: DataError, said: str) -> DataError:
    return type(error)(said, column=error.column)


def _usual(convert: Convert, table: pa.Table) -> pa.Table | None:
    """One of the rows that can be converted, of the kind of most of them; None if there is none."""
    good = _probes(convert, table)
    kinds = [str(part.schema) for part in good]
    return good[kinds.index(max(kinds, key=kinds.count))] if good else None


def _probes(convert: Convert, table: pa.Table) -> list[pa.Table]:
    """Those of `PROBES` rows that can be converted, each by itself."""
    good = []
    for row in np.unique(np.linspace(0, table.num_rows - 1, PROBES).astype(int)).tolist():
        with contextlib.suppress(DataError):
            good.append(convert(table.slice(row, 1)))
    return good
