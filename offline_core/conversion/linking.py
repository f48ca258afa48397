"""Orders rows that carry no time: the successor of a step is the one whose `obs` is the step's `new_obs`.

Works on whole columns: no loop over steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from offline_core.episodes import nested
from offline_core.episodes.nested import Nested


@dataclass(frozen=True, slots=True)
class Chains:
    """Rows in an order in which each follows its predecessor where it has one."""

    order: np.ndarray
    """(N,) row numbers: chain after chain, chains by the place of their first row."""
    starts: np.ndarray
    """(N,) bool, in that order: the row is the first of its chain."""
    ambiguous: int
    """Links that could have been others: several steps lead to, or start from, the very same observation."""


def row_bytes(*trees: Nested) -> np.ndarray:
    """(N, bytes) what the rows of nested arrays hold, -0.0 as 0.0 so that equal numbers are equal bytes."""
    parts = []
    for array in (leaf for tree in trees for leaf in nested.leaves(tree)):
        values = np.ascontiguousarray(array + 0.0 if array.dtype.kind == "f" else array)
        parts.append(values.reshape(len(array), math.prod(array.shape[1:])).view(np.uint8))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def hashes(rows: np.ndarray) -> np.ndarray:
    """(N,) 64-bit hashes of (N, bytes): sums of products with fixed random odd numbers, which spread as well as any."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 4) * 4), np.uint8)
    padded[:, : rows.shape[1]] = rows
    words = padded.view(np.uint32)
    factors = np.random.default_rng(0).integers(0, 2**63, words.shape[1], dtype=np.uint64) * 2 + 1
    result = np.zeros(len(rows), np.uint64)
    for column, factor in zip(words.T, factors, strict=True):
        result += (column.astype(np.uint64) + 1) * factor
    return result


def chain(obs: Nested, new_obs: Nested, done: np.ndarray, group: np.ndarray) -> Chains:
    """Links N steps to chains, each within its group; rows that are in order already stay so.

    Where several rows fit, the next one is taken if it fits, else they are matched in the order they lie in.

    Arguments:
        obs, new_obs: (N, …) of the same structure.
        done: (N,) bool; nothing follows these.
        group: (N,) int; rows of different groups are never linked.
    """
    count = len(done)
    before, after = row_bytes(obs), row_bytes(new_obs)
    successor = np.full(count, -1)
    adjacent = np.flatnonzero(~done[:-1] & (group[:-1] == group[1:]) & (after[:-1] == before[1:]).all(axis=1))
    successor[adjacent] = adjacent + 1
    ambiguous = _link_the_rest(before, after, done, group, successor)
    successor, order, starts = _walk(successor)
    return Chains(order, starts, ambiguous)


def _link_the_rest(before: np.ndarray, after: np.ndarray, done: np.ndarray, group: np.ndarray, successor: np.ndarray) -> int:
    """Fills in `successor` where the adjacent row did not fit; returns how many links were ambiguous."""
    has_predecessor = np.zeros(len(done), bool)
    has_predecessor[successor[successor >= 0]] = True
    outs = np.flatnonzero((successor < 0) & ~done)
    ins = np.flatnonzero(~has_predecessor)
    if not len(outs) or not len(ins):
        return 0
    salt = group.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    out_keys, in_keys = hashes(after[outs]) ^ salt[outs], hashes(before[ins]) ^ salt[ins]
    outs, out_keys, out_ranks = _ranked(outs, out_keys)
    ins, in_keys, in_ranks = _ranked(ins, in_keys)
    # The r-th way out of an observation goes with the r-th way into it.
    place = np.searchsorted(in_keys, out_keys) + out_ranks
    fits = place < len(ins)
    fits[fits] &= in_keys[place[fits]] == out_keys[fits]
    sources, targets = outs[fits], ins[place[fits]]
    same = (group[sources] == group[targets]) & (after[sources] == before[targets]).all(axis=1)  # hashes may collide
    successor[sources[same]] = targets[same]
    crowded_out = np.isin(out_keys[fits][same], out_keys[out_ranks > 0])
    crowded_in = np.isin(out_keys[fits][same], in_keys[in_ranks > 0])
    return int((crowded_out | crowded_in).sum())


def _ranked(rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows, keys, ranks among equal keys), sorted by key and then by row."""
    order = np.argsort(keys, kind="stable")
    rows, keys = rows[order], keys[order]
    first = np.searchsorted(keys, keys)
    return rows, keys, np.arange(len(keys)) - first


def _walk(successor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(successors with circles cut open, rows chain by chain, whether each starts one)."""
    count = len(successor)
    # Runs of neighbours are one node each, so that data which is in order is a handful of nodes.
    breaks = np.concatenate([[True], successor[:-1] != np.arange(1, count)]) if count else np.zeros(0, bool)
    firsts = np.flatnonzero(breaks)
    run_of = np.cumsum(breaks) - 1
    lasts = np.concatenate([firsts[1:], [count]]) - 1
    next_row = successor[lasts] if count else successor
    target = np.where(next_row >= 0, run_of[next_row], -1)
    # A link into the middle of a run cannot be: its first row alone lacks a predecessor.
    previous = np.full(len(firsts), -1)
    previous[target[target >= 0]] = np.flatnonzero(target >= 0)
    heads, distance = _heads(previous)
    circles = np.flatnonzero(heads < 0)
    if len(circles):
        cut = _smallest_of_circle(previous, circles)
        successor = successor.copy()
        successor[lasts[previous[cut]]] = -1
        previous[cut] = -1
        heads, distance = _heads(previous)
    by_chain = np.lexsort((distance, heads))
    lengths = lasts - firsts + 1
    order = _ranges(firsts[by_chain], lengths[by_chain])
    starts = np.zeros(count, bool)
    offsets = np.concatenate([[0], np.cumsum(lengths[by_chain])])[:-1]
    starts[offsets[distance[by_chain] == 0]] = True
    return successor, order, starts


def _heads(previous: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(first node of each node's chain or -1 in a circle, steps from there), by pointer doubling."""
    nodes = np.arange(len(previous))
    pointer = np.where(previous < 0, nodes, previous)
    distance = (previous >= 0).astype(np.int64)
    for _ in range(max(1, len(previous).bit_length())):
        distance = distance + distance[pointer]
        pointer = pointer[pointer]
    return np.where(previous[pointer] < 0, pointer, -1), distance


def _smallest_of_circle(previous: np.ndarray, circles: np.ndarray) -> np.ndarray:
    """The first node of each circle: where it is cut open."""
    pointer, smallest = previous.copy(), np.arange(len(previous))
    pointer[pointer < 0] = np.flatnonzero(pointer < 0)
    for _ in range(max(1, len(previous).bit_length())):
        smallest = np.minimum(smallest, smallest[pointer])
        pointer = pointer[pointer]
    return np.unique(smallest[circles])


def _ranges(firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """first, first+1, … for each range, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths - firsts, lengths)  # type: ignore[no-any-return]
