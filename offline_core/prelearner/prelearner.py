"""The callable that Ray Data's actor pool runs: rows as they are stored → columns as a learner eats them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.episodes import columns, decode, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.nested import Nested
from offline_core.episodes.steps import step_column
from offline_core.errors import DataError, EpisodeError, SchemaError
from offline_core.prelearner.connectors import Connector, StepColumns
from offline_core.storage.manifest import Format

STARTS, IS_STEP = "_starts", "_is_step"
"""(R,) bool: the row is the first of an episode; it is a step, and not only the observation after the last one."""


class PreLearner:
    """Decodes rows of whole episodes, runs the connectors over their steps and flattens the result.

    Arguments:
        format: what a row is, an episode or a step.
        wanted: the columns the connectors start from; nothing else is decoded.
        connectors: applied in this order, to the steps and, if it looks ahead, to the observations after episodes' last
            steps by themselves, as `new_obs`; each leaves alone what it does not know.
        looks_ahead: add a row to each episode for the observation after its last step.
        where: named in errors.
    """

    def __init__(
        self, format: Format, wanted: Sequence[str], connectors: Sequence[Connector], *, looks_ahead: bool, where: str
    ) -> None:
        self.format = format
        self.wanted = tuple(wanted)
        self.connectors = tuple(connectors)
        self.looks_ahead = looks_ahead
        self.where = where

    def stored_columns(self) -> tuple[str, ...]:
        """The columns to read from storage."""
        if self.format == "episodes":
            return (columns.ITEM,)
        return (columns.EPS_ID, *self.wanted, *((columns.NEW_OBS,) if self.looks_ahead else ()))

    def __call__(self, rows: pa.Table) -> dict[str, np.ndarray]:
        """Stored rows → flat columns (`obs`, or `obs/position`, …) of shape (R, …), with `STARTS` and `IS_STEP`.

        R is the number of steps, plus that of the episodes if `looks_ahead`; in those rows all but the observation
        repeats the last step.

        Raises:
            DataError: the rows are not what they have to be; the message names the dataset.
        """
        try:
            steps, lengths, last = self._steps(rows)
            for connector in self.connectors:
                steps = connector(steps)
                if self.looks_ahead:
                    last = connector({columns.NEW_OBS: last})[columns.NEW_OBS]
        except DataError as error:
            raise type(error)(f"{self.where}: {error}") from error
        return self._laid_out(steps, lengths, last)

    def _steps(self, rows: pa.Table) -> tuple[StepColumns, np.ndarray, Nested]:
        """(columns (N, …), lengths of the episodes (E,), observations after their last steps (E, …) if wanted)."""
        return self._of_table(rows) if self.format == "table" else self._of_episodes(rows)

    def _of_episodes(self, rows: pa.Table) -> tuple[StepColumns, np.ndarray, Nested]:
        episodes = [episode for episode in map(decode, rows[columns.ITEM].to_pylist()) if len(episode)]
        try:
            steps = {name: step_column(episodes, name) for name in self.wanted}
            last = None
            if self.looks_ahead:
                last = nested.concatenate([e.get_observations(slice(len(e), len(e) + 1)) for e in episodes])
        except KeyError as error:
            raise EpisodeError(f"Some of the episodes have no column {error}.") from error
        except ValueError as error:
            raise EpisodeError(f"Episodes that were read together differ in shape or structure: {error}.") from error
        return steps, np.array([len(episode) for episode in episodes]), last

    def _of_table(self, rows: pa.Table) -> tuple[StepColumns, np.ndarray, Nested]:
        ids = rows[columns.EPS_ID].combine_chunks()
        changes = pc.not_equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1))).to_numpy(zero_copy_only=False)
        ends = np.concatenate([np.flatnonzero(changes), [len(ids) - 1]]).astype(np.int64)
        steps = {name: read_column(rows, name) for name in self.wanted}
        last = None
        if self.looks_ahead:
            last = nested.map_leaves(lambda array: array[ends], read_column(rows, columns.NEW_OBS))
        return steps, np.diff(ends, prepend=-1), last

    def _laid_out(self, steps: StepColumns, lengths: np.ndarray, last: Nested) -> dict[str, np.ndarray]:
        extra = int(self.looks_ahead)
        rows = int(lengths.sum()) + extra * len(lengths)
        ends = np.cumsum(lengths + extra)
        starts = np.zeros(rows, bool)
        starts[ends - lengths - extra] = True
        is_step = np.ones(rows, bool)
        flat = {path: array for name, tree in steps.items() for path, array in nested.flatten(tree, name).items()}
        if self.looks_ahead:
            is_step[ends - 1] = False
            step = np.cumsum(is_step) - 1
            flat = {path: array[step] for path, array in flat.items()}
            for path, array in nested.flatten(last, columns.OBS).items():
                if array.shape[1:] != flat[path].shape[1:]:
                    raise SchemaError(f"{self.where}: obs and new_obs have steps of different shapes in {path}.")
                flat[path][ends - 1] = array
        return flat | {STARTS: starts, IS_STEP: is_step}
