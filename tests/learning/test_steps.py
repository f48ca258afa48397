"""Batches by row numbers: what follows, stacked frames, sequences; against a slow and obvious program."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from offline_core.learning.steps import MASK, BatchSpec, Steps
from tests.learning.making import batch_of

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def made(lengths: list[int], *, needs_next_obs: bool = True) -> Steps:
    return Steps.of(batch_of(lengths, needs_next_obs=needs_next_obs))


def numbers(column: torch.Tensor) -> list:
    return column.squeeze(-1).int().tolist()


@given(LENGTHS, st.booleans())
def test_the_rows_of_steps(lengths: list[int], needs_next_obs: bool) -> None:
    steps = made(lengths, needs_next_obs=needs_next_obs)
    expected, row = [], 0
    for length in lengths:
        expected += range(row, row + length)
        row += length + needs_next_obs
    assert steps.rows.tolist() == expected
    assert len(steps) == sum(lengths)


def test_what_follows_is_the_next_row_even_after_the_last_step() -> None:
    steps = made([2, 1])
    batch = steps.batch(steps.rows, BatchSpec(("obs", "new_obs", "actions")))
    assert numbers(batch["obs"]) == [0, 1, 3]
    assert numbers(batch["new_obs"]) == [1, 2, 4]
    assert batch["actions"].tolist() == [0, 1, 3]
    steps.ahead = torch.tensor([2, 1, 0, 1, 0])
    assert numbers(steps.batch(steps.rows, BatchSpec(("new_obs",)))["new_obs"]) == [2, 2, 4]


def test_frames_begin_with_the_first_observation_again() -> None:
    steps = made([3, 2])
    batch = steps.batch(steps.rows, BatchSpec(("obs", "new_obs"), frames=3))
    assert numbers(batch["obs"]) == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [4, 4, 4], [4, 4, 5]]
    assert numbers(batch["new_obs"])[2:4] == [[1, 2, 3], [4, 4, 5]]


@given(LENGTHS, st.integers(1, 5), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_sequences_count_every_step_once_and_warm_up_on_what_came_before(
    lengths: list[int], length: int, phase: int, burn_in: int, needs_next_obs: bool
) -> None:
    steps = made(lengths, needs_next_obs=needs_next_obs)
    reading = BatchSpec(("obs", "actions"), sequence_steps=length, burn_in_steps=burn_in, phase=phase % length)
    indices = steps.indices(reading)
    batch = steps.batch(indices, reading)
    assert batch["obs"].shape[:2] == batch[MASK].shape == (len(indices), length + burn_in)
    counted = batch["actions"][batch[MASK]].tolist()
    assert sorted(counted) == steps.rows.tolist()
    assert steps.count(indices, reading) == len(steps)
    for unit, rows, mask in zip(indices.tolist(), batch["actions"].tolist(), batch[MASK].tolist(), strict=True):
        first = int(steps.first[steps.episode[unit]])
        before = rows[: mask.index(True)]
        assert before == list(range(max(first, unit - burn_in), unit)), "as much as there is, and all of it"


def test_the_first_sequence_of_each_episode_is_shorter_by_the_phase() -> None:
    steps, reading = made([7, 2]), BatchSpec(("actions",), sequence_steps=3, phase=1)
    indices = steps.indices(reading)
    assert indices.tolist() == [0, 2, 5, 8]
    batch = steps.batch(indices, reading)
    assert [rows[mask].tolist() for rows, mask in zip(batch["actions"], batch[MASK], strict=True)] == [
        [0, 1],
        [2, 3, 4],
        [5, 6],
        [8, 9],
    ]


def test_steps_are_counted_for_many_batches_at_once() -> None:
    steps = made([7, 2])
    sequences = BatchSpec(("actions",), sequence_steps=3, phase=1)
    indices = steps.indices(sequences)
    assert steps.counts([indices[:2], indices[2:]], sequences).tolist() == [2 + 3, 2 + 2]
    assert steps.counts([steps.rows[:4], steps.rows[4:]], BatchSpec(("actions",))).tolist() == [4, 5]
    assert steps.counts([], sequences).tolist() == []
