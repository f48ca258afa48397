"""Batches out of what a buffer holds: uniform or by error, with and without replacement, functions of their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from offline_core.errors import DataError
from offline_core.learning.config import ReplayBufferConfig
from offline_core.learning.replay_buffer import ReplaySampler
from offline_core.learning.steps import NUMBER, Steps
from offline_core.runtime.config import parse
from tests.learning.making import steps_of


def held(first: int = 0, rows: int = 100) -> Steps:
    """One episode of `rows` steps, whose rows came into the buffer as number `first` and on."""
    return steps_of({"obs": np.zeros((rows, 1), np.float32), NUMBER: np.arange(first, first + rows)})


def sampler(steps: Steps, *, replacement: bool = False, seed: int = 0, **config: Any) -> ReplaySampler:
    made = ReplaySampler(parse(ReplayBufferConfig, {"batches_per_read": 20} | config), seed=seed, replacement=replacement)
    made.load(steps)
    return made


def drawn(made: ReplaySampler, steps: Steps, *, size: int = 40, window: int = 0, first: int = 0) -> list[list[int]]:
    return [indices.tolist() for _, indices in made.batches(steps.rows, size, epoch=0, window=window, first=first)]


@pytest.mark.parametrize("sampling", ["uniform", "prioritized"])
@pytest.mark.parametrize("replacement", [False, True])
def test_a_batch_holds_a_step_twice_with_replacement_alone(sampling: str, replacement: bool) -> None:
    steps = held()
    found = drawn(sampler(steps, sampling=sampling, replacement=replacement), steps)
    assert len(found) == 20 and all(len(batch) == 40 for batch in found)
    assert any(len(set(batch)) < 40 for batch in found) is replacement
    assert len({step for batch in found for step in batch}) == 100
    more = drawn(sampler(steps, sampling=sampling, replacement=replacement), steps, size=150)
    assert {len(batch) for batch in more} == {150 if replacement else 100}


def test_a_batch_is_a_function_of_its_numbers() -> None:
    steps = held()
    found = drawn(sampler(steps), steps)
    assert drawn(sampler(steps), steps, first=7) == found[7:]
    assert drawn(sampler(steps), steps, window=1) != found != drawn(sampler(steps, seed=1), steps)


@pytest.mark.parametrize("replacement", [False, True])
def test_steps_with_large_errors_are_drawn_more_often_and_weigh_less(replacement: bool) -> None:
    """Ten steps have 100 times the error of the others; to the power of a half they are ten times as likely."""
    steps = held()
    made = sampler(
        steps,
        sampling="prioritized",
        replacement=replacement,
        priority_exponent=0.5,
        importance_exponent=1,
        batches_per_read=2000,
    )
    made.learned(steps.rows, torch.where(steps.rows < 10, 100.0, 1.0))
    found = np.concatenate(drawn(made, steps, size=5))
    assert (found < 10).mean() == pytest.approx(100 / 190, abs=0.03)
    importance = made.importance(steps.rows[:99])
    assert importance is not None
    np.testing.assert_allclose(importance, np.where(np.arange(99) < 10, 0.1, 1.0), rtol=1e-4)
    assert sampler(steps).importance(steps.rows) is None


def test_steps_that_are_all_drawn_weigh_alike() -> None:
    steps = held()
    for replacement in (False, True):
        made = sampler(steps, sampling="prioritized", replacement=replacement)
        made.learned(steps.rows, steps.rows + 1.0)
        assert (made.importance(steps.rows) is None) is not replacement, "with replacement they are 100 draws"


def test_errors_move_with_their_steps_and_new_ones_have_the_largest() -> None:
    made = sampler(held(), sampling="prioritized", priority_exponent=1)
    made.learned(torch.arange(100), torch.arange(100) + 1.0)
    made.load(held(first=60))  # the first 60 rows have left, 60 have come
    assert made.state()["replay.errors"].tolist() == pytest.approx([*range(61, 101), *[100.0] * 60])


def test_a_run_goes_on_with_the_errors_it_had() -> None:
    steps = held()
    made = sampler(steps, sampling="prioritized")
    made.learned(steps.rows, steps.rows + 1.0)
    after = sampler(held(), sampling="prioritized")
    after.restore(made.state())
    after.load(held())
    assert drawn(after, steps) == drawn(made, steps)
    following = held(first=50, rows=120)
    for each in (made, after):
        each.load(following)
    assert drawn(after, following) == drawn(made, following)


def test_a_run_goes_on_with_a_longer_chunk_than_the_one_it_ended_with() -> None:
    made = sampler(held(), sampling="prioritized")
    made.learned(torch.arange(100), torch.arange(100) + 1.0)
    after = sampler(held(), sampling="prioritized")
    after.restore(made.state())
    following = held(first=30, rows=150)
    for each in (made, after):
        each.load(following)
    assert after.state()["replay.errors"].tolist() == made.state()["replay.errors"].tolist()


@pytest.mark.parametrize(
    ("name", "message"), [("Raises", "Raises failed in draw, from 100 .*no idea"), ("DrawsBeyond", "numbers from 0 to 99")]
)
def test_a_class_of_ones_own_that_fails_is_named(name: str, message: str) -> None:
    steps = held()
    with pytest.raises(DataError, match=message):
        drawn(sampler(steps, buffer_class={"path": f"tests.learning.replay.own:{name}"}), steps)
