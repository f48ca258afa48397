"""What order the rows of a source are in, and where they end episodes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.ordering import observations
from offline_core.data.importing.times import has_timestamps
from offline_core.data.importing.trajectory_linking import row_bytes
from offline_core.errors import ConfigError

IN_ORDER_SHARE = 0.9
"""Rows without ids are taken as lying in order, and not held in memory to be linked, as long as this share of those that are
read together is followed by the row that fits."""


def ends_of(table: pa.Table) -> np.ndarray:
    """(N,) bool: the row ends an episode, or the next one begins another."""
    ends = np.zeros(table.num_rows, bool)
    for name in {columns.TERMINATEDS, columns.TRUNCATEDS} & set(table.column_names):
        ends |= table[name].to_numpy()
    if columns.IS_FIRST in table.column_names:
        ends[:-1] |= table[columns.IS_FIRST].to_numpy()[1:]
    return ends


def lies_in_order(table: pa.Table) -> bool:
    """Whether most rows that end nothing are followed by the row that fits."""
    obs, new_obs = (row_bytes(tree) for tree in observations(table))
    fits = (new_obs[:-1] == obs[1:]).all(axis=1)[~ends_of(table)[:-1]]
    return bool(fits.mean() >= IN_ORDER_SHARE) if len(fits) else True


def order_of(rules: EpisodesConfig, table: pa.Table) -> str:
    """What `auto` stands for with these columns and first rows.

    Raises:
        ConfigError: the order cannot be had from these columns.
    """
    names = table.column_names
    order: str = rules.order
    if order == "auto":
        if columns.T in names:
            order = "t" if _numbers_steps(table[columns.T], rules.first_t) else "time"
        else:
            order = "linked" if columns.NEW_OBS in names else "stored"
    if order in ("t", "time") and columns.T not in names:
        raise ConfigError(f"Rows cannot be ordered by {order}: no column is mapped to 't'.")
    if rules.ids_per == "date" and not has_timestamps(table):
        raise ConfigError("Ids per date need a column 't' of timestamps or dates; use episodes.ids_per: file, or folder.")
    if order == "t" and has_timestamps(table):
        raise ConfigError("Column 't' holds times and does not number steps; use order: time.")
    if order == "linked" and columns.NEW_OBS not in names:
        raise ConfigError("Rows cannot be linked without a column new_obs.")
    if columns.NEW_OBS in names and columns.IS_LAST in names:
        raise ConfigError(
            "is_last marks rows that are no steps and hold the observation after the last one; with new_obs there are none. "
            "Map the column to dones instead."
        )
    if order == "single_step" and columns.IS_LAST in names:
        raise ConfigError("Single steps need new_obs: is_last marks rows that hold the observation after the last step.")
    if not {columns.NEW_OBS, columns.IS_LAST} & {*names} and rules.last_new_obs is None:
        raise ConfigError(
            "There is no column new_obs, so it is the obs of the next step; say what follows the last one by "
            "episodes.last_new_obs: repeat or drop."
        )
    if columns.NEW_OBS not in names and order == "single_step" and rules.last_new_obs == "drop":
        raise ConfigError("Single steps without new_obs would all be dropped; use last_new_obs: repeat.")
    said = {columns.EPS_ID, columns.TERMINATEDS, columns.TRUNCATEDS, columns.IS_FIRST}
    if not said & set(names) and order != "single_step":
        raise ConfigError(f"Nothing says where an episode ends: map a column to eps_id or to dones. There are {names}.")
    return order


def _numbers_steps(t: pa.ChunkedArray, first: int) -> bool:
    """Whole numbers do; if they are stored as real ones, only those that begin with the first of an episode."""
    if not pa.types.is_floating(t.type):
        return bool(pa.types.is_integer(t.type))
    values = t.to_numpy()
    return bool((values == np.floor(values)).all() and values.min(initial=np.inf) == first)
