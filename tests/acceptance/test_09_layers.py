"""Point 9: reading, prelearning and learning scale apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray.data
import torch

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning import group, source
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.config import ComputeConfig, DataConfig, TrainingConfig
from offline_core.learning.data_loader import DataLoader, loader_of
from offline_core.learning.metrics import MetricsTail
from offline_core.learning.prelearner.mapper import Mapper
from offline_core.learning.run import Run
from offline_core.learning.shards import batches
from offline_core.learning.source import Recorded
from offline_core.runtime.config import parse
from offline_core.runtime.progress import progress
from tests.acceptance.forms import TRAINING, metrics, observations, run_train, weights
from tests.cases import slow_but

pytestmark = pytest.mark.usefixtures("ray_up")


@pytest.fixture(scope="module")
def alone(recording: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What comes of it where this process does all by itself."""
    return weights(run_train(recording, tmp_path_factory.mktemp("alone"), data={"prelearners": 0}))


def run(dataset: str, *, streamed: bool = False, compute: Any = None, **data: Any) -> Run:
    config = parse(TrainingConfig, TRAINING | {"data": {"prelearners": 0} | data, "compute": compute or {}})
    data = Recorded.of(open_dataset(dataset), config.data)
    return Run(config, data, held_out=None, environment=None, target_return=None, output="", streamed=streamed)


def loader(dataset: str, *, streamed: bool, **data: Any) -> DataLoader:
    return loader_of(run(dataset, streamed=streamed, **data))


def sizes(data: DataLoader, epoch: int = 0) -> list[int]:
    return [len(steps) for steps in data.windows(epoch)]


@pytest.mark.slow
def test_09_read_tasks_and_a_pool_of_prelearners_with_options_of_ray(
    recording: str, tmp_path: Path, alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Ray is asked for; blocks are fetched `prefetch` ahead. The policy is the same, to the bit."""
    asked: dict[str, Any] = {}
    for name in ("map_batches", "iter_batches"):
        real = getattr(ray.data.Dataset, name)
        monkeypatch.setattr(ray.data.Dataset, name, lambda *a, real=real, **k: asked.update(k) or real(*a, **k))
    pool = {"prelearners": (2, 4), "cpus_per_prelearner": 0.2, "prelearner_options": {"memory_bytes": 10**6}}
    assert weights(run_train(recording, tmp_path, data=pool | {"prefetch": 3, "row_groups_per_read": 2})) == alone
    assert (asked["prefetch_batches"], asked["memory"], asked["num_cpus"]) == (3, 10**6, 0.2)
    assert (asked["compute"].min_size, asked["compute"].max_size) == (2, 4)
    options = {"resources": {"decoder": 1}, "accelerator_type": "A100"}
    assert parse(DataConfig, {"prelearner_options": options}).prelearner_options.named == options  # type: ignore[union-attr]


def test_09_prelearners_with_more_cpus_or_gpus_than_there_are_are_refused(recording: str, tmp_path: Path) -> None:
    """And not waited for."""
    with pytest.raises(ConfigError, match="4 prelearners want 512 CPUs"):
        run_train(recording, tmp_path, data={"prelearners": 4, "cpus_per_prelearner": 128})
    if not ray.cluster_resources().get("GPU"):
        with pytest.raises(ConfigError, match="1 prelearners want 1 GPUs, but Ray has 0"):
            run_train(recording, tmp_path, data={"prelearners": 1, "cpus_per_prelearner": 0.5, "gpus_per_prelearner": 1})


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
        run_train(recording, tmp_path, data={"prelearners": (4, 8), "cpus_per_prelearner": 2, "gpus_per_prelearner": 0.5})
    assert (asked["num_cpus"], asked["num_gpus"]) == (2, 0.5)
    assert (asked["compute"].min_size, asked["compute"].max_size) == (4, 8)


@pytest.mark.slow  # two learners learn what one learns in tests/learning/test_group.py
def test_09_no_learner_and_one_learn_the_same(recording: str, tmp_path: Path) -> None:
    """In this process, and in one that Ray starts; that N do together is proven in `tests/learning/test_group.py`."""
    none = run_train(recording, tmp_path / "none")
    one = run_train(recording, tmp_path / "one", compute={"learners": 1, "cpus_per_learner": 0.5})
    assert none.updates == one.updates > 4
    np.testing.assert_allclose(none.losses, one.losses, rtol=1e-5)


def test_09_learners_take_cpus_or_gpus(recording: str, tmp_path: Path) -> None:
    """What Ray is asked to reserve; where there is no GPU, a run that wants one is refused."""
    assert group._share(ComputeConfig(learners=4, cpus_per_learner=2, gpus_per_learner=1)) == {"CPU": 2, "GPU": 1}
    assert group._share(ComputeConfig(learners=4)) == {"CPU": 1}
    if not torch.cuda.is_available():
        for learners, message in ((0, "sees no GPU"), (1, "1 GPUs, but Ray has 0")):
            with pytest.raises(ConfigError, match=message):
                run_train(recording, tmp_path, compute={"learners": learners, "gpus_per_learner": 1, "cpus_per_learner": 0.5})


@pytest.mark.parametrize("placement", ["PACK", "SPREAD"])
def test_09_learners_are_placed_by_pack_or_spread(
    recording: str, tmp_path: Path, placement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Ray is asked for."""
    asked: list[Any] = []

    def placing(bundles: Any, strategy: str) -> None:
        asked.append((bundles, strategy))
        raise EnoughError

    monkeypatch.setattr(group, "placement_group", placing)
    compute = {"learners": 2, "cpus_per_learner": 0.5, "placement": placement}
    with pytest.raises(EnoughError):
        tail, bar = MetricsTail(Location.of(str(tmp_path))), progress(1, what="train", unit="update")
        group._learned(run(recording, compute=compute), None, tail, bar, start=0.0)
    assert asked == [([{"CPU": 0.5}] * 2, placement)]


def test_09_data_lies_near_its_learner(recording: str) -> None:
    """Each reads its own episodes, and holds no others."""
    whole = loader_of(run(recording))
    found = [next(iter(loader_of(run(recording), rank=rank, world=2).windows(0))).columns["obs"] for rank in range(2)]
    assert torch.equal(torch.cat(found), next(iter(whole.windows(0))).columns["obs"])
    np.testing.assert_array_equal(torch.cat(found), observations(recording))
    assert min(map(len, found)) > 0.3 * sum(map(len, found))


def test_09_every_epoch_is_shuffled_anew() -> None:
    first, again, other = (torch.cat(batches(torch.arange(100), size=10, seed=0, epoch=e, window=0)) for e in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist() != sorted(other.tolist())
    assert sorted(first.tolist()) == sorted(other.tolist()) == list(range(100))


def test_09_a_stream_is_shuffled_by_files_and_within_a_window(recording: str) -> None:
    streamed = loader(recording, streamed=True, window_steps=50)
    epochs = [torch.cat([steps.columns["obs"] for steps in streamed.windows(epoch)]) for epoch in (0, 0, 1)]
    assert torch.equal(epochs[0], epochs[1]) and not torch.equal(epochs[0], epochs[2])
    assert sorted(epochs[0].tolist()) == sorted(epochs[2].tolist()) == sorted(observations(recording).tolist())


def test_09_read_batch_size_is_in_row_groups(recording: str) -> None:
    """Of whole episodes; here a file has one. What is learned from does not depend on it."""
    files = len(open_dataset(recording).manifest.files)
    four = Recorded.of(open_dataset(recording), DataConfig(row_groups_per_read=4))
    assert len(list(four.training_columns(BC))) == -(-files // 4) < files
    windows = [sizes(loader(recording, streamed=True, window_steps=60, row_groups_per_read=each)) for each in (1, 4)]
    assert windows[0] == windows[1] and len(windows[0]) > 1


def test_09_buffer_capacity_is_a_window_of_steps(recording: str) -> None:
    """Of whole row groups: about as many steps."""
    total = open_dataset(recording).ref.steps
    for window in (1500, 3500):
        found = sizes(loader(recording, streamed=True, window_steps=window))
        assert sum(found) == total and 0.5 * window < total / len(found) < 2 * window
    assert sizes(loader(recording, streamed=True, window_steps=10**6)) == [total]


BUFFER = {"capacity_steps": 640, "read_episodes": 8}
"""RLlib's default: ten batches."""


@pytest.mark.parametrize(("sampling", "replacement"), [("uniform", True), ("prioritized", False)])
def test_09_a_replay_buffer_between_the_prelearner_and_the_learner(
    recording: str, tmp_path: Path, sampling: str, replacement: bool
) -> None:
    """A batch for each read of so many episodes, as RLlib's prelearner draws it."""
    result = run_train(
        recording,
        tmp_path,
        algorithm="marwil",
        data={"prelearners": 0, "buffer": BUFFER | {"sampling": sampling}},
        optimizer={"replacement": replacement},
    )
    reads = -(-result.dataset.episodes // 8)
    assert (result.updates, result.steps) == (2 * reads, 2 * reads * 64)


@pytest.mark.slow
def test_09_a_replay_buffer_behind_a_pool_of_prelearners(recording: str) -> None:
    """What it holds does not depend on who reads."""
    pools = [loader(recording, streamed=True, prelearners=pool, cpus_per_prelearner=0.2, buffer=BUFFER) for pool in (0, 2)]
    here, there = ([steps.columns["obs"].tolist() for steps in each.windows(0)] for each in pools)
    assert here == there and len(here) > 1


def test_09_a_buffer_class_with_its_arguments(recording: str, tmp_path: Path) -> None:
    """Which keeps one episode, the longest, and draws one step of it."""
    own = {"path": "tests.learning.replay.own:Longest", "arguments": {"episodes": 1}}
    data = {"prelearners": 0, "buffer": BUFFER | {"buffer_class": own}}
    result = run_train(recording, tmp_path, data=data)
    assert result.steps == result.updates > 1


@pytest.mark.slow
def test_09_steps_are_drawn_with_replacement_without_a_buffer(recording: str, tmp_path: Path, alone: str) -> None:
    drawn = torch.cat(batches(torch.arange(1000), size=10, seed=0, epoch=0, window=0, replacement=True))
    assert len(drawn) == 1000 and 550 < len(drawn.unique()) < 700, "1 - 1/e of them"
    result = run_train(recording, tmp_path, optimizer={"replacement": True})
    assert weights(result) != alone and result.steps == 2 * result.dataset.steps


@pytest.mark.parametrize("interval", slow_but([1, 3], 3))
def test_09_updates_per_iteration(recording: str, tmp_path: Path, interval: int) -> None:
    result = run_train(
        recording, tmp_path, optimizer={"updates_per_iteration": interval, "max_epochs": 1}, evaluation={"play": False}
    )
    reports = [record["updates"] for record in metrics(tmp_path) if "steps_per_second" in record]
    assert reports == sorted({*range(interval, result.updates + 1, interval), result.updates})


@pytest.mark.parametrize("prelearners", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("resident_bytes", "reads"), [(10**9, 1), ("rows", 1), (0, 3)], ids=["mapped", "raw", "neither"])
def test_09_raw_rows_or_mapped_rows_are_materialised_or_neither(
    recording: str, monkeypatch: pytest.MonkeyPatch, resident_bytes: Any, reads: int, prelearners: int
) -> None:
    """How often three epochs read the files, and map what they read; every step once an epoch all the same."""
    read, mapped = [], []
    table_of, ray_rows = source.prefetch_tables, source.read_with_ray
    monkeypatch.setattr(source, "prefetch_tables", lambda *a, **k: read.append(a) or table_of(*a, **k))
    monkeypatch.setattr(source, "read_with_ray", lambda *a, **k: read.append(a) or ray_rows(*a, **k))
    monkeypatch.setattr(source, "Mapper", lambda *a: mapped.append(1) or Mapper(*a))
    data = {"resident_bytes": resident_bytes, "prelearners": prelearners, "cpus_per_prelearner": 0.5, "window_steps": 100}
    found = loader(recording, streamed=resident_bytes != 10**9, **data)
    epochs = [torch.cat([steps.columns["obs"] for steps in found.windows(epoch)]).tolist() for epoch in range(3)]
    assert len(read) == reads and len(mapped) == (1 if resident_bytes == 10**9 else 3)
    assert all(sorted(epoch) == sorted(observations(recording).tolist()) for epoch in epochs)
    assert (epochs[0] == epochs[1]) is (resident_bytes == 10**9), "shuffled by files, where it is streamed"


@pytest.mark.slow
def test_09_what_is_materialised_changes_nothing_but_the_time(recording: str, tmp_path: Path, alone: str) -> None:
    def learned(**data: Any) -> str:
        return weights(run_train(recording, tmp_path / str(len(list(tmp_path.iterdir()))), data={"prelearners": 0} | data))

    assert learned(resident_bytes=10**9) == alone
    window = {"window_steps": 100}
    streamed = learned(resident_bytes=0, **window)
    assert learned(resident_bytes="rows", **window) == streamed != alone


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resources": {"decoder": 1}}, "2 prelearners want 2 decoder, but Ray has 0"),
        ({"memory_bytes": 10**15}, r"2 prelearners want 2e\+15 memory, but Ray has"),
        ({"accelerator_type": "A100"}, "2 prelearners want 0.002 accelerator_type:A100, but Ray has 0"),
    ],
    ids=["resource", "memory", "accelerator"],
)
def test_09_prelearners_on_nodes_that_are_not_there_are_refused(
    recording: str, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    """And not waited for."""
    with pytest.raises(ConfigError, match=message):
        run_train(recording, tmp_path, data={"prelearners": 2, "cpus_per_prelearner": 0.5, "prelearner_options": options})


def test_09_an_iteration_is_an_epoch_where_no_number_of_updates_is_set(recording: str, tmp_path: Path) -> None:
    """RLlib's `dataset_num_iters_per_learner=None`."""
    result = run_train(
        recording, tmp_path, optimizer={"updates_per_iteration": None, "max_epochs": 3}, evaluation={"play": False}
    )
    reports = [record["updates"] for record in metrics(tmp_path) if "steps_per_second" in record]
    assert reports == [result.updates // 3 * epoch for epoch in (1, 2, 3)]
