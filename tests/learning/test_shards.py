"""The same global batches for any number of learners, each of which reads its own share."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.errors import ConfigError
from offline_core.learning.shards import ReadingOrder, Shards, batches
from tests.cases import examples

WORLDS = (1, 2, 3, 4, 8)


@given(number=st.integers(1, 64), world=st.integers(1, 64))
def test_every_shard_has_one_learner(number: int, world: int) -> None:
    own = [Shards(number, rank, world).own for rank in range(world)]
    assert list(itertools.chain(*own)) == list(range(number))
    assert max(map(len, own)) - min(map(len, own)) <= 1


def test_shards_are_equal_parts_of_the_line() -> None:
    """Two row groups of 4 and 8 steps, cut in 4: the first two shards are half of the first row group each."""
    lengths, place = np.array([1, 1, 1, 1, 3, 1, 4]), np.array([0, 0, 0, 0, 1, 1, 1])
    assert Shards(4).of_episodes(lengths, place, 2).tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert Shards(64).of_episodes(np.array([9]), np.array([0]), 1).tolist() == [0]
    assert Shards(4).of_episodes(np.zeros(0, int), np.zeros(0, int), 3).tolist() == []


def test_more_learners_than_shards_are_refused() -> None:
    assert Shards.of(100, world=8).number == 8 and Shards.of(65_536, world=64).number == 64
    with pytest.raises(ConfigError, match=r"100 steps are cut into 8 shards: set compute.learners to 8 at most"):
        Shards.of(100, world=9)


@settings(max_examples=examples(200), deadline=None)
@given(
    row_groups=st.integers(1, 40),
    window=st.integers(1, 24),
    number=st.sampled_from((8, 64)),
    world=st.integers(1, 8),
    first=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_learners_read_the_row_groups_of_their_shards_and_no_others(
    row_groups: int, window: int, number: int, world: int, first: int, seed: int
) -> None:
    """Each episode is found by the learner whose shard it is of, in row groups of any lengths."""
    rng = np.random.default_rng(seed)
    order = ReadingOrder(rng.permutation(row_groups), window)
    read = [order.read_by(Shards(number, rank, world), first) for rank in range(world)]
    for at in range(min(order.windows, first), order.windows):
        numbers = order.numbers[at * window : (at + 1) * window]
        lengths = [rng.integers(1, 30, rng.integers(1, 9)) for _ in numbers]
        place = np.repeat(np.arange(len(numbers)), [len(each) for each in lengths])
        shard = Shards(number).of_episodes(np.concatenate(lengths), place, len(numbers))
        assert (np.diff(shard) >= 0).all() and shard.min() >= 0 and shard.max() < number
        for rank in range(world):
            own = Shards(number, rank, world).own
            mine = set(numbers[place[(shard >= own.start) & (shard < own.stop)]].tolist())
            assert mine <= set(read[rank])
    assert all(numbers == [n for n in order.numbers.tolist() if n in set(numbers)] for numbers in read), "in reading order"


@pytest.mark.parametrize("window_steps", [1, 300, 800, 2_600, 9_000])
@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_learners_share_no_row_group_where_windows_have_enough(window_steps: int, world: int) -> None:
    order = ReadingOrder.drawn(0, 0, steps=100 * 96, row_groups=96, window_steps=window_steps)
    assert order.row_groups == {1: 1, 300: 4, 800: 8, 2_600: 24, 9_000: 88}[window_steps]
    read = [number for rank in range(world) for number in order.read_by(Shards(64, rank, world))]
    if order.row_groups >= world and window_steps < 9_000:  # its last window has 8 row groups
        assert sorted(read) == list(range(96))
    assert set(read) == set(range(96))


def shares(counts: list[int], world: int, **how: int) -> list[tuple[torch.Tensor, ...]]:
    """The batches of each learner; sample indices are numbers from 0 on."""
    shard = np.repeat(np.arange(len(counts)), counts)
    found = []
    for rank in range(world):
        own = Shards(len(counts), rank, world).own
        mine = torch.from_numpy(np.flatnonzero((shard >= own.start) & (shard < own.stop)))
        of = torch.from_numpy(shard)[mine]
        found.append(batches(mine, of, torch.tensor(counts), **{"size": 16, "seed": 0, "epoch": 0, "window": 0} | how))
    return found


@settings(max_examples=examples(100), deadline=None)
@given(counts=st.lists(st.integers(0, 40), min_size=8, max_size=8).filter(any), seed=st.integers(0, 9))
def test_all_learners_together_make_the_batches_of_one(counts: list[int], seed: int) -> None:
    [alone] = shares(counts, 1, seed=seed)
    assert [len(batch) for batch in alone[:-1]] == [16] * (len(alone) - 1)
    assert torch.cat(alone).sort().values.tolist() == list(range(sum(counts))), "each once"
    for world in WORLDS[1:]:
        found = shares(counts, world, seed=seed)
        assert {len(of_learner) for of_learner in found} == {len(alone)}
        for number, batch in enumerate(alone):
            together = torch.cat([of_learner[number] for of_learner in found])
            assert together.sort().values.tolist() == batch.sort().values.tolist()


def test_a_batch_takes_its_share_of_every_shard() -> None:
    counts = [640, 320, 40, 0]
    shard = np.repeat(np.arange(4), counts)
    [alone] = shares(counts, 1, size=100)
    taken = np.array([np.bincount(shard[batch], minlength=4) for batch in alone])
    assert np.abs(taken - np.array(counts) / 10).max() <= 1


def test_no_epoch_window_or_seed_is_like_another() -> None:
    found = [shares([50] * 8, 1, **how)[0][0].tolist() for how in ({}, {"epoch": 1}, {"window": 1}, {"seed": 1})]
    assert len({tuple(sorted(each)) for each in found}) == 4
    assert shares([50] * 8, 1)[0][0].tolist() == found[0]


def test_a_share_of_the_row_groups_is_from_all_over_the_data() -> None:
    order = ReadingOrder.stored(10, 0.3)
    assert order.numbers.tolist() == [1, 5, 8] and order.windows == 1 and order.in_window(0) == 3
    window, position = order.positions_of(np.array([5, 8]))
    assert window.tolist() == [0, 0] and position.tolist() == [1, 2]
    assert ReadingOrder.stored(10).numbers.tolist() == [*range(10)]
