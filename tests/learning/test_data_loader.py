"""Every step exactly once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch

from offline_core.data.episodes import EpisodeBatch
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.errors import DataError, EmptyDatasetError
from offline_core.learning.data_loader import DataLoader, check_steps
from offline_core.learning.shards import ReadingOrder, Shards, batches
from tests.learning.making import batch_of

LENGTHS = [30, 1, 17, 50, 2, 3, 40, 60]
ROWS = sum(LENGTHS) + len(LENGTHS)
STEP_ROWS = [row for row in range(ROWS) if row not in np.cumsum(np.array(LENGTHS) + 1) - 1]


def parts() -> Iterator[EpisodeBatch]:
    """One episode each."""
    firsts = np.cumsum([0, *(length + 1 for length in LENGTHS[:-1])])
    for number in np.random.default_rng(0).permutation(len(LENGTHS)):
        yield batch_of([LENGTHS[number]], first=int(firsts[number]))


def streaming(given: Callable[[], Iterator[EpisodeBatch]] = parts, window_steps: int = 64) -> DataLoader:
    """Of data without row groups."""
    return DataLoader(lambda numbers: given(), window_steps=window_steps)


def by_row_group(numbers: Sequence[int] | None) -> Iterator[EpisodeBatch]:
    """Row groups of one, two, one, two … episodes, all of which are in LENGTHS."""
    whole = batch_of(LENGTHS) | {ROW_GROUP: np.repeat(np.array([0, 1, 1, 2, 3, 3, 4, 5], np.int32), np.array(LENGTHS) + 1)}
    edges = [0, 1, 3, 4, 6, 7, 8]
    for number in range(6) if numbers is None else numbers:
        yield whole.slice(edges[number], edges[number + 1])


def drawn(epoch: int) -> ReadingOrder:
    return ReadingOrder(np.random.default_rng(epoch).permutation(6), 2)


def stored(epoch: int) -> ReadingOrder:
    return ReadingOrder.stored(6)


LOADERS: dict[str, Callable[[], DataLoader]] = {
    "in memory": lambda: DataLoader(lambda numbers: parts(), resident=True),
    "streaming": streaming,
    "by row group": lambda: DataLoader(by_row_group, drawn),
}


def order(loader: DataLoader, epoch: int, *, seed: int = 0, replacement: bool = False) -> list[list[int]]:
    """Of each batch, the numbers of its steps."""
    return [
        steps.columns["actions"][indices].tolist()
        for window, steps in enumerate(loader.windows(epoch))
        for indices in batches(steps.rows, size=16, seed=seed, epoch=epoch, window=window, replacement=replacement)
    ]


@pytest.mark.parametrize("kind", LOADERS)
def test_each_step_once_an_epoch_and_no_epoch_like_another(kind: str) -> None:
    loader = LOADERS[kind]()
    epochs = [[step for batch in order(loader, epoch) for step in batch] for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == STEP_ROWS
    assert epochs[0] != epochs[1]
    assert all(len(batch) <= 16 for batch in order(loader, 0))


@pytest.mark.parametrize("kind", LOADERS)
def test_order_depends_on_seed_and_epoch_alone(kind: str) -> None:
    assert order(LOADERS[kind](), 3) == order(LOADERS[kind](), 3) != order(LOADERS[kind](), 3, seed=1)


def test_a_stream_holds_a_window_of_whole_episodes() -> None:
    windows = list(streaming().windows(1))
    assert len(windows) > 1
    assert all(64 <= len(steps) < 64 + max(LENGTHS) for steps in windows[:-1])


def grouped(size: int) -> Iterator[EpisodeBatch]:
    """All episodes in batches of `size` of them."""
    whole = batch_of(LENGTHS)
    for begin in range(0, len(LENGTHS), size):
        yield whole.slice(begin, min(len(LENGTHS), begin + size))


@pytest.mark.parametrize("window_steps", [1, 20, 64, 1000])
def test_the_windows_of_a_stream_do_not_depend_on_the_batches_it_comes_in(window_steps: int) -> None:
    loaders = [streaming(lambda n=n: grouped(n), window_steps) for n in (1, 2, 3, 5, 8)]
    found = [[steps.columns["actions"].tolist() for steps in loader.windows(0)] for loader in loaders]
    assert all(windows == found[0] for windows in found)
    assert [row for window in found[0] for row in window] == list(range(ROWS))
    starts = {int(row) for row in np.cumsum([0, *(length + 1 for length in LENGTHS[:-1])])}
    assert {window[0] for window in found[0]} <= starts, "each begins with an episode"
    assert len(found[0]) == {1: 8, 20: 4, 64: 2, 1000: 1}[window_steps]


def test_batches_without_an_episode_are_no_window() -> None:
    empty = batch_of([1]).slice(0, 0)
    given = [empty, batch_of([64]), empty, batch_of([3], first=65), empty]
    assert [len(steps) for steps in streaming(lambda: iter(given)).windows(0)] == [64, 3]
    assert [len(steps) for steps in streaming(lambda: iter(given[:3])).windows(0)] == [64]


def test_an_epoch_of_other_steps_than_were_counted_is_an_error() -> None:
    check_steps(203, None, "data")
    check_steps(203, 203, "data")
    with pytest.raises(DataError, match=r"data gives 203 steps, and 204 when they were counted"):
        check_steps(203, 204, "data")


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("world", [2, 3, 5])
def test_learners_have_each_episode_of_a_window_once(resident: bool, world: int) -> None:
    """A learner without one has one that stands in, which holds no steps to learn from."""
    found = []
    for rank in range(world):
        shards = Shards(8, rank, world)
        loader = DataLoader(by_row_group, stored if resident else drawn, shards, resident=resident)
        found.append([steps.columns["actions"][steps.rows].tolist() for steps in loader.windows(0)])
        assert all(len(steps.first) for steps in loader.windows(0))
    assert sorted(row for of_learner in found for window in of_learner for row in window) == STEP_ROWS
    alone = DataLoader(by_row_group, stored if resident else drawn, Shards(8), resident=resident)
    together = [[row for each in windows for row in each] for windows in zip(*found, strict=True)]
    assert together == [steps.columns["actions"][steps.rows].tolist() for steps in alone.windows(0)], "in reading order"


def test_a_stream_goes_on_from_a_window_without_reading_those_before() -> None:
    read: list[int] = []

    def noted(numbers: Sequence[int] | None) -> Iterator[EpisodeBatch]:
        read.extend(numbers or ())
        return by_row_group(numbers)

    whole = [steps.columns["actions"].tolist() for steps in DataLoader(by_row_group, drawn).windows(3)]
    rest = [steps.columns["actions"].tolist() for steps in DataLoader(noted, drawn).windows(3, 1)]
    assert rest == whole[1:] and read == drawn(3).numbers[2:].tolist()


@pytest.mark.parametrize(("left", "steps"), [((2, 3), [48, 0, 100]), ((0, 1), [0, 55, 100]), ((1, 2, 3, 4, 5), [30, 0, 0])])
def test_what_a_prelearner_leaves_empty_is_no_error(left: tuple[int, ...], steps: list[int]) -> None:
    """A window, or the share of a learner: another episode stands in, and nothing is learned from it."""

    def filtered(numbers: Sequence[int] | None) -> Iterator[EpisodeBatch]:
        return (batch for batch in by_row_group(numbers) if batch[ROW_GROUP][0] not in left)

    def windows(shards: Shards) -> list[int]:
        loader = DataLoader(filtered, lambda epoch: ReadingOrder(np.arange(6), 2), shards)
        return [len(each) for each in loader.windows(0)]

    assert windows(Shards(8)) == steps
    assert [sum(each) for each in zip(*(windows(Shards(8, rank, 4)) for rank in range(4)), strict=True)] == steps
    resident = [DataLoader(filtered, stored, Shards(8, rank, 4), resident=True) for rank in range(4)]
    found = [next(loader.windows(0)) for loader in resident]
    assert sum(map(len, found)) == sum(steps) and all(len(each.first) for each in found)


def test_with_replacement_an_epoch_is_as_long_and_has_some_steps_twice() -> None:
    seen = [step for batch in order(LOADERS["in memory"](), 0, replacement=True) for step in batch]
    assert len(seen) == len(STEP_ROWS) and set(seen) < set(STEP_ROWS)


def test_nothing_to_learn_from() -> None:
    empty = batch_of([1]).slice(0, 0)
    for nothing in ([], [empty]):
        with pytest.raises(EmptyDatasetError):
            DataLoader(lambda numbers, nothing=nothing: iter(nothing), resident=True)
        with pytest.raises(EmptyDatasetError):
            list(streaming(lambda nothing=nothing: iter(nothing)).windows(0))


def test_an_error_of_reading_comes_through_a_stream() -> None:
    def broken() -> Iterator[EpisodeBatch]:
        yield batch_of([100])
        yield batch_of([1])
        raise OSError("gone")

    windows = streaming(broken).windows(0)
    assert len(next(windows)) == 100
    with pytest.raises(OSError, match="gone"):
        next(windows)


def test_batches_are_views_of_one_permutation() -> None:
    indices = torch.arange(100, 150)
    found = batches(indices, size=20, seed=0, epoch=0, window=0)
    assert [len(batch) for batch in found] == [20, 20, 10]
    assert sorted(torch.cat(found).tolist()) == indices.tolist()
