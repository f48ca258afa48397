"""Every step exactly once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from offline_core.errors import EmptyDatasetError
from offline_core.learning.feed import ResidentFeed, StreamingFeed

pytestmark = pytest.mark.usefixtures("ray_up")

STEPS = 1_003


@pytest.fixture(scope="module")
def mapped(ray_up: None):
    import ray.data

    data = ray.data.from_numpy([np.arange(start, min(start + 300, STEPS)) for start in range(0, STEPS, 300)])
    return data.rename_columns({"data": "obs"})


def feed(mapped, kind: str, *, seed: int = 0):
    if kind == "resident":
        return ResidentFeed(mapped, batch_size=64, seed=seed, expected_steps=None)
    return StreamingFeed(mapped, batch_size=64, seed=seed, window_steps=256)


def order(feed, epoch: int) -> torch.Tensor:
    return torch.cat([batch["obs"] for batch in feed.batches(epoch)])


@pytest.mark.parametrize("kind", ["resident", "streaming"])
def test_each_step_once_an_epoch_and_no_epoch_like_another(mapped, kind: str) -> None:
    one = feed(mapped, kind)
    epochs = [order(one, epoch) for epoch in range(2)]
    for seen in epochs:
        assert sorted(seen.tolist()) == list(range(STEPS))
    assert not torch.equal(*epochs)
    assert not torch.equal(epochs[0], torch.arange(STEPS))
    sizes = [len(batch["obs"]) for batch in one.batches(0)]
    assert sizes == [64] * 15 + [STEPS - 15 * 64]
    assert one.steps == STEPS


@pytest.mark.parametrize("kind", ["resident", "streaming"])
def test_order_depends_on_seed_and_epoch_alone(mapped, kind: str) -> None:
    assert torch.equal(order(feed(mapped, kind), 3), order(feed(mapped, kind), 3))
    assert not torch.equal(order(feed(mapped, kind), 3), order(feed(mapped, kind, seed=1), 3))


def test_a_stream_shuffles_across_the_files(mapped) -> None:
    first = order(feed(mapped, "streaming"), 0)[:64]
    assert first.max() - first.min() > 128


def test_nothing_to_learn_from() -> None:
    import ray.data

    empty = ray.data.from_items([{"obs": 1.0}]).limit(0)
    with pytest.raises(EmptyDatasetError):
        ResidentFeed(empty, batch_size=4, seed=0, expected_steps=0)
    with pytest.raises(EmptyDatasetError):
        list(StreamingFeed(empty, batch_size=4, seed=0, window_steps=16).batches(0))
