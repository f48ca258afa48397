"""Find rows that occur more than once, where no column numbers the steps.

An episode may take the very same step twice, so equal rows alone are no sign of a copy. These are:

- A folder holds all that another holds of an id. RLlib's recorder writes a folder at a time, and repeats in it what
  earlier ones hold.
- Without what files repeat of one another, the steps of an id follow each other in fewer pieces.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

States = tuple[np.ndarray, np.ndarray]
"""(N,) numbers of the state before each row and of that after it, -1 if nothing follows; ids do not share any."""


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
