"""Which step follows which: rows as they lie in a source → rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from offline_core.conversion.config import EpisodesConfig
from offline_core.conversion.duplicates import distinct_rows
from offline_core.conversion.linking import chain, row_bytes
from offline_core.episodes import columns, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.nested import Nested
from offline_core.errors import ConfigError, EpisodeError, SchemaError

_NO_CONTENT = (columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA)


@dataclass(frozen=True, slots=True)
class Steps:
    """N rows, and what decides their order."""

    table: pa.Table
    """The columns that are not below."""
    ids: list[str] | None
    """Episode ids, None where rows have none."""
    group: np.ndarray
    """(N,) int64: the number of the row's id; where there are none, of what is known to lie together."""
    t: np.ndarray
    """(N,) int64 or float64; zeros where there is no such column."""
    terminated: np.ndarray
    truncated: np.ndarray
    file: np.ndarray
    """(N,) the number of the source's file."""
    row: np.ndarray
    """(N,) the number of the row in it."""

    def __len__(self) -> int:
        return len(self.group)

    @property
    def done(self) -> np.ndarray:
        """(N,) bool: nothing follows."""
        return self.terminated | self.truncated  # type: ignore[no-any-return]

    def take(self, rows: np.ndarray) -> Steps:
        """These rows, in this order."""
        if len(rows) == len(self) and (np.diff(rows) == 1).all():
            return self
        arrays = (array[rows] for array in (self.group, self.t, self.terminated, self.truncated, self.file, self.row))
        return Steps(self.table.take(pa.array(rows)), self.ids, *arrays)

    def where(self, number: int, files: Sequence[str]) -> str:
        """The place of a row, for messages."""
        return f"row {self.row[number]:,} of {files[self.file[number]]}"


class Ordered(NamedTuple):
    """Rows in order, each step once."""

    steps: Steps
    starts: np.ndarray
    """(N,) bool: the row does not follow the one before it."""
    duplicates: int = 0
    """Rows left out."""
    ambiguous_links: int = 0


def order_of(rules: EpisodesConfig, schema: pa.Schema) -> str:
    """What `auto` stands for with these columns.

    Raises:
        ConfigError: the order cannot be had from these columns.
    """
    names = schema.names
    order: str = rules.order
    if order == "auto":
        if columns.T in names:
            order = "t" if pa.types.is_integer(schema.field(columns.T).type) else "time"
        else:
            order = "linked" if columns.NEW_OBS in names else "stored"
    if order in ("t", "time") and columns.T not in names:
        raise ConfigError(f"Rows cannot be ordered by {order}: no column is mapped to 't'.")
    if order == "t" and not pa.types.is_integer(schema.field(columns.T).type):
        raise ConfigError(f"Column 't' has type {schema.field(columns.T).type} and does not number steps; use order: time.")
    if order == "linked" and columns.NEW_OBS not in names:
        raise ConfigError("Rows cannot be linked without a column new_obs.")
    if columns.NEW_OBS not in names and rules.last_new_obs is None:
        raise ConfigError(
            "There is no column new_obs, so it is the obs of the next step; say what follows the last one by "
            "episodes.last_new_obs: repeat or drop."
        )
    if columns.NEW_OBS not in names and order == "single_step" and rules.last_new_obs == "drop":
        raise ConfigError("Single steps without new_obs would all be dropped; use last_new_obs: repeat.")
    if not {columns.EPS_ID, columns.TERMINATEDS, columns.TRUNCATEDS} & set(names) and order != "single_step":
        raise ConfigError(f"Nothing says where an episode ends: map a column to eps_id or to dones. There are {names}.")
    return order


def put_in_order(steps: Steps, order: str, files: Sequence[str]) -> Ordered:
    """The steps episode after episode, those first whose first row comes first.

    Arguments:
        order: as `order_of` says.
        files: URIs by the numbers in `steps.file`.

    Raises:
        EpisodeError: two different rows claim the same place in an episode.
        SchemaError: obs and new_obs cannot be compared.
    """
    match order:
        case "t" | "time":
            return _by_t(steps, files, by_number=order == "t")
        case "linked":
            return _linked(steps, files)
        case "stored":
            if steps.ids is None:  # no episode goes on in another file
                apart = np.diff(steps.file) != 0
                if columns.NEW_OBS not in steps.table.column_names:  # nor, with nothing to tell it by, over a missing row
                    apart |= np.diff(steps.row) != 1
                steps = replace(steps, group=_since(apart))
            return _stored(steps)
    steps = steps.take(np.argsort(steps.group, kind="stable"))
    return Ordered(steps, np.ones(len(steps), bool))


def observations(table: pa.Table) -> tuple[Nested, Nested]:
    """(obs, new_obs), in the same dtypes.

    Raises:
        SchemaError: their structures or shapes differ.
    """
    obs, new_obs = (read_column(table, name) for name in (columns.OBS, columns.NEW_OBS))
    shapes, new_shapes = (nested.map_leaves(lambda array: array.shape[1:], tree) for tree in (obs, new_obs))
    if shapes != new_shapes:
        raise SchemaError(f"Columns obs and new_obs have steps of different shapes: {shapes} and {new_shapes}.")

    def common(one: np.ndarray, other: np.ndarray) -> Any:
        return one.astype(np.promote_types(one.dtype, other.dtype), copy=False)

    return nested.map_leaves(common, obs, new_obs), nested.map_leaves(common, new_obs, obs)


def _stored(steps: Steps) -> Ordered:
    steps = steps.take(np.argsort(steps.group, kind="stable"))
    starts = _breaks(steps)
    return Ordered(replace(steps, group=_since(starts[1:])) if steps.ids is None else steps, starts)


def _by_t(steps: Steps, files: Sequence[str], *, by_number: bool) -> Ordered:
    if steps.ids is None:  # an episode begins where t does not grow
        steps = replace(steps, group=_since((np.diff(steps.file) != 0) | steps.done[:-1] | (np.diff(steps.t) <= 0)))
    steps = steps.take(np.lexsort((steps.t, steps.group)))
    again = np.flatnonzero((np.diff(steps.group) == 0) & (np.diff(steps.t) == 0)) + 1
    if len(again) and steps.ids is not None:
        content = _content(steps.take(np.concatenate([again - 1, again])))
        equal = (content[: len(again)] == content[len(again) :]).all(axis=1)
        if not equal.all():
            b = int(again[np.argmin(equal)])
            raise EpisodeError(
                f"Two different rows claim to be step {steps.t[b]} of episode {steps.ids[steps.group[b]]}: "
                f"{steps.where(b - 1, files)} and {steps.where(b, files)}. If each file numbers its episodes by itself, set "
                "episodes.ids_per_file."
            )
        steps = steps.take(np.delete(np.arange(len(steps)), again))
    starts = _breaks(steps)
    if by_number:
        starts[1:] |= np.diff(steps.t) != 1
    return Ordered(steps, starts, duplicates=len(again))


def _linked(steps: Steps, files: Sequence[str]) -> Ordered:
    count = len(steps)
    if steps.ids is not None:
        folders = np.unique([uri.rpartition("/")[0] for uri in files], return_inverse=True)[1]
        steps = steps.take(np.flatnonzero(distinct_rows(_content(steps), folders[steps.file])))
    chains = chain(*observations(steps.table), steps.done, steps.group)
    steps, starts = steps.take(chains.order), chains.starts
    number = np.cumsum(starts) - 1
    if steps.ids is None:
        return Ordered(replace(steps, group=number), starts, 0, chains.ambiguous)
    # Chains of one id together; those without an end first, for what lacks steps at its end may go on in another.
    has_end = np.bincount(number, weights=steps.done)[number]
    rows = np.lexsort((number, has_end, steps.group))
    return Ordered(steps.take(rows), starts[rows], count - len(steps), chains.ambiguous)


def _breaks(steps: Steps) -> np.ndarray:
    """(N,) bool: the row belongs to another group, comes after an end, or its obs is not the new_obs before it."""
    starts = np.ones(len(steps), bool)
    starts[1:] = (np.diff(steps.group) != 0) | steps.done[:-1]
    if columns.NEW_OBS in steps.table.column_names:
        for obs, new_obs in zip(*map(nested.leaves, observations(steps.table)), strict=True):
            starts[1:] |= (new_obs[:-1] != obs[1:]).any(axis=tuple(range(1, obs.ndim)))
    return starts


def _since(begins: np.ndarray) -> np.ndarray:
    """(N,) groups of neighbours, from (N-1,) bool: a new one begins after the row."""
    return np.concatenate([[0], np.cumsum(begins)])


def _content(steps: Steps) -> np.ndarray:
    """(N, bytes) all that rows say, but for where they come from and the infos."""
    values = [steps.group, steps.t, steps.terminated, steps.truncated]
    for name in steps.table.column_names:
        column = steps.table[name]
        if pa.types.is_string(column.type):  # and may be null, as ids of agents are
            values.append(column.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy())
        elif name not in _NO_CONTENT:
            values.append(read_column(steps.table, name))
    return row_bytes(*values)
