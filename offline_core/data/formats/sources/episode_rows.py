"""Read rows that hold an episode each, with a list of values in every column of steps, or one list of records.

Told by what rows hold: rewards, which a step has one of, are a list there, as long as the actions; or neither is a column, and
a list of records has both. Observations may be one longer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.formats.sources.names import ENDS, named, parts_of, plain
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.step_reader import Unreadable, with_note
from offline_core.data.formats.sources.whole_episodes import AT_END, END_IS_UNKNOWN, check_repeated, id_in_file
from offline_core.errors import SchemaError, first_line

_MOST = 0.5
"""A file holds episodes if more than this share of its first rows look like some; the others are unreadable."""
MAX_STEP = 10**9
"""Larger numbers are times."""
_COUNT, _LAST = "_count of steps", "_is last step"
_PART = "\x1f"
"""Between the name of a record and that of its part: no name has it."""


def may_hold_episodes(schema: pl.Schema) -> bool:
    """Whether columns of these types may hold episodes; what is in them decides."""
    rewards = [schema[name] for name in named(columns.REWARDS, schema)]
    observed = [kind.inner for name in named(columns.OBS, schema) if isinstance(kind := schema[name], pl.List)]
    return any(map(_are_steps, schema.values())) or any(isinstance(kind, pl.List | pl.Array) for kind in rewards or observed)


def steps_in(
    batches: Iterable[pa.Table | Unreadable], uri: str, chosen: Collection[str] | None = None
) -> Iterator[pa.Table | Unreadable]:
    """The steps of all rows, with the chosen columns and those that are made; rows that are steps themselves as they are."""
    layout: EpisodeRows | None = None
    is_known = False
    for batch in batches:
        if isinstance(batch, pa.Table) and not is_known:
            with _refused(uri):
                layout, is_known = EpisodeRows.of(batch, uri), True
        if isinstance(batch, Unreadable):
            yield batch
            continue
        other = set() if chosen is None else {*batch.column_names} - {*chosen, SOURCE_ROW}
        needed = other if layout is None else other - {name.partition(_PART)[0] for name in layout.longer}
        batch = batch.drop_columns([*needed])
        with _refused(uri):
            parts = [batch] if layout is None else [*layout.steps(batch)]
        for part in parts:
            if isinstance(part, Unreadable):
                yield part
            else:
                yield part.drop_columns([name for name in part.column_names if name in other])


@contextlib.contextmanager
def _refused(uri: str) -> Iterator[None]:
    """Raises:
    SchemaError: rows that look like episodes are none, in a way that only making steps of them shows.
    """
    try:
        yield
    except (pl.exceptions.PolarsError, pa.ArrowException, KeyError, TypeError) as error:
        what = first_line(error)
        raise SchemaError(
            f"{uri} has rows that look like episodes and cannot be made steps: {what}. Save a row a step."
        ) from error


@dataclass
class EpisodeRows:
    """How the rows of one file hold episodes."""

    uri: str
    longer: Mapping[str, int]
    """Columns with a list, of a record each part of it → how many values it has more than there are steps."""
    counted: str
    """The one that says how many steps there are."""
    has_id: bool
    note: str
    steps_before: int = 0

    @classmethod
    def of(cls, table: pa.Table, uri: str) -> EpisodeRows | None:
        """Detect how rows hold episodes; None if these rows are no episodes."""
        rows = pl.DataFrame(table)
        if not rows.height or not may_hold_episodes(rows.schema):
            return None
        own = {name for name, kind in rows.schema.items() if not kind.is_nested()}
        is_steps = len(named(columns.ACTIONS, own)) and len(named(columns.REWARDS, own))
        if is_steps or any(_counts(rows[name]) for name in named(columns.T, own)):
            return None
        records = [name for name, kind in rows.schema.items() if _are_steps(kind)]
        rows = _in_parts(rows)
        inner: dict[str, Any] = {name: kind.inner for name, kind in rows.schema.items() if isinstance(kind, pl.List)}
        if records:
            counted, longer = records[0], {records[0]: 0}
            names = [*rows.columns, *(field.name for field in inner[counted].fields)]
        else:
            names, rewards, actions = rows.columns, named(columns.REWARDS, rows.columns), named(columns.ACTIONS, inner)
            rewards = [name for name in rewards if name in inner]
            if not actions or (rewards and not inner[rewards[0]].is_numeric()):
                return None
            counted = (rewards or actions)[0]
            every = {name: _longer(rows, name, counted) for name in inner}
            longer = {name: more for name, more in every.items() if more is not None}
            observed = [longer.get(name) for name in inner if named(columns.OBS, [name.partition(_PART)[0]])]
            if longer.get(actions[0]) != 0 or not observed or None in observed or not (rewards or 1 in observed):
                return None
        ids = named(columns.EPS_ID, names)
        has_own = bool(ids) and ids[0] in rows.columns and ids[0] not in longer
        if has_own and rows[ids[0]].n_unique() < rows.height:
            return None
        if not records and not has_own and _may_be_vectors(rows, inner, counted):
            return None
        says_end = any(named(role, names) for role in ENDS)
        after = [name for name, more in longer.items() if more]
        note = (
            f"Each row is an episode, with a list of steps in {', '.join(longer).replace(_PART, '.')}"
            + (f", of which {', '.join(after).replace(_PART, '.')} has one value more, after the last step" if after else "")
            + ("." if ids else "; its id is the name of the file and its row.")
            + ("" if says_end else f" {END_IS_UNKNOWN}")
        )
        return cls(uri, longer, counted, bool(ids), note)

    def steps(self, table: pa.Table) -> Iterator[pa.Table | Unreadable]:
        """Yield the steps of some rows, numbered in `SOURCE_ROW`; rows with lists of different lengths are `Unreadable`."""
        rows = _in_parts(pl.DataFrame(table)).with_columns(pl.col(self.counted).list.len().fill_null(0).alias(_COUNT))
        if SOURCE_ROW not in rows.columns:
            rows = rows.with_row_index(SOURCE_ROW)
        wrong = {name: pl.col(name).list.len().fill_null(0) != pl.col(_COUNT) + more for name, more in self.longer.items()}
        for row, count, *flags in rows.filter(pl.any_horizontal(*wrong.values())).select(SOURCE_ROW, _COUNT, **wrong).rows():
            name = [*wrong][flags.index(True)]
            problem = (
                f"Column {name.replace(_PART, '.')!r} has not the {count} values of {self.counted!r} in this row, an episode."
            )
            yield Unreadable(self.uri, row, max(1, count), SchemaError(problem))
        empty = rows.filter(pl.col(_COUNT) == 0).height
        note = f"{self.note} {empty:,} rows of {self.uri} hold no step." if empty else self.note
        rows = self._exploded(rows.filter(~pl.any_horizontal(*wrong.values()), pl.col(_COUNT) > 0))
        if rows.height:
            steps = rows.drop(SOURCE_ROW).with_row_index(SOURCE_ROW, self.steps_before).drop(_COUNT, _LAST)
            self.steps_before += rows.height
            yield with_note(_as_one(steps).to_arrow().replace_schema_metadata(table.schema.metadata), note)

    def _exploded(self, rows: pl.DataFrame) -> pl.DataFrame:
        alone = [name for name in rows.columns if name not in self.longer]
        sizes = rows.select((_value_bytes(rows, name) * pl.col(_COUNT)).sum().alias(name) for name in alone)
        check_repeated({name: int(size or 0) for name, size in zip(alone, sizes.row(0), strict=True)}, self.uri)
        made = [pl.int_ranges(0, pl.col(_COUNT)).alias(_LAST)]
        if not self.has_id:
            made.append(pl.concat_str(pl.lit(id_in_file(self.uri, "")), SOURCE_ROW).alias(columns.EPS_ID))
        for name, more in self.longer.items():
            if more:
                whole = name.partition(_PART)[0]
                is_after = any(named(role, [whole]) for role in (columns.INFOS, *ENDS))
                made.append(pl.col(name).list.slice(int(is_after), _COUNT))
                if (after := self._after(whole, rows.columns)) is not None:
                    made.append(pl.col(name).list.slice(1).alias(name.replace(whole, after, 1)))
        wide = rows.with_columns(made)
        steps = wide.explode(*(expr.meta.output_name() for expr in made if expr.meta.output_name() != columns.EPS_ID), *(
            name for name, more in self.longer.items() if not more
        ))  # fmt: skip
        if isinstance(steps.schema[self.counted], pl.Struct):
            fields = steps[self.counted].struct.fields
            taken = {*steps.columns, *fields}
            steps = steps.rename({name: _unused(f"episode_{name}", taken) for name in fields if name in steps.columns})
            steps = steps.unnest(self.counted)
        is_last = pl.col(_LAST) == pl.col(_COUNT) - 1
        alone = [name for name in rows.columns if plain(name) in AT_END and not rows.schema[name].is_nested()]
        steps = steps.with_columns(_is_set(name, rows.schema[name]) & is_last for name in alone)
        if not named(columns.T, self.longer) and columns.T not in steps.columns:
            steps = steps.with_columns(pl.col(_LAST).alias(columns.T))
        return steps

    def _after(self, name: str, names: Iterable[str]) -> str | None:
        """The name for what follows each step of a column; None if it has none."""
        if named(columns.NEW_OBS, names):
            return None
        if named(columns.OBS, [name]):
            return columns.NEW_OBS
        return f"next_{name}" if parts_of(columns.OBS, [name]) else None


def _are_steps(kind: pl.DataType) -> bool:
    """Whether it is a list of records with actions and rewards."""
    if not isinstance(kind, pl.List | pl.Array) or not isinstance(kind.inner, pl.Struct):
        return False
    names = [field.name for field in kind.inner.fields]
    return bool(named(columns.ACTIONS, names) and named(columns.REWARDS, names))


def _counts(column: pl.Series) -> bool:
    """Whether it numbers rows as steps, and is no time."""
    return column.dtype.is_integer() and column.n_unique() > 1 and int(column.max() or 0) < MAX_STEP  # type: ignore[arg-type]


def _may_be_vectors(rows: pl.DataFrame, inner: Mapping[str, Any], counted: str) -> bool:
    """Whether the lists may be vectors of one step each: numbers, as many in each row and column."""
    if rows.height == 1 or any(inner[name].is_nested() for name in named(columns.OBS, inner)):
        return False
    return all(rows[name].list.len().n_unique() == 1 for name in inner)


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"{name}_"
    taken.add(name)
    return name


def _is_set(name: str, kind: pl.DataType) -> pl.Expr:
    """Whether a flag of any type is true."""
    if kind == pl.String:
        return pl.col(name).str.to_lowercase().is_in(["true", "1", "yes"]).fill_null(False)
    return pl.col(name).cast(pl.Float64).fill_null(0).ne(0)


def _value_bytes(rows: pl.DataFrame, name: str) -> pl.Expr:
    """About the bytes of each value of a column."""
    match rows.schema[name]:
        case pl.String():
            return pl.col(name).str.len_bytes().cast(pl.Int64)
        case pl.Binary():
            return pl.col(name).bin.size().cast(pl.Int64)
        case kind if kind.is_nested():
            return pl.lit(rows[name].estimated_size() // max(1, rows.height), pl.Int64)
    return pl.lit(8, pl.Int64)


def _longer(rows: pl.DataFrame, name: str, counted: str) -> int | None:
    """How much longer than those of another column most lists are; None if neither 0 nor 1."""
    more = rows.select(
        pl.col(name).list.len().cast(pl.Int64).fill_null(0) - pl.col(counted).list.len().fill_null(0)
    ).to_series()
    return next((size for size in (0, 1) if (more == size).mean() > _MOST), None)  # type: ignore[operator]


def _in_parts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the fields of records of lists as columns, and arrays of fixed size as lists."""
    while records := [name for name in rows.columns if _has_lists(rows.schema[name])]:
        for name in records:
            kind: Any = rows.schema[name]
            parts = [pl.col(name).struct.field(field.name).alias(f"{name}{_PART}{field.name}") for field in kind.fields]
            rows = rows.with_columns(parts).drop(name)
    return rows.with_columns(pl.col(name).arr.to_list() for name, kind in rows.schema.items() if isinstance(kind, pl.Array))


def _has_lists(kind: Any) -> bool:
    return isinstance(kind, pl.Struct) and any(
        isinstance(field.dtype, pl.List | pl.Array) or _has_lists(field.dtype) for field in kind.fields
    )


def _as_one(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with records in place of their parts."""
    while parts := [name for name in rows.columns if _PART in name]:
        deepest = max(parts, key=lambda name: name.count(_PART)).rpartition(_PART)[0]
        inside = [name for name in rows.columns if name.rpartition(_PART)[0] == deepest]
        whole = pl.struct(pl.col(name).alias(name.rpartition(_PART)[2]) for name in inside).alias(deepest)
        rows = rows.with_columns(whole).drop(inside)
    return rows
