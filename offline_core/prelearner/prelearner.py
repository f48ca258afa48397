"""The callable that Ray Data's actor pool runs: rows as they are stored → columns as a learner eats them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from offline_core.episodes import Episode, columns, decode, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.nested import Nested
from offline_core.errors import DataError, EpisodeError
from offline_core.prelearner.connectors import Connector, StepColumns
from offline_core.storage.manifest import Format


class PreLearner:
    """Decodes a batch of rows, runs the connectors over it and flattens the result.

    Arguments:
        format: what a row is, an episode or a step.
        wanted: the columns the connectors start from; nothing else is decoded.
        connectors: applied in this order.
        where: named in errors.
    """

    def __init__(self, format: Format, wanted: Sequence[str], connectors: Sequence[Connector], *, where: str) -> None:
        self.format = format
        self.wanted = tuple(wanted)
        self.connectors = tuple(connectors)
        self.where = where

    def stored_columns(self) -> tuple[str, ...]:
        """The columns to read from storage."""
        return (columns.ITEM,) if self.format == "episodes" else self.wanted

    def __call__(self, rows: pa.Table) -> dict[str, np.ndarray]:
        """One table of rows → flat columns (`obs`, or `obs/position`, …), each of shape (steps, …).

        Raises:
            DataError: the rows are not what they have to be; the message names the dataset.
        """
        try:
            steps = self._steps(rows)
            for connector in self.connectors:
                steps = connector(steps)
        except DataError as error:
            raise type(error)(f"{self.where}: {error}") from error
        return {path: array for name, tree in steps.items() for path, array in nested.flatten(tree, name).items()}

    def _steps(self, rows: pa.Table) -> StepColumns:
        if self.format == "table":
            return {name: read_column(rows, name) for name in self.wanted}
        episodes = [decode(item) for item in rows[columns.ITEM].to_pylist()]
        try:
            return {name: nested.concatenate([step_column(e, name) for e in episodes]) for name in self.wanted}
        except ValueError as error:
            raise EpisodeError(f"Episodes that were read together differ in shape or structure: {error}.") from error


def step_column(episode: Episode, name: str) -> Nested:
    """One column of an episode's steps, shape (T, …).

    Raises:
        EpisodeError: the episode has no such column.
    """
    match name:
        case columns.OBS:
            return episode.get_observations(slice(0, len(episode)))
        case columns.NEW_OBS:
            return episode.get_observations(slice(1, len(episode) + 1))
        case columns.ACTIONS:
            return episode.get_actions()
        case columns.REWARDS:
            return episode.get_rewards()
        case columns.TERMINATEDS | columns.TRUNCATEDS:
            flags = np.zeros(len(episode), bool)
            if len(flags):
                flags[-1] = episode.terminated if name == columns.TERMINATEDS else episode.truncated
            return flags
    if name not in episode.extras:
        raise EpisodeError(f"Episode {episode.eps_id} has no column {name}; it has the extras {sorted(episode.extras)}.")
    return episode.get_extra(name)
