"""Times of steps: whether column t holds them, where they lie too far apart, and where files alternate in time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns

GAP_FACTOR = 20
"""A gap takes more than this many times the upper quartile of what an episode's steps take."""
MIN_STEPS = 16
"""From fewer times between steps, nothing is inferred."""
MAX_SPREAD = 1.5
"""Steps have a regular pace if the upper quartile of the times between them is at most this many times the lower one."""
NANOSECONDS = 10**9
SET_BACK = 3600 * NANOSECONDS
"""So far the clock of local times is set back at the end of summer."""
MONTHS_SET_BACK = (2, 3, 4, 9, 10, 11)
"""In these it is, on one half of the earth or the other."""


def time_gaps(t: np.ndarray, group: np.ndarray, starts: np.ndarray, max_gap: float | None = None) -> np.ndarray:
    """(N,) bool: the row comes so long after the one before it that it begins something else.

    What an episode's steps take is found by the upper quartile of the times between them: up to a quarter of these may be
    gaps, however long, and it follows each episode's own pace. Where the pace is not regular, long times are part of it, so
    nothing is a gap; nor is it where there are too few steps to tell. A group whose times go back, but for the clock of local
    times being set back, is not in the order of these times: a time of the day, for example. Nothing is inferred of it.

    Arguments:
        t: (N,) the time of each row, within a group in the order of steps.
        group: (N,) ascending numbers of what is to be compared.
        starts: (N,) bool, the row begins something anyway; the first one does.
        max_gap: in the unit of t; None: `GAP_FACTOR` times the upper quartile of a group with a regular pace.
    """
    gaps = np.zeros(len(t), bool)
    rows = np.flatnonzero(~starts)
    took = (t[rows] - t[rows - 1]).astype(np.float64)
    if max_gap is not None or not len(rows):
        gaps[rows] = took > (np.inf if max_gap is None else max_gap)
        return gaps
    _, first, count = np.unique(group[rows], return_index=True, return_counts=True)
    ascending = took[np.lexsort((took, group[rows]))]
    low, high = ascending[first + (count - 1) // 4], ascending[first + (count - 1) * 3 // 4]
    goes_back = ascending[first] < -(SET_BACK if t.min() >= columns.LEAST_NANOSECONDS else 0)
    is_regular = (count >= MIN_STEPS) & (low > 0) & (high <= MAX_SPREAD * low) & ~goes_back
    gaps[rows] = took > np.repeat(np.where(is_regular, GAP_FACTOR * high, np.inf), count)
    return gaps


def below(gap: float) -> float:
    """A largest gap of two digits at which this one still ends an episode."""
    return _of_two_digits(0.9 * gap, np.floor)


def above(gap: float) -> float:
    """A largest gap of two digits at which this one ends none."""
    return _of_two_digits(gap, np.ceil)


def _of_two_digits(number: float, rounded: np.ufunc) -> float:
    size = 10.0 ** (np.floor(np.log10(number)) - 1)
    return float(f"{rounded(number / size) * size:.2g}")


def has_timestamps(table: pa.Table) -> bool:
    """Whether column t holds nanoseconds since 1970, which do not number steps."""
    if columns.T not in table.column_names:
        return False
    kind = table[columns.T].type
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind))


def alternating(group: np.ndarray, file: np.ndarray) -> int:
    """How many groups, whose rows are in order, go back to a file after rows of another one."""
    changes = (np.diff(group) == 0) & (np.diff(file) != 0)
    if not changes.any():
        return 0
    turns = np.bincount(group[1:][changes], minlength=int(group.max()) + 1)
    pairs = np.unique(group * (int(file.max()) + 1) + file)
    inside = np.bincount(pairs // (int(file.max()) + 1), minlength=len(turns))
    return int((turns > inside - 1).sum())
