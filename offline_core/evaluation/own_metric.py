"""Metrics of the user's own, as an evaluation calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

from offline_core.errors import ConfigError
from offline_core.evaluation.metric import Metric, PlayedStep
from offline_core.evaluation.result import EPISODE_METRICS
from offline_core.own_code import OwnCode
from offline_core.own_errors import own_errors


class OwnMetric:
    """Makes one and calls it for one evaluation; errors name it.

    Raises:
        ConfigError: it cannot be made, or is no metric.
    """

    def __init__(self, own: OwnCode) -> None:
        self.path = str(own)
        self._what = f"metric {own}"
        made = own.make("metric")
        if not isinstance(made, Metric):
            raise ConfigError(f"The {self._what} has to be a class with look(step) and result().")
        self._metric: Metric = made

    def look(self, step: PlayedStep) -> None:
        """See `Metric`."""
        with own_errors(self._what, "on a step", ConfigError):
            self._metric.look(step)

    def result(self) -> dict[str, float]:
        """See `Metric`."""
        with own_errors(self._what, "at the end", ConfigError):
            found = self._metric.result()
            numbers = dict(found)
        for name, value in numbers.items():
            if not (isinstance(name, str) and isinstance(value, Real) and math.isfinite(value)):
                raise ConfigError(f"The {self._what} gives {name!r}: {value!r}; result() has to give finite numbers by name.")
        return {name: float(value) for name, value in numbers.items()}


def with_results(metrics: Mapping[str, float], own: Sequence[OwnMetric]) -> dict[str, float]:
    """`metrics`, and what the user's own came to.

    Raises:
        ConfigError: a name is there already, or a value is no finite number.
    """
    together = dict(metrics)
    for metric in own:
        found = metric.result()
        if twice := sorted(found.keys() & {*together, *EPISODE_METRICS}):
            raise ConfigError(f"The metric {metric.path} calls a result {twice[0]!r}, which is there already; rename it.")
        together |= found
    return together
