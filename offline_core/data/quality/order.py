"""Rules about how the steps of an episode follow each other, and how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import columns
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.episodes.spaces import any_in_step
from offline_core.data.importing.times import GAP_FACTOR, NANOSECONDS, below, time_gaps
from offline_core.data.quality.result import Example, Finding
from offline_core.data.quality.rule import MAX_EXAMPLES, CountingRule, Tally
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


class TimeLimits:
    """Episodes that terminate at exactly the longest length: a time limit that was stored as a termination.

    Their value after the last step is then taken for zero, which it is not. A limit piles them up there: over twice as many
    end so than at any one length in the last fifth before it (`NEAR_STEPS` at least). Where other lengths near it are
    common, as in a game of a few moves, the longest is just that.
    """

    MIN_EPISODES = 3
    """Fewer may be there by chance."""
    NEAR_STEPS = 3

    def __init__(self, max_fraction: float) -> None:
        self._max_fraction = max_fraction
        self._longest = 0
        self._tally = Tally()
        self._ends: Counter[int] = Counter()
        """Episodes that end, by length."""

    def look(self, steps: StepBatch) -> None:
        stops = np.zeros(len(steps.eps_ids), np.int64)
        stops[steps.lengths > 0] = steps.t[steps.last_rows] + 1
        longest = int(stops.max())
        if longest > self._longest:
            self._longest = longest
            self._tally = Tally(of=self._tally.of)
        terminated = steps.any_in_piece(steps.terminated & ~steps.truncated)
        self._tally.pieces(steps, terminated & (stops == self._longest))
        lengths, counts = np.unique(stops[steps.any_in_piece(steps.done)], return_counts=True)
        self._ends.update(dict(zip(lengths.tolist(), counts.tolist(), strict=True)))

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        tally = self._tally
        are_many = tally.count >= self.MIN_EPISODES and tally.count > self._max_fraction * tally.of
        first = self._longest - max(self.NEAR_STEPS, self._longest // 5)
        near = max((count for length, count in self._ends.items() if first <= length < self._longest), default=0)
        return tally.finding(
            "time_limit_as_termination",
            "warn",
            f"episodes terminate at exactly the longest length, {self._longest:,} steps",
            f"If {self._longest:,} steps are a time limit, import again with episodes: {{time_limit_steps: {self._longest}}}, "
            "so that these episodes are truncated.",
            is_broken=self._longest > 1 and are_many and tally.count > 2 * near,
        )


class OpenEpisodes:
    """Episodes that neither terminate nor are truncated: the value after their last step is unknown."""

    def __init__(self) -> None:
        self._episodes = 0
        self._open: dict[str, Example] = {}
        """By episode, the last step that is there."""

    def look(self, steps: StepBatch) -> None:
        done = steps.any_in_piece(steps.done)
        for i, eps_id in enumerate(steps.eps_ids):
            if steps.is_repeated[i]:
                continue
            self._episodes += steps.t_expected[i] < 0
            if done[i] or steps.was_done[i]:
                self._open.pop(eps_id, None)
            elif steps.lengths[i]:
                self._open[eps_id] = Example(dataset=steps.dataset, eps_id=eps_id, t=int(steps.t[steps.offsets[i + 1] - 1]))

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        return Tally(len(self._open), int(self._episodes), list(self._open.values())[:MAX_EXAMPLES]).finding(
            "open_episodes",
            "warn",
            "episodes neither terminate nor are truncated",
            "Set `truncateds` at the last step where episodes were cut off, or prune with where: terminated or truncated.",
        )
