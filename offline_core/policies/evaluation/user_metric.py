"""User metrics, as an evaluation calls them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real

from offline_core.errors import ConfigError
from offline_core.policies.evaluation.result import EPISODE_METRICS
from offline_core.policies.rollouts.metric import Metric, PlayedStep
from offline_core.runtime.user_code import UserCode
from offline_core.runtime.user_errors import user_errors


class UserMetric:
    """Makes a user metric and calls it for one evaluation; errors name it.

    Raises:
        ConfigError: it cannot be made, or has no look(step) and result().
    """

    def __init__(self, code: UserCode) -> None:
        self.path = str(code)
        self._what = f"metric {code}"
        made = code.make("metric")
        if not isinstance(made, Metric):
            raise ConfigError(f"The {self._what} has to be a class with look(step) and result().")
        self._metric: Metric = made

    def look(self, step: PlayedStep) -> None:
        """See `Metric`."""
        with user_errors(self._what, "on a step", ConfigError):
            self._metric.look(step)

    def result(self) -> dict[str, float]:
        """See `Metric`."""
        with user_errors(self._what, "at the end", ConfigError):
            found = self._metric.result()
            numbers = dict(found)
        for name, value in numbers.items():
            if not (isinstance(name, str) and isinstance(value, Real) and math.isfinite(value)):
                raise ConfigError(f"The {self._what} gives {name!r}: {value!r}; result() has to give finite numbers by name.")
        return {name: float(value) for name, value in numbers.items()}


def with_results(metrics: Mapping[str, float], user_metrics: Sequence[UserMetric]) -> dict[str, float]:
    """`metrics`, and the results of user metrics.

    Raises:
        ConfigError: a name is taken, or a value is not a finite number.
    """
    together = dict(metrics)
    for metric in user_metrics:
        found = metric.result()
        if twice := sorted(found.keys() & {*together, *EPISODE_METRICS}):
            raise ConfigError(f"The metric {metric.path} calls a result {twice[0]!r}, which is the name of another; rename it.")
        together |= found
    return together
