"""Point 9: reading, prelearning and learning scale apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray.data
import torch

from offline_core.config import parse
from offline_core.errors import ConfigError
from offline_core.learning import group
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.config import ComputeConfig, DataConfig, TrainingConfig
from offline_core.learning.feed import Feed, batches
from offline_core.learning.recorded import Recorded
from offline_core.learning.run import Run, feed_of
from offline_core.learning.source import parts_of
from offline_core.policies.checkpoint import read_policy_manifest
from offline_core.storage.dataset import open_dataset
from tests.seeds.forms import TRAINING, metrics, observations, train, weights

pytestmark = pytest.mark.usefixtures("ray_up")


@pytest.fixture(scope="module")
def alone(recording: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What comes of it where this process does all by itself."""
    return weights(train(recording, tmp_path_factory.mktemp("alone"), data={"prelearners": 0}))


def run(dataset: str, *, streamed: bool = False, **data: Any) -> Run:
    config = parse(TrainingConfig, TRAINING | {"data": {"prelearners": 0} | data})
    source = Recorded.of(open_dataset(dataset), config.data)
    return Run(config, source, held_out=None, environment=None, target_return=None, output="", streamed=streamed)


def feed(dataset: str, *, streamed: bool, **data: Any) -> Feed:
    return feed_of(run(dataset, streamed=streamed, **data))


def sizes(feed: Feed, epoch: int = 0) -> list[int]:
    return [len(steps) for steps in feed.chunks(epoch)]


def test_09_read_tasks_read_ahead_of_the_learner(recording: str, tmp_path: Path, alone: str, monkeypatch: Any) -> None:
    """And hand on what they read, `prefetch` blocks ahead."""
    asked: list[Any] = []
    iter_batches = ray.data.Dataset.iter_batches
    monkeypatch.setattr(ray.data.Dataset, "iter_batches", lambda *a, **k: asked.append(k) or iter_batches(*a, **k))
    data = {"prelearners": 1, "cpus_per_prelearner": 0.5, "prefetch": 3, "row_groups_per_read": 2}
    assert weights(train(recording, tmp_path, data=data)) == alone
    assert [each["prefetch_batches"] for each in asked] == [3]


def test_09_a_pool_of_four_prelearners_with_cpus_each(recording: str, tmp_path: Path, alone: str) -> None:
    pool = {"prelearners": 4, "cpus_per_prelearner": 0.2}
    assert weights(train(recording, tmp_path, data=pool)) == alone, "the same policy, to the bit"


def test_09_a_pool_of_four_to_eight_prelearners(recording: str, tmp_path: Path, alone: str) -> None:
    pool = {"prelearners": (4, 8), "cpus_per_prelearner": 0.1}
    assert weights(train(recording, tmp_path, data=pool)) == alone


def test_09_prelearners_with_more_cpus_or_gpus_than_there_are_are_refused(recording: str, tmp_path: Path) -> None:
    """And not waited for."""
    with pytest.raises(ConfigError, match="4 prelearners want 512 CPUs"):
        train(recording, tmp_path, data={"prelearners": 4, "cpus_per_prelearner": 128})
    if not ray.cluster_resources().get("GPU"):
        with pytest.raises(ConfigError, match="1 prelearners want 1 GPUs, but Ray has 0"):
            train(recording, tmp_path, data={"prelearners": 1, "cpus_per_prelearner": 0.5, "gpus_per_prelearner": 1})


class EnoughError(Exception):
    """All that there is to see was seen."""


def test_09_prelearners_take_cpus_and_gpus_each(recording: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a larger Ray would be asked to reserve for each."""
    asked: dict[str, Any] = {}
    map_batches = ray.data.Dataset.map_batches

    def watched(rows: Any, *arguments: Any, **given: Any) -> Any:
        if "compute" not in given:
            return map_batches(rows, *arguments, **given)
        asked.update(given)
        raise EnoughError

    monkeypatch.setattr(ray.data.Dataset, "map_batches", watched)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 100.0, "GPU": 8.0})
    with pytest.raises(EnoughError):
        train(recording, tmp_path, data={"prelearners": (4, 8), "cpus_per_prelearner": 2, "gpus_per_prelearner": 0.5})
    assert (asked["num_cpus"], asked["num_gpus"]) == (2, 0.5)
    assert (asked["compute"].min_size, asked["compute"].max_size) == (4, 8)


def test_09_no_learner_and_one_learn_the_same(recording: str, tmp_path: Path) -> None:
    """In this process, and in one that Ray starts; that N do, by DDP, is proven elsewhere, see `test_documented_forms`."""
    none = train(recording, tmp_path / "none")
    one = train(recording, tmp_path / "one", compute={"learners": 1, "cpus_per_learner": 0.5})
    assert none.updates == one.updates > 4
    np.testing.assert_allclose(none.losses, one.losses, rtol=1e-5)


def test_09_learners_take_cpus_or_gpus(recording: str, tmp_path: Path) -> None:
    """What Ray is asked to reserve; where there is no GPU, a run that wants one is refused."""
    scaling = group._scaling(ComputeConfig(learners=4, cpus_per_learner=2, gpus_per_learner=1))
    assert (scaling.num_workers, scaling.use_gpu, scaling.resources_per_worker) == (4, True, {"CPU": 2, "GPU": 1})
    assert group._scaling(ComputeConfig(learners=4)).resources_per_worker == {"CPU": 1}
    if not torch.cuda.is_available():
        for learners, message in ((0, "sees no GPU"), (1, "1 GPUs, but Ray has 0")):
            with pytest.raises(ConfigError, match=message):
                train(recording, tmp_path, compute={"learners": learners, "gpus_per_learner": 1, "cpus_per_learner": 0.5})


@pytest.mark.parametrize("placement", ["PACK", "SPREAD"])
def test_09_learners_are_placed_by_pack_or_spread(placement: Any) -> None:
    assert group._scaling(ComputeConfig(learners=2, placement=placement)).placement_strategy == placement


def test_09_data_lies_near_its_learner(recording: str) -> None:
    """Read once, put once into the object store, and mapped from there by each learner, not copied to it."""
    feeder = group.Feeder(run(recording))
    first, second = (feeder.chunk(epoch, 0) for epoch in (0, 1))
    assert first is not None and second is not None and first.steps == second.steps
    arrays = ray.get(first.steps)
    assert not any(array.flags.owndata or array.flags.writeable for array in arrays.values())
    np.testing.assert_array_equal(arrays["obs"], observations(recording))


def test_09_every_epoch_is_shuffled_anew() -> None:
    first, again, other = (
        torch.cat(batches(torch.arange(100), 10, seed=0, epoch=e, chunk=0, replacement=False)) for e in (0, 0, 1)
    )
    assert first.tolist() == again.tolist() != other.tolist() != sorted(other.tolist())
    assert sorted(first.tolist()) == sorted(other.tolist()) == list(range(100))


def test_09_a_stream_is_shuffled_by_files_and_within_a_window(recording: str) -> None:
    streamed = feed(recording, streamed=True, window_steps=50)
    epochs = [torch.cat([steps.columns["obs"] for steps in streamed.chunks(epoch)]) for epoch in (0, 0, 1)]
    assert torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[0], epochs[2])
    assert sorted(epochs[0].tolist()) == sorted(epochs[2].tolist()) == sorted(observations(recording).tolist())


def test_09_read_batch_size_is_in_row_groups(recording: str) -> None:
    """Of whole episodes; here a file has one. What is learned from does not depend on it."""
    files = len(open_dataset(recording).manifest.files)
    source = Recorded.of(open_dataset(recording), DataConfig(row_groups_per_read=4))
    assert len(list(parts_of(source, BC))) == -(-files // 4) < files
    windows = [sizes(feed(recording, streamed=True, window_steps=60, row_groups_per_read=each)) for each in (1, 4)]
    assert windows[0] == windows[1] and len(windows[0]) > 1


def test_09_buffer_capacity_is_a_window_of_steps(recording: str) -> None:
    total = open_dataset(recording).ref.steps
    for window in (60, 150):
        *full, last = sizes(feed(recording, streamed=True, window_steps=window))
        assert sum(full) + last == total and full and min(full) >= window
    assert sizes(feed(recording, streamed=True, window_steps=10**6)) == [total]


def test_09_a_replay_buffer_is_drawing_with_replacement(recording: str, tmp_path: Path, alone: str) -> None:
    """There is no buffer class to replace, but a switch: batches as such a buffer would give them."""
    drawn = torch.cat(batches(torch.arange(1000), 10, seed=0, epoch=0, chunk=0, replacement=True))
    assert len(drawn) == 1000 and 550 < len(drawn.unique()) < 700, "1 - 1/e of them"
    result = train(recording, tmp_path, optimizer={"replacement": True})
    assert weights(result) != alone and result.steps == 2 * result.dataset.steps


@pytest.mark.parametrize("interval", [1, 3])
def test_09_updates_per_iteration(recording: str, tmp_path: Path, interval: int) -> None:
    result = train(
        recording, tmp_path, optimizer={"updates_per_iteration": interval, "max_epochs": 1}, evaluation={"episodes": 1}
    )
    reports = [record["updates"] for record in metrics(tmp_path) if "loss" in record]
    assert reports == sorted({*range(interval, result.updates + 1, interval), result.updates})


def test_09_mapped_data_is_materialised_or_streamed(recording: str, tmp_path: Path) -> None:
    """There is no keeping of raw rows beside it: mapped steps stay in memory, all of them, or nothing does."""
    resident = feed(recording, streamed=False)
    assert resident.resident and sizes(resident, 0) == sizes(resident, 1) == [open_dataset(recording).ref.steps]
    for data in ({}, {"resident_bytes": 0, "window_steps": 100}):
        result = train(recording, tmp_path / str(len(data)), data=data)
        assert read_policy_manifest(result.checkpoint).operation.config["streamed"] is bool(data)
        assert result.steps == 2 * result.dataset.steps, "every step once an epoch all the same"
