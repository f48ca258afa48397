"""The rules: about numbers and masks in single steps, the order and the ends of steps, and duplicates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.action_masks import ACTION_MASK, choices, forbidden, forbids_all, is_masked, not_binary
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.episodes.spaces import any_in_step, outside, space_leaves
from offline_core.data.importing.times import GAP_FACTOR, NANOSECONDS, below, time_gaps
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.data.quality.result import Example, Finding
from offline_core.data.quality.rule import MAX_EXAMPLES, CountingRule, Tally
from offline_core.data.quality.steps import StepBatch
from offline_core.errors import SpaceError

MASKS = f"{columns.OBS}{PATH_SEPARATOR}{ACTION_MASK}"
"""No input: an action may always be allowed."""
SHORT = 32
"""Steps, above which episodes are not equal by chance."""
MOST_STARTS = 0.9
"""Different first observations for each different episode, above which equal episodes are copies."""
MOST_ALIKE = 0.9
"""Share of the contents that come as often as each other, or more than once, above which equal episodes are copies."""


class NonFinite(CountingRule):
    """NaN or infinity in observations, actions and rewards: what training refuses, and what `drop_non_finite` drops."""

    name = "non_finite"
    message = "steps hold NaN or infinity"
    advice = "Prune with drop_non_finite: true, and look for the division or overflow that made them."

    def __init__(self) -> None:
        super().__init__()
        self._columns: Counter[str] = Counter()

    def look(self, steps: StepBatch) -> None:
        wrong = np.zeros(len(steps), bool)
        for name, values in steps.columns.items():
            if values.dtype.kind != "f":
                continue
            rows: slice | np.ndarray = slice(None)
            if _is_of(name, columns.NEW_OBS):  # the others are the observation of the next row
                rows = steps.last_rows
            elif not any(_is_of(name, column) for column in (columns.OBS, columns.ACTIONS, columns.REWARDS)):
                continue
            bad = ~np.isfinite(values[rows])
            if bad.any():
                bad = any_in_step(bad)
                self._columns[name] += int(bad.sum())
                wrong[rows] |= bad
        self.tally.steps(steps, wrong)

    def details(self) -> str:
        return "".join(f"; {name}: {count:,}" for name, count in self._columns.items())


class ConstantFeatures(CountingRule):
    """Numbers of an observation or action that are the same in all steps, and so say nothing.

    Arguments:
        made_of: what the observations are made of.
    """

    name = "constant_features"
    verdict = "warn"
    message = "numbers of observations and actions never change"
    advice = "Leave constant inputs out when training, or find out why the recorder or the import lost them."

    def __init__(self, made_of: InputColumns | None = None) -> None:
        super().__init__()
        self._made_of = made_of
        self._constant: list[str] = []

    def look(self, steps: StepBatch) -> None:
        """The statistics are enough."""

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        for name, column in statistics.items():
            if not (_is_of(name, columns.OBS) or _is_of(name, columns.ACTIONS)) or name == MASKS:
                continue
            self.tally.of += len(column.count)
            names = number_names(name, len(column.count), self._made_of)
            for i, (low, high) in enumerate(zip(column.min, column.max, strict=True)):
                if low is not None and low == high and column.count[i] > 1 and not (column.nan[i] or column.infinite[i]):
                    self._constant.append(f"{names[i]} = {low:g}")
        self.tally.count = len(self._constant)
        return super().finding(statistics)

    def details(self) -> str:
        return _listed(self._constant)


class ObservedOutcomes(CountingRule):
    """Numbers of an observation that tell by themselves whether the step is rewarded: what came of an action was observed.

    A policy that learns from it cannot know it when it acts. Of whole datasets in which some rewards are 0 and some are not;
    numbers that count the steps are known, though a reward may come at the last.

    Arguments:
        made_of: what the observations are made of.
    """

    name = "observed_outcomes"
    verdict = "warn"
    message = "numbers of observations tell by themselves which steps are rewarded"
    advice = "If they are known only after the action, leave them out of mapping.obs: no policy can know them."

    MIN_STEPS = 100
    """Of those that are rewarded, and of the others; fewer may be told apart by chance."""
    MOST_NUMBERS = 1_000
    """Of an observation that is looked at; a larger one is an image."""

    def __init__(self, made_of: InputColumns | None = None) -> None:
        super().__init__()
        self._made_of = made_of
        self._steps = np.zeros(2, np.int64)
        self._ranges: dict[tuple[str, int], np.ndarray] = {}
        """By leaf and size: (least, most; not rewarded, rewarded; numbers)."""
        self._telling: list[str] = []
        self._moves: dict[tuple[str, int], np.ndarray] = {}
        """By leaf and size: (least, most; numbers) by how much a number changes in a step."""

    def look(self, steps: StepBatch) -> None:
        if not len(steps):
            return
        is_paid = steps.columns[columns.REWARDS] != 0
        self._steps += np.array([np.count_nonzero(~is_paid), np.count_nonzero(is_paid)])
        for name, values in steps.columns.items():
            if not _is_of(name, columns.OBS) or name == MASKS or values.dtype.kind not in "biuf":
                continue
            numbers = values.reshape(len(values), -1)
            if not 0 < numbers.shape[1] <= self.MOST_NUMBERS:
                continue
            key = (name, numbers.shape[1])
            bounds = self._ranges.setdefault(key, np.stack([np.full((2, key[1]), np.inf), np.full((2, key[1]), -np.inf)]))
            for kind, rows in enumerate((numbers[~is_paid], numbers[is_paid])):
                if len(rows):
                    np.fmin(bounds[0, kind], np.fmin.reduce(rows, axis=0), out=bounds[0, kind])
                    np.fmax(bounds[1, kind], np.fmax.reduce(rows, axis=0), out=bounds[1, kind])
            moves = self._moves.setdefault(key, np.stack([np.full(key[1], np.inf), np.full(key[1], -np.inf)]))
            if (at := np.flatnonzero(_are_apart(bounds))).size and steps.follows.size:
                now, before = (numbers[rows][:, at].astype(np.float64) for rows in (steps.follows, steps.follows - 1))
                moves[0, at] = np.fmin(moves[0, at], np.fmin.reduce(now - before, axis=0))
                moves[1, at] = np.fmax(moves[1, at], np.fmax.reduce(now - before, axis=0))

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        for (name, size), bounds in self._ranges.items():
            moves = self._moves[name, size]
            is_clock = np.isfinite(moves).all(axis=0) & (moves[0] * moves[1] > 0) & np.isclose(moves[0], moves[1], rtol=1e-3)
            self.tally.of += size
            names = number_names(name, size, self._made_of)
            self._telling += [names[number] for number in np.flatnonzero(_are_apart(bounds) & ~is_clock)]
        self.tally.count = len(self._telling) if (self._steps >= self.MIN_STEPS).all() else 0
        return super().finding(statistics)

    def details(self) -> str:
        return _listed(self._telling)

    def not_applicable(self) -> str:
        return "" if (self._steps >= self.MIN_STEPS).all() else "too few rewards are 0, or too few are not"


class SaturatedActions(CountingRule):
    """Box actions that are at the end of their range more often than not: clipped, or scaled wrongly."""

    name = "saturated_actions"
    verdict = "warn"
    message = "steps have an action at a bound of its range"
    advice = "Compare the range of the action space with what the policy gave: actions may have been clipped or scaled wrongly."

    def __init__(self, max_fraction: float) -> None:
        super().__init__()
        self._max_fraction = max_fraction
        self._at_bounds: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}
        """Steps by leaf and shape, for each number of the action."""
        self._has_bounds = False

    def look(self, steps: StepBatch) -> None:
        at_bounds = np.zeros(len(steps), bool)
        for name, space in space_leaves(steps.action_space, columns.ACTIONS).items():
            values = steps.columns.get(name)
            if isinstance(space, gym.spaces.Box) and values is not None and values.shape[1:] == space.shape:
                saturated = (values <= space.low) | (values >= space.high)
                key = (name, space.shape)
                self._at_bounds[key] = self._at_bounds.get(key, 0) + saturated.sum(axis=0)
                at_bounds |= any_in_step(saturated)
                self._has_bounds |= _has_bounds(space)
        if self._at_bounds:
            self.tally.steps(steps, at_bounds)

    def _often(self) -> list[str]:
        """The numbers of an action that are at their bounds in too many steps."""
        return [
            f"{number}: {100 * count / self.tally.of:.0f} % of the steps"
            for (name, _), counts in self._at_bounds.items()
            for number, count in zip(number_names(name, counts.size), counts.ravel().tolist(), strict=True)
            if count > self._max_fraction * self.tally.of
        ]

    def is_broken(self) -> bool:
        return bool(self._often())

    def details(self) -> str:
        return _listed(self._often())

    def not_applicable(self) -> str:
        return "" if self._has_bounds else "no Box of actions with bounds is declared"


class OutsideSpace(CountingRule):
    """Values that their space does not contain: `columns.ACTIONS` fail, `columns.OBS` warn. NaN has a rule of its own."""

    def __init__(self, column: str) -> None:
        super().__init__()
        self._column = column
        self._what = "actions" if column == columns.ACTIONS else "observations"
        self.name, self.verdict = f"{self._what}_outside_space", "fail" if column == columns.ACTIONS else "warn"
        self.message = f"steps have {self._what} that their space does not contain"
        space = f"{self._what.removesuffix('s')}_space"
        self.advice = f"Check scaling, dtype and shape, or import again with {space}: {{…}}, the one of the data."
        self._leaves: Counter[str] = Counter()
        self._has_bounds = False

    def look(self, steps: StepBatch) -> None:
        is_action = self._column == columns.ACTIONS
        leaves = space_leaves(steps.action_space if is_action else steps.observation_space, self._column)
        if not leaves:
            return
        wrong = np.zeros(len(steps), bool)
        for name, space in leaves.items():
            self._has_bounds |= _has_bounds(space)
            parts: list[tuple[str, slice | np.ndarray]] = [(name, slice(None))]
            if not is_action:
                parts.append((columns.NEW_OBS + name.removeprefix(columns.OBS), steps.last_rows))
            for part, rows in parts:
                values = steps.columns.get(part)
                bad = np.ones(len(wrong[rows]), bool) if values is None else outside(values[rows], space)
                self._leaves[name] += int(bad.sum())
                wrong[rows] |= bad
        self.tally.steps(steps, wrong)

    def details(self) -> str:
        return _listed([name for name, count in self._leaves.items() if count])

    def not_applicable(self) -> str:
        return "" if self._has_bounds else f"no space of {self._what} with bounds is declared"


class ForbiddenActions(CountingRule):
    """Actions that the mask of their observation forbids, and masks that are none: what training refuses."""

    name = "forbidden_actions"
    message = "steps have an action that its mask forbids, or a mask that allows none or is not of 0 and 1"
    advice = "Leave those steps out, or find out whether masks and observations were shifted against each other by a step."

    def look(self, steps: StepBatch) -> None:
        if not is_masked(steps.observation_space) or steps.action_space is None:
            return
        masks = steps.columns[f"{columns.OBS}{PATH_SEPARATOR}{ACTION_MASK}"]
        ends = steps.columns[f"{columns.NEW_OBS}{PATH_SEPARATOR}{ACTION_MASK}"]
        try:
            sizes = choices(steps.action_space)
        except SpaceError:
            sizes = []
        if masks.shape[1:] != (sum(sizes),):
            wrong = np.ones(len(steps), bool)
        else:
            wrong = not_binary(masks) | forbids_all(masks, sizes)
            wrong |= forbidden(masks, steps.columns[columns.ACTIONS], steps.action_space)
            last = steps.last_rows  # what follows any other step is that of the next row
            wrong[last] |= not_binary(ends[last]) | (forbids_all(ends[last], sizes) & ~steps.terminated[last])
        self.tally.steps(steps, wrong)


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

    def add(self, steps: StepBatch) -> None:
        self._counts.update(steps.contents)
        self._lengths |= dict(zip(steps.contents, steps.lengths.tolist(), strict=True))
        leaves = [leaf for name, leaf in steps.columns.items() if name.partition("/")[0] == columns.OBS and leaf.size]
        first = steps.offsets[:-1][steps.lengths > 0]
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
    """Episodes that repeat another one step by step under another id, where that is no chance."""

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

    def look(self, steps: StepBatch) -> None:
        wrong = np.zeros(len(steps.eps_ids), bool)
        before: set[str] = set()
        for i, content in enumerate(steps.contents):
            wrong[i] = (content in before or content in self._seen) and not steps.is_repeated[i]
            before.add(content)
        self._seen.add(steps)
        self.tally.pieces(steps, wrong)

    def is_broken(self) -> bool:
        return self.tally.count > self._max_fraction * self.tally.of and not self._seen.are_by_chance

    def details(self) -> str:
        by_chance = self.tally.count > 0 and self._seen.are_by_chance
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


class MixedTypes(CountingRule):
    """Episodes whose columns, dtypes, shapes or spaces differ from the first one's."""

    name = "mixed_types"
    message = "episodes are not of the types and spaces of the first"
    advice = "Keep data of different environments in datasets of their own, and convert the rest to one type."

    def __init__(self) -> None:
        super().__init__()
        self._types: nested.Types | None = None
        self._spaces: list[gym.Space | None] = [None, None]
        self._differences: dict[str, None] = {}

    def look(self, steps: StepBatch) -> None:
        if len(steps) == 0:
            return
        self._types = self._types or steps.types
        differences = [
            f"{name} is {_type(steps.types, name)} and not {_type(self._types, name)}"
            for name in sorted(self._types.keys() | steps.types.keys())
            if steps.types.get(name) != self._types.get(name)
        ]
        for i, (what, space) in enumerate((("observations", steps.observation_space), ("actions", steps.action_space))):
            if self._spaces[i] is None:
                self._spaces[i] = space
            if space is not None and space != self._spaces[i]:
                differences.append(f"the space of {what} is {space} and not {self._spaces[i]}")
        self._differences |= dict.fromkeys(differences)
        self.tally.pieces(steps, np.full(len(steps.eps_ids), bool(differences)))

    def details(self) -> str:
        return "".join(f"; {difference}" for difference in list(self._differences)[:5])


class EmptyDataset(CountingRule):
    """A dataset without a single step."""

    name = "empty_dataset"
    message = "episodes have no steps"
    advice = "Nothing can be learned here: check what was recorded or imported, and what pruning has left."

    def look(self, steps: StepBatch) -> None:
        self.tally.pieces(steps, steps.lengths == 0)

    def is_broken(self) -> bool:
        return self.tally.count == self.tally.of


def _are_apart(bounds: np.ndarray) -> np.ndarray:
    """(numbers,) bool: all values of one kind are above those of the other.

    Arguments:
        bounds: (least, most; not rewarded, rewarded; numbers).
    """
    least, most = bounds
    return np.asarray(((most[0] < least[1]) | (most[1] < least[0])) & np.isfinite(least).all(axis=0))


def _has_bounds(space: gym.Space[Any]) -> bool:
    """Whether values can be outside the space, or at its ends: a Box may be unbounded in all its numbers."""
    return not isinstance(space, gym.spaces.Box) or bool(np.isfinite(space.low).any() or np.isfinite(space.high).any())


def _is_of(name: str, column: str) -> bool:
    return name == column or name.startswith(column + PATH_SEPARATOR)


def _listed(names: list[str], most: int = 8) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return f": {', '.join([*names[:most], *more])}" if names else ""


def _type(types: nested.Types, name: str) -> str:
    if name not in types:
        return "missing"
    dtype, shape = types[name]
    return f"{dtype}{list(shape) if shape else ''}"
