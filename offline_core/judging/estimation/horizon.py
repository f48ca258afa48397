"""How many steps an estimate counts: where its return ends, and what recordings say of the steps up to there."""

from __future__ import annotations

import numpy as np

from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.errors import ConfigError
from offline_core.judging.estimation.config import Horizon


def find_horizon(wanted: Horizon, logged: EpisodeBatch) -> int | None:
    """Steps that count; None: all until the episode terminates.

    Episodes that all have one length, or that are open (did not terminate) at the longest length alone, are of a fixed
    horizon: that is what `auto` finds. Where open episodes end at several lengths it finds none.

    Raises:
        ConfigError: more steps are asked for than were recorded, and open episodes would have gone on.
    """
    lengths, is_open = logged.lengths, ~logged.at_end(columns.TERMINATEDS)
    longest = int(lengths.max())
    if isinstance(wanted, int):
        if wanted > longest and is_open.any():
            raise ConfigError(
                f"horizon is {wanted:,} steps, but the longest of {len(lengths):,} episodes has {longest:,}, and "
                f"{is_open.sum():,} episodes did not terminate: nothing was recorded of the steps after that. Set horizon to "
                f"{longest:,} or less, or to continuing."
            )
        return wanted
    if wanted == "continuing":
        return None
    ends = lengths[is_open] if is_open.any() else lengths
    return longest if wanted == "recorded" or (ends == longest).all() else None


def cut_to(logged: EpisodeBatch, horizon: int | None) -> EpisodeBatch:
    """The same episodes without the steps that do not count."""
    return logged if horizon is None or (logged.lengths <= horizon).all() else logged.head(horizon)


def open_before(logged: EpisodeBatch, horizon: int | None) -> np.ndarray:
    """(E,) bool: the recording ends before the horizon, and the episode would have gone on."""
    return np.asarray(~logged.at_end(columns.TERMINATEDS) & (horizon is None or logged.lengths < horizon))


def unrecorded_steps(logged: EpisodeBatch, horizon: int | None, gamma: float) -> np.ndarray:
    """(E,) discounted steps after the last recorded one that would have counted, in units of that one; it may be infinite.

    How soon episodes would have terminated is taken from the data: at each step as often as at those that were recorded (the
    rate of terminations where some recordings end before them).
    """
    is_open = open_before(logged, horizon)
    goes_on = gamma * (1 - logged.at_end(columns.TERMINATEDS).sum() / len(logged))
    left = np.where(is_open, (np.inf if horizon is None else horizon) - logged.lengths, 0.0)
    return np.asarray(gamma * left if goes_on == 1 else gamma * (1 - goes_on**left) / (1 - goes_on))
