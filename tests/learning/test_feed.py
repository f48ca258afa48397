"""Every step exactly once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from offline_core.errors import DataError, EmptyDatasetError
from offline_core.learning.feed import Feed, Part, ResidentFeed, StreamingFeed, batches
from tests.learning.making import part

LENGTHS = [30, 1, 17, 50, 2, 3, 40, 60]
ROWS = sum(LENGTHS) + len(LENGTHS)
STEP_ROWS = [row for row in range(ROWS) if row not in np.cumsum(np.array(LENGTHS) + 1) - 1]


def parts(epoch: int = 0) -> Iterator[Part]:
    """One episode each, in an order of the epoch's own."""
    firsts = np.cumsum([0, *(length + 1 for length in LENGTHS[:-1])])
    for number in np.random.default_rng(epoch).permutation(len(LENGTHS)):
        yield part([LENGTHS[number]], first=int(firsts[number]))


FEEDS = {"resident": lambda: ResidentFeed(parts()), "streaming": lambda: StreamingFeed(parts, window_steps=64)}


def order(feed: Feed, epoch: int, *, seed: int = 0, replacement: bool = False) -> list[list[int]]:
    """Of each batch, the numbers of its steps."""
    return [
        steps.columns["actions"][units].tolist()
        for chunk, steps in enumerate(feed.chunks(epoch))
        for units in batches(steps.rows, 16, seed=seed, epoch=epoch, chunk=chunk, replacement=replacement)
    ]


@pytest.mark.parametrize("kind", FEEDS)
def test_each_step_once_an_epoch_and_no_epoch_like_another(kind: str) -> None:
    feed = FEEDS[kind]()
    epochs = [[step for batch in order(feed, epoch) for step in batch] for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == STEP_ROWS
    assert epochs[0] != epochs[1]
    assert all(len(batch) <= 16 for batch in order(feed, 0))


@pytest.mark.parametrize("kind", FEEDS)
def test_order_depends_on_seed_and_epoch_alone(kind: str) -> None:
    assert order(FEEDS[kind](), 3) == order(FEEDS[kind](), 3) != order(FEEDS[kind](), 3, seed=1)


def test_a_stream_holds_a_window_of_whole_episodes() -> None:
    chunks = list(StreamingFeed(parts, window_steps=64).chunks(1))
    assert len(chunks) > 1
    assert all(64 <= len(steps) < 64 + max(LENGTHS) for steps in chunks[:-1])


def sliced(size: int) -> Iterator[Part]:
    """All episodes in parts of `size` rows, wherever that cuts them."""
    whole = part(LENGTHS)
    for begin in range(0, ROWS, size):
        yield {name: column[begin : begin + size] for name, column in whole.items()}


@pytest.mark.parametrize("window_steps", [1, 20, 64, 1000])
def test_the_windows_of_a_stream_do_not_depend_on_the_parts_it_comes_in(window_steps: int) -> None:
    feeds = [StreamingFeed(lambda epoch, n=n: sliced(n), window_steps=window_steps) for n in (1, 7, 31, 90, ROWS)]
    found = [[steps.columns["actions"].tolist() for steps in feed.chunks(0)] for feed in feeds]
    assert all(windows == found[0] for windows in found)
    assert [row for window in found[0] for row in window] == list(range(ROWS))
    starts = {int(row) for row in np.cumsum([0, *(length + 1 for length in LENGTHS[:-1])])}
    assert {window[0] for window in found[0]} <= starts, "each begins with an episode"
    assert len(found[0]) == {1: 8, 20: 4, 64: 2, 1000: 1}[window_steps]


def test_parts_of_which_nothing_is_left_are_no_window_of_their_own() -> None:
    empty = {name: array[:0] for name, array in part([1]).items()}
    given = [empty, part([64]), empty, part([3], first=65), empty]
    assert [len(steps) for steps in StreamingFeed(lambda epoch: iter(given), window_steps=64).chunks(0)] == [64, 3]
    assert [len(steps) for steps in StreamingFeed(lambda epoch: iter(given[:3]), window_steps=64).chunks(0)] == [64]


def test_an_epoch_of_other_steps_than_were_counted_is_an_error() -> None:
    for feed in (
        lambda steps: list(StreamingFeed(parts, window_steps=64, expected_steps=steps).chunks(0)),
        lambda steps: ResidentFeed(parts(), expected_steps=steps),
    ):
        feed(sum(LENGTHS))
        with pytest.raises(DataError, match=r"gives 203 steps, and 204 when they were counted"):
            feed(sum(LENGTHS) + 1)


def test_with_replacement_an_epoch_is_as_long_and_has_some_steps_twice() -> None:
    seen = [step for batch in order(ResidentFeed(parts()), 0, replacement=True) for step in batch]
    assert len(seen) == len(STEP_ROWS) and set(seen) < set(STEP_ROWS)


def test_nothing_to_learn_from() -> None:
    empty = {name: array[:0] for name, array in part([1]).items()}
    for nothing in ([], [empty]):
        with pytest.raises(EmptyDatasetError):
            ResidentFeed(nothing)
        with pytest.raises(EmptyDatasetError):
            list(StreamingFeed(lambda epoch, nothing=nothing: iter(nothing), window_steps=64).chunks(0))


def test_an_error_of_reading_comes_through_a_stream() -> None:
    def broken(epoch: int) -> Iterator[Part]:
        yield part([100])
        yield part([1])
        raise OSError("gone")

    chunks = StreamingFeed(broken, window_steps=64).chunks(0)
    assert len(next(chunks)) == 100
    with pytest.raises(OSError, match="gone"):
        next(chunks)


def test_batches_are_views_of_one_permutation() -> None:
    units = torch.arange(100, 150)
    found = batches(units, 20, seed=0, epoch=0, chunk=0, replacement=False)
    assert [len(batch) for batch in found] == [20, 20, 10]
    assert sorted(torch.cat(found).tolist()) == units.tolist()
