"""Find rare integer actions that alone make the inferred action space much larger, and choices that no step has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.inputs.encoding import MAX_CATEGORIES
from offline_core.data.inputs.number_names import number_names
from offline_core.runtime.units import list_text

STRAY_SHARE = 0.01
"""A value of a smaller share of the steps is stray if values before it are missing and the space halves without it."""
MOST_LEVELS, LEAST_OF_LEVEL = 20, 20
"""Different real numbers of an action, and rows for each of them, that are a list of choices."""
MAX_VALUES = 65_536
"""Beyond this many, values are no longer counted."""


class Seen(NamedTuple):
    """How often a value occurs, and where first."""

    steps: int
    eps_id: str
    t: int


Dimension: TypeAlias = tuple[str, int]
"""A leaf of the actions, and the number of the dimension in it."""


class ActionCounts:
    """Counts the values of whole-numbered actions, of one number or a vector of them a step."""

    def __init__(self) -> None:
        self.seen: dict[Dimension, dict[int, Seen]] = {}

    def add(self, episodes: Iterable[Episode]) -> None:
        """Add the steps of these episodes."""
        batch = [episode for episode in episodes if len(episode)]
        for path in [] if not batch else nested.flatten(batch[0].actions, columns.ACTIONS):
            leaves = [nested.flatten(episode.get_actions(), columns.ACTIONS)[path] for episode in batch]
            if leaves[0].dtype.kind not in "iu" or leaves[0].ndim > 2:
                continue
            offsets = np.cumsum([0, *map(len, leaves)])
            for number, values in enumerate(np.concatenate(leaves).reshape(offsets[-1], -1).T):
                distinct = np.unique(values, return_index=True, return_counts=True)
                into = self.seen.setdefault((path, number), {})
                for value, row, count in zip(*(part.tolist() for part in distinct), strict=True):
                    in_batch = int(np.searchsorted(offsets, row, "right")) - 1
                    seen = Seen(count, batch[in_batch].eps_id, batch[in_batch].t_started + row - int(offsets[in_batch]))
                    if value in into or len(into) <= MAX_VALUES:
                        into[value] = _both(into.get(value), seen)

    def merge(self, other: ActionCounts) -> ActionCounts:
        """Add the counts of later steps."""
        for dimension, values in other.seen.items():
            into = self.seen.setdefault(dimension, {})
            into |= {value: _both(into.get(value), seen) for value, seen in values.items()}
        return self

    def notes(self) -> list[str]:
        """A sentence for each dimension with stray values."""
        counts = Counter(path for path, _ in self.seen)
        return [
            _note(number_names(path, counts[path])[number], values, stray)
            for (path, number), values in self.seen.items()
            if (stray := stray_values(values))
        ]

    def notes_on_unused(self, space: gym.Space[Any] | None) -> list[str]:
        """A sentence if most choices from 0 on occur in no step, as where actions are prices or percentages."""
        values = self.seen.get((columns.ACTIONS, 0), {})
        if not isinstance(space, gym.spaces.Discrete) or int(space.start) != 0 or 0 not in values:
            return []
        if 2 * len(values) >= int(space.n) or stray_values(values):
            return []
        listed = list_text(sorted(values), 8)
        return [
            f"The action space {space} has {int(space.n) - len(values):,} choices that no row has: actions are {listed}. "
            "A policy may choose what was never done; give each value a code by columns.encode, with form: index."
        ]


def few_of_range(column: pa.ChunkedArray) -> bool:
    """Whether whole numbers have gaps, and are at most half of those from 0 to the largest, none of them stray."""
    if not pa.types.is_integer(column.type) or not 1 < pc.count_distinct(column).as_py() <= MAX_CATEGORIES:
        return False
    counts = pc.value_counts(column.drop_null()).to_pylist()
    seen = {count["values"]: Seen(count["counts"], "", 0) for count in counts}
    least, most = min(seen), max(seen)
    return least >= 0 and len(seen) <= most - least and 2 * len(seen) <= most + 1 and not stray_values(seen)


def few_values(column: pa.ChunkedArray) -> list[float]:
    """The numbers that a column of real ones has, if it has each of a few again and again, as levels of a price; else none."""
    if not pa.types.is_floating(column.type) or pc.count_distinct(column).as_py() > MOST_LEVELS:
        return []
    found = np.unique(column.drop_null().to_numpy())
    is_often = 1 < len(found) <= len(column) / LEAST_OF_LEVEL and np.isfinite(found).all()
    return found.astype(float).tolist() if is_often else []


def stray_values(values: Mapping[int, Seen]) -> list[int]:
    """Return rare values beyond a gap, above or below the others, without which the range would be at most half as large.

    A single negative value of few steps counts, too: it marks what is missing.
    """
    numbers = np.array(sorted(values), object)  # of any size
    if not 1 < len(numbers) <= MAX_VALUES:
        return []
    steps = np.array([values[number].steps for number in numbers.tolist()])
    is_marker = numbers[0] < 0 <= numbers[1] and steps[0] < STRAY_SHARE * steps.sum()
    below = 1 if is_marker else _beyond_hole(-numbers[::-1], steps[::-1])
    rest = numbers[below:]
    above = _beyond_hole(rest, steps[below:])
    return [*numbers[:below].tolist(), *rest[len(rest) - above :].tolist()]


def _beyond_hole(numbers: np.ndarray, steps: np.ndarray) -> int:
    """How many of the last of these ascending numbers are stray; the range has zero in it."""
    share = np.cumsum(steps[::-1])[::-1] / steps.sum()
    size = np.maximum(numbers, 0) - min(0, numbers[0]) + 1
    after_hole = np.diff(numbers, prepend=numbers[0]) > 1
    smaller = 2 * np.concatenate([size[:1], size[:-1]]) <= size[-1]
    first = np.flatnonzero(after_hole & smaller & (share < STRAY_SHARE))
    return len(numbers) - int(first[0]) if len(first) else 0


def _note(name: str, values: Mapping[int, Seen], stray: list[int]) -> str:
    steps, first = sum(values[value].steps for value in stray), values[stray[0]]
    others = sorted(set(values) - set(stray))
    listed = list_text(stray, 5)
    of = sum(seen.steps for seen in values.values())
    return (
        f"In {steps:,} of {of:,} steps {name} is {listed} (first: episode {first.eps_id}, step {first.t}), "
        f"in all others {others[0]} to {others[-1]}: the action space is larger for these alone. "
        "If they are mistakes, leave them out by source.where; else declare action_space."
    )


def _both(one: Seen | None, other: Seen) -> Seen:
    return other if one is None else one._replace(steps=one.steps + other.steps)
