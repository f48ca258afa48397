"""Episodes in memory, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from offline_core.data.episodes import EpisodeBatch
from offline_core.learning.steps import Steps


def batch_of(lengths: Sequence[int], *, first: int = 0, needs_next_obs: bool = True) -> EpisodeBatch:
    """Episodes of these lengths; `obs` and `actions` count the rows, from `first`."""
    offsets = np.cumsum([0, *(length + needs_next_obs for length in lengths)])
    count = np.arange(first, first + offsets[-1])
    columns = {"obs": count.astype(np.float32)[:, None], "actions": count.copy()}
    return EpisodeBatch(columns=columns, offsets=offsets, has_last=needs_next_obs)


def steps_of(columns: Mapping[str, np.ndarray], lengths: Sequence[int] | None = None, *, needs_next_obs: bool = False) -> Steps:
    """`columns` cut into episodes of `lengths` (all one if not given)."""
    rows = len(next(iter(columns.values())))
    lengths = [rows - needs_next_obs] if lengths is None else lengths
    return Steps.of(batch_of(lengths, needs_next_obs=needs_next_obs) | columns)
