"""Every step exactly once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from offline_core.episodes import EpisodeBatch
from offline_core.errors import DataError, EmptyDatasetError
from offline_core.learning.data_loader import DataLoader, InMemoryLoader, StreamingLoader, batches
from tests.learning.making import batch_of

LENGTHS = [30, 1, 17, 50, 2, 3, 40, 60]
ROWS = sum(LENGTHS) + len(LENGTHS)
STEP_ROWS = [row for row in range(ROWS) if row not in np.cumsum(np.array(LENGTHS) + 1) - 1]


def parts(epoch: int = 0) -> Iterator[EpisodeBatch]:
    """One episode each, in an order of the epoch's own."""
    firsts = np.cumsum([0, *(length + 1 for length in LENGTHS[:-1])])
    for number in np.random.default_rng(epoch).permutation(len(LENGTHS)):
        yield batch_of([LENGTHS[number]], first=int(firsts[number]))


LOADERS = {"in memory": lambda: InMemoryLoader(parts()), "streaming": lambda: StreamingLoader(parts, window_steps=64)}


def order(loader: DataLoader, epoch: int, *, seed: int = 0, replacement: bool = False) -> list[list[int]]:
    """Of each batch, the numbers of its steps."""
    return [
        steps.columns["actions"][indices].tolist()
        for window, steps in enumerate(loader.windows(epoch))
        for indices in batches(steps.rows, 16, seed=seed, epoch=epoch, window=window, replacement=replacement)
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
    windows = list(StreamingLoader(parts, window_steps=64).windows(1))
    assert len(windows) > 1
    assert all(64 <= len(steps) < 64 + max(LENGTHS) for steps in windows[:-1])


def grouped(size: int) -> Iterator[EpisodeBatch]:
    """All episodes in batches of `size` of them."""
    whole = batch_of(LENGTHS)
    for begin in range(0, len(LENGTHS), size):
        yield whole.slice(begin, min(len(LENGTHS), begin + size))


@pytest.mark.parametrize("window_steps", [1, 20, 64, 1000])
def test_the_windows_of_a_stream_do_not_depend_on_the_batches_it_comes_in(window_steps: int) -> None:
    loaders = [StreamingLoader(lambda epoch, n=n: grouped(n), window_steps=window_steps) for n in (1, 2, 3, 5, 8)]
    found = [[steps.columns["actions"].tolist() for steps in loader.windows(0)] for loader in loaders]
    assert all(windows == found[0] for windows in found)
    assert [row for window in found[0] for row in window] == list(range(ROWS))
    starts = {int(row) for row in np.cumsum([0, *(length + 1 for length in LENGTHS[:-1])])}
    assert {window[0] for window in found[0]} <= starts, "each begins with an episode"
    assert len(found[0]) == {1: 8, 20: 4, 64: 2, 1000: 1}[window_steps]


def test_batches_without_an_episode_are_no_window() -> None:
    empty = batch_of([1]).slice(0, 0)
    given = [empty, batch_of([64]), empty, batch_of([3], first=65), empty]
    assert [len(steps) for steps in StreamingLoader(lambda epoch: iter(given), window_steps=64).windows(0)] == [64, 3]
    assert [len(steps) for steps in StreamingLoader(lambda epoch: iter(given[:3]), window_steps=64).windows(0)] == [64]


def test_an_epoch_of_other_steps_than_were_counted_is_an_error() -> None:
    for loader in (
        lambda steps: list(StreamingLoader(parts, window_steps=64, expected_steps=steps).windows(0)),
        lambda steps: InMemoryLoader(parts(), expected_steps=steps),
    ):
        loader(sum(LENGTHS))
        with pytest.raises(DataError, match=r"gives 203 steps, and 204 when they were counted"):
            loader(sum(LENGTHS) + 1)


def test_with_replacement_an_epoch_is_as_long_and_has_some_steps_twice() -> None:
    seen = [step for batch in order(InMemoryLoader(parts()), 0, replacement=True) for step in batch]
    assert len(seen) == len(STEP_ROWS) and set(seen) < set(STEP_ROWS)


def test_nothing_to_learn_from() -> None:
    empty = batch_of([1]).slice(0, 0)
    for nothing in ([], [empty]):
        with pytest.raises(EmptyDatasetError):
            InMemoryLoader(nothing)
        with pytest.raises(EmptyDatasetError):
            list(StreamingLoader(lambda epoch, nothing=nothing: iter(nothing), window_steps=64).windows(0))


def test_an_error_of_reading_comes_through_a_stream() -> None:
    def broken(epoch: int) -> Iterator[EpisodeBatch]:
        yield batch_of([100])
        yield batch_of([1])
        raise OSError("gone")

    windows = StreamingLoader(broken, window_steps=64).windows(0)
    assert len(next(windows)) == 100
    with pytest.raises(OSError, match="gone"):
        next(windows)


def test_batches_are_views_of_one_permutation() -> None:
    indices = torch.arange(100, 150)
    found = batches(indices, 20, seed=0, epoch=0, window=0, replacement=False)
    assert [len(batch) for batch in found] == [20, 20, 10]
    assert sorted(torch.cat(found).tolist()) == indices.tolist()
