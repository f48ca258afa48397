"""What an actor calls for rows: a prelearner, then the connectors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.errors import ConfigError, within
from offline_core.own_code import OwnCode, imported
from offline_core.own_errors import own_errors
from offline_core.prelearner.layout import PRELEARNER_SECONDS, STARTS, check_layout
from offline_core.prelearner.pipeline import Pipeline, Spaces, a_pair
from offline_core.prelearner.prelearner import PreLearner, Rows
from offline_core.storage.pieces import READ_SECONDS


class Mapper:
    """Stored rows → columns as in `offline_core.prelearner.layout`, flat; errors name the dataset, and whose code it was.

    Arguments:
        own: the user's prelearner, None for ours.
        given: what a prelearner is made with.
        timed: add the columns `READ_SECONDS` and `PRELEARNER_SECONDS`, whose sums are how long reading and this took.
    """

    def __init__(self, own: OwnCode | None, given: Mapping[str, Any], pipeline: Pipeline, *, timed: bool = False) -> None:
        self._timed = timed
        self._own = own
        self._given = given
        self._pipeline = pipeline

    @cached_property
    def _prelearner(self) -> PreLearner:
        """Not made with this: what Ray makes of an error there says nothing of its cause."""
        return make_prelearner(self._own, self._given)

    def __call__(self, rows: pa.Table) -> dict[str, np.ndarray]:
        if not self._timed:
            return self._made(rows)
        read = 0.0
        if READ_SECONDS in rows.column_names:
            read = rows[READ_SECONDS].to_numpy().sum()
            rows = rows.drop_columns([READ_SECONDS])
        begin = time.perf_counter()
        made = self._made(rows)
        for name, seconds in ((READ_SECONDS, read), (PRELEARNER_SECONDS, time.perf_counter() - begin)):
            made[name] = np.zeros(len(made[STARTS]), np.float32)
            made[name][:1] = seconds
        return made

    def _made(self, rows: pa.Table) -> dict[str, np.ndarray]:
        with within(self._given["where"]):
            if self._own is None:
                return self._pipeline(self._prelearner.columns(rows))
            prelearner = self._prelearner
            with own_errors(f"prelearner {self._own}", f"on {rows.num_rows:,} rows"):
                made = prelearner.columns(rows)
            with within(f"The prelearner {self._own}"):
                made = check_layout(made, looks_ahead=self._given["looks_ahead"])
            return self._pipeline(made)


def make_prelearner(own: OwnCode | None, given: Mapping[str, Any]) -> PreLearner:
    """Ours, or the user's.

    Raises:
        ConfigError: it cannot be made, or is none.
    """
    if own is None:
        return PreLearner(**given)
    kind = imported(own.path, "prelearner")
    if not (isinstance(kind, type) and issubclass(kind, PreLearner)):
        raise ConfigError(f"The prelearner {own} has to be a subclass of offline_core's PreLearner.")
    made: PreLearner = own.make("prelearner", **given)
    return made


def spaces_made(
    own: OwnCode | None, format: Rows, stored: tuple[gym.Space[Any] | None, gym.Space[Any] | None], *, where: str
) -> Spaces | None:
    """The spaces of what a prelearner makes, before any connector; None if nobody says them.

    Raises:
        ConfigError: the prelearner cannot be made, or says something else.
    """
    said: Any = stored
    if own is not None:
        made = make_prelearner(own, {"format": format, "wanted": (), "looks_ahead": False, "where": where})
        with own_errors(f"prelearner {own}", "to say its spaces", ConfigError):
            said = made.spaces(*stored)
    if said == stored and None in stored:
        return None
    return a_pair(said, f"prelearner {own}")
