"""Rows as a source has them → rows in our columns and types, with every row that cannot be one named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.conversion.trajectories import SOURCE_FILE, Spaces
from offline_core.conversion.unreadable import Unreadable
from offline_core.episodes import columns, nested
from offline_core.episodes.arrow import to_arrow
from offline_core.episodes.codec import pack
from offline_core.episodes.mapping import ColumnMapping, map_columns
from offline_core.episodes.nested import Nested
from offline_core.errors import ConfigError, DataError, NonFiniteError, SchemaError, SpaceError
from offline_core.storage.foreign import read_foreign_column
from offline_core.storage.sources.scans import SOURCE_ROW

PROBES = 16
"""Rows tried one by one before a table is searched for its bad rows: if none of them is good, none will be."""

_MAPS = (columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA)
_FLAGS = (columns.TERMINATEDS, columns.TRUNCATEDS)
_NAMES = (columns.EPS_ID, columns.AGENT_ID, columns.MODULE_ID)
_TRUTH = {"true": True, "false": False, "1": True, "0": False}


@dataclass
class Preparation:
    """Turns tables of a source into tables of one canonical schema, that of the first row that could be turned.

    Arguments:
        mapping: canonical names to names in the source.
        spaces: (observation space, action space) whose shapes and dtypes the columns get, where they are declared.
        recorded_action_range: actions are scaled from this range to the bounds of the action space.
    """

    mapping: ColumnMapping
    spaces: Spaces = (None, None)
    recorded_action_range: tuple[float, float] | None = None
    templates: dict[str, Nested] = field(default_factory=dict)
    """Empty arrays of the columns' types, once they are known."""

    def __call__(self, table: pa.Table, *, file: int, first_row: int, uri: str) -> tuple[pa.Table | None, list[Unreadable]]:
        """(the good rows with `SOURCE_FILE` and `SOURCE_ROW`, or None, and the bad ones)."""
        rows = first_row + np.arange(table.num_rows)
        if SOURCE_ROW in table.column_names:
            rows = table[SOURCE_ROW].to_numpy()
            table = table.drop_columns([SOURCE_ROW])
        try:
            mapped = map_columns(table, self.mapping)
        except DataError as error:
            return None, [Unreadable(uri, None, table.num_rows, error)]
        bad: list[Unreadable] = []
        parts = self._good(mapped, rows, uri, bad)
        if not parts:
            return None, bad
        good = pa.concat_tables([part for part, _ in parts])
        kept = np.concatenate([numbers for _, numbers in parts])
        good = good.append_column(SOURCE_FILE, pa.array(np.full(len(kept), file, np.int32)))
        return good.append_column(SOURCE_ROW, pa.array(kept.astype(np.int64))), bad

    def _good(self, table: pa.Table, rows: np.ndarray, uri: str, bad: list[Unreadable]) -> list[tuple[pa.Table, np.ndarray]]:
        """Halves a table that cannot be converted until what is left is good, or one bad row."""
        try:
            return [(self._convert(table), rows)]
        except DataError as error:
            if len(rows) <= 1:
                bad += [Unreadable(uri, int(row), 1, error) for row in rows]
                return []
            if len(rows) > PROBES and not self._any_good(table):
                bad += [Unreadable(uri, int(row), 1, error) for row in rows]
                return []
        half = len(rows) // 2
        left = self._good(table.slice(0, half), rows[:half], uri, bad)
        return left + self._good(table.slice(half), rows[half:], uri, bad)

    def _any_good(self, table: pa.Table) -> bool:
        for row in np.linspace(0, table.num_rows - 1, PROBES).astype(int):
            try:
                self._convert(table.slice(int(row), 1))
            except DataError:
                continue
            return True
        return False

    def _convert(self, table: pa.Table) -> pa.Table:
        """The whole table in canonical types.

        Raises:
            DataError: some row, or the table as such, is not what it has to be.
        """
        trees = {
            name: self._column(table, name)
            for name in table.column_names
            if not pa.types.is_null(table.schema.field(name).type) or name in self.templates
        }
        if missing := [name for name in (columns.OBS, columns.ACTIONS, columns.REWARDS) if name not in trees]:
            raise SchemaError(
                f"There is no column {', '.join(missing)} and none is mapped to it; there are {', '.join(trees)}."
            )
        if columns.INFOS not in trees:  # they may come and go, for where all are empty some sources leave them out
            trees[columns.INFOS] = pa.nulls(table.num_rows, pa.binary())
        if self.templates:
            trees = _like(trees, self.templates)
        arrays = {name: tree if isinstance(tree, pa.Array) else to_arrow(tree, name) for name, tree in trees.items()}
        if not self.templates:
            self.templates = {
                name: tree[:0] if isinstance(tree, pa.Array) else nested.map_leaves(lambda array: array[:0], tree)
                for name, tree in trees.items()
            }
        fields = [pa.field(name, array.type, nullable=name in (*_MAPS, *_NAMES[1:])) for name, array in arrays.items()]
        return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))

    def _column(self, table: pa.Table, name: str) -> Any:
        if name in _MAPS:
            return _maps(table[name], name)
        if name in _NAMES:
            return _text(table[name], name, nullable=name != columns.EPS_ID)
        if name == columns.T and pa.types.is_temporal(table[name].type):
            return _whole(table[name], name).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy().astype(np.float64)
        tree = read_foreign_column(table, name)
        match name:
            case columns.REWARDS:
                rewards = _one_a_step(tree, name, "biuf")
                return _finite(rewards if rewards.dtype == np.float32 else rewards.astype(np.float64), name, infinite=False)
            case columns.T:
                numbers = _one_a_step(tree, name, "iuf")
                return _finite(numbers, name, infinite=False) if numbers.dtype.kind == "f" else numbers.astype(np.int64)
            case columns.TERMINATEDS | columns.TRUNCATEDS:
                return _flags(tree, name)
            case columns.OBS | columns.NEW_OBS:
                return _finite(_conform(tree, self.spaces[0], name), name, infinite=True)
            case columns.ACTIONS:
                scaled = tree if self.recorded_action_range is None else self._scaled(tree)
                return _finite(_conform(scaled, self.spaces[1], name), name, infinite=False)
        return tree

    def _scaled(self, actions: Nested) -> Nested:
        space = self.spaces[1]
        if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
            raise ConfigError(
                f"recorded_action_range scales actions to the bounds of the action space, which is {space}; "
                "declare a bounded Box."
            )
        low, high = self.recorded_action_range  # type: ignore[misc]
        values = _conform(actions, gym.spaces.Box(-np.inf, np.inf, space.shape, np.float64), columns.ACTIONS)
        share = (values - low) / (high - low)
        if values.size and (share.min() < -1e-6 or share.max() > 1 + 1e-6):
            outside = values[(share < -1e-6) | (share > 1 + 1e-6)]
            raise SpaceError(
                f"An action of {outside[0]} is outside the recorded_action_range ({low}, {high}) that was declared."
            )
        return space.low + share * (space.high.astype(np.float64) - space.low)


def _like(trees: Mapping[str, Any], templates: Mapping[str, Any]) -> dict[str, Any]:
    """The columns in the order and types of the templates, if they can be had without loss."""
    missing, more = set(templates) - set(trees) - set(_MAPS), set(trees) - set(templates)
    if missing or more:
        raise SchemaError(
            "The columns are not those of earlier rows: "
            + "; ".join(f"{what} {', '.join(sorted(which))}" for what, which in (("no", missing), ("also", more)) if which)
            + ". Choose the common ones by source.columns, or import the files separately."
        )
    count = next(nested.length(tree, name) for name, tree in trees.items() if not isinstance(tree, pa.Array))
    result: dict[str, Any] = {}
    for name, template in templates.items():
        tree = trees.get(name, pa.nulls(count, pa.binary()) if name in _MAPS else None)
        result[name] = tree if isinstance(template, pa.Array) else _cast(tree, template, name)
    return result


def _cast(tree: Nested, template: Nested, name: str) -> Nested:
    now, before = nested.flatten(tree, name), nested.flatten(template, name)
    if now.keys() != before.keys():
        raise SchemaError(f"Column {name!r} has the parts {sorted(now)} where earlier rows have {sorted(before)}.")
    for path, array in now.items():
        wanted = before[path]
        if array.shape[1:] != wanted.shape[1:]:
            raise SchemaError(
                f"Column {path!r} has steps of shape {array.shape[1:]} where earlier rows have {wanted.shape[1:]}."
            )
        if not (array.dtype.kind == wanted.dtype.kind == "U" or np.can_cast(array.dtype, wanted.dtype, "safe")):
            raise SchemaError(
                f"Column {path!r} is {array.dtype} where earlier rows have {wanted.dtype}; declare the environment or the "
                "spaces, or name the types in source.arguments."
            )
    return nested.map_leaves(lambda a, w: a if w.dtype.kind == "U" else a.astype(w.dtype, copy=False), tree, template)


def _conform(tree: Nested, space: gym.Space[Any] | None, name: str) -> Nested:
    """The values in the shape and dtype of their space."""
    match space:
        case None | gym.spaces.Text():
            return tree
        case gym.spaces.Dict():
            if not isinstance(tree, dict) or tree.keys() != space.spaces.keys():
                raise SpaceError(f"Column {name!r} is not a struct of {sorted(space.spaces)}, as the space {space} is.")
            return {key: _conform(tree[key], child, f"{name}/{key}") for key, child in space.spaces.items()}
        case gym.spaces.Tuple():
            if not isinstance(tree, tuple) or len(tree) != len(space.spaces):
                raise SpaceError(f"Column {name!r} is not a tuple of {len(space.spaces)}, as the space {space} is.")
            return tuple(_conform(tree[i], child, f"{name}/{i}") for i, child in enumerate(space.spaces))
    if not isinstance(tree, np.ndarray) or tree.dtype.kind not in "biuf":
        raise SpaceError(f"Column {name!r} holds no numbers, which the space {space} has.")
    shape, dtype = space.shape or (), np.dtype(space.dtype)
    if tree.shape[1:] != shape:
        if int(np.prod(tree.shape[1:])) != int(np.prod(shape)) or 1 not in (tree.ndim - len(shape), len(shape) - tree.ndim + 2):
            raise SpaceError(f"Column {name!r} has steps of shape {tree.shape[1:]}; the space {space} has {shape}.")
        tree = tree.reshape(len(tree), *shape)  # (N,) for a space of shape (1,), or the other way round
    if tree.dtype.kind == "f" and dtype.kind in "iu" and (tree != np.trunc(tree)).any():
        raise SpaceError(
            f"Column {name!r} holds {tree[tree != np.trunc(tree)].flat[0]}, which is no whole number; the space is {space}."
        )
    return tree.astype(dtype, copy=False)


def _finite(tree: Nested, name: str, *, infinite: bool) -> Nested:
    for path, array in nested.flatten(tree, name).items():
        if array.dtype.kind == "f" and (np.isnan(array) if infinite else ~np.isfinite(array)).any():
            raise NonFiniteError(f"Column {path!r} is NaN{'' if infinite else ' or infinite'}.")
    return tree


def _one_a_step(tree: Nested, name: str, kinds: str) -> np.ndarray:
    if isinstance(tree, np.ndarray) and tree.dtype.kind in kinds and tree.size == len(tree):
        return tree.reshape(len(tree))
    shape = f"{tree.dtype} of shape {tree.shape[1:]}" if isinstance(tree, np.ndarray) else type(tree).__name__
    raise SchemaError(f"Column {name!r} has {shape} a step; it has to be one number.")


def _flags(tree: Nested, name: str) -> np.ndarray:
    if isinstance(tree, np.ndarray) and tree.dtype.kind == "U":
        unknown = set(np.unique(np.char.lower(tree)).tolist()) - _TRUTH.keys()
        if unknown:
            raise SchemaError(f"Column {name!r} says {sorted(unknown)[0]!r}; it has to be true or false.")
        return np.isin(np.char.lower(tree), [text for text, value in _TRUTH.items() if value])
    numbers = _one_a_step(tree, name, "biuf")
    if not np.isin(numbers, (0, 1)).all():
        raise SchemaError(
            f"Column {name!r} holds {numbers[~np.isin(numbers, (0, 1))][0]}; it has to be true or false, or 1 or 0."
        )
    return numbers.astype(bool)


def _text(column: pa.ChunkedArray, name: str, *, nullable: bool) -> pa.Array:
    if column.null_count and not nullable:
        raise SchemaError(f"Column {name!r} is null; every step has to belong to an episode.")
    try:
        return _whole(column, name).cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"Column {name!r} has type {column.type}, which cannot be an id.") from error


def _maps(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Dicts as msgpack bytes, null where empty; from structs, maps, JSON text, or what are such bytes already."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return _whole(column, name).cast(pa.binary())
    cells = column.to_pylist()
    try:
        values = [
            json.loads(cell) if isinstance(cell, str) else dict(cell) if isinstance(cell, list) else cell for cell in cells
        ]
    except (ValueError, TypeError) as error:
        raise SchemaError(f"Column {name!r} holds text that is no JSON: {error}.") from error
    if not all(value is None or isinstance(value, dict) for value in values):
        raise SchemaError(f"Column {name!r} has type {column.type}; it has to hold structs, or JSON objects as text.")
    return pa.array([pack(value, where=name) if value else None for value in values], pa.binary())


def _whole(column: pa.ChunkedArray | pa.Array, name: str) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
