"""Several learners: the same batches as one, the same policy; a lost one is started again."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import ray
import torch

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.store.json_files import line_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, LearnersLostError, NonFiniteError, StorageUnavailableError
from offline_core.learning import group, learner
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import loader_of
from offline_core.learning.learner import Learner
from offline_core.learning.metrics import MetricsTail
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run
from offline_core.learning.source import Recorded
from offline_core.learning.state import States, TrainingState
from offline_core.learning.train import train
from offline_core.learning.trainer import OtherLearnerError, first_state
from offline_core.policies.checkpoint import load_policy
from offline_core.runtime.config import parse
from offline_core.runtime.progress import progress
from tests.learning.test_resume import interrupted
from tests.learning.test_train import balancing_episodes, broken, dataset_of

pytestmark = pytest.mark.usefixtures("ray_up")

SETTINGS: dict[str, Any] = {
    "algorithm": "marwil",
    "network": {"hidden_sizes": [16]},
    "optimizer": {
        "batch_size": 129,
        "max_epochs": 2,
        "updates_per_iteration": 10,
        "learning_rate": 0.01,
        "max_gradient_norm": 5.0,
    },
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes(), rows=5, environment=None)


def run_train(dataset: str, output: Path, *, learners: int, **settings: Any) -> TrainingResult:
    compute = {
        "learners": learners,
        "cpus_per_learner": settings.pop("cpus_per_learner", 0.5),
        "max_failures": settings.pop("max_failures", 3),
    }
    return train(parse(TrainingConfig, SETTINGS | settings | {"compute": compute}), dataset=dataset, output=str(output))


BUFFER = {"capacity_steps": 450, "read_episodes": 3, "sampling": "prioritized"}


STREAM = {"resident_bytes": 0, "window_steps": 600}
POOLS = STREAM | {"prelearners": 2, "cpus_per_prelearner": 0.2}


@pytest.mark.parametrize(
    ("learners", "data", "more"),
    [
        pytest.param(2, STREAM, {"network": {"hidden_sizes": [16], "normalize_observations": True}}, id="streaming"),
        pytest.param(3, {}, {}, id="in memory", marks=pytest.mark.slow),
        pytest.param(2, {"buffer": BUFFER}, {}, id="buffer", marks=pytest.mark.slow),
        pytest.param(3, STREAM, {"algorithm": "iql"}, id="smallest and largest values", marks=pytest.mark.slow),
        pytest.param(2, POOLS, {"cpus_per_learner": 0.2}, id="pools", marks=pytest.mark.slow),
        pytest.param(
            3,
            STREAM,
            {"network": {"hidden_sizes": [8], "recurrent": "gru"}, "sequences": {"steps": 10}},
            id="sequences",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            3, {}, {"optimizer": SETTINGS["optimizer"] | {"batch_size": 2, "max_updates": 30}}, id="few", marks=pytest.mark.slow
        ),
    ],
)
def test_several_learners_learn_what_one_learns(
    tmp_path: Path, dataset: str, learners: int, data: dict[str, Any], more: dict[str, Any]
) -> None:
    """Also where a batch has fewer steps than there are learners."""
    alone, two = (run_train(dataset, tmp_path / str(n), learners=n, data=data, **more) for n in (0, learners))
    assert alone.updates == two.updates
    for result in (alone, two):
        assert re.match(
            r"(Read|One of \d learners read) and laid out [\d,]+ steps/s .*\. Learned [\d,]+ steps/s", result.bottleneck
        )
    np.testing.assert_allclose(alone.losses, two.losses, rtol=1e-5)
    for name, value in alone.training_metrics.items():
        np.testing.assert_allclose(two.training_metrics[name], value, rtol=1e-3, atol=1e-5, err_msg=name)
    weights = [load_policy(result.last_checkpoint).state_dict() for result in (alone, two)]
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(tensor, weights[1][name], atol=2e-5, err_msg=name)


def test_learners_go_on_from_what_the_first_one_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And stop if it cannot read: the others look where there is nothing, as if their own reads had failed."""
    sent: list[Any] = []

    def broadcast(shared: list[Any], **_: Any) -> None:
        sent.extend(shared if not sent else ())
        shared[:] = sent

    def away() -> None:
        raise StorageUnavailableError("away")

    def begun(first: Any, second: Any) -> list[str]:
        sent.clear()
        found = []
        for rank, states in enumerate((first, second)):
            learner: Any = SimpleNamespace(rank=rank, world=2, device=torch.device("cpu"))
            try:
                state = first_state(states, learner)
            except (StorageUnavailableError, OtherLearnerError) as error:
                found.append(type(error).__name__)
            else:
                found.append("nothing" if state is None else f"{state[0].updates} {state[1]['weights'].tolist()}")
        return found

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", broadcast)
    run, empty = (States(Location.of(str(tmp_path / name)), run="this") for name in ("run", "empty"))
    run.save(TrainingState(updates=7), {"weights": torch.ones(2)})
    assert begun(empty, run) == ["nothing", "nothing"]
    assert begun(run, empty) == ["7 [1.0, 1.0]", "7 [1.0, 1.0]"]
    assert begun(SimpleNamespace(latest=away), run) == ["StorageUnavailableError", "OtherLearnerError"]


def test_an_object_store_is_asked_seldom_how_far_the_learners_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    define = {"far": {"filesystem": "pyarrow.fs:LocalFileSystem", "path": str(tmp_path), "one_writer": True}}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps(define))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_bytes(line_of({"updates": 7, "loss": 1.0}))
    asked: list[float] = []
    monkeypatch.setattr(ray, "wait", lambda learned, timeout: (asked.append(timeout), (learned, []))[1])
    monkeypatch.setattr(group, "fetch", str)
    for folder in (str(tmp_path / "run"), "far://run"):
        with progress(10, what="train", unit="update") as bar:
            assert group._awaited(["first", "second"], MetricsTail(Location.of(folder)), bar) == "first"
            assert bar.n == 7
    assert asked == [group.SECONDS_BETWEEN_LOOKS, group.SECONDS_BETWEEN_LOOKS_FAR]


@contextlib.contextmanager
def killing(name: str, *, once: Callable[[], bool]) -> Iterator[None]:
    """Kills the first of Ray's actors of that name as soon as it is there and `once` is true; fails if that never came."""
    ended, killed = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for child in psutil.Process().children(recursive=True) if once() else ():
                with contextlib.suppress(psutil.Error):  # it has just ended
                    if name in " ".join(child.cmdline()):
                        child.kill()
                        killed.set()
                        return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
    assert killed.is_set(), f"there was no {name} to kill"


def has_states(output: Path) -> Callable[[], bool]:
    return lambda: any((output / "checkpoints").glob("*.json"))


@pytest.mark.slow
def test_a_learner_that_dies_is_started_again_and_nothing_changes(
    tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two, at some update. They write to a folder relative to this process, though they have other working directories."""
    monkeypatch.chdir(tmp_path)
    interrupt = signal.getsignal(signal.SIGINT)
    settings = {"optimizer": SETTINGS["optimizer"] | {"max_epochs": 60, "updates_per_iteration": 50}, "data": STREAM}
    with killing("LearnerProcess", once=has_states(tmp_path / "killed")):
        killed = run_train(dataset, Path("killed"), learners=2, **settings)
    assert killed.last_checkpoint == str(tmp_path / "killed" / "last")
    assert signal.getsignal(signal.SIGINT) is interrupt
    whole = run_train(dataset, tmp_path / "whole", learners=2, **settings)
    assert killed.updates == whole.updates
    assert killed.losses == whole.losses and killed.networks_sha256 == whole.networks_sha256


@pytest.mark.slow
@pytest.mark.parametrize("data", [{}, STREAM], ids=["in memory", "streaming"])
def test_a_run_goes_on_with_another_number_of_learners(tmp_path: Path, dataset: str, data: dict[str, Any]) -> None:
    """From the middle of a window, with the same batches."""
    settings = SETTINGS | {"data": data | {"prelearners": 0}, "evaluation": {"play": False}}
    at = 17
    interrupted(dataset, tmp_path / "run", settings, at=at)
    going = run_train(dataset, tmp_path / "run", learners=2, data=settings["data"], evaluation=settings["evaluation"])
    whole = run_train(dataset, tmp_path / "whole", learners=0, data=settings["data"], evaluation=settings["evaluation"])
    assert going.updates == whole.updates, f"interrupted before update {at}"
    np.testing.assert_allclose(going.losses, whole.losses, rtol=1e-5, err_msg=f"interrupted before update {at}")


def run_of(dataset: str, *, streamed: bool = True, **settings: Any) -> Run:
    """Not opened yet; what is streamed comes in windows of 300 steps."""
    config = parse(TrainingConfig, SETTINGS | {"data": {"window_steps": 300, "prelearners": 0}} | settings)
    return Run(config, Recorded.of(open_dataset(dataset), config.data), None, None, None, "", streamed=streamed)


def batches_of(run: Run, world: int, monkeypatch: pytest.MonkeyPatch) -> list[list[list[float]]]:
    """The observations of each global batch of two epochs, as so many learners have them."""
    learners = [Learner(run.networks(), run.config, total_steps=0) for _ in range(world)]
    loaders = [loader_of(run, rank=rank, world=world) for rank in range(world)]
    found = []
    for epoch in range(2):
        for window, steps in enumerate(zip(*(loader.windows(epoch) for loader in loaders), strict=True)):
            assert len({each.shards for each in steps}) == 1
            counts = sum(torch.bincount(each.shard_of(each.rows), minlength=each.shards) for each in steps)
            monkeypatch.setattr(
                learner, "summed", lambda values, counts=counts: counts if values.shape == counts.shape else values
            )
            parts = []
            for each, mine in zip(learners, steps, strict=True):
                each._steps = mine
                parts.append([mine.columns["obs"][batch.indices] for _, batch in each.batches(epoch, window)])
            found += [sorted(torch.cat(batch).tolist()) for batch in zip(*parts, strict=True)]
    return found


@pytest.mark.parametrize("streamed", [False, True])
def test_the_batches_are_the_same_for_any_number_of_learners(
    dataset: str, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(dataset, streamed=streamed)
    alone = batches_of(run, 1, monkeypatch)
    assert sum(map(len, alone)) == 4_000 and len(alone) > 2 * 2_000 // 129
    for world in (2, 3, 4, 8):
        assert batches_of(run, world, monkeypatch) == alone


@pytest.mark.slow
def test_bad_data_in_the_middle_of_a_stream_ends_all_learners(tmp_path: Path) -> None:
    nan = balancing_episodes(1)[0].observations.copy()
    nan[7] = np.nan
    episodes = [*balancing_episodes(12), *broken(observations=nan)[-1:]]
    data = dataset_of(tmp_path / "data", episodes, environment=None, rows=1)
    with pytest.raises(NonFiniteError, match=r"Column obs is NaN or infinite"):
        run_train(data, tmp_path / "out", learners=2, data={"resident_bytes": 0, "window_steps": 100})


def test_too_many_deaths_end_the_run(tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a real one leaves its state, and that learners start again, is shown by the slow test of a learner that dies."""
    attempts: list[Any] = []

    def lost(*_: Any, **__: Any) -> None:
        attempts.append(None)
        raise ray.exceptions.RayActorError if len(attempts) < 3 else TimeoutError("not placed")

    monkeypatch.setattr(group, "_learned", lost)
    run = run_of(dataset, compute={"learners": 1, "cpus_per_learner": 0.5, "max_failures": 2})
    with pytest.raises(LearnersLostError, match=r"more than 2 times; the last time: not placed.*resume from") as raised:
        group.learn_together(replace(run, output=str(tmp_path)), None, start=0.0)
    assert raised.value.may_pass and len(attempts) == 3


@pytest.mark.parametrize("own", [NonFiniteError, ray.exceptions.RayActorError])
def test_the_error_of_a_learner_itself_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: type[Exception]) -> None:
    """And not that of another one, which stopped for its sake and ended before it."""
    errors = {"first": OtherLearnerError(), "second": OtherLearnerError(), "third": own()}

    def fetch(learned: str) -> None:
        raise errors[learned]

    monkeypatch.setattr(group, "fetch", fetch)
    monkeypatch.setattr(ray, "wait", lambda learned, timeout: (learned[:1], learned[1:]))
    tail, bar = MetricsTail(Location.of(str(tmp_path))), progress(1, what="train", unit="update")
    with bar, pytest.raises(own):
        group._awaited([*errors], tail, bar)
    with pytest.raises(OtherLearnerError):
        group._awaited(["first", "second"], tail, bar)


def test_learners_that_could_never_start_are_refused(tmp_path: Path, dataset: str) -> None:
    with pytest.raises(ConfigError, match=r"1000 learners want 500 CPUs, but Ray has \d+: they would never start"):
        run_train(dataset, tmp_path / "out", learners=1000)


@pytest.mark.slow
def test_a_prelearner_that_dies_is_started_again_and_nothing_changes(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "data", balancing_episodes(150, 20), rows=1, environment=None)  # it takes a while
    data = {"resident_bytes": 0, "window_steps": 600, "prelearners": 1, "cpus_per_prelearner": 0.5}
    optimizer = SETTINGS["optimizer"] | {"max_epochs": 1}
    with killing("MapWorker", once=lambda: True):
        killed = run_train(dataset, tmp_path / "killed", learners=0, data=data, optimizer=optimizer)
    whole = run_train(dataset, tmp_path / "whole", learners=0, data=data | {"prelearners": 0}, optimizer=optimizer)
    assert killed.losses == whole.losses
