"""Rules about duplicates, and about types that differ."""

from __future__ import annotations

from collections.abc import Mapping, Set

import gymnasium as gym
import numpy as np

from offline_core.datasets.statistics import ColumnStatistics
from offline_core.quality.result import Finding
from offline_core.quality.rule import CountingRule, Tally
from offline_core.quality.steps import StepBatch, Types


class DuplicateIds(CountingRule):
    """Episodes (or pieces of them) with the id and the first step of an earlier one."""

    name = "duplicate_ids"
    message = "episodes have the id of an earlier one"
    advice = "If they are copies, import the folder, which keeps one of each; if not, give them ids of their own."

    def look(self, steps: StepBatch) -> None:
        self.tally.pieces(steps, steps.is_repeated)


class DuplicateContents(CountingRule):
    """Episodes that repeat another one step by step under another id."""

    name = "duplicate_contents"
    verdict = "warn"
    message = "episodes repeat an earlier one step by step"
    advice = "Drop duplicates by pruning; if they were recorded so, check the seeds of the environments."

    def __init__(self, max_fraction: float) -> None:
        self._max_fraction = max_fraction
        super().__init__()
        self._seen: set[str] = set()

    def look(self, steps: StepBatch) -> None:
        wrong = np.zeros(len(steps.eps_ids), bool)
        for i, content in enumerate(steps.contents):
            wrong[i] = content in self._seen and not steps.is_repeated[i]
            self._seen.add(content)
        self.tally.pieces(steps, wrong)

    def is_broken(self) -> bool:
        return self.tally.count > self._max_fraction * self.tally.of


class HeldOutOverlap(CountingRule):
    """Episodes that are in the held-out dataset as well, whatever they are called there."""

    name = "held_out_overlap"
    advice = "Split the dataset anew: an evaluation on episodes that were trained on says nothing."

    def __init__(self, held_out: str, contents: Set[str]) -> None:
        self._contents = contents
        super().__init__()
        self.message = f"episodes are in the held-out dataset {held_out} too"

    def look(self, steps: StepBatch) -> None:
        self.tally.pieces(steps, np.array([content in self._contents for content in steps.contents], bool))


class MixedTypes:
    """Episodes whose columns, dtypes, shapes or spaces differ from the first one's."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._types: Types | None = None
        self._spaces: list[gym.Space | None] = [None, None]
        self._differences: dict[str, None] = {}

    def look(self, steps: StepBatch) -> None:
        if len(steps) == 0:
            return
        self._types = self._types or steps.types
        found = [
            f"{name} is {_type(steps.types, name)} and not {_type(self._types, name)}"
            for name in sorted(self._types.keys() | steps.types.keys())
            if steps.types.get(name) != self._types.get(name)
        ]
        for i, (what, space) in enumerate((("observations", steps.observation_space), ("actions", steps.action_space))):
            if self._spaces[i] is None:
                self._spaces[i] = space
            if space is not None and space != self._spaces[i]:
                found.append(f"the space of {what} is {space} and not {self._spaces[i]}")
        self._differences |= dict.fromkeys(found)
        self._tally.pieces(steps, np.full(len(steps.eps_ids), bool(found)))

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        differences = "".join(f"; {difference}" for difference in list(self._differences)[:5])
        return self._tally.finding(
            "mixed_types",
            "fail",
            f"episodes are not of the types and spaces of the first{differences}",
            "Keep data of different environments in datasets of their own, and convert the rest to one type.",
        )


class EmptyDataset(CountingRule):
    """A dataset without a single step."""

    name = "empty_dataset"
    message = "episodes have no steps"
    advice = "Nothing can be learned here: check what was recorded or imported, and what pruning has left."

    def look(self, steps: StepBatch) -> None:
        self.tally.pieces(steps, steps.lengths == 0)

    def is_broken(self) -> bool:
        return self.tally.count == self.tally.of


def _type(types: Types, name: str) -> str:
    if name not in types:
        return "missing"
    dtype, shape = types[name]
    return f"{dtype}{list(shape) if shape else ''}"
