"""Rules about episodes: whether there is a step, the order and the ends of steps, and duplicates."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import columns
from offline_core.data.episodes.index import COPIED_STEPS, id_in_source
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.episodes.spaces import any_in_step
from offline_core.data.importing.times import GAP_FACTOR, NANOSECONDS, below, time_gaps
from offline_core.data.quality.result import Example, Finding
from offline_core.data.quality.rule import MAX_EXAMPLES, CountingRule, Tally
from offline_core.data.quality.steps import StepBatch

SHORT = 32
"""Steps, above which episodes are not equal by chance."""
MOST_STARTS = 0.9
"""Different first observations for each different episode, above which equal episodes are copies."""
MOST_ALIKE = 0.9
"""Share of the contents that come as often as each other, or more than once, above which equal episodes are copies."""


class EmptyDataset(CountingRule):
    """A dataset without a single step."""

    name = "empty_dataset"
    message = "episodes have no steps"
    advice = "Nothing can be learned here: check what was recorded or imported, and what pruning has left."

    def look(self, steps: StepBatch) -> None:
        self.tally.pieces(steps, steps.lengths == 0)

    def is_broken(self) -> bool:
        return self.tally.count == self.tally.of


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
        if np.isfinite(self._shortest):
            self.advice += f", or with episodes: {{max_gap: {below(self._shortest):g}}}"
        self.advice += "."
        return super().finding(statistics)


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


class TimeLimits(CountingRule):
    """Episodes that terminate at exactly the longest length: a time limit that was stored as a termination.

    Their value after the last step is then taken for zero, which it is not. A limit piles them up there: over twice as many
    end so than at any one length in the last fifth before it (`NEAR_STEPS` at least). Where other lengths near it are
    common, as in a game of a few moves, the longest is just that.
    """

    name = "time_limit_as_termination"
    verdict = "warn"
    message = "episodes terminate at exactly the longest length"

    MIN_EPISODES = 3
    """Fewer may be there by chance."""
    NEAR_STEPS = 3

    def __init__(self, max_fraction: float) -> None:
        super().__init__()
        self._max_fraction = max_fraction
        self._longest = 0
        self._ends: Counter[int] = Counter()
        """Episodes that end, by length."""

    def look(self, steps: StepBatch) -> None:
        stops = np.zeros(len(steps.eps_ids), np.int64)
        stops[steps.lengths > 0] = steps.t[steps.last_rows] + 1
        longest = int(stops.max())
        if longest > self._longest:
            self._longest = longest
            self.tally = Tally(of=self.tally.of)
        terminated = steps.any_in_piece(steps.terminated & ~steps.truncated)
        self.tally.pieces(steps, terminated & (stops == self._longest))
        lengths, counts = np.unique(stops[steps.any_in_piece(steps.done)], return_counts=True)
        self._ends.update(dict(zip(lengths.tolist(), counts.tolist(), strict=True)))

    def is_broken(self) -> bool:
        are_many = self.tally.count >= self.MIN_EPISODES and self.tally.count > self._max_fraction * self.tally.of
        first = self._longest - max(self.NEAR_STEPS, self._longest // 5)
        near = max((count for length, count in self._ends.items() if first <= length < self._longest), default=0)
        return self._longest > 1 and are_many and self.tally.count > 2 * near

    def details(self) -> str:
        return f", {self._longest:,} steps"

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        self.advice = (
            f"If {self._longest:,} steps are a time limit, import again with episodes: {{time_limit_steps: {self._longest}}}, "
            "so that these episodes are truncated."
        )
        return super().finding(statistics)


class OpenEpisodes(CountingRule):
    """Episodes that neither terminate nor are truncated: the value after their last step is unknown."""

    name = "open_episodes"
    verdict = "warn"
    message = "episodes neither terminate nor are truncated"
    advice = "Set `truncateds` at the last step where episodes were cut off, or prune with where: terminated or truncated."

    def __init__(self) -> None:
        super().__init__()
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
        self.tally = Tally(len(self._open), int(self._episodes), list(self._open.values())[:MAX_EXAMPLES])
        return super().finding(statistics)


class DuplicateIds(CountingRule):
    """Episodes (or pieces of them) with the id and the first step of an earlier one."""

    name = "duplicate_ids"
    message = "episodes have the id of an earlier one"
    advice = "If they are copies, import the folder, which keeps one of each; if not, give them ids of their own."

    def look(self, steps: StepBatch) -> None:
        self.tally.pieces(steps, steps.is_repeated)


class EqualEpisodes:
    """How often each content came, and whether that is chance: of a bandit, or of another world with few states.

    By chance, short episodes are equal; many that are not begin alike; and some contents come more often than others, or
    most come once. Copies of a recording come as often as each other, and begin alike with each other only.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lengths: dict[str, int] = {}
        self._starts: set[int] = set()

    def add(self, steps: StepBatch, least_steps: int = 0) -> None:
        """Count episodes of so many steps and more."""
        is_meant = steps.lengths >= least_steps
        contents = [content for content, meant in zip(steps.contents, is_meant, strict=True) if meant]
        self._counts.update(contents)
        self._lengths |= dict(zip(contents, steps.lengths[is_meant].tolist(), strict=True))
        leaves = [leaf for leaf in steps.leaves(columns.OBS).values() if leaf.size]
        first = steps.offsets[:-1][is_meant & (steps.lengths > 0)]
        if len(first) and leaves:
            parts = [np.ascontiguousarray(leaf[first]).reshape(len(first), -1).view(np.uint8) for leaf in leaves]
            rows = np.concatenate(parts, axis=1)
            self._starts.update(map(hash, np.unique(rows.view(np.dtype((np.void, rows.shape[1])))).tolist()))

    def __contains__(self, content: str) -> bool:
        return content in self._counts

    @property
    def are_there(self) -> bool:
        """Whether a content came more than once."""
        return self._counts.total() > len(self._counts)

    @property
    def are_by_chance(self) -> bool:
        times = Counter(self._counts.values())
        contents, once = len(self._counts), times.pop(1, 0)
        if contents == once or len(self._starts) > MOST_STARTS * contents:
            return False
        lengths = np.array([self._lengths[content] for content, count in self._counts.items() if count > 1])
        alike = max(times.values()) / (contents - once)
        return bool(np.median(lengths) <= SHORT) and (alike < MOST_ALIKE or once > (1 - MOST_ALIKE) * contents)


class DuplicateContents(CountingRule):
    """Episodes that repeat another one step by step under another id, where that is no chance.

    Those of a step or two are equal by chance where what is observed is coarse: they repeat another one of the same id in the
    source, and have the same time and extras.
    """

    name = "duplicate_contents"
    verdict = "warn"
    message = "episodes repeat an earlier one step by step"
    advice = (
        "If a recording was written twice, prune with drop_duplicates: true; if they were recorded so, check the seeds of the "
        "environments. If each was observed by itself, keep them, and check with max_duplicate_fraction: 1."
    )

    def __init__(self, max_fraction: float) -> None:
        self._max_fraction = max_fraction
        super().__init__()
        self._seen = EqualEpisodes()
        self._short: set[int] = set()
        self._short_copies = 0

    def look(self, steps: StepBatch) -> None:
        wrong = np.zeros(len(steps.eps_ids), bool)
        before: set[str] = set()
        extras = self._extras(steps)
        for i, (content, length) in enumerate(zip(steps.contents, steps.lengths.tolist(), strict=True)):
            if length >= COPIED_STEPS:
                wrong[i] = (content in before or content in self._seen) and not steps.is_repeated[i]
                before.add(content)
            elif length:
                place = hash((id_in_source(steps.eps_ids[i]), content, *itertools.islice(extras, length)))
                wrong[i] = place in self._short and not steps.is_repeated[i]
                self._short.add(place)
                self._short_copies += int(wrong[i])
        self._seen.add(steps, COPIED_STEPS)
        self.tally.pieces(steps, wrong)

    @staticmethod
    def _extras(steps: StepBatch) -> Iterator[int]:
        """A hash of the extras, of which `time` is one, for each step of the short pieces."""
        rows = np.flatnonzero(steps.lengths[steps.episode] < COPIED_STEPS)
        names = sorted(name for name in steps.columns if name.partition(PATH_SEPARATOR)[0] not in columns.STEP_COLUMNS)
        extras = [np.asarray(steps.columns[name])[rows].reshape(len(rows), -1) for name in names] if len(rows) else []
        keys: list[list[Any]] = [[*map(str, row)] for extra in extras if extra.dtype.kind in "OU" for row in extra.T.tolist()]
        parts = [np.ascontiguousarray(extra).view(np.uint8) for extra in extras if extra.dtype.kind not in "OU" and extra.size]
        if parts:
            values = np.concatenate(parts, axis=1)
            keys.append(values.view(np.dtype((np.void, values.shape[1]))).ravel().tolist())
        return map(hash, zip(*keys, strict=True)) if keys else itertools.repeat(0)

    def is_broken(self) -> bool:
        wrong = self._short_copies if self._seen.are_by_chance else self.tally.count
        return wrong > self._max_fraction * self.tally.of

    def details(self) -> str:
        by_chance = self.tally.count > self._short_copies and self._seen.are_by_chance
        return ", by chance, as few different ones are possible: keep them" if by_chance else ""


class HeldOutOverlap(CountingRule):
    """Episodes that are in the held-out dataset as well, whatever they are called there.

    Where equal episodes come by chance, those are meant that have one id in both. Whether they do, this dataset alone says if
    it has some: held-out copies of a part of it make counts uneven that are not.
    """

    name = "held_out_overlap"
    advice = "Split the dataset anew: an evaluation on episodes that were trained on says nothing."

    def __init__(self, held_out: str, batches: Iterable[StepBatch]) -> None:
        self._here, self._in_both = EqualEpisodes(), EqualEpisodes()
        self._pairs, self._contents = set[tuple[str, str]](), set[str]()
        for steps in batches:
            self._in_both.add(steps)
            self._pairs.update(zip(steps.eps_ids, steps.contents, strict=True))
            self._contents.update(steps.contents)
        super().__init__()
        self._same = Tally()
        self.message = f"episodes are in the held-out dataset {held_out} too"

    def look(self, steps: StepBatch) -> None:
        self._here.add(steps)
        self._in_both.add(steps)
        pairs = zip(steps.eps_ids, steps.contents, strict=True)
        self._same.pieces(steps, np.array([pair in self._pairs for pair in pairs], bool))
        self.tally.pieces(steps, np.array([content in self._contents for content in steps.contents], bool))

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        if (self._here if self._here.are_there else self._in_both).are_by_chance:
            self.tally = self._same
        return super().finding(statistics)
