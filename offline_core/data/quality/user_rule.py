"""Rules of the user, as the gate calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.quality.result import Finding
from offline_core.data.quality.rule import Rule
from offline_core.data.quality.steps import StepBatch
from offline_core.errors import ConfigError
from offline_core.runtime.user_code import UserCode
from offline_core.runtime.user_errors import user_errors


class UserRule:
    """Makes one and calls it for one dataset; errors name both, and it cannot write to what the others look at.

    Raises:
        ConfigError: it cannot be made, or is no rule.
    """

    def __init__(self, own: UserCode, dataset: DatasetRef) -> None:
        self.path = str(own)
        self._what, self._where = f"quality rule {own}", f"on {dataset.uri}"
        made = own.make("quality rule")
        if not isinstance(made, Rule):
            raise ConfigError(f"The {self._what} has to be a class with look(steps) and finding(statistics).")
        self._rule: Rule = made

    def look(self, steps: StepBatch) -> None:
        """See `Rule`."""
        with user_errors(self._what, self._where):
            self._rule.look(steps.read_only())

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        """See `Rule`."""
        with user_errors(self._what, self._where):
            found = self._rule.finding(statistics)
        if not isinstance(found, Finding):
            raise ConfigError(f"finding() of the {self._what} gives {found!r}, and not a Finding; a Tally makes one.")
        return found


def check_names(findings: Sequence[Finding], own: Sequence[UserRule]) -> None:
    """Raises a ConfigError if two findings have one name; those of `own` come last."""
    names = [finding.rule for finding in findings]
    first_own = len(names) - len(own)
    for number, rule in enumerate(own, first_own):
        if names[number] in names[:number]:
            raise ConfigError(
                f"The quality rule {rule.path} calls its finding {names[number]!r}, as another rule does; give it another name."
            )
