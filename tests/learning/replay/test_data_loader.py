"""Episodes come into the buffer read by read, and leave it as the oldest; nothing of it has to be stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import DataError, EmptyDatasetError
from offline_core.learning.config import ReplayBufferConfig
from offline_core.learning.data_loader import ReplayLoader
from offline_core.learning.shards import ReadingOrder
from offline_core.learning.steps import NUMBER
from offline_core.learning.trainer_config import OptimizerConfig
from offline_core.runtime.config import parse
from tests.learning.making import batch_of

LENGTHS = [5, 1, 7, 3, 2, 6]


def parts(epoch: int) -> Iterator[EpisodeBatch]:
    """One episode each, in an order of the epoch's own; `actions` count the rows of all."""
    firsts = np.cumsum([0, *(length + 1 for length in LENGTHS[:-1])])
    for number in np.random.default_rng(epoch).permutation(len(LENGTHS)):
        yield batch_of([LENGTHS[number]], first=int(firsts[number]))


def loader_of(batch_size: int = 1, parts: Any = parts, expected: int = sum(LENGTHS), **config: Any) -> ReplayLoader:
    buffer, optimizer = parse(ReplayBufferConfig, config), OptimizerConfig(batch_size=batch_size)
    return ReplayLoader(
        lambda numbers: parts(numbers[0]),  # of an epoch's order, which is its number
        lambda epoch: ReadingOrder(np.array([epoch]), 1),
        buffer,
        optimizer,
        where="here",
        expected_steps=expected,
    )


def contents(loader: ReplayLoader, epoch: int, first: int = 0) -> list[list[int]]:
    """Of each window, the rows that it holds."""
    return [steps.columns["actions"].tolist() for steps in loader.windows(epoch, first)]


def lengths(loader: ReplayLoader, epoch: int = 0) -> list[list[int]]:
    return [(steps.last_step - steps.first + 1).tolist() for steps in loader.windows(epoch)]


def in_order(epoch: int) -> Iterator[EpisodeBatch]:
    yield batch_of(LENGTHS)


def test_the_oldest_episodes_leave_first() -> None:
    found = lengths(loader_of(parts=in_order, capacity_steps=10, read_episodes=1))
    assert found == [[5], [5, 1], [1, 7], [7, 3], [3, 2], [2, 6]]


def test_a_read_batch_is_so_many_episodes_however_they_come() -> None:
    def cut(epoch: int) -> Iterator[EpisodeBatch]:
        yield from batch_of(LENGTHS).each()

    for given in (in_order, cut):
        found = lengths(loader_of(parts=given, capacity_steps=100, read_episodes=4))
        assert found == [[5, 1, 7, 3], LENGTHS]


def test_an_episode_longer_than_the_buffer_is_there_by_itself() -> None:
    assert lengths(loader_of(parts=in_order, capacity_steps=4, read_episodes=2)) == [[1], [3], [6]]


def test_the_first_chunk_holds_a_batch_or_all_there_is() -> None:
    assert lengths(loader_of(12, parts=in_order, capacity_steps=100, read_episodes=1))[0] == [5, 1, 7]
    full = lengths(loader_of(10, parts=in_order, capacity_steps=10, read_episodes=1))
    assert full == [[1, 7], [7, 3], [3, 2], [2, 6]], "no more than that fits with an episode less"
    assert lengths(loader_of(25, parts=in_order, capacity_steps=100, read_episodes=1)) == [LENGTHS]


@pytest.mark.parametrize("capacity", [1, 10, 24, 60])
def test_what_it_holds_is_the_same_where_a_run_goes_on(capacity: int) -> None:
    """From any window of any epoch, with a loader that knows nothing of the ones before; across epochs, too."""
    config: dict[str, Any] = {"batch_size": min(capacity, 24), "capacity_steps": capacity, "read_episodes": 2}
    whole = loader_of(**config)
    epochs = [contents(whole, epoch) for epoch in range(4)]
    assert epochs[2] != epochs[1]
    for epoch, first in ((0, 1), (1, 0), (2, 2), (3, 0)):
        if first < len(epochs[epoch]):
            assert contents(loader_of(**config), epoch, first) == epochs[epoch][first:]


def test_a_class_of_ones_own_says_what_stays() -> None:
    own = {"path": "tests.learning.replay.own:Longest", "arguments": {"episodes": 2}}
    config: dict[str, Any] = {"capacity_steps": 100, "read_episodes": 2, "buffer_class": own}
    assert lengths(loader_of(parts=in_order, **config)) == [[5, 1], [5, 7], [7, 6]]
    whole = loader_of(**config)
    epochs = [contents(whole, epoch) for epoch in range(3)]
    assert contents(loader_of(**config), 2) == epochs[2], "what it keeps for ever is read again from the first epoch on"


def test_a_row_keeps_its_number() -> None:
    named: dict[int, int] = {}
    loader = loader_of(capacity_steps=10, read_episodes=1)
    for epoch in range(3):
        for steps in loader.windows(epoch):
            numbers = steps.columns[NUMBER].tolist()
            assert numbers == sorted(numbers)
            for number, row in zip(numbers, steps.columns["actions"].tolist(), strict=True):
                assert named.setdefault(number, row) == row
    for steps in loader_of(capacity_steps=10, read_episodes=1).windows(2):  # in another process, as if it went on there
        for number, row in zip(steps.columns[NUMBER].tolist(), steps.columns["actions"].tolist(), strict=True):
            assert named.get(number) == row


def test_bad_data_and_a_bad_class_are_said() -> None:
    with pytest.raises(DataError, match="gives 24 steps, and 25 when they were counted"):
        contents(loader_of(expected=25), 0)
    with pytest.raises(EmptyDatasetError):
        contents(loader_of(parts=lambda epoch: iter([]), expected=0), 0)
    own = {"path": "tests.learning.replay.own:KeepsNone"}
    with pytest.raises(DataError, match=r"own:KeepsNone gives bool of shape .*one of them has to stay"):
        contents(loader_of(buffer_class=own), 0)
