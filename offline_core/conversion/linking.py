"""Orders rows that carry no time: the successor of a step is the one whose `obs` is the step's `new_obs`.

Works on whole columns: no loop over steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.conversion.circles import circles, open_circles, runs
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
    """Links, but for those to the next row, that could have been others: several steps lead to, or start from, the very same
    observation."""


def chain(obs: Nested, new_obs: Nested, done: np.ndarray, group: np.ndarray) -> Chains:
    """Links N steps to chains, each within its group; rows that are in order already stay so.

    Where several rows fit, the next one is taken if it fits, else they are matched in the order they lie in, and so that
    there are as few chains as can be.

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
    if (circles(successor) >= 0).any():
        open_circles(successor, numbered(before))
    return Chains(*_walk(successor), ambiguous)


def row_bytes(*trees: Nested) -> np.ndarray:
    """(N, bytes) what the rows of nested arrays hold, -0.0 as 0.0 so that equal numbers are equal bytes."""
    parts = []
    for array in (leaf for tree in trees for leaf in nested.leaves(tree)):
        values = np.ascontiguousarray(array + 0.0 if array.dtype.kind == "f" else array)
        parts.append(values.reshape(len(array), math.prod(array.shape[1:])).view(np.uint8))
    return np.concatenate(parts, axis=1)


def hashes(rows: np.ndarray) -> np.ndarray:
    """(N,) 64-bit hashes of (N, bytes), the same for the same bytes within this process."""
    offsets = pa.py_buffer(np.arange(len(rows) + 1) * rows.shape[1])
    column = pa.Array.from_buffers(pa.large_binary(), len(rows), [None, offsets, pa.py_buffer(np.ascontiguousarray(rows))])
    return pl.Series(column).hash().to_numpy()


def numbered(rows: np.ndarray) -> np.ndarray:
    """(N,) int: equal rows of (N, bytes) share a number from 0 on."""
    _, first, number = np.unique(hashes(rows), return_index=True, return_inverse=True)
    if (rows == rows[first[number]]).all():
        return number
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1]))).ravel()  # two rows share a hash
    return np.unique(whole, return_inverse=True)[1]


def _link_the_rest(before: np.ndarray, after: np.ndarray, done: np.ndarray, successor: np.ndarray) -> int:
    """Fills in `successor` where the adjacent row did not fit; returns how many links were ambiguous."""
    has_predecessor = np.zeros(len(done), bool)
    has_predecessor[successor[successor >= 0]] = True
    outs = np.flatnonzero((successor < 0) & ~done)
    ins = np.flatnonzero(~has_predecessor)
    if not len(outs) or not len(ins):
        return 0
    outs, out_keys, out_ranks = _ranked(outs, hashes(after[outs]))
    ins, in_keys, in_ranks = _ranked(ins, hashes(before[ins]))
    # The r-th way out of an observation goes with the r-th way into it.
    place = np.searchsorted(in_keys, out_keys) + out_ranks
    fits = place < len(ins)
    fits[fits] &= in_keys[place[fits]] == out_keys[fits]
    sources, targets, keys = outs[fits], ins[place[fits]], out_keys[fits]
    same = (after[sources] == before[targets]).all(axis=1)  # hashes may collide
    successor[sources[same]] = targets[same]
    crowded = np.union1d(out_keys[out_ranks > 0], in_keys[in_ranks > 0])
    return int(np.isin(keys[same], crowded).sum())


def _ranked(rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows, keys, ranks among equal keys), sorted by key and then by row."""
    order = np.argsort(keys, kind="stable")
    rows, keys = rows[order], keys[order]
    return rows, keys, np.arange(len(keys)) - np.searchsorted(keys, keys)


def _walk(successor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows chain by chain, whether each starts one); nothing runs in a circle."""
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
