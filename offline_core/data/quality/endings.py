"""Rules about how episodes end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.quality.result import Example, Finding
from offline_core.data.quality.rule import MAX_EXAMPLES, Tally
from offline_core.data.quality.steps import StepBatch


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
