"""Rows that are there more than once."""

from __future__ import annotations

import numpy as np

from offline_core.conversion.linking import numbered


def distinct_rows(rows: np.ndarray, folder: np.ndarray) -> np.ndarray:
    """True for the rows to keep: of equal rows as many as the folder that has most of them holds, the first ones.

    RLlib's recorder writes a folder at a time and repeats in it all that earlier ones hold. So rows that are equal
    within a folder are steps that were really taken twice, and rows that are equal across folders are not.

    Arguments:
        rows: (N, bytes), the id of the episode among them.
        folder: (N,) int
    """
    if len(np.unique(folder)) < 2:
        return np.ones(len(rows), bool)
    same = numbered(rows)
    occurrence_in_folder = _rank_within(same * (int(folder.max()) + 1) + folder)
    most = np.zeros(same.max() + 1, np.int64)
    np.maximum.at(most, same, occurrence_in_folder + 1)
    return _rank_within(same) < most[same]  # type: ignore[no-any-return]


def _rank_within(groups: np.ndarray) -> np.ndarray:
    """For each position, how many earlier positions have the same value."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    ranks = np.empty(len(groups), np.int64)
    ranks[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered)
    return ranks
