"""Rules about duplicates, and about types that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import gymnasium as gym
import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import columns
from offline_core.data.quality.result import Finding
from offline_core.data.quality.rule import CountingRule, Tally
from offline_core.data.quality.steps import StepBatch, Types

SHORT = 32
"""Steps, above which episodes are not equal by chance."""
MOST_STARTS = 0.9
"""Different first observations for each different episode, above which equal episodes are copies."""
MOST_ALIKE = 0.9
"""Share of the contents that come as often as each other, or more than once, above which equal episodes are copies."""


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

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        by_chance = self.tally.count > 0 and self._seen.are_by_chance
        self.message = (
            f"{type(self).message}{', by chance, as few different ones are possible: keep them' if by_chance else ''}"
        )
        return super().finding(statistics)


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
        self._tally.pieces(steps, np.full(len(steps.eps_ids), bool(differences)))

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
