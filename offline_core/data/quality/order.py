"""Rules about how the steps of an episode follow each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import columns
from offline_core.data.episodes.containment import any_in_step
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.importing.times import GAP_FACTOR, NANOSECONDS, below, time_gaps
from offline_core.data.quality.result import Finding
from offline_core.data.quality.rule import CountingRule
from offline_core.data.quality.steps import StepBatch


class AfterEnd(CountingRule):
    """Steps of an episode that had terminated or been truncated."""

    name = "steps_after_end"
    message = "steps come after the end of their episode"
    advice = "Give every episode an id of its own, or correct the end flags where the data comes from."

    def look(self, steps: StepBatch) -> None:
        ends = np.cumsum(steps.done)
        before = ends - steps.done  # ends among the earlier rows
        first = np.append(before, 0)[steps.offsets[:-1]]
        self.tally.steps(steps, (before > first[steps.episode]) | steps.was_done[steps.episode])


class StepOrder(CountingRule):
    """Steps whose t is not that of the step before plus one."""

    name = "step_order"
    message = "steps do not follow the step before them"
    advice = "Sort the steps by eps_id and t, and find those that are missing or there twice."

    def look(self, steps: StepBatch) -> None:
        wrong = np.zeros(len(steps), bool)
        wrong[steps.follows] = steps.t[steps.follows] != steps.t[steps.follows - 1] + 1
        jumps = (steps.t_expected >= 0) & (steps.t_expected != steps.t_started) & (steps.lengths > 0)
        wrong[steps.offsets[:-1][jumps]] = True
        self.tally.steps(steps, wrong)


class TimeJumps(CountingRule):
    """Steps that come long after the step before them, by the time at which they were recorded (column `time`).

    Times show where an import joined the steps of several episodes. What is long, see `time_gaps`.
    Where times go back, as an hour of the day does, and further than a clock is set back, they are not looked at.

    Arguments:
        is_declared: the import declared `max_gap`, and so cut its episodes where it has to.
    """

    name = "time_jumps"
    verdict = "warn"
    message = f"steps come over {GAP_FACTOR} times as long after it as is usual in their episode"
    advice = "If these are several episodes, import again with episodes: {ids_per: date}"

    def __init__(self, *, is_declared: bool = False) -> None:
        super().__init__()
        self._is_declared = is_declared
        self._shortest = np.inf  # of the jumps, in seconds or the unit of t

    def look(self, steps: StepBatch) -> None:
        times = steps.columns.get(columns.TIME)
        if self._is_declared or times is None or times.ndim != 1 or times.dtype.kind not in "iuf":
            return
        starts = np.ones(len(steps), bool)
        starts[steps.follows] = False
        jumps = time_gaps(times, steps.episode, starts)
        if jumps.any():
            unit = NANOSECONDS if times.dtype == np.int64 else 1
            self._shortest = min(self._shortest, float((times[jumps] - times[np.flatnonzero(jumps) - 1]).min()) / unit)
        self.tally.steps(steps, jumps)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        gap = f", or with episodes: {{max_gap: {below(self._shortest):g}}}" if np.isfinite(self._shortest) else ""
        return self.tally.finding(self.name, self.verdict, self.message, f"{self.advice}{gap}.", is_broken=self.is_broken())


class ObservationChain(CountingRule):
    """Steps whose `obs` is not the `new_obs` of the step before; where steps are missing, `StepOrder` has them."""

    name = "observation_chain"
    message = "steps do not begin with the observation that the step before ended with"
    advice = "Sort the steps by eps_id and t; if they are sorted, rows are missing, or `new_obs` was recorded after a reset."

    def look(self, steps: StepBatch) -> None:
        rows = steps.follows
        rows = rows[steps.t[rows] == steps.t[rows - 1] + 1]
        wrong = np.zeros(len(rows), bool)
        for name, values in steps.columns.items():
            leaf = name.removeprefix(columns.OBS)
            if leaf == name or (leaf and not leaf.startswith(PATH_SEPARATOR)):
                continue
            now, before = values[rows], steps.columns[columns.NEW_OBS + leaf][rows - 1]
            differ = now != before
            if differ.any():
                wrong |= any_in_step(differ & ((now == now) | (before == before)))  # NaN is the same as NaN
        self.tally.steps(steps, wrong, rows)
