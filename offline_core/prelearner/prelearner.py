"""From rows as they are stored to columns of whole episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.episodes import Episode, columns, decode, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.steps import step_column
from offline_core.errors import ConfigError, EpisodeError
from offline_core.prelearner.layout import IS_STEP, STARTS, Columns, lay_out
from offline_core.storage.manifest import Format

Rows = Format | Literal["rows"]
"""What is stored: an episode a row, a step a row, or what only a prelearner of the user's own understands."""


_NOTHING: Columns = {STARTS: np.zeros(0, bool), IS_STEP: np.zeros(0, bool)}


class PreLearner:
    """Makes episodes of rows, and columns of episodes.

    A prelearner of the user's own overrides `episodes`, or `columns` for all of it, and says by `spaces` what observations
    and actions come out; its own arguments come by keyword beside these:

    Arguments:
        format: what a row is.
        wanted: the columns that are needed; no others are decoded.
        looks_ahead: add a row to each episode for the observation after its last step.
        where: named in errors.
    """

    def __init__(self, *, format: Rows, wanted: Sequence[str], looks_ahead: bool, where: str) -> None:
        self.format = format
        self.wanted = tuple(wanted)
        self.looks_ahead = looks_ahead
        self.where = where

    def spaces(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> tuple[gym.Space[Any] | None, gym.Space[Any] | None]:
        """Those of the episodes, before any connector; given are those of the dataset, None where it does not say."""
        return observation_space, action_space

    def stored_columns(self) -> tuple[str, ...] | None:
        """The columns to read of a dataset; None: all."""
        if self.format == "episodes":
            return (columns.ITEM,)
        if type(self).episodes is not PreLearner.episodes:
            return None
        return (columns.EPS_ID, *self.wanted, *((columns.NEW_OBS,) if self.looks_ahead else ()))

    def episodes(self, rows: pa.Table) -> list[Episode]:
        """The whole episodes that some rows hold; those without a step are left out later.

        Raises:
            DataError: the rows are not what they have to be.
        """
        if self.format != "episodes":
            raise ConfigError(f"{type(self).__name__} has to say by episodes(rows) how {self.where} becomes episodes.")
        return [decode(item) for item in rows[columns.ITEM].to_pylist()]

    def columns(self, rows: pa.Table) -> Columns:
        """The columns of all steps of some rows (see `offline_core.prelearner.layout`), before any connector.

        Raises:
            DataError: the rows are not what they have to be.
        """
        if self.format == "table" and type(self).episodes is PreLearner.episodes:
            return self._of_table(rows)
        return self._of_episodes([episode for episode in self.episodes(rows) if len(episode)])

    def _of_episodes(self, episodes: list[Episode]) -> Columns:
        if not episodes:
            return dict(_NOTHING)
        try:
            steps = {name: step_column(episodes, name) for name in self.wanted}
            last = None
            if self.looks_ahead:
                last = nested.concatenate([e.get_observations(slice(len(e), len(e) + 1)) for e in episodes])
        except KeyError as error:
            raise EpisodeError(f"Some of the episodes have no column {error}.") from error
        except ValueError as error:
            raise EpisodeError(f"Episodes that were read together differ in shape or structure: {error}.") from error
        return lay_out(steps, [len(episode) for episode in episodes], last)

    def _of_table(self, rows: pa.Table) -> Columns:
        if not rows.num_rows:
            return dict(_NOTHING)
        ids = rows[columns.EPS_ID].combine_chunks()
        changes = pc.not_equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1))).to_numpy(zero_copy_only=False)
        ends = np.concatenate([np.flatnonzero(changes), [len(ids) - 1]]).astype(np.int64)
        steps = {name: read_column(rows, name) for name in self.wanted}
        last = None
        if self.looks_ahead:
            last = nested.map_leaves(lambda leaf: leaf[ends], read_column(rows, columns.NEW_OBS))
        return lay_out(steps, np.diff(ends, prepend=-1), last)
