"""What an actor calls for rows: a prelearner, then the connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.errors import ConfigError, DataError
from offline_core.own_code import OwnCode, imported
from offline_core.own_errors import own_errors
from offline_core.prelearner.layout import check_layout
from offline_core.prelearner.pipeline import Pipeline, Spaces, a_pair
from offline_core.prelearner.prelearner import PreLearner, Rows


class Mapper:
    """Stored rows → columns as in `offline_core.prelearner.layout`, flat; errors name the dataset, and whose code it was.

    Arguments:
        own: the user's prelearner, None for ours.
        given: what a prelearner is made with.
    """

    def __init__(self, own: OwnCode | None, given: Mapping[str, Any], pipeline: Pipeline) -> None:
        self._own = own
        self._where: str = given["where"]
        self._looks_ahead: bool = given["looks_ahead"]
        self._prelearner = make_prelearner(own, given)
        self._pipeline = pipeline

    def __call__(self, rows: pa.Table) -> dict[str, np.ndarray]:
        try:
            if self._own is None:
                return self._pipeline(self._prelearner.columns(rows))
            with own_errors(f"prelearner {self._own}", f"on {rows.num_rows:,} rows"):
                made = self._prelearner.columns(rows)
            try:
                made = check_layout(made, looks_ahead=self._looks_ahead)
            except DataError as error:
                raise type(error)(f"The prelearner {self._own}: {error}") from error
            return self._pipeline(made)
        except DataError as error:
            raise type(error)(f"{self._where}: {error}") from error


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
