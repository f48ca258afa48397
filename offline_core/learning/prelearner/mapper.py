"""What an actor calls for rows: a prelearner, then the connectors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.data.datasets.row_groups import READ_SECONDS, ROW_GROUP
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.episodes.batch import run_starts
from offline_core.data.episodes.extension_types import refuse_extension_types
from offline_core.errors import ConfigError, SchemaError, within
from offline_core.learning.prelearner.pipeline import Pipeline, Spaces, a_pair, check_batch
from offline_core.learning.prelearner.prelearner import PreLearner, Rows
from offline_core.runtime.user_code import UserCode, import_object
from offline_core.runtime.user_errors import user_errors

PRELEARNER_SECONDS = "_prelearner_seconds"
"""(R,) float32, besides `READ_SECONDS`: how long a mapper took, in its first row."""
SECONDS = (READ_SECONDS, PRELEARNER_SECONDS)
_ENDS = "_ends"
"""(R,) bool in Ray's blocks: the row is the last of its episode."""


class Mapper:
    """Stored rows → flat training columns; errors name the dataset, and whose code failed.

    Arguments:
        user_code: the user's prelearner; None: the built-in one.
        given: arguments of the prelearner.
        timed: add the columns `READ_SECONDS` and `PRELEARNER_SECONDS`, whose sums are how long reading and this took. Rows
            with numbers of row groups keep them.
    """

    def __init__(
        self, user_code: UserCode | None, given: Mapping[str, Any], pipeline: Pipeline, *, timed: bool = False
    ) -> None:
        self._user_code = user_code
        self._given = given
        self._pipeline = pipeline
        self._timed = timed

    @cached_property
    def _prelearner(self) -> PreLearner:
        """Not made with this: Ray's error about that would not name the cause."""
        return make_prelearner(self._user_code, self._given)

    def __call__(self, rows: pa.Table) -> EpisodeBatch:
        if not self._timed:
            return self._mapped(rows)
        read = 0.0
        if READ_SECONDS in rows.column_names:
            read = rows[READ_SECONDS].to_numpy().sum()
            rows = rows.drop_columns([READ_SECONDS])
        begin = time.perf_counter()
        batch = self._by_row_group(rows) if ROW_GROUP in rows.column_names else self._mapped(rows)
        seconds = {}
        for name, took in ((READ_SECONDS, read), (PRELEARNER_SECONDS, time.perf_counter() - begin)):
            seconds[name] = np.zeros(batch.rows, np.float32)
            seconds[name][:1] = took
        return batch | seconds

    def _by_row_group(self, rows: pa.Table) -> EpisodeBatch:
        numbers = rows[ROW_GROUP].combine_chunks()
        rows = rows.drop_columns([ROW_GROUP])
        edges = [*run_starts(numbers).tolist(), rows.num_rows]
        found = []
        for start, stop in itertools.pairwise(edges):
            batch = self._mapped(rows.slice(start, stop - start))
            found.append(batch | {ROW_GROUP: np.full(batch.rows, numbers[start].as_py(), np.int32)})
        found = [batch for batch in found if batch.rows] or found
        differing = (each.columns.keys() ^ found[0].columns.keys() for each in found)
        if other := next(filter(None, differing), None):
            raise SchemaError(
                f"Some episodes of {self._given['where']} have the column {', '.join(sorted(other))} and others do not."
            )
        return EpisodeBatch.concatenate(found) if found else self._mapped(rows)

    def _mapped(self, rows: pa.Table) -> EpisodeBatch:
        with within(self._given["where"]):
            refuse_extension_types(rows.schema, "the rows")
            prelearner = self._prelearner
            if self._user_code is None:
                return self._pipeline(prelearner.batch(rows))
            with user_errors(f"prelearner {self._user_code}", f"on {rows.num_rows:,} rows"):
                batch = prelearner.batch(rows)
            with within(f"The prelearner {self._user_code}"):
                batch = check_batch(batch, has_last=self._given["needs_next_obs"])
            return self._pipeline(batch)


class RayMapper(Mapper):
    """A mapper whose results are blocks of Ray Data; see `whole_episodes`."""

    def __call__(self, rows: pa.Table) -> dict[str, np.ndarray]:  # type: ignore[override]
        batch = super().__call__(rows)
        ends = np.zeros(batch.rows, bool)
        ends[batch.offsets[1:] - 1] = True
        return {**batch.columns, _ENDS: ends}


def whole_episodes(blocks: Iterable[dict[str, np.ndarray]], *, has_last: bool) -> Iterator[EpisodeBatch]:
    """The batches of a `RayMapper`. Ray may cut a large block at any row: what is no whole episode waits for its rest."""
    waiting: list[dict[str, np.ndarray]] = []
    held = 0
    for block in blocks:
        columns = dict(block)
        ends = columns.pop(_ENDS, np.zeros(0, bool))
        stops = np.flatnonzero(ends) + 1
        stop = int(stops[-1]) if len(stops) else 0
        if stop:
            waiting.append({name: column[:stop] for name, column in columns.items()})
            whole = {name: np.concatenate([each[name] for each in waiting]) for name in columns} if held else waiting[0]
            yield EpisodeBatch(columns=whole, offsets=np.append(0, stops + held), has_last=has_last)
            waiting, held = [], 0
        if stop < len(ends):
            waiting.append({name: column[stop:] for name, column in columns.items()})
            held += len(ends) - stop


def make_prelearner(user_code: UserCode | None, given: Mapping[str, Any]) -> PreLearner:
    """The built-in one, or the user's.

    Raises:
        ConfigError: it cannot be made, or is none.
    """
    if user_code is None:
        return PreLearner(**given)
    kind = import_object(user_code.path, "prelearner")
    if not (isinstance(kind, type) and issubclass(kind, PreLearner)):
        raise ConfigError(f"The prelearner {user_code} has to be a subclass of offline_core's PreLearner.")
    return user_code.make("prelearner", **given)  # type: ignore[no-any-return]


def spaces_made(
    user_code: UserCode, format: Rows, stored: tuple[gym.Space[Any] | None, gym.Space[Any] | None], *, where: str
) -> Spaces | None:
    """The spaces of what a user's prelearner makes, before any connector; None if neither it nor the data declares them.

    Raises:
        ConfigError: the prelearner cannot be made, or declares something else.
    """
    made = make_prelearner(user_code, {"format": format, "wanted": (), "needs_next_obs": False, "where": where})
    with user_errors(f"prelearner {user_code}", "to say its spaces", ConfigError):
        declared: Any = made.spaces(*stored)
    if declared == stored and None in stored:
        return None
    return a_pair(declared, f"prelearner {user_code}")
