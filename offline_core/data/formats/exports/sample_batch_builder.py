"""Build batches from the steps of a user's log, like RLlib's SampleBatchBuilder."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from offline_core.data.episodes import columns, nested
from offline_core.errors import DataError, SchemaError

UNROLL_ID = "unroll_id"


class SampleBatchBuilder:
    """Collects steps into a batch: arrays of N steps by column.

    Numbers keep their precision; infos stay dicts. `unroll_id` numbers the batches of a builder unless it is given.
    """

    def __init__(self) -> None:
        self._steps: list[dict[str, Any]] = []
        self._numbers = itertools.count()

    @property
    def count(self) -> int:
        """Steps so far."""
        return len(self._steps)

    def add_values(self, **values: Any) -> None:
        """Adds a step, such as t, eps_id, obs, actions, rewards, new_obs, terminateds, truncateds, infos, action_logp.

        Raises:
            SchemaError: it has other columns than earlier steps.
        """
        if self._steps and values.keys() != self._steps[0].keys():
            other = ", ".join(sorted(values.keys() ^ self._steps[0].keys()))
            raise SchemaError(f"Step {self.count} of the batch and the first differ in the columns {other}; give all the same.")
        self._steps.append(values)

    def build_and_reset(self) -> dict[str, Any]:
        """The batch of all steps since the last batch.

        Raises:
            SchemaError: there are none, or the values of a column do not make an array.
        """
        if not self._steps:
            raise SchemaError("There are no steps to build a batch from; add some with add_values.")
        batch = {name: _column([step[name] for step in self._steps], name) for name in self._steps[0]}
        batch.setdefault(UNROLL_ID, np.full(self.count, next(self._numbers)))
        self._steps = []
        return batch


def _column(values: list[Any], name: str) -> Any:
    if name == columns.INFOS:
        return values
    try:
        return nested.stack([np.asarray(value) if isinstance(value, list) else value for value in values], name)
    except (DataError, ValueError) as error:
        raise SchemaError(f"Column {name!r} cannot be one array: {error}") from error
