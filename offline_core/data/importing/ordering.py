"""Put the rows of a source in order: which step follows which, and which rows occur more than once.

Where no column numbers the steps, an episode may take the very same step twice, so equal rows alone are no sign of a copy.
These are:

- A folder holds all that another holds of an id. RLlib's recorder writes a folder at a time, and repeats in it what
  earlier ones hold.
- Without what files repeat of one another, the steps of an id follow each other in fewer pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.nested import Nested
from offline_core.data.importing.times import time_gaps
from offline_core.data.importing.trajectory_linking import chain, numbered, row_bytes
from offline_core.errors import EpisodeError, SchemaError

_MAPS = (columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA)
_EMPTY_MAP = b"\x80"

States = tuple[np.ndarray, np.ndarray]
"""(N,) numbers of the state before each row and of that after it, -1 if nothing follows; ids do not share any."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """N rows of a source, and what decides their order.

    This is no `EpisodeBatch`: rows may be out of order, occur twice, or belong to no episode.
    """

    table: pa.Table
    """The columns that are not below."""
    ids: list[str] | None
    """Episode ids, None where rows have none."""
    group: np.ndarray
    """(N,) int64: the number of the row's id; without ids, of rows known to belong together."""
    t: np.ndarray
    """(N,) int64 or float64; zeros without such a column."""
    terminated: np.ndarray
    truncated: np.ndarray
    begins: np.ndarray
    """(N,) bool: the source says that the row is the first of an episode."""
    final: np.ndarray
    """(N,) bool: the row is no step, it holds the observation after the last one."""
    file: np.ndarray
    """(N,) the number of the source's file."""
    row: np.ndarray
    """(N,) the number of the row in it."""
    lost: np.ndarray
    """(N,) how many places of the source before the row could not be read."""

    def __len__(self) -> int:
        return len(self.group)

    @property
    def done(self) -> np.ndarray:
        """(N,) bool: nothing follows."""
        return self.terminated | self.truncated  # type: ignore[no-any-return]

    def take(self, rows: np.ndarray) -> SourceRows:
        """These rows, in this order."""
        if len(rows) == len(self) and (np.diff(rows) == 1).all():
            return self
        ends = (self.terminated, self.truncated, self.begins, self.final)
        arrays = (array[rows] for array in (self.group, self.t, *ends, self.file, self.row, self.lost))
        return SourceRows(self.table.take(pa.array(rows)), self.ids, *arrays)

    def where(self, number: int, files: Sequence[str]) -> str:
        """The place of a row, for messages."""
        return f"row {self.row[number]:,} of {files[self.file[number]]}"


Refuse: TypeAlias = Callable[[SourceRows, EpisodeError], None]
"""Raises the error, or takes note of it and of the rows that are left out because of it."""


class Ordered(NamedTuple):
    """Rows in order, each step once."""

    steps: SourceRows
    starts: np.ndarray
    """(N,) bool: the row does not follow the one before it."""
    duplicates: int = 0
    """Rows left out."""
    ambiguous_links: int = 0
    time_gaps: np.ndarray | None = None
    """(N,) bool: the row comes too long after the one before it; None: not known."""


def put_in_order(steps: SourceRows, order: str, files: Sequence[str], refuse: Refuse, max_gap: float | None = None) -> Ordered:
    """The steps episode after episode, those first whose first row comes first.

    Arguments:
        order: as `order_of` says.
        files: URIs by the numbers in `steps.file`.
        refuse: is given episodes of which different rows claim the same place.
        max_gap: in the unit of t, see `time_gaps`; None, where new_obs says what follows: none is too long.

    Raises:
        EpisodeError: where steps are missing that could not be read is not known.
        SchemaError: obs and new_obs cannot be compared.
    """
    match order:
        case "t" | "time":
            return _by_t(steps, files, refuse, max_gap, by_number=order == "t")
        case "linked":
            return _linked(steps, files)
        case "stored":
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


def _stored(steps: SourceRows) -> Ordered:
    if steps.ids is None:
        starts = _breaks(steps)
        if columns.NEW_OBS not in steps.table.column_names:  # nothing to tell by what goes on in another file, or over a gap
            starts[1:] |= (np.diff(steps.file) != 0) | (np.diff(steps.row) != 1)
        return Ordered(replace(steps, group=_since(starts[1:])), starts)
    steps = steps.take(np.argsort(steps.group, kind="stable"))
    return Ordered(steps, _breaks(steps) | _over_lost(steps))


def _by_t(steps: SourceRows, files: Sequence[str], refuse: Refuse, max_gap: float | None, *, by_number: bool) -> Ordered:
    if steps.ids is None:  # an episode begins where t does not grow
        apart = steps.done[:-1] | (np.diff(steps.t) <= 0) | steps.begins[1:]
        if (elsewhere := np.diff(steps.file) != 0).any():
            apart |= elsewhere & ~_follows(steps)
        steps = replace(steps, group=_since(apart))
    steps = steps.take(np.lexsort((_missing(_maps(steps), steps), steps.t, steps.group)))
    again = np.flatnonzero((np.diff(steps.group) == 0) & (np.diff(steps.t) == 0)) + 1
    if len(again) and steps.ids is not None:
        different = again[_differ(steps.take(np.concatenate([again - 1, again])))]
        for b in different[np.unique(steps.group[different], return_index=True)[1]]:
            error = EpisodeError(
                f"Two different rows claim to be step {steps.t[b]} of episode {steps.ids[steps.group[b]]}: "
                f"{steps.where(b - 1, files)} and {steps.where(b, files)}. {_remedy(steps, b, by_number)}"
            )
            refuse(steps.take(np.flatnonzero(steps.group == steps.group[b])), error)
        kept = ~np.isin(steps.group, steps.group[different])
        again = again[kept[again]]
        kept[again] = False
        steps = steps.take(np.flatnonzero(kept))
    starts = _breaks(steps)
    if by_number:
        starts[1:] |= np.diff(steps.t) != 1
        return Ordered(steps, starts, duplicates=len(again))
    if not _shows_missing(steps, max_gap):
        starts |= _over_lost(steps)
    if max_gap is None and columns.NEW_OBS in steps.table.column_names:
        return Ordered(steps, starts, duplicates=len(again))
    gaps = time_gaps(steps.t, steps.group, starts, max_gap)
    return Ordered(steps, starts | gaps, duplicates=len(again), time_gaps=gaps)


def _remedy(steps: SourceRows, row: int, by_number: bool) -> str:
    """What helps where a row and the one before it have one place."""
    if steps.file[row] != steps.file[row - 1]:
        return "If each file numbers its episodes by itself, set episodes.ids_per: file."
    what = "t comes twice" if by_number else "the clock is coarser than the steps"
    return (
        f"Both are in one file: {what}. If rows lie in the order of the steps, set episodes.order: stored; if several episodes "
        "have this id, map a column that tells them apart to eps_id."
    )


def _linked(steps: SourceRows, files: Sequence[str]) -> Ordered:
    count = len(steps)
    if steps.ids is not None and len(np.unique(steps.file)) > 1:
        steps = steps.take(np.flatnonzero(_distinct(steps, files)))
    chains = chain(*observations(steps.table), steps.done, steps.group)
    steps, starts = steps.take(chains.order), chains.starts
    number = np.cumsum(starts) - 1
    if steps.ids is None:
        return Ordered(replace(steps, group=number), starts, 0, chains.ambiguous)
    # Chains of one id together; those without an end first, for what lacks steps at its end may go on in another.
    has_end = np.bincount(number, weights=steps.done)[number]
    rows = np.lexsort((number, has_end, steps.group))
    return Ordered(steps.take(rows), starts[rows], count - len(steps), chains.ambiguous)


def _breaks(steps: SourceRows) -> np.ndarray:
    """(N,) bool: the row belongs to another group, comes after an end, or its obs is not the new_obs before it."""
    starts = np.ones(len(steps), bool)
    starts[1:] = (np.diff(steps.group) != 0) | steps.done[:-1] | steps.begins[1:]
    if columns.NEW_OBS in steps.table.column_names:
        starts[1:] |= ~_follows(steps)
    return starts


def _follows(steps: SourceRows) -> np.ndarray:
    """(N-1,) bool: new_obs exists and is the obs of the next row."""
    fits = np.full(max(0, len(steps) - 1), columns.NEW_OBS in steps.table.column_names)
    if fits.any():
        for obs, new_obs in zip(*map(nested.leaves, observations(steps.table)), strict=True):
            fits &= (new_obs[:-1] == obs[1:]).all(axis=tuple(range(1, obs.ndim)))
    return fits


def _shows_missing(steps: SourceRows, max_gap: float | None) -> bool:
    """Whether a missing step always leaves a gap: the largest one is less than twice the shortest time between two steps."""
    if max_gap is None:
        return False
    times = np.diff(steps.t)[np.diff(steps.group) == 0]
    return len(times) == 0 or bool(max_gap < 2 * times.min())


def _over_lost(steps: SourceRows) -> np.ndarray:
    """(N,) bool: between the row and the one before it something could not be read, so it may not follow.

    Raises:
        EpisodeError: rows lie in another order than the steps, so that it could be missing anywhere.
    """
    over = np.zeros(len(steps), bool)
    if columns.NEW_OBS in steps.table.column_names:
        return over
    lost, same = np.diff(steps.lost), np.diff(steps.group) == 0
    if (same & (lost < 0)).any():
        raise EpisodeError(
            "Some rows cannot be read, and the others are not in the order of time: without new_obs, where a step is "
            "missing is not known. Fix these rows, number the steps of an episode by t, or declare an episodes.max_gap of less "
            "than twice the time between two steps."
        )
    over[1:] = same & (lost > 0)
    return over


def _since(begins: np.ndarray) -> np.ndarray:
    """(N,) groups of neighbours, from (N-1,) bool: a new one begins after the row."""
    return np.concatenate([[0], np.cumsum(begins)])


def _content(steps: SourceRows) -> np.ndarray:
    """(N, bytes) all that rows say, but for where they come from and the maps."""
    values = [steps.group, steps.t, steps.terminated, steps.truncated]
    for name in steps.table.column_names:
        column = steps.table[name]
        if pa.types.is_string(column.type):  # and may be null, as ids of agents are
            values.append(column.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy())
        elif name not in _MAPS:
            values.append(read_column(steps.table, name))
    return row_bytes(*values)


def _maps(steps: SourceRows) -> list[np.ndarray]:
    """For each column of maps (N,) numbers of the values in its rows, -1 where a row has none."""
    found = []
    for name in [name for name in _MAPS if name in steps.table.column_names]:
        column = steps.table[name].combine_chunks()
        said = pc.if_else(pc.equal(column, _EMPTY_MAP), pa.scalar(None, column.type), column)
        found.append(said.dictionary_encode().indices.fill_null(-1).to_numpy())
    return found


def _missing(maps: Sequence[np.ndarray], steps: SourceRows) -> np.ndarray:
    """(N,) how many of the maps a row lacks."""
    return sum((said < 0 for said in maps), start=np.zeros(len(steps), np.int64))


def _differ(pairs: SourceRows) -> np.ndarray:
    """(N/2,) bool: row i and row N/2 + i contradict each other; maps do not contradict none."""
    half = len(pairs) // 2
    content = _content(pairs)
    differ: np.ndarray = (content[:half] != content[half:]).any(axis=1)
    for said in _maps(pairs):
        differ |= (said[:half] != said[half:]) & (said[:half] >= 0) & (said[half:] >= 0)
    return differ


def _distinct(steps: SourceRows, files: Sequence[str]) -> np.ndarray:
    """(N,) bool: the row is no copy of another; see `distinct_rows`."""
    maps = _maps(steps)
    same = numbered(_content(steps))
    for said in maps:  # rows that are equal but for them are different, none standing for any
        different = np.unique(np.stack([same, said])[:, said >= 0], axis=1)[0]
        disputed = (np.bincount(different, minlength=same.max() + 1) > 1)[same]
        same = np.unique(same * (said.max() + 2) + np.where(disputed, said + 1, 0), return_inverse=True)[1]

    def states() -> States:
        obs, new_obs = observations(steps.table)
        number = numbered(np.concatenate([row_bytes(tree, steps.group) for tree in (obs, new_obs)]))
        return number[: len(steps)], np.where(steps.done, -1, number[len(steps) :])

    folders = np.unique([uri.rpartition("/")[0] for uri in files], return_inverse=True)[1]
    missing = _missing(maps, steps)
    return distinct_rows(same, steps.group, file=steps.file, folder=folders[steps.file], missing=missing, states=states)


def distinct_rows(
    same: np.ndarray,
    group: np.ndarray,
    *,
    file: np.ndarray,
    folder: np.ndarray,
    missing: np.ndarray,
    states: Callable[[], States],
) -> np.ndarray:
    """True for the rows to keep; of equal rows those that miss the least, and then the first ones.

    Arguments:
        same: (N,) int; equal rows share a number.
        group: (N,) the number of the id.
        missing: (N,) how much a row lacks that rows equal to it may have.
    """
    kept = ~copied(same, group, folder)
    repeated = np.zeros(len(same), bool)
    repeated[kept] = _rank_within(same[kept]) >= _most_in_a_unit(same[kept], file[kept])[same[kept]]
    if repeated.any():
        before, after = states()
        fewer = _pieces(kept & ~repeated, group, before, after) < _pieces(kept, group, before, after)
        kept &= ~(repeated & fewer[group])
    return _rank_within(same, missing) < np.bincount(same, weights=kept)[same]  # type: ignore[no-any-return]


def copied(same: np.ndarray, group: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """(N,) bool: another unit holds all that the row's unit holds of its id, as often; of equal units the first is no copy."""
    unit = np.unique(group * (int(unit.max()) + 1) + unit, return_inverse=True)[1]  # from here on one for each id
    size, base = np.bincount(unit), int(same.max()) + 1
    if len(size) == len(np.unique(group)):
        return np.zeros(len(same), bool)
    entries, count = np.unique(unit * base + same, return_counts=True)
    owner, content = np.divmod(entries, base)
    first, kinds = np.searchsorted(owner, np.arange(len(size))), np.bincount(owner)

    def holds(outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        starts = np.cumsum(kinds[inner]) - kinds[inner]
        its = np.arange(kinds[inner].sum()) + np.repeat(first[inner] - starts, kinds[inner])
        wanted = np.repeat(outer, kinds[inner]) * base + content[its]
        found = np.minimum(np.searchsorted(entries, wanted), len(entries) - 1)
        there = (entries[found] == wanted) & (count[found] >= count[its])
        return np.logical_and.reduceat(there, starts)

    # Who holds all of a unit holds its rarest row too: those are tried, the largest first.
    by_content = np.lexsort((owner, -size[owner], content))
    place = np.empty(len(owner), np.int64)
    place[by_content] = np.arange(len(owner))
    rarest = np.lexsort((np.bincount(content)[content], owner))[first]
    candidate, own = np.searchsorted(content[by_content], content[rarest]), place[rarest]
    is_copy = np.zeros(len(size), bool)
    while len(left := np.flatnonzero(~is_copy & (candidate < own))):
        is_copy[left] = holds(owner[by_content[candidate[left]]], left)
        candidate[left] += 1
    return is_copy[unit]


def _most_in_a_unit(same: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """For each number in `same`, how often the unit that has most of it holds it."""
    most = np.zeros(same.max() + 1, np.int64)
    np.maximum.at(most, same, _rank_within(same * (int(unit.max()) + 1) + unit) + 1)
    return most


def _pieces(kept: np.ndarray, group: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """For each id, into how few pieces its rows that are kept can be linked: so often a state is left and not reached."""
    count = max(before.max(), after.max()) + 1
    left, reached = (np.bincount(states[kept & (states >= 0)], minlength=count) for states in (before, after))
    of_state = np.zeros(count, np.int64)
    of_state[before] = group
    return np.bincount(of_state, weights=np.maximum(left - reached, 0), minlength=group.max() + 1)


def _rank_within(groups: np.ndarray, by: np.ndarray | None = None) -> np.ndarray:
    """For each position, how many with the same value come before it, in the order of `by` and then of positions."""
    order = np.argsort(groups, kind="stable") if by is None else np.lexsort((by, groups))
    ordered = groups[order]
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return ranks
