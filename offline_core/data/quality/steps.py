"""What the rules look at: a dataset of either format as batches of steps, however broken, and what came before each."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset, not_imported
from offline_core.data.episodes import EpisodeBatch, columns, nested

_NOT_STEPS = {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA, columns.AGENT_ID, columns.MODULE_ID}


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBatch(EpisodeBatch):
    """A flat `EpisodeBatch`, and what came before each of its episodes in the dataset.

    A piece of an episode is rows that follow each other with the same id and with rising t; it may have no steps. All steps
    of a batch have the same types and spaces. `columns` are `obs`, `new_obs`, `actions`, `rewards`, `t`, the flags of ends,
    and extras, dicts and tuples by path (`obs/position`).
    """

    eps_ids: list[str]
    t_started: np.ndarray
    dataset: str
    contents: list[str]
    """E times what `content_of` says of a piece: the same for the same steps, whatever the id."""
    is_repeated: np.ndarray
    """(E,) a piece with that id and that first step was there before."""
    t_expected: np.ndarray
    """(E,) the step after the last one of the piece of the same episode that came before; -1 without one."""
    was_done: np.ndarray
    """(E,) the piece that came before had ended the episode already."""

    @property
    def t(self) -> np.ndarray:
        """(N,)"""
        return self.columns[columns.T]  # type: ignore[no-any-return]

    @property
    def terminated(self) -> np.ndarray:
        """(N,) the step reached a terminal state."""
        return self.columns[columns.TERMINATEDS]  # type: ignore[no-any-return]

    @property
    def truncated(self) -> np.ndarray:
        """(N,) the episode was cut off at the step."""
        return self.columns[columns.TRUNCATEDS]  # type: ignore[no-any-return]

    @functools.cached_property
    def done(self) -> np.ndarray:
        """(N,) no step can follow."""
        return np.asarray(self.terminated | self.truncated)

    @functools.cached_property
    def follows(self) -> np.ndarray:
        """The rows that are not the first of their piece."""
        return np.delete(np.arange(len(self)), self.offsets[:-1][self.lengths > 0])

    @functools.cached_property
    def last_rows(self) -> np.ndarray:
        """The last row of each piece that has one."""
        return self.last_steps[self.lengths > 0]

    @functools.cached_property
    def types(self) -> nested.Types:
        return nested.types_of(self.columns)

    def any_in_piece(self, steps: np.ndarray) -> np.ndarray:
        """(E,) whether one of the piece's steps is True."""
        return np.asarray(np.bincount(self.episode[steps], minlength=self.num_episodes) > 0)


def step_batches(dataset: Dataset) -> Iterator[StepBatch]:
    """All steps of a dataset in stored order, a row group at a time; memory grows by some 300 bytes an episode.

    Episodes whose rows continue in the next row group are joined.

    Raises:
        SchemaError: step tables that lack canonical columns, or have nulls: convert them first.
        DataError: a file or a value cannot be read.
    """
    history = _History()
    for batch, contents in dataset.codec.as_stored(_tables(dataset)):
        yield history.added_to(batch, dataset, contents)


def _tables(dataset: Dataset) -> Iterator[tuple[str, pa.Table]]:
    """(URI, rows) of the row groups that have rows, with the columns of interest."""
    if dataset.is_foreign and dataset.codec.needs_import:
        raise not_imported(dataset.location.uri)
    for group in dataset.row_groups():
        if group.num_rows:
            yield group.uri, group.read(dataset.codec.stored(sorted({*group.names} - _NOT_STEPS)))


@dataclass
class _History:
    """What is known of every episode so far."""

    latest: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """The step after the last one, and whether there can be one."""
    starts: set[tuple[str, int]] = field(default_factory=set)

    def take(self, eps_id: str, start: int, stop: int, is_done: bool) -> tuple[bool, int, bool]:
        """(is_repeated, t_expected, was_done) of a piece, which is history from then on."""
        if (eps_id, start) in self.starts:
            return True, -1, False
        expected, was_done = self.latest.get(eps_id, (-1, False))
        self.starts.add((eps_id, start))
        self.latest[eps_id] = (stop, is_done or was_done)
        return False, expected, was_done

    def added_to(self, batch: EpisodeBatch, dataset: Dataset, contents: list[str]) -> StepBatch:
        """The batch with what came before; its spaces default to the dataset's."""
        assert batch.eps_ids is not None and batch.t_started is not None
        lengths = batch.lengths
        done = np.bincount(batch.episode, batch[columns.TERMINATEDS] | batch[columns.TRUNCATEDS], len(lengths)) > 0
        stops = batch.t_started.copy()
        stops[lengths > 0] = batch[columns.T][batch.last_steps[lengths > 0]] + 1
        pieces = zip(batch.eps_ids, batch.t_started.tolist(), stops.tolist(), done.tolist(), strict=True)
        is_repeated, t_expected, was_done = map(np.array, zip(*(self.take(*piece) for piece in pieces), strict=True))
        return StepBatch(
            columns=batch.flat().columns,
            offsets=batch.offsets,
            eps_ids=list(batch.eps_ids),
            t_started=batch.t_started,
            observation_space=dataset.observation_space if batch.observation_space is None else batch.observation_space,
            action_space=dataset.action_space if batch.action_space is None else batch.action_space,
            dataset=dataset.location.uri,
            contents=contents,
            is_repeated=is_repeated,
            t_expected=t_expected,
            was_done=was_done,
        )
