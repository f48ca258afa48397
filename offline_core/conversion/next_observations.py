"""The observation after each step, where the source has no column of it: the one before the next step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from offline_core.conversion.ordering import Steps
from offline_core.conversion.report import Counts
from offline_core.episodes import columns, nested
from offline_core.episodes.arrow import read_column, to_arrow


def add_next_observations(
    steps: Steps, last: np.ndarray, kept: np.ndarray, *, drop_last: bool, counts: Counts
) -> tuple[Steps, np.ndarray]:
    """(the steps with `new_obs`, (N,) bool which of them are kept).

    The last step of a part has no next one: its own obs is repeated. With `drop_last` only terminations are repeated so, whose
    next observation no value is ever taken of. Other parts lose their last step and end at the one before, as in
    `d4rl.qlearning_dataset`.

    Arguments:
        last: (P,) the number of the last step of each part.
        kept: (N,) bool.
        counts: what becomes of the ends is added.
    """
    is_last = np.zeros(len(steps), bool)
    is_last[last] = True
    following = np.arange(len(steps)) + ~is_last
    obs = read_column(steps.table, columns.OBS)
    new_obs = to_arrow(nested.map_leaves(lambda array: array[following], obs), columns.NEW_OBS)
    table = steps.table.append_column(pa.field(columns.NEW_OBS, new_obs.type, nullable=False), new_obs)
    dropped = is_last & ~steps.terminated & kept & drop_last
    counts.dropped_last_steps = int(dropped.sum())
    counts.repeated_last_obs = int((is_last & kept & ~dropped).sum())
    counts.dropped_episodes += int((dropped[last] & (np.diff(last, prepend=-1) == 1)).sum())
    truncated = steps.truncated | (dropped & steps.truncated)[following]
    return replace(steps, table=table, truncated=truncated), kept & ~dropped
