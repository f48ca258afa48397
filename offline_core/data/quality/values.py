"""Rules about the numbers and the masks in single steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import ACTION_MASK, choices, forbidden, forbids_all, is_masked, not_binary
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.episodes.spaces import any_in_step, outside, space_leaves
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.data.quality.result import Finding, Verdict
from offline_core.data.quality.rule import CountingRule, Tally
from offline_core.data.quality.steps import StepBatch
from offline_core.errors import SpaceError

MASKS = f"{columns.OBS}{PATH_SEPARATOR}{ACTION_MASK}"
"""No input: an action may always be allowed."""


class NonFinite:
    """NaN or infinity in observations, actions and rewards: what training refuses, and what `drop_non_finite` drops."""

    def __init__(self) -> None:
        self._tally = Tally()
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
        self._tally.steps(steps, wrong)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        where = "".join(f"; {name}: {count:,}" for name, count in self._columns.items())
        return self._tally.finding(
            "non_finite",
            "fail",
            f"steps hold NaN or infinity{where}",
            "Prune with drop_non_finite: true, and look for the division or overflow that made them.",
        )


class ConstantFeatures:
    """Numbers of an observation or action that are the same in all steps, and so say nothing.

    Arguments:
        made_of: what the observations are made of.
    """

    def __init__(self, made_of: InputColumns | None = None) -> None:
        self._made_of = made_of

    def look(self, steps: StepBatch) -> None:
        """The statistics are enough."""

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        tally = Tally()
        constant = []
        for name, column in statistics.items():
            if not (_is_of(name, columns.OBS) or _is_of(name, columns.ACTIONS)) or name == MASKS:
                continue
            tally.of += len(column.count)
            names = number_names(name, len(column.count), self._made_of)
            for i, (low, high) in enumerate(zip(column.min, column.max, strict=True)):
                if low is not None and low == high and column.count[i] > 1 and not (column.nan[i] or column.infinite[i]):
                    constant.append(f"{names[i]} = {low:g}")
        tally.count = len(constant)
        return tally.finding(
            "constant_features",
            "warn",
            f"numbers of observations and actions never change{_listed(constant)}",
            "Leave constant inputs out when training, or find out why the recorder or the import lost them.",
        )


class SaturatedActions:
    """Box actions that are at the end of their range more often than not: clipped, or scaled wrongly."""

    def __init__(self, max_fraction: float) -> None:
        self._max_fraction = max_fraction
        self._tally = Tally()
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
            self._tally.steps(steps, at_bounds)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        often = [
            f"{number}: {count / self._tally.of:.0%} of the steps"
            for (name, _), counts in self._at_bounds.items()
            for number, count in zip(number_names(name, counts.size), counts.ravel().tolist(), strict=True)
            if count > self._max_fraction * self._tally.of
        ]
        return self._tally.finding(
            "saturated_actions",
            "warn",
            f"steps have an action at a bound of its range{_listed(often)}",
            "Compare the range of the action space with what the policy gave: actions may have been clipped or scaled wrongly.",
            is_broken=bool(often),
            unless="" if self._has_bounds else "no Box of actions with bounds is declared",
        )


class OutsideSpace:
    """Values that their space does not contain: `columns.ACTIONS` fail, `columns.OBS` warn. NaN has a rule of its own."""

    def __init__(self, column: str) -> None:
        self._column = column
        self._tally = Tally()
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
        self._tally.steps(steps, wrong)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        verdict: Verdict = "fail" if self._column == columns.ACTIONS else "warn"
        what = "actions" if self._column == columns.ACTIONS else "observations"
        return self._tally.finding(
            f"{what}_outside_space",
            verdict,
            f"steps have {what} that their space does not contain{_listed([name for name, n in self._leaves.items() if n])}",
            f"Check scaling, dtype and shape, or import again with {what.removesuffix('s')}_space: {{…}}, the one of the data.",
            unless="" if self._has_bounds else f"no space of {what} with bounds is declared",
        )


def _has_bounds(space: gym.Space[Any]) -> bool:
    """Whether values can be outside the space, or at its ends: a Box may be unbounded in all its numbers."""
    return not isinstance(space, gym.spaces.Box) or bool(np.isfinite(space.low).any() or np.isfinite(space.high).any())


def _is_of(name: str, column: str) -> bool:
    return name == column or name.startswith(column + PATH_SEPARATOR)


def _listed(names: list[str], most: int = 8) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return f": {', '.join([*names[:most], *more])}" if names else ""


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
