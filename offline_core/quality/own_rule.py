"""Rules of the user's own, as the gate calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offline_core.errors import ConfigError
from offline_core.own_code import OwnCode
from offline_core.own_errors import own_errors
from offline_core.quality.result import Finding
from offline_core.quality.rule import Rule
from offline_core.quality.steps import StepBatch
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.statistics import ColumnStatistics


class OwnRule:
    """Makes one and calls it for one dataset; errors name both, and it cannot write to what the others look at.

    Raises:
        ConfigError: it cannot be made, or is no rule.
    """

    def __init__(self, own: OwnCode, dataset: DatasetRef) -> None:
        self.path = str(own)
        self._what, self._where = f"quality rule {own}", f"on {dataset.uri}"
        made = own.make("quality rule")
        if not isinstance(made, Rule):
            raise ConfigError(f"The {self._what} has to be a class with look(steps) and finding(statistics).")
        self._rule: Rule = made

    def look(self, steps: StepBatch) -> None:
        """See `Rule`."""
        for array in (*steps.columns.values(), steps.t, steps.terminated, steps.truncated):
            array.flags.writeable = False
        with own_errors(self._what, self._where):
            self._rule.look(steps)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        """See `Rule`."""
        with own_errors(self._what, self._where):
            found = self._rule.finding(statistics)
        if not isinstance(found, Finding):
            raise ConfigError(f"finding() of the {self._what} gives {found!r}, and not a Finding; a Tally makes one.")
        return found


def check_names(findings: Sequence[Finding], own: Sequence[OwnRule]) -> None:
    """Raises a ConfigError if two findings have one name; those of `own` are the last."""
    names = [finding.rule for finding in findings]
    first_own = len(names) - len(own)
    for number, rule in enumerate(own, first_own):
        if names[number] in names[:number]:
            raise ConfigError(
                f"The quality rule {rule.path} calls its finding {names[number]!r}, as another rule does; give it another name."
            )
