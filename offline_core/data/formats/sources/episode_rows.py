"""Read rows that hold an episode each, with a list of values in every column of steps, or one list of records.

Told by what rows hold: rewards, which a step has one of, are a list there, as long as the actions; or neither is a column, and
a list of records has both. Observations may be one longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns
from offline_core.data.episodes.names import ENDS, named, parts_of, plain
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.step_reader import Unreadable, with_note
from offline_core.data.formats.sources.whole_episodes import AT_END, END_IS_CUT, id_in_file
from offline_core.errors import SchemaError

_MOST = 0.5
"""A file holds episodes if more than this share of its first rows look like some; the others are unreadable."""


def steps_in(batches: Iterable[pa.Table | Unreadable], uri: str) -> Iterator[pa.Table | Unreadable]:
    """The steps of all rows; rows that are steps themselves as they are."""
    layout: EpisodeRows | None = None
    is_known = False
    for batch in batches:
        if isinstance(batch, pa.Table) and not is_known:
            layout, is_known = EpisodeRows.of(batch, uri), True
        yield from [batch] if layout is None or isinstance(batch, Unreadable) else layout.steps(batch)


@dataclass
class EpisodeRows:
    """How the rows of one file hold episodes."""

    uri: str
    records: str | None
    """The column with a list of records, if there is one."""
    longer: dict[str, int]
    """Columns with a list → how many values it has more than there are steps."""
    counted: str
    """The list that says how many steps there are."""
    ends: tuple[str, ...]
    """Columns with one value an episode that say how it ends."""
    eps_id: str | None
    note: str
    steps_before: int = 0

    @classmethod
    def of(cls, rows: pa.Table, uri: str) -> EpisodeRows | None:
        """None if these rows are no episodes."""
        records = next((each.name for each in rows.schema if _are_steps(each.type)), None)
        rows = _with_columns(rows, records)
        names = [name for name in rows.column_names if name != SOURCE_ROW]
        lists = [name for name in names if _is_list(rows.schema.field(name).type)]
        [*rewards], [*actions] = named(columns.REWARDS, lists), named(columns.ACTIONS, lists)
        if not actions or rows.num_rows == 0 or (not rewards and named(columns.REWARDS, names)):
            return None
        if rewards and records is None and not _is_number(rows.schema.field(rewards[0]).type.value_type):
            return None
        counted = (rewards or actions)[0]
        steps = _lengths(rows[counted])
        longer = {name: more for name in names if (more := _longer(rows[name], steps)) is not None}
        observed = [longer.get(name) for name in named(columns.OBS, names)[:1]]
        if longer.get(actions[0]) != 0 or None in observed or not (rewards or 1 in observed):
            return None
        alone = [name for name in names if name not in longer]
        eps_id = next(iter(named(columns.EPS_ID, alone)), None)
        if eps_id is not None and len(pc.unique(rows[eps_id])) < rows.num_rows:
            return None
        ends = tuple(name for name in alone if plain(name) in AT_END and not pa.types.is_nested(rows.schema.field(name).type))
        says_end = any(named(role, names) for role in ENDS)
        after = [name for name, more in longer.items() if more]
        note = (
            f"Each row is an episode, with a list of steps in {records or ', '.join(longer)}"
            + (f", of which {', '.join(after)} has one value more, after the last step" if after else "")
            + ("." if eps_id is not None else "; its id is the name of the file and its row.")
            + ("" if says_end else f" {END_IS_CUT}")
        )
        return cls(uri, records, longer, counted, ends if says_end else (columns.TRUNCATEDS,), eps_id, note)

    def steps(self, rows: pa.Table) -> Iterator[pa.Table | Unreadable]:
        """The steps of some rows, numbered in `SOURCE_ROW`; rows with lists of other lengths are `Unreadable`."""
        rows = _with_columns(rows, self.records)
        numbers = rows[SOURCE_ROW].to_numpy() if SOURCE_ROW in rows.column_names else np.arange(rows.num_rows)
        count = _lengths(rows[self.counted])
        wrong = {name: ~_is_longer(rows[name], count, more) for name, more in self.longer.items()}
        bad = np.logical_or.reduce([*wrong.values()])
        for row in np.flatnonzero(bad):
            name = next(name for name, each in wrong.items() if each[row])
            problem = f"Column {name!r} has not the {count[row]} values of {self.counted!r} in this row, an episode."
            yield Unreadable(self.uri, int(numbers[row]), int(max(1, count[row])), SchemaError(problem))
        good = ~bad & (count > 0)
        rows, numbers, count = rows.filter(pa.array(good)), numbers[good], count[good]
        if rows.num_rows:
            yield with_note(self._table(rows.combine_chunks(), numbers, count), self.note)

    def _table(self, rows: pa.Table, numbers: np.ndarray, count: np.ndarray) -> pa.Table:
        row, last = pa.array(np.repeat(np.arange(len(count)), count)), np.cumsum(count) - 1
        at = np.arange(len(row))
        found = {SOURCE_ROW: pa.array(self.steps_before + at)}
        self.steps_before += len(row)
        for name in rows.column_names:
            column = rows[name].chunk(0)
            if name in self.ends:
                flags = np.zeros(len(row), bool)
                flags[last] = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False) != 0
                found[name] = pa.array(flags)
            elif name == SOURCE_ROW:
                continue
            elif name not in self.longer:
                found[name] = column.take(row)
            elif not self.longer[name]:
                found[name] = _flat(column)
            else:
                before = at + np.repeat(np.arange(len(count)), count)  # each row before has one value more
                values, is_info = _flat(column), name in named(columns.INFOS, [name])
                found[name] = values.take(pa.array(before + is_info))
                after = self._after(name, rows.column_names)
                if after is not None:
                    found[after] = values.take(pa.array(before + 1))
        if self.eps_id is None:
            found[columns.EPS_ID] = pa.array([id_in_file(self.uri, str(number)) for number in numbers]).take(row)
        if not named(columns.T, self.longer):
            found[columns.T] = pa.array(at - np.repeat(last - count + 1, count))
        if self.ends == (columns.TRUNCATEDS,) and columns.TRUNCATEDS not in rows.column_names:
            found[columns.TRUNCATEDS] = pa.array(np.isin(at, last))
        return pa.table(found).replace_schema_metadata(rows.schema.metadata)

    def _after(self, name: str, names: list[str]) -> str | None:
        """The name for what follows each step of a column; None if it has none."""
        if named(columns.NEW_OBS, names):
            return None
        if named(columns.OBS, [name]):
            return columns.NEW_OBS
        return f"next_{name}" if parts_of(columns.OBS, [name]) else None


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _are_steps(kind: pa.DataType) -> bool:
    """Whether it is a list of records with actions and rewards."""
    if not _is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    names = [each.name for each in kind.value_type]
    return bool(named(columns.ACTIONS, names) and named(columns.REWARDS, names))


def _with_columns(rows: pa.Table, records: str | None) -> pa.Table:
    """The rows with a list for each part of the records, in place of these."""
    if records is None:
        return rows
    column = rows[records].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    lengths = _lengths(rows[records])
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
    values = column.flatten()
    parts = {
        each.name: pa.LargeListArray.from_arrays(offsets, part)
        for each, part in zip(values.type, values.flatten(), strict=True)
    }
    others = {f"episode_{n}" if n in parts else n: rows[n] for n in rows.column_names if n != records}
    return pa.table({**others, **parts}).replace_schema_metadata(rows.schema.metadata)


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(), np.int64)


def _longer(column: pa.ChunkedArray, steps: np.ndarray) -> int | None:
    """How much longer than the steps of its row most lists are, in all parts of a record; None if it is no such column."""
    return next((more for more in (0, 1) if _is_longer(column, steps, more).mean() > _MOST), None)


def _is_longer(column: pa.ChunkedArray, steps: np.ndarray, more: int) -> np.ndarray:
    kind = column.type
    if pa.types.is_struct(kind) and kind.num_fields:
        return np.asarray([_is_longer(part, steps, more) for part in column.flatten()]).all(axis=0)
    lengths = _lengths(column) if _is_list(kind) else np.full(len(column), -1)
    return np.asarray(lengths == steps + more)


def _flat(array: pa.Array) -> pa.Array:
    """The values of all lists, one after the other; of a record of lists, records."""
    if not pa.types.is_struct(array.type):
        return array.flatten()
    parts = [_flat(part) for part in array.flatten()]
    return pa.StructArray.from_arrays(parts, names=[each.name for each in array.type])
