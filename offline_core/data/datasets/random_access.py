"""Random access to a dataset version: single episodes by number, and steps drawn from all of them.

Only the row groups that are asked for are read. The last ones stay in memory, so that a second look at them reads nothing.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset, not_imported
from offline_core.data.datasets.row_group import RowGroup
from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.batch import STEP_NAMES
from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError, EmptyDatasetError, within
from offline_core.runtime.prefetch import several

ROW_GROUPS_HELD = 64
"""Row groups that all datasets together hold in memory; each has about 4 MiB before compression."""

MOST_ALIKE = 10_000
"""Ids among which one that is alike is looked for."""

SAMPLED = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.NEW_OBS, columns.TERMINATEDS, columns.TRUNCATEDS)
"""Columns of drawn steps, unless others are named."""


@functools.lru_cache(maxsize=ROW_GROUPS_HELD)
def _rows_of(group: RowGroup) -> tuple[pa.Table, np.ndarray]:
    """(rows, (E+1,) the first row of each episode and the end of the last one)."""
    rows = group.read()
    return rows, np.append(group.codec.starts(rows), rows.num_rows)


@dataclass(frozen=True, slots=True)
class _File:
    """Where the episodes of a data file are."""

    groups: list[RowGroup]
    first: np.ndarray
    """(G,) int64, the number of the first episode of each row group, within the file."""
    steps_before: np.ndarray
    """(E+1,) int64, the steps before each episode, and of all."""


class RandomAccess:
    """The episodes of a dataset version by number. Of each file that is needed it keeps where its episodes are.

    Raises:
        SchemaError: It has no manifest, which says how many episodes each file has.
    """

    def __init__(self, dataset: Dataset) -> None:
        if dataset.is_foreign:
            raise not_imported(dataset.location.uri)
        self._dataset = dataset
        files = dataset.manifest.files
        self._episodes_before = np.cumsum([0, *(file.episodes for file in files)])
        self._steps_before = np.cumsum([0, *(file.steps for file in files)])
        self._files: dict[int, _File] = {}

    def __len__(self) -> int:
        """Episodes; pieces of one count singly."""
        return int(self._episodes_before[-1])

    def episode(self, number: int) -> Episode:
        """Return an episode by its number, from 0, validated.

        Raises:
            CorruptFileError, EpisodeError, UnsafeDataError: It cannot be read.
        """
        file, own = self._file_of(number)
        group_number = int(np.searchsorted(file.first, own, side="right")) - 1
        group = file.groups[group_number]
        with self._dataset.reading():
            rows, starts = _rows_of(group)
            start, stop = starts[own - file.first[group_number]], starts[own - file.first[group_number] + 1]
            [episode] = group.decode(rows.slice(start, stop - start))
            with within(uri=group.uri):
                episode.validate()
        return episode

    def number(self, eps_id: str) -> int:
        """Return the number of the episode with an id.

        Raises:
            KeyError: There is none; the message has ids that are alike.
        """
        ids = self._dataset.index([columns.EPS_ID])[columns.EPS_ID]
        if len(found := (ids == eps_id).arg_true()):
            return int(found[0])
        close = difflib.get_close_matches(eps_id, ids.head(MOST_ALIKE).to_list(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "table() lists them."
        raise KeyError(f"{self._dataset.location.uri} has no episode {eps_id!r}; {hint}")

    def sample(self, size: int, rng: np.random.Generator, names: Sequence[str]) -> dict[str, Nested]:
        """Return columns of `size` steps, (size, …), each drawn from all steps alike; a step may come twice.

        Raises:
            ConfigError: `size` is less than 1.
            EmptyDatasetError: The dataset has no steps.
            CorruptFileError, EpisodeError, UnsafeDataError: Some cannot be read.
        """
        uri = self._dataset.location.uri
        if size < 1:
            raise ConfigError(f"{size} steps cannot be drawn from {uri}: draw one at least.")
        if not self._steps_before[-1]:
            raise EmptyDatasetError(f"{uri} has no steps to draw from.", uri=uri)
        drawn = rng.integers(self._steps_before[-1], size=size)
        order = np.argsort(drawn, kind="stable")
        drawn = drawn[order]
        reads: list[tuple[RowGroup, np.ndarray, np.ndarray]] = []
        of_file = np.searchsorted(self._steps_before, drawn, side="right") - 1
        for number in np.unique(of_file).tolist():
            file, step = self._file(number), drawn[of_file == number] - self._steps_before[number]
            episode = np.searchsorted(file.steps_before, step, side="right") - 1
            of_group = np.searchsorted(file.first, episode, side="right") - 1
            for group_number in np.unique(of_group).tolist():
                some = of_group == group_number
                in_episode = step[some] - file.steps_before[episode[some]]
                reads.append((file.groups[group_number], episode[some] - file.first[group_number], in_episode))
        with self._dataset.reading():
            parts = several(lambda read: _steps(*read, names), reads)
        back = np.empty(size, np.int64)
        back[order] = np.arange(size)
        return nested.map_leaves(lambda *leaves: np.concatenate(leaves)[back], *parts)  # type: ignore[no-any-return]

    def check_names(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of columns, if the first episode has them.

        Raises:
            ConfigError: It does not.
        """
        known = [*STEP_NAMES, *(self.episode(0).extras if len(self) else ())]
        if missing := [name for name in names if name not in known]:
            raise ConfigError(f"{self._dataset.location.uri} has no column {', '.join(missing)}; it has {', '.join(known)}.")
        return names

    def check_numbers(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of columns, if they are there and a tensor can hold what the first step has.

        Raises:
            ConfigError: One is missing, or holds text.
        """
        first = self.sample(1, np.random.default_rng(0), self.check_names(names)) if self._steps_before[-1] else {}
        for name, column in first.items():
            if any(leaf.dtype.kind not in "biuf" for leaf in nested.flatten(column, name).values()):
                left = ", ".join(other for other in names if other != name)
                raise ConfigError(f"{name} holds text, which no tensor can: leave it out (columns: {left or 'others'}).")
        return names

    def _file_of(self, number: int) -> tuple[_File, int]:
        """The file of an episode, and its number there."""
        file = int(np.searchsorted(self._episodes_before, number, side="right")) - 1
        return self._file(file), number - int(self._episodes_before[file])

    def _file(self, number: int) -> _File:
        if (known := self._files.get(number)) is not None:
            return known
        alone = self._dataset.with_files([self._dataset.manifest.files[number]])
        with self._dataset.reading():
            index = alone.index((columns.LENGTH,))
            groups = [(group, numbers) for group, numbers in alone.indexed_row_groups(index) if len(numbers)]
        self._files[number] = file = _File(
            groups=[group for group, _ in groups],
            first=np.array([numbers[0] for _, numbers in groups], np.int64),
            steps_before=np.cumsum([0, *index[columns.LENGTH].to_list()]),
        )
        return file


def _steps(group: RowGroup, episodes: np.ndarray, steps: np.ndarray, names: Sequence[str]) -> dict[str, Nested]:
    """Columns of steps of a row group, by the numbers of their episodes in it, which do not fall, and their own in these."""
    rows, starts = _rows_of(group)
    needed, of_needed = np.unique(episodes, return_inverse=True)
    parts = [rows.slice(start, stop - start) for start, stop in zip(starts[needed], starts[needed + 1], strict=True)]
    with within(uri=group.uri):
        batch = group.codec.batch(pa.concat_tables(parts), names, has_last=False)
    at = batch.offsets[of_needed] + steps
    return {name: nested.map_leaves(lambda leaf: leaf[at], batch[name]) for name in names}


class Episodes(Sequence[Episode]):
    """Some episodes of a dataset, each read when it is asked for."""

    def __init__(self, access: RandomAccess, numbers: range, what: str) -> None:
        self._access, self._numbers, self._what = access, numbers, what

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Episodes: ...
    def __getitem__(self, index: int | slice) -> Episode | Episodes:
        """One episode, a negative number counts from the end; of a slice these ones, of which none is read yet.

        Raises:
            IndexError: There are not so many.
        """
        if isinstance(index, slice):
            return Episodes(self._access, self._numbers[index], self._what)
        try:
            number = self._numbers[index]
        except IndexError:
            count = len(self)
            those = f"It has {count:,}: 0 to {count - 1}, or -{count} to -1" if count else "It has none"
            raise IndexError(f"{self._what} has no episode {index}. {those}.") from None
        return self._access.episode(number)

    def __repr__(self) -> str:
        return f"<{len(self):,} episodes of {self._what}, read one by one when they are asked for>"
