"""From rows as they are stored to batches of whole episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import pyarrow as pa

from offline_core.data.environments.vector_env import Spaces
from offline_core.data.episodes import Episode, EpisodeBatch, columns
from offline_core.data.episodes.codecs import CODECS, Codec, Format
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.errors import ConfigError
from offline_core.learning.prelearner.connectors import a_pair
from offline_core.runtime.user_code import UserCode, import_class, user_errors

Rows = Format | Literal["rows"]
"""What is stored: an episode a row, a step a row, or what only a user's prelearner understands."""


class PreLearner:
    """Make episodes of rows, and training columns of episodes.

    A user's prelearner overrides `episodes`, or `batch` for all of it, and declares by `spaces` what observations and
    actions come out; its own arguments come by keyword besides these:

    Arguments:
        format: what a row is.
        wanted: the columns that are needed; no others are decoded.
        needs_next_obs: add a row to each episode for the observation after its last step.
        where: named in errors.
    """

    def __init__(self, *, format: Rows, wanted: Sequence[str], needs_next_obs: bool, where: str) -> None:
        self.format = format
        self.wanted = tuple(wanted)
        self.needs_next_obs = needs_next_obs
        self.where = where

    def spaces(self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None) -> StoredSpaces:
        """The spaces of the episodes before any connector, given those of the dataset; None where unknown."""
        return observation_space, action_space

    def stored_columns(self) -> tuple[str, ...] | None:
        """The columns to read of a dataset; None: all."""
        if self.codec is None:
            return None
        needed = (columns.EPS_ID, columns.T, *((columns.NEW_OBS,) if self.needs_next_obs else ()))
        stored = self.codec.stored(None if self._has_own_episodes else list(dict.fromkeys((*needed, *self.wanted))))
        return None if stored is None else tuple(stored)

    def episodes(self, rows: pa.Table) -> list[Episode]:
        """The whole episodes that some rows hold; those without a step are left out later.

        Raises:
            DataError: the rows are not what they have to be.
        """
        if self.codec is None:
            raise ConfigError(f"{type(self).__name__} has to say by episodes(rows) how {self.where} becomes episodes.")
        return self.codec.episodes(rows)

    def batch(self, rows: pa.Table) -> EpisodeBatch:
        """The wanted columns of all steps of some rows, before any connector.

        Raises:
            DataError: the rows are not what they have to be.
        """
        if self.codec is not None and not self._has_own_episodes:
            return self.codec.batch(rows, self.wanted, has_last=self.needs_next_obs)
        episodes = [episode for episode in self.episodes(rows) if len(episode)]
        return EpisodeBatch.of(episodes, self.wanted, has_last=self.needs_next_obs)

    @property
    def codec(self) -> Codec | None:
        """How rows hold episodes; None: only this knows it."""
        return None if self.format == "rows" else CODECS[self.format]

    @property
    def _has_own_episodes(self) -> bool:
        return type(self).episodes is not PreLearner.episodes


def make_prelearner(
    user_code: UserCode | None, *, format: Rows, wanted: Sequence[str], needs_next_obs: bool, where: str
) -> PreLearner:
    """Return the built-in prelearner, or the user's.

    Raises:
        ConfigError: It cannot be made, or is none.
    """
    arguments: dict[str, Any] = {"format": format, "wanted": wanted, "needs_next_obs": needs_next_obs, "where": where}
    if user_code is None:
        return PreLearner(**arguments)
    import_class(user_code.path, "prelearner", PreLearner)
    return user_code.make("prelearner", **arguments)  # type: ignore[no-any-return]


def spaces_made(user_code: UserCode, format: Rows, stored: StoredSpaces, *, where: str) -> Spaces | None:
    """Return the spaces of what a user's prelearner makes, before any connector; None if neither it nor the data declares them.

    Raises:
        ConfigError: The prelearner cannot be made, or declares something else.
    """
    prelearner = make_prelearner(user_code, format=format, wanted=(), needs_next_obs=False, where=where)
    with user_errors(f"prelearner {user_code}", "to say its spaces", ConfigError):
        declared: Any = prelearner.spaces(*stored)
    if declared == stored and None in stored:
        return None
    return a_pair(declared, f"prelearner {user_code}")
