"""Which episodes of a dataset are parts of one, as imports and prunings leave them where steps are missing."""

from __future__ import annotations

import itertools
import re

import numpy as np
import polars as pl

from offline_core.episodes import columns

_PARTS = re.compile(r"(@\d+(-[0-9a-f]{8})?)+$")
"""What imports and prunings add to the id of an episode for its later parts: the step they begin at, a hash."""


def first_parts(index: pl.DataFrame) -> np.ndarray:
    """(episodes,) for each episode the number of the first part of its trajectory: its own, unless it is a later part.

    Parts of an episode come under its id, up to one that terminated.

    Arguments:
        index: `episode_index` of a dataset, with eps_id, t_started and terminated.
    """
    ids = index[columns.EPS_ID].to_list()
    bases = [_PARTS.sub("", eps_id) for eps_id in ids]
    starts = [[int(t) for t in re.findall(r"@(\d+)", eps_id[len(base) :])] for eps_id, base in zip(ids, bases, strict=True)]
    places = list(zip(bases, starts, index[columns.T_STARTED].to_list(), strict=True))
    order = np.array(sorted(range(len(places)), key=places.__getitem__), int)
    terminated = index[columns.TERMINATED].to_list()
    goes_on = [
        bases[before] == bases[now] and (not terminated[before] or places[before] == places[now])
        for before, now in itertools.pairwise(order.tolist())
    ]
    begins = np.array([True, *(not each for each in goes_on)])
    first = np.zeros(len(order), int)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return first
