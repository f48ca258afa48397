"""Prelearners of the user's own, as an actor calls them."""

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
from offline_core.prelearner.prelearner import PreLearner


class OwnPreLearner:
    """Makes one and calls it: errors get its name, and what comes out is checked.

    Arguments:
        code: a subclass of `PreLearner`.
        given: what every prelearner is made with.

    Raises:
        ConfigError: it cannot be made.
    """

    def __init__(self, code: OwnCode, given: Mapping[str, Any]) -> None:
        kind = imported(code.path, "prelearner")
        if not (isinstance(kind, type) and issubclass(kind, PreLearner)):
            raise ConfigError(f"The prelearner {code.path} has to be a subclass of offline_core's PreLearner.")
        self.prelearner: PreLearner = code.make("prelearner", **given)
        self._path = code.path
        self._where, self._looks_ahead = given["where"], given["looks_ahead"]

    def spaces(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> tuple[gym.Space[Any] | None, gym.Space[Any] | None]:
        """See `PreLearner.spaces`."""
        with own_errors(f"prelearner {self._path}", "to say its spaces", ConfigError):
            return self.prelearner.spaces(observation_space, action_space)

    def __call__(self, rows: pa.Table) -> dict[str, np.ndarray]:
        with own_errors(f"prelearner {self._path}", f"on rows of {self._where}"):
            made = self.prelearner(rows)
        try:
            return check_layout(made, looks_ahead=self._looks_ahead)
        except DataError as error:
            raise type(error)(f"{self._where}: the prelearner {self._path}: {error}") from error
