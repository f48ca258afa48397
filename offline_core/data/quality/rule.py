"""The protocol of rules, the counter that they use, and how the rules of a user are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.quality.result import Example, Finding, Verdict
from offline_core.data.quality.steps import StepBatch
from offline_core.errors import ConfigError
from offline_core.runtime.user_code import UserCode, user_errors

MAX_EXAMPLES = 5


@runtime_checkable
class Rule(Protocol):
    """Looks at every batch of a dataset, once and in order, then says what it found; used for one dataset only."""

    def look(self, steps: StepBatch) -> None:
        """Takes in a batch."""

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        """What all batches came to; `statistics` are those of all steps, by the name of the leaf."""


@dataclass
class Tally:
    """How much breaks a rule, of how much, and where it does so first."""

    count: int = 0
    of: int = 0
    examples: list[Example] = field(default_factory=list)

    def steps(self, batch: StepBatch, wrong: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Counts steps: of all, or of those at `rows`, the ones where `wrong` is True."""
        self.count += int(np.count_nonzero(wrong))
        self.of += len(wrong)
        if len(self.examples) < MAX_EXAMPLES:
            for row in np.flatnonzero(wrong)[:MAX_EXAMPLES] if rows is None else rows[wrong][:MAX_EXAMPLES]:
                self._example(batch.dataset, batch.eps_ids[batch.episode[row]], batch.t[row])

    def pieces(self, batch: StepBatch, wrong: np.ndarray) -> None:
        """Counts the episodes, or pieces, of a batch where `wrong`, of shape (E,), is True."""
        self.count += int(np.count_nonzero(wrong))
        self.of += len(wrong)
        for piece in np.flatnonzero(wrong)[:MAX_EXAMPLES]:
            self._example(batch.dataset, batch.eps_ids[piece], batch.t_started[piece])

    def _example(self, dataset: str, eps_id: str, t: int) -> None:
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(Example(dataset=dataset, eps_id=eps_id, t=int(t)))

    def finding(
        self, rule: str, verdict: Verdict, message: str, advice: str, *, is_broken: bool | None = None, unless: str = ""
    ) -> Finding:
        """`verdict` and `advice` if the rule is broken: if anything was counted, unless said otherwise.

        `message` goes on after "3 of 1,000". If nothing was counted, `unless` says why nothing could be, if it could not.
        """
        if unless and not self.count:
            return Finding(rule=rule, verdict="pass", count=0, of=0, message=f"Not applicable: {unless}.")
        is_broken = self.count > 0 if is_broken is None else is_broken
        return Finding(
            rule=rule,
            verdict=verdict if is_broken else "pass",
            count=self.count,
            of=self.of,
            message=f"{self.count:,} of {self.of:,} {message}.",
            examples=self.examples,
            advice=advice if is_broken else "",
        )


class CountingRule:
    """A rule that counts in a `Tally`, and that is broken if anything was counted, unless it overrides `is_broken`."""

    name: str
    verdict: Verdict = "fail"
    message: str
    advice: str

    def __init__(self) -> None:
        self.tally = Tally()

    def is_broken(self) -> bool:
        return self.tally.count > 0

    def details(self) -> str:
        """What goes on after the message."""
        return ""

    def not_applicable(self) -> str:
        """Why nothing could be counted; empty if something could be."""
        return ""

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        return self.tally.finding(
            self.name,
            self.verdict,
            f"{self.message}{self.details()}",
            self.advice,
            is_broken=self.is_broken(),
            unless=self.not_applicable(),
        )


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
            finding = self._rule.finding(statistics)
        if not isinstance(finding, Finding):
            raise ConfigError(f"finding() of the {self._what} gives {finding!r}, and not a Finding; a Tally makes one.")
        return finding


def check_names(findings: Sequence[Finding], own: Sequence[UserRule]) -> None:
    """Raises a ConfigError if two findings have one name; those of `own` come last."""
    names = [finding.rule for finding in findings]
    first_own = len(names) - len(own)
    for number, rule in enumerate(own, first_own):
        if names[number] in names[:number]:
            raise ConfigError(
                f"The quality rule {rule.path} calls its finding {names[number]!r}, as another rule does; give it another name."
            )
