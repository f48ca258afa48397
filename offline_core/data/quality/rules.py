"""Rules about single steps: their numbers and masks, their types and their spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.action_masks import ACTION_MASK, choices, forbidden, forbids_all, is_masked, not_binary
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.episodes.spaces import any_in_step, outside, space_leaves
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.data.quality.result import Finding
from offline_core.data.quality.rule import CountingRule
from offline_core.data.quality.steps import StepBatch
from offline_core.errors import SpaceError
from offline_core.runtime.units import list_text

MASKS = f"{columns.OBS}{PATH_SEPARATOR}{ACTION_MASK}"
"""No input: an action may always be allowed."""


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
        masks = steps.columns[MASKS]
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
    return f": {list_text(names, most)}" if names else ""


def _type(types: nested.Types, name: str) -> str:
    if name not in types:
        return "missing"
    dtype, shape = types[name]
    return f"{dtype}{list(shape) if shape else ''}"
