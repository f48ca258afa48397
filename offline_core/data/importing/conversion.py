"""Convert a whole table of a source to canonical columns and types; what does not convert is an error."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import ACTION_MASK
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.nested import PATH_SEPARATOR, Nested, flatten
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.packed import read_foreign_column
from offline_core.data.formats.sources.names import ENDS, named
from offline_core.data.importing.action_units import EnvActions, Range, in_env_units
from offline_core.data.importing.columns_config import last_reading
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.mapping import REQUIRED, ColumnMapping, ids, map_columns, sources_of
from offline_core.data.importing.masked import MASKS, with_masks, without_masks
from offline_core.data.importing.recognised import end_names, with_ends
from offline_core.data.importing.row_columns import RowColumns
from offline_core.data.importing.texts import (
    LISTS,
    encode_hint,
    has_lists,
    is_mostly_numbers,
    is_text,
    no_times,
    number_type,
    parsed,
)
from offline_core.data.importing.values import (
    MAPS,
    NAMES,
    ROUNDED,
    check_log_probabilities,
    check_within,
    conform,
    exact,
    finite,
    flags,
    like,
    maps,
    nanoseconds,
    one_a_step,
)
from offline_core.data.inputs.row_steps import as_sql
from offline_core.errors import NonFiniteError, SchemaError

_NUMERIC = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
_CANONICAL = {*columns.STEP_COLUMNS, *ENDS, columns.IS_FIRST, columns.ACTION_LOGP, columns.ACTION_DIST_INPUTS}
"""Names that mean what they mean without a mapping, too."""
NUMBERS, LOCAL_TIMES, TIMES = "numbers", "times without a time zone", "times with a time zone"
"""What column t may hold."""
CLIPPED = "_clipped_action"
"""A column beside the others while a table is converted."""


class Types(NamedTuple):
    """What the columns of all rows are, told from the first ones."""

    templates: dict[str, Nested]
    """Empty arrays, by canonical names."""
    extras: dict[str, Nested]
    """Empty arrays of the columns that are not mapped, whose values refuse no row."""
    left_out: Mapping[str, str] = {}
    """The columns that are not mapped and cannot be kept, and why."""
    clock: str | None = None
    """What column t holds; None: not known yet, as of the version that is appended to."""
    stated: StoredSpaces = (None, None)
    """(observation space, action space) that the source states with its rows."""


@dataclass(frozen=True)
class Conversion:
    """Turns tables of a source into tables of one canonical schema.

    Arguments:
        mapping: canonical names to names in the source.
        spaces: (observation space, action space) whose shapes and dtypes the columns get, where they are declared.
        recorded_action_range: actions are scaled from this range to the bounds of the action space, and clipped to them.
    """

    mapping: ColumnMapping
    spaces: StoredSpaces = (None, None)
    recorded_action_range: Range | None = None
    made: RowColumns = field(default_factory=RowColumns)
    """Columns that are made before the mapping."""
    within: StoredSpaces = (None, None)
    """(observation space, action space) that values have to be in; None: any."""
    types: Types | None = None
    """The types of the columns; None: not known yet."""
    texts: frozenset[str] = frozenset()
    """The columns of the source that are declared to be texts."""

    def source_of(self, name: str) -> str | None:
        """The column that is mapped to a canonical name as it lies in the source; None: several are, or it is made."""
        source = self.mapping.get(name, name)
        return source if isinstance(source, str) and source not in self.made.changed else None

    @property
    def templates(self) -> dict[str, Nested]:
        """Empty arrays of the columns' types, once they are known."""
        return {} if self.types is None else self.types.templates

    def _mapped(self, table: pa.Table, numbers: Mapping[str, pa.DataType]) -> pa.Table:
        """No row of a table, under canonical names.

        Raises:
            SchemaError: its columns are not those of steps, or of earlier rows.
        """
        mapped = map_columns(self._parsed(table.slice(0, 0), numbers), self.mapping)
        self._check_columns(mapped, table.column_names)
        self._check_clock(mapped, table)
        return mapped

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

    def _numbers_in_text(self, table: pa.Table) -> dict[str, pa.DataType]:
        """Map each column of text that has to hold numbers, lists of numbers or times to the type to parse it as."""
        spaces = self._columns_spaces
        observations, actions = (isinstance(space, _NUMERIC) for space in spaces)
        actions |= spaces[1] is None
        roles = {columns.OBS: observations, columns.NEW_OBS: observations, columns.ACTIONS: actions}
        of = dict(zip(roles, (spaces[0], *spaces), strict=True))
        types: dict[str, pa.DataType] = {}
        of |= dict.fromkeys(self._masks)
        roles |= dict.fromkeys(self._masks, True)
        for name, is_number in (roles | {columns.REWARDS: True, columns.T: True, columns.ACTION_PROB: True}).items():
            for source in sources_of(self.mapping, [name]):
                if source not in table.column_names or not is_text(table[source]):
                    continue
                if name in of and not isinstance(of[name], gym.spaces.Text) and has_lists(table[source]):
                    types[source] = LISTS
                elif is_number or isinstance(self.mapping.get(name), list) or self._has_wrong_numbers(table, name, source):
                    types[source] = number_type(table[source], may_be_time=name == columns.T)
        return types

    def _has_wrong_numbers(self, table: pa.Table, name: str, source: str) -> bool:
        """Whether observations that may be text are numbers with some wrong cells."""
        if name not in (columns.OBS, columns.NEW_OBS) or self._columns_spaces[0] is not None or source in self.texts:
            return False
        known, texts = self.templates.get(name), pl.Series(table[source].cast(pa.large_string()))
        if isinstance(known, np.ndarray):
            return known.dtype.kind != "U" and is_mostly_numbers(texts)
        return is_mostly_numbers(texts, may_be_text=True)

    def _parsed(self, table: pa.Table, numbers: Mapping[str, pa.DataType]) -> pa.Table:
        """The table with `numbers` in place of their texts."""
        for name, kind in numbers.items():
            try:
                column = parsed(table[name], kind, name)
            except SchemaError as error:
                of_actions = name == self.mapping.get(columns.ACTIONS, columns.ACTIONS)
                of_obs = self._columns_spaces[0] is None and name == self.mapping.get(columns.OBS, columns.OBS)
                if not (of_actions or of_obs) or kind == LISTS:
                    raise
                hint = encode_hint(name, of_actions=of_actions)
                rows = {row: f"{said} {hint}" for row, said in error.rows.items()}
                raise SchemaError(f"{error} {hint}", column=error.column).with_rows(rows) from error
            table = table.set_column(table.column_names.index(name), name, column)
        return table

    def _check_columns(self, table: pa.Table, in_source: Sequence[str]) -> None:
        """Check the columns of a table under canonical names.

        Arguments:
            in_source: the names of the columns in the source.

        Raises:
            SchemaError: a column is missing, or the columns differ from those of earlier tables.
        """
        names = end_names(table.column_names)
        if SOURCE_FILE in names:
            raise SchemaError(f"There is a column {SOURCE_FILE}, a name that is taken here; rename it, or leave it out.")
        if missing := [name for name in REQUIRED if name not in names]:
            likely = {name: matches[0] for name in missing if (matches := named(name, in_source))}
            line = ", ".join(f"{name}: {source}" for name, source in likely.items())
            hint = f"mapping: {{{line}}}" if likely else f"mapping: {{{missing[0]}: NAME}}"
            raise SchemaError(
                f"There is no column {', '.join(missing)} and none is mapped to it; there are {', '.join(in_source)}. Say "
                f"which it is by {hint}.",
                column=missing[0],
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

    def _check_clock(self, mapped: pa.Table, table: pa.Table) -> None:
        """Check that column t of a table, mapped and as it lies in the source, holds what earlier rows have there.

        Raises:
            SchemaError: it does not.
        """
        if self.types is None or self.types.clock in (None, clock_of(mapped)):
            return
        source = self.mapping.get(columns.T, columns.T)
        if clock_of(mapped) == NUMBERS and isinstance(source, str) and source in table.column_names and is_text(table[source]):
            raise no_times(table[source], source, self.types.clock)
        raise SchemaError(
            f"Column {columns.T!r} holds {clock_of(mapped)} where earlier rows have {self.types.clock}; write all times in "
            "one way, or import the files separately."
        )

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
        env_actions = self._in_env_units(trees)
        if env_actions is not None:
            trees |= env_actions.extras | {columns.ACTIONS: conform(env_actions.actions, self.spaces[1], columns.ACTIONS)}
        if self.templates:
            trees = {
                name: like(trees[name], template, self._called(name), may_round=name in ROUNDED)
                for name, template in self.templates.items()
            }
        for name, space in (
            (columns.OBS, self.within[0]),
            (columns.NEW_OBS, self.within[0]),
            (columns.ACTIONS, self.within[1]),
        ):
            if space is not None and name in trees:
                check_within(trees[name], space, self._called(name))
        if env_actions is not None:
            trees[CLIPPED] = env_actions.clipped
        arrays = {
            name: tree if isinstance(tree, pa.Array) else to_arrow(tree, self._called(name)) for name, tree in trees.items()
        }
        fields = [pa.field(name, array.type, nullable=name in (*MAPS, *NAMES[1:])) for name, array in arrays.items()]
        return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))

    def _extras(self, table: pa.Table) -> set[str]:
        """Columns that are not mapped, whose name has no meaning, and which the version that is appended to lacks."""
        mapped = sources_of(self.mapping, self.mapping)
        return {*table.column_names} - {*self.mapping, *mapped, *self.made.late, *self.templates, *_CANONICAL}

    def _filled(self, table: pa.Table) -> set[str]:
        """The mapped columns that have a type, and so may hold values."""
        return {field.name for field in table.schema if not pa.types.is_null(field.type)} - self._extras(table)

    def _called(self, role: str) -> str:
        """What a canonical column is called in the source, if it is a single one there: for messages."""
        source = self.mapping.get(role)
        return source if isinstance(source, str) else role

    def _column(self, table: pa.Table, role: str) -> Any:
        """A column under its canonical name; errors call it as the source does."""
        name = self._called(role)
        table = table.select([role]).rename_columns([name])
        if role in MAPS:
            return maps(table[name], name)
        if role in NAMES:
            return ids(table[name], name, nullable=role != columns.EPS_ID)
        if role == columns.T and pa.types.is_temporal(table[name].type):
            return nanoseconds(table[name], name)
        tree = read_foreign_column(table, name)
        match role:
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
                    inside = f"{name}.{text}"
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

    def _fills(self, table: pa.Table, rows: Collection[int]) -> dict[int, str]:
        """Map each of these rows to advice on how to fill its first needed source column that is null or NaN."""
        remedies = dict[int, str]()
        for name in sources_of(self.mapping, [columns.EPS_ID, columns.T]):
            if name in table.column_names:
                unplaced = {*np.flatnonzero(table[name].is_null().to_numpy()).tolist()} & {*rows}
                advice = "" if name in self.made.changed else _to_leave_out(name)
                remedies, rows = dict.fromkeys(unplaced, advice) | remedies, {*rows} - unplaced
        for role in (*REQUIRED, *ENDS, columns.IS_FIRST):
            for name in sources_of(self.mapping, [role]):
                if not rows or name not in table.column_names:
                    continue
                gaps = np.flatnonzero(pc.is_null(table[name], nan_is_null=True).to_numpy())
                remedies = dict.fromkeys({*gaps.tolist()} & {*rows}, _to_fill(role, name)) | remedies
        return remedies


def _to_fill(role: str, name: str) -> str:
    """Advise how to fill a column. No number stands for a reward or an action that is not known."""
    if role in (columns.REWARDS, columns.ACTIONS):
        return ""
    value = "0" if role == columns.OBS else "false"
    said = f" To fill it with a value, such as {value}: columns: {{fill: {{{name}: {value}}}}}."
    if role == columns.OBS:
        late = json.dumps(last_reading(name))
        said += f" To go on with the last one of its episode: columns: {{in_episode: {late}}}, and that name in obs."
    return said


def _to_leave_out(name: str) -> str:
    """Advise how to leave out rows without an id or a time: no value stands for where a row belongs."""
    where = json.dumps({"where": f"{as_sql(name)} IS NOT NULL"}, ensure_ascii=False)
    return f" If such a row is no step, as one of totals is none, leave it out: source: {where}."


def _text_inside(tree: Any) -> str | None:
    """Return the path of the first text in a struct; None if it holds no text."""
    if isinstance(tree, np.ndarray):
        return None
    texts = (path for path, leaf in flatten(tree, "").items() if leaf.dtype.kind == "U")
    return next((path.strip(PATH_SEPARATOR).replace(PATH_SEPARATOR, ".") for path in texts), None)


def clock_of(table: pa.Table) -> str:
    """What column t holds; times with a zone and without are no common ones."""
    kind = table.schema.field(columns.T).type if columns.T in table.column_names else pa.null()
    if not pa.types.is_temporal(kind):
        return NUMBERS
    return LOCAL_TIMES if getattr(kind, "tz", None) is None else TIMES
