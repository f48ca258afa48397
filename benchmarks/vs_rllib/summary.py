"""Runs → medians, ratios and counts of each stage."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.vs_rllib.runs import STAGES, SideRun

Bound = Literal["", "at least", "at most"]


@dataclass(frozen=True)
class SideSummary:
    """All rounds of one side of one stage."""

    runs: tuple[SideRun, ...]

    @property
    def measured(self) -> tuple[SideRun, ...]:
        """Those that finished, and those that were ended at the limit."""
        return tuple(run for run in self.runs if run.outcome in ("finished", "limit"))

    @property
    def seconds(self) -> float | None:
        """Median; a run that was ended counts with what it had taken until then."""
        return statistics.median(run.seconds for run in self.measured) if self.measured else None

    @property
    def stage_seconds(self) -> float | None:
        """Median without imports and Ray's start, of the runs that finished."""
        seconds = [run.parts["stage"] for run in self.runs if run.outcome == "finished"]
        return statistics.median(seconds) if seconds else None

    @property
    def ended(self) -> int:
        """Runs that were ended at the limit."""
        return sum(run.outcome == "limit" for run in self.runs)

    @property
    def failed(self) -> int:
        """Runs that ended by an error."""
        return sum(run.outcome == "error" for run in self.runs)

    @property
    def not_run(self) -> int:
        """Runs that lacked what they begin with."""
        return sum(run.outcome == "not_run" for run in self.runs)

    def counts(self, name: str) -> list[float]:
        """Of each run that was counted."""
        return [run.counts[name] for run in self.runs if name in run.counts]


@dataclass(frozen=True)
class StageSummary:
    """Both sides of one stage."""

    stage: str
    rllib: SideSummary
    our: SideSummary

    @property
    def ratio(self) -> float | None:
        """Theirs over ours in seconds; None if a side has none, or both were ended."""
        if self.rllib.seconds is None or self.our.seconds is None or (self.rllib.ended and self.our.ended):
            return None
        return self.rllib.seconds / self.our.seconds

    @property
    def stage_ratio(self) -> float | None:
        """The same without imports and Ray's start, of runs that finished."""
        theirs, ours = self.rllib.stage_seconds, self.our.stage_seconds
        return None if theirs is None or ours is None or self.rllib.ended or self.our.ended else theirs / ours

    @property
    def bound(self) -> Bound:
        """What the ratio is, if a side was ended at the limit."""
        return "at least" if self.rllib.ended else "at most" if self.our.ended else ""


def summary(report: Mapping[str, Any]) -> list[StageSummary]:
    """Summarize all stages of a report that were tried, in their order."""
    runs = [SideRun(**run) for run in report["runs"]]
    return [of_stage(stage, runs) for stage in STAGES if any(run.stage == stage for run in runs)]


def of_stage(stage: str, runs: Iterable[SideRun]) -> StageSummary:
    its = [run for run in runs if run.stage == stage]
    rllib, our = (SideSummary(tuple(run for run in its if run.side == side)) for side in ("rllib", "our"))
    return StageSummary(stage, rllib, our)
