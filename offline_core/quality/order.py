"""Rules about how the steps of an episode follow each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from offline_core.conversion.time_gaps import GAP_FACTOR, time_gaps
from offline_core.episodes import columns
from offline_core.episodes.nested import PATH_SEPARATOR
from offline_core.quality.result import Finding
from offline_core.quality.rule import Tally
from offline_core.quality.spaces import any_in_step
from offline_core.quality.steps import StepBatch
from offline_core.storage.statistics import ColumnStatistics


class AfterEnd:
    """Steps of an episode that had terminated or been truncated."""

    def __init__(self) -> None:
        self._tally = Tally()

    def look(self, steps: StepBatch) -> None:
        ends = np.cumsum(steps.done)
        before = ends - steps.done  # ends among the earlier rows
        first = np.append(before, 0)[steps.offsets[:-1]]
        self._tally.steps(steps, (before > first[steps.piece]) | steps.was_done[steps.piece])

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        return self._tally.finding(
            "steps_after_end",
            "fail",
            "steps come after the end of their episode",
            "Give every episode an id of its own, or correct the end flags where the data comes from.",
        )


class StepOrder:
    """Steps whose t is not that of the step before plus one."""

    def __init__(self) -> None:
        self._tally = Tally()

    def look(self, steps: StepBatch) -> None:
        wrong = np.zeros(len(steps), bool)
        wrong[steps.follows] = steps.t[steps.follows] != steps.t[steps.follows - 1] + 1
        jumps = (steps.t_expected >= 0) & (steps.t_expected != steps.t_started) & (steps.lengths > 0)
        wrong[steps.offsets[:-1][jumps]] = True
        self._tally.steps(steps, wrong)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        return self._tally.finding(
            "step_order",
            "fail",
            "steps do not follow the step before them",
            "Sort the steps by eps_id and t, and find those that are missing or there twice.",
        )


class TimeJumps:
    """Steps that come long after the step before them, by the time at which they were recorded (column `time`).

    Where an import took the steps of several episodes for those of one, their times tell. What is long, see `time_gaps`.
    Where times go back, as an hour of the day does, they are not looked at.

    Arguments:
        is_declared: the import declared `max_gap`, and so cut its episodes where it has to.
    """

    def __init__(self, *, is_declared: bool = False) -> None:
        self._tally = Tally()
        self._is_declared = is_declared

    def look(self, steps: StepBatch) -> None:
        times = steps.columns.get(columns.TIME)
        if self._is_declared or times is None or times.ndim != 1 or times.dtype.kind not in "iuf":
            return
        starts = np.ones(len(steps), bool)
        starts[steps.follows] = False
        jumps = time_gaps(times, steps.piece, starts)
        back = np.zeros(len(steps), bool)
        back[steps.follows] = times[steps.follows] < times[steps.follows - 1]
        jumps &= ~steps.any_in_piece(back)[steps.piece]
        self._tally.steps(steps, jumps)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        return self._tally.finding(
            "time_jumps",
            "warn",
            f"steps come over {GAP_FACTOR} times as long after it as is usual in their episode",
            "If these are several episodes, import them again with episodes.max_gap, or with episodes.ids_per: date, say.",
        )


class ObservationChain:
    """Steps whose `obs` is not the `new_obs` of the step before; where steps are missing, `StepOrder` has them."""

    def __init__(self) -> None:
        self._tally = Tally()

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
        self._tally.steps(steps, wrong, rows)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        return self._tally.finding(
            "observation_chain",
            "fail",
            "steps do not begin with the observation that the step before ended with",
            "Sort the steps by eps_id and t; if they are sorted, rows are missing, or `new_obs` was recorded after a reset.",
        )
