"""Rows that are there more than once."""

from __future__ import annotations

import numpy as np

from offline_core.conversion.linking import hashes


def distinct_rows(rows: np.ndarray, group: np.ndarray, folder: np.ndarray) -> np.ndarray:
    """True for the rows to keep: of equal rows as many as the folder that has most of them holds, the first ones.

    RLlib's recorder writes a folder at a time and repeats in it all that earlier ones hold. So rows that are equal
    within a folder are steps that were really taken twice, and rows that are equal across folders are not.

    Arguments:
        rows: (N, bytes)
        group: (N,) int; only rows of one group are duplicates.
        folder: (N,) int
    """
    if len(np.unique(folder)) < 2:
        return np.ones(len(rows), bool)
    keys = hashes(rows) ^ (group.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    if not ((rows == rows[first[same]]).all() and (group == group[first[same]]).all()):  # two rows share a hash
        whole = np.ascontiguousarray(np.concatenate([rows, group.astype(np.int64)[:, None].view(np.uint8)], axis=1))
        same = np.unique(whole.view(np.dtype((np.void, whole.shape[1]))).ravel(), return_inverse=True)[1]
    occurrence = _rank_within(same)
    occurrence_in_folder = _rank_within(same * (int(folder.max()) + 1) + folder)
    most = np.zeros(same.max(initial=-1) + 1, np.int64)
    np.maximum.at(most, same, occurrence_in_folder + 1)
    return occurrence < most[same]


def equal_rows(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(N,) bool: the rows of two (N, bytes) arrays are the same."""
    return (one == other).all(axis=1)  # type: ignore[no-any-return]


def _rank_within(groups: np.ndarray) -> np.ndarray:
    """For each position, how many earlier positions have the same value."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ranks = np.arange(len(groups)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(groups)]])))
    result = np.empty_like(ranks)
    result[order] = ranks
    return result
