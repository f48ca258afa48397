"""Links that run in circles, opened: rows that lead back to themselves have no first one to begin with.

They come from observations that occur several times, as in every discrete environment: bumping into a wall is a circle of
one row. Whoever links such rows finds an episode in pieces, a chain and circles that touch it. Following the chain to where
a circle touches it, going round once, and then on, uses every row (Hierholzer's construction of Eulerian trails).

Works on whole columns: as many rounds as circles hang on circles, no loop over steps.
"""

from __future__ import annotations

import numpy as np


def open_circles(successor: np.ndarray, place: np.ndarray) -> None:
    """Changes links so that none run in a circle, by as few cuts as there have to be.

    Arguments:
        successor: (N,) the row that follows each, -1 for none; changed in place.
        place: (N,) int; rows that start from the same observation, and may so take each other's place, share one.
    """
    while len(inside := np.flatnonzero((circle := circles(successor)) >= 0)):
        outside = np.flatnonzero(circle < 0)
        door = np.full(place.max() + 1, -1)
        door[place[outside[::-1]]] = outside[::-1]  # the first row of a chain at each place
        touching = inside[door[place[inside]] >= 0]
        if len(touching):
            entry = touching[np.unique(circle[touching], return_index=True)[1]]  # one for each circle
            _insert(successor, entry, door[place[entry]])
        else:
            successor[_inverse(successor)[_lowest(circle[inside], place[inside])]] = -1


def circles(successor: np.ndarray) -> np.ndarray:
    """(N,) the smallest row of the circle that each row is in, -1 for those in none."""
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
    """Goes round the circles that are entered at `entry` before the row `door` of a chain; several at one door in turn."""
    order = np.lexsort((entry, door))
    entry, door = entry[order], door[order]
    predecessor = _inverse(successor)
    ends, before = predecessor[entry], predecessor[door]
    is_first = np.append(True, door[1:] != door[:-1])
    is_last = np.append(is_first[1:], True)
    successor[ends] = np.where(is_last, door, np.roll(entry, -1))
    from_chain = is_first & (before >= 0)
    successor[before[from_chain]] = entry[from_chain]


def _lowest(circle: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The smallest row of each set of circles that touch one another, be it through others."""
    label, before = circle, None
    while before is None or (label != before).any():
        before = label
        for meeting in (place, circle):
            lowest = np.full(meeting.max() + 1, label.max())
            np.minimum.at(lowest, meeting, label)
            label = lowest[meeting]
    return np.unique(label)


def _inverse(successor: np.ndarray) -> np.ndarray:
    predecessor = np.full(len(successor), -1)
    linked = np.flatnonzero(successor >= 0)
    predecessor[successor[linked]] = linked
    return predecessor
