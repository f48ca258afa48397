"""Which order the columns of a source give its steps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from offline_core.conversion.config import EpisodesConfig
from offline_core.episodes import columns
from offline_core.errors import ConfigError


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
    if columns.NEW_OBS not in names and rules.last_new_obs is None:
        raise ConfigError(
            "There is no column new_obs, so it is the obs of the next step; say what follows the last one by "
            "episodes.last_new_obs: repeat or drop."
        )
    if columns.NEW_OBS not in names and order == "single_step" and rules.last_new_obs == "drop":
        raise ConfigError("Single steps without new_obs would all be dropped; use last_new_obs: repeat.")
    if not {columns.EPS_ID, columns.TERMINATEDS, columns.TRUNCATEDS} & set(names) and order != "single_step":
        raise ConfigError(f"Nothing says where an episode ends: map a column to eps_id or to dones. There are {names}.")
    return order


def has_timestamps(table: pa.Table) -> bool:
    """Whether column t holds nanoseconds since 1970, which do not number steps."""
    if columns.T not in table.column_names:
        return False
    kind = table[columns.T].type
    return not (pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _numbers_steps(t: pa.ChunkedArray, first: int) -> bool:
    """Whole numbers do; if they are stored as real ones, only those that begin with the first of an episode."""
    if not pa.types.is_floating(t.type):
        return bool(pa.types.is_integer(t.type))
    values = t.to_numpy()
    return bool((values == np.floor(values)).all() and values.min(initial=np.inf) == first)
