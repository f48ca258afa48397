"""Recognise ends, firsts, lasts and next observations by the names that other programs give them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import arrow, columns, nested
from offline_core.data.episodes.action_masks import ACTION_MASK, NEW_ACTION_MASK
from offline_core.data.formats.packed import read_foreign_column
from offline_core.data.formats.sources.names import (
    ENDS,
    RLDS,
    STEP_TYPES,
    SYNONYMS,
    UNDERSTOOD,
    following,
    named,
    parts_of,
    plain,
)
from offline_core.data.formats.sources.step_reader import Recognised
from offline_core.data.importing.mapping import ColumnMapping, sources_of
from offline_core.data.importing.values import TRUTH
from offline_core.errors import DataError

MIN_NAME = 3
"""A column with a shorter name, such as d, is taken for nothing by it."""
FLAG_SHARE = 0.5
"""A column holds flags, some of them perhaps wrong, if more than this share of its first values are some."""
_TRUTH = pa.array([*TRUTH])


def recognised(
    table: pa.Table, mapping: ColumnMapping, changed: Collection[str] = (), *, least: int = MIN_NAME
) -> tuple[dict[str, str | list[str]], list[str]]:
    """(a mapping, completed by the names of the columns in the first rows of a source; what was taken for what, and what not).

    Arguments:
        changed: columns that are made or changed before the mapping: no next observation in the source is like them.
        least: letters of a name.
    """
    return _Recognition(table, _by_role(mapping, table.column_names), frozenset(changed), least).result()


def _by_role(mapping: ColumnMapping, names: Collection[str]) -> dict[str, str | list[str]]:
    """Return the mapping without the columns that a reader has already renamed to their canonical names."""
    by_role = dict(mapping)
    for role, source in mapping.items():
        if isinstance(source, str) and role in names and source not in names and plain(source) in SYNONYMS.get(role, ()):
            del by_role[role]
    return by_role


@dataclass
class _Recognition:
    table: pa.Table
    mapping: dict[str, str | list[str]]
    changed: frozenset[str]
    least: int
    notes: list[str] = field(default_factory=list)

    def result(self) -> tuple[dict[str, str | list[str]], list[str]]:
        is_rlds = any(plain(name) in RLDS for name in self.table.column_names) and not self._next_observations()
        for role in UNDERSTOOD:
            if role in self.mapping:
                continue
            if role == columns.NEW_OBS:
                source: str | list[str] | None = self._next_observations()
            else:
                source = next((name for name in self._free(role) if name == role or _is_flag(self.table[name])), None)
            if source is None:
                continue
            if role == columns.IS_LAST and not is_rlds:
                if columns.DONES not in self.mapping:
                    self._take(
                        columns.DONES, source, f"each row is a step; if those are none, as in RLDS, map is_last: {source}"
                    )
                continue
            self._take(role, source)
        self.notes += self._left()
        return self.mapping, self.notes

    def _take(self, role: str, source: str | list[str], why: str = "") -> None:
        self.mapping[role] = source
        if source != role:
            shown = source if isinstance(source, str) else f"[{', '.join(source)}]"
            self.notes.append(Recognised(f"{role} is {shown}, by its name{f': {why}' if why else ''}."))

    @property
    def _unused(self) -> list[str]:
        used = {*sources_of(self.mapping, self.mapping)}
        return [name for name in self.table.column_names if name not in used]

    def _free(self, role: str) -> list[str]:
        """Columns with a name of the role that are not mapped and hold something."""
        names = (
            name for name in self._unused if len(plain(name)) >= self.least and not pa.types.is_null(self.table[name].type)
        )
        return named(role, names)

    def _next_observations(self) -> str | list[str] | None:
        """The column, or the columns of a vector, that are like the observations."""
        if columns.NEW_OBS in self.mapping:
            return self.mapping[columns.NEW_OBS]
        obs = self.mapping.get(columns.OBS, columns.OBS)
        parts = [obs] if isinstance(obs, str) else obs
        if self.changed & {*parts} or (ACTION_MASK in self.mapping and NEW_ACTION_MASK not in self.mapping):
            return None
        if not {*parts} <= {*self.table.column_names}:
            return None
        whole = next((name for name in self._free(columns.NEW_OBS) if self._is_like(name, parts)), None)
        if whole is not None or isinstance(obs, str):
            return whole
        free = {*self._unused}
        after = following(self.table.column_names)
        if {*(names := [after.get(part, part) for part in parts])} <= free:
            return names
        numbered = parts_of(columns.NEW_OBS, self._unused)
        return numbered if len(numbered) == len(parts) else None

    def _is_like(self, name: str, obs: list[str]) -> bool:
        """Whether a column has values of the shape of the observations."""
        column = self.table[name]
        if len(obs) == 1 and arrow.is_text(column.type):
            return bool(arrow.is_text(self.table[obs[0]].type))
        shapes = [_shapes(self.table, source) for source in (name, *obs)]
        if isinstance(self.mapping.get(columns.OBS), list):
            sizes = [None if shape is None else int(sum(np.prod(leaf) for leaf in shape.values())) for shape in shapes]
            return sizes[0] is not None and None not in sizes and sizes[0] == sum(size or 0 for size in sizes[1:])
        return shapes[0] is not None and shapes[0] == shapes[1]

    def _left(self) -> Iterator[str]:
        """Sentences on columns that have such a name and become extra outputs."""
        for role in (*UNDERSTOOD, columns.EPS_ID):
            there = self.mapping.get(role, role if role in self.table.column_names else None)
            for name in self._free(role):
                if name == there:
                    continue
                said = f"Column {name} is an extra output, and not {role}"
                if there is not None:
                    if role in ENDS or role == columns.NEW_OBS:
                        yield f"{said}, which is {there}."
                elif role == columns.EPS_ID:
                    yield f"{said}; if it names episodes, set mapping.{role}: {name}."
                elif role == columns.NEW_OBS:
                    yield f"{said}: it has not the shape of obs, or obs is made of other columns. Set mapping.{role} if it is."
                elif role != columns.IS_FIRST:
                    yield f"{said}: its values are no flags."
        for name in self._unused:
            if plain(name) in STEP_TYPES and not {*ENDS} & self.mapping.keys():
                yield (
                    f"Column {name} is an extra output. If it is 2 in last rows, as dm_env has it, compute the ends: "
                    f"columns: {{computed: {{ended: {name} = 2}}}}, mapping: {{dones: ended}}."
                )


def _shapes(table: pa.Table, name: str) -> dict[str, Any] | None:
    """Return the shapes of a step's values by the paths of their leaves; None if they cannot be read."""
    try:
        leaves = nested.flatten(read_foreign_column(table.select([name]).drop_null(), name), "")
    except (DataError, pa.ArrowException):
        return None
    return {path: leaf.shape[1:] for path, leaf in leaves.items() if leaf.dtype.kind != "U"}


def _is_flag(column: pa.ChunkedArray) -> bool:
    """Whether most values are true or false, 1 or 0, or their texts."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, column = column.type, column.drop_null()
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        flags = pc.is_in(column.cast(pa.float64(), safe=False), pa.array([0.0, 1.0]))
    elif arrow.is_text(kind):
        flags = pc.is_in(pc.utf8_lower(column.cast(pa.large_string())), _TRUTH.cast(pa.large_string()))
    else:
        return False
    return len(column) > 0 and bool(pc.mean(flags.cast(pa.float64())).as_py() > FLAG_SHARE)


def end_names(names: Collection[str]) -> set[str]:
    """Return the names that columns have after `with_ends`."""
    resolved = set(names) - {columns.DONES}
    if {columns.DONES, columns.IS_LAST} & set(names):
        resolved |= {columns.TRUNCATEDS if columns.TERMINATEDS in names else columns.TERMINATEDS}
    return resolved


def with_ends(trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns with `terminateds` and `truncateds` in place of flags that only say that an episode ends.

    Where such a flag is set, an end that is no termination is a truncation. If there is no column of terminations, an
    end that is no truncation is a termination.
    """
    resolved = dict(trees)
    done = resolved.pop(columns.DONES, None)
    last = resolved.get(columns.IS_LAST)
    ends = [flags for flags in (done, last) if flags is not None]
    if not ends:
        return resolved
    either = np.logical_or.reduce(ends)
    truncated = resolved.get(columns.TRUNCATEDS)
    if columns.TERMINATEDS in resolved:
        more = either & ~resolved[columns.TERMINATEDS]
        resolved[columns.TRUNCATEDS] = more if truncated is None else truncated | more
    else:
        resolved[columns.TERMINATEDS] = either if truncated is None else either & ~truncated
    return resolved
