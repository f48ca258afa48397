"""Rows that carry no time: which step follows which, and which rows are copies.

The successor of a step is the one whose `obs` is the step's `new_obs`. Links can run in cycles, as observations occur several
times in every discrete environment: bumping into a wall is a cycle of one row. An episode is then a chain and cycles that touch
it. Following the chain to where a cycle touches it, going round once, and then on, uses every row (Hierholzer's construction of
Eulerian trails). No loop over steps.

An episode may take the very same step twice, so equal rows alone are no sign of a copy. These are:

- A folder holds all that another holds of an id. RLlib's recorder writes a folder at a time, and repeats in it what
  earlier ones hold.
- Without what files repeat of one another, the steps of an id follow each other in fewer pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.batch import check_one_shape
from offline_core.data.episodes.nested import Nested

States = tuple[np.ndarray, np.ndarray]
"""(N,) numbers of the state before each row and of that after it, -1 if nothing follows; ids do not share any."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Rows in an order in which each follows its predecessor where it has one."""

    order: np.ndarray
    """(N,) row numbers: chain after chain, chains by the position of their first row."""
    starts: np.ndarray
    """(N,) bool, in that order: the row is the first of its chain."""
    ambiguous: int
    """Links, but for those to the next row, that could have been others: several steps lead to, or start from, the very same
    observation."""


def observations(table: pa.Table) -> tuple[Nested, Nested]:
    """(obs, new_obs), in the same dtypes.

    Raises:
        SchemaError: their structures or shapes differ.
    """
    obs, new_obs = (read_column(table, name) for name in (columns.OBS, columns.NEW_OBS))
    check_one_shape(obs, new_obs)

    def common(one: np.ndarray, other: np.ndarray) -> Any:
        return one.astype(np.promote_types(one.dtype, other.dtype), copy=False)

    return nested.map_leaves(common, obs, new_obs), nested.map_leaves(common, new_obs, obs)


def chain(obs: Nested, new_obs: Nested, done: np.ndarray, group: np.ndarray) -> Chains:
    """Links N steps to chains, each within its group; rows that are in order already stay so.

    Where several rows fit, the next row is taken if it is one of them. Otherwise they are matched in stored order, so that
    the chains are as few as possible.

    Arguments:
        obs, new_obs: (N, …) of the same structure and dtypes.
        done: (N,) bool; nothing follows these.
        group: (N,) int; rows of different groups are never linked.
    """
    before, after = row_bytes(obs, group), row_bytes(new_obs, group)
    successor = np.full(len(done), -1)
    adjacent = np.flatnonzero(~done[:-1] & (after[:-1] == before[1:]).all(axis=1))
    successor[adjacent] = adjacent + 1
    ambiguous = _link_the_rest(before, after, done, successor)
    if (cycles(successor) >= 0).any():
        open_cycles(successor, numbered(before))
    return Chains(*_walk(successor), ambiguous)


def row_bytes(*trees: Nested) -> np.ndarray:
    """(N, bytes) what the rows of nested arrays hold, -0.0 as 0.0 so that equal numbers are equal bytes."""
    parts = []
    for array in (leaf for tree in trees for leaf in nested.leaves(tree)):
        values = np.ascontiguousarray(array + 0.0 if array.dtype.kind == "f" else array)
        parts.append(values.reshape(len(array), math.prod(array.shape[1:])).view(np.uint8))
    return np.concatenate(parts, axis=1)


def numbered(rows: np.ndarray) -> np.ndarray:
    """(N,) int64: equal rows of (N, bytes) share a number from 0 on."""
    offsets = pa.py_buffer(np.arange(len(rows) + 1) * rows.shape[1])
    buffers = [None, offsets, pa.py_buffer(np.ascontiguousarray(rows))]
    encoded = pa.Array.from_buffers(pa.large_binary(), len(rows), buffers).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _link_the_rest(before: np.ndarray, after: np.ndarray, done: np.ndarray, successor: np.ndarray) -> int:
    """Fills in `successor` where the adjacent row did not fit; returns how many links were ambiguous."""
    has_predecessor = np.zeros(len(done), bool)
    has_predecessor[successor[successor >= 0]] = True
    outs = np.flatnonzero((successor < 0) & ~done)
    ins = np.flatnonzero(~has_predecessor)
    if not len(outs) or not len(ins):
        return 0
    state = numbered(np.concatenate([after[outs], before[ins]]))
    rank = pl.int_range(pl.len()).over("state").alias("rank")
    leaving = pl.DataFrame({"state": state[: len(outs)], "out": outs}).with_columns(rank)
    entering = pl.DataFrame({"state": state[len(outs) :], "in": ins}).with_columns(rank)
    links = leaving.join(entering, on=["state", "rank"])  # the r-th way out of a state goes with the r-th way into it
    successor[links["out"].to_numpy()] = links["in"].to_numpy()
    crowded = pl.concat(frame.filter(pl.col("rank") > 0)["state"] for frame in (leaving, entering))
    return int(links["state"].is_in(crowded.implode()).sum())


def _walk(successor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows chain by chain, whether each starts one); nothing runs in a cycle."""
    firsts, lasts, previous = runs(successor)
    head = np.where(previous < 0, np.arange(len(previous)), previous)
    distance = (previous >= 0).astype(np.int64)  # in runs, from the first one of the chain
    for _ in range(len(previous).bit_length()):
        distance += distance[head]
        head = head[head]
    by_chain = np.lexsort((distance, head))
    lengths = (lasts - firsts + 1)[by_chain]
    offsets = np.cumsum(lengths) - lengths
    order = np.arange(len(successor)) + np.repeat(firsts[by_chain] - offsets, lengths)
    starts = np.zeros(len(successor), bool)
    starts[offsets[distance[by_chain] == 0]] = True
    return order, starts


def open_cycles(successor: np.ndarray, state: np.ndarray) -> None:
    """Change links so that none run in a cycle, with as few cuts as possible.

    Arguments:
        successor: (N,) the row that follows each, -1 for none; changed in place.
        state: (N,) int; rows that start from the same observation, and may so take each other's place, share one.
    """
    while len(inside := np.flatnonzero((cycle := cycles(successor)) >= 0)):
        outside = np.flatnonzero(cycle < 0)
        door = np.full(state.max() + 1, -1)
        door[state[outside[::-1]]] = outside[::-1]  # the first row of a chain from each state
        touching = inside[door[state[inside]] >= 0]
        if len(touching):
            entry = touching[np.unique(cycle[touching], return_index=True)[1]]  # one for each cycle
            _insert(successor, entry, door[state[entry]])
        else:
            successor[_inverse(successor)[_lowest(cycle[inside], state[inside])]] = -1


def cycles(successor: np.ndarray) -> np.ndarray:
    """(N,) the smallest row of the cycle that each row is in, -1 for those in none."""
    firsts, lasts, previous = runs(successor)
    pointer, smallest = np.where(previous < 0, np.arange(len(previous)), previous), np.arange(len(previous))
    for _ in range(len(previous).bit_length()):
        smallest = np.minimum(smallest, smallest[pointer])
        pointer = pointer[pointer]
    of_run = np.where(previous[pointer] < 0, -1, firsts[smallest])
    return np.repeat(of_run, lasts - firsts + 1)


def runs(successor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first row, last row, number of the run before or -1) of neighbours that follow one another.

    Data that is in order is a handful of them. A run is always entered at its first row: the others have a predecessor.
    """
    count = len(successor)
    firsts = np.flatnonzero(np.concatenate([np.ones(min(1, count), bool), successor[:-1] != np.arange(1, count)]))
    lasts = np.append(firsts[1:], count)[: len(firsts)] - 1
    follows = np.flatnonzero(successor[lasts] >= 0)
    previous = np.full(len(firsts), -1)
    previous[np.searchsorted(firsts, successor[lasts[follows]])] = follows
    return firsts, lasts, previous


def _insert(successor: np.ndarray, entry: np.ndarray, door: np.ndarray) -> None:
    """Goes round the cycles that are entered at `entry` before the row `door` of a chain; several at one door in turn."""
    order = np.lexsort((entry, door))
    entry, door = entry[order], door[order]
    predecessor = _inverse(successor)
    ends, before = predecessor[entry], predecessor[door]
    is_first = np.append(True, door[1:] != door[:-1])
    is_last = np.append(is_first[1:], True)
    successor[ends] = np.where(is_last, door, np.roll(entry, -1))
    from_chain = is_first & (before >= 0)
    successor[before[from_chain]] = entry[from_chain]


def _lowest(cycle: np.ndarray, state: np.ndarray) -> np.ndarray:
    """The smallest row of each set of cycles that touch one another, directly or through others."""
    label, before = cycle, None
    while before is None or (label != before).any():
        before = label
        for meeting in (state, cycle):
            lowest = np.full(meeting.max() + 1, label.max())
            np.minimum.at(lowest, meeting, label)
            label = lowest[meeting]
    return np.unique(label)


def _inverse(successor: np.ndarray) -> np.ndarray:
    predecessor = np.full(len(successor), -1)
    linked = np.flatnonzero(successor >= 0)
    predecessor[successor[linked]] = linked
    return predecessor


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
        index = np.minimum(np.searchsorted(entries, wanted), len(entries) - 1)
        there = (entries[index] == wanted) & (count[index] >= count[its])
        return np.logical_and.reduceat(there, starts)

    # Who holds all of a unit holds its rarest row too: those are tried, the largest first.
    by_content = np.lexsort((owner, -size[owner], content))
    rank = np.empty(len(owner), np.int64)
    rank[by_content] = np.arange(len(owner))
    rarest = np.lexsort((np.bincount(content)[content], owner))[first]
    candidate, own = np.searchsorted(content[by_content], content[rarest]), rank[rarest]
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
