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

from offline_core.datasets.dataset import open_dataset
from offline_core.errors import ConfigError, LearnersLostError, NonFiniteError, StorageUnavailableError
from offline_core.learning import group
from offline_core.learning.config import TrainingConfig
from offline_core.learning.group import LoaderActor, SharedLoader
from offline_core.learning.loop import OtherLearnerError
from offline_core.learning.recorded import Recorded
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, first_state, loader_of
from offline_core.learning.state import States, TrainingState
from offline_core.learning.train import train_policy
from offline_core.policies.checkpoint import load_policy
from offline_core.runtime.config import parse
from offline_core.storage.location import Location
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


def train(dataset: str, output: Path, *, learners: int, **settings: Any) -> TrainingResult:
    compute = {"learners": learners, "cpus_per_learner": 0.5, "max_failures": settings.pop("max_failures", 3)}
    return train_policy(parse(TrainingConfig, SETTINGS | settings | {"compute": compute}), dataset=dataset, output=str(output))


BUFFER = {"capacity_steps": 450, "read_episodes": 3, "sampling": "prioritized"}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="in memory", marks=pytest.mark.slow),
        pytest.param({"resident_bytes": 0, "window_steps": 600}, id="streaming"),
        pytest.param({"buffer": BUFFER}, id="buffer", marks=pytest.mark.slow),
    ],
)
def test_two_learners_learn_what_one_learns(tmp_path: Path, dataset: str, data: dict[str, Any]) -> None:
    alone, two = (train(dataset, tmp_path / str(n), learners=n, data=data) for n in (0, 2))
    assert alone.updates == two.updates
    for result in (alone, two):
        assert re.match(r"Read and laid out [\d,]+ steps/s .*; Learned [\d,]+ steps/s", result.bottleneck)
    np.testing.assert_allclose(alone.losses, two.losses, rtol=1e-6)
    weights = [load_policy(result.last_checkpoint).state_dict() for result in (alone, two)]
    for name, tensor in weights[0].items():
        np.testing.assert_allclose(tensor, weights[1][name], atol=2e-6, err_msg=name)


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
    run, empty = (States(Location.of(str(tmp_path / name)), TrainingState, run="this") for name in ("run", "empty"))
    run.save(TrainingState(run="", updates=7), {"weights": torch.ones(2)})
    assert begun(empty, run) == ["nothing", "nothing"]
    assert begun(run, empty) == ["7 [1.0, 1.0]", "7 [1.0, 1.0]"]
    assert begun(SimpleNamespace(latest=away), run) == ["StorageUnavailableError", "OtherLearnerError"]


def test_an_object_store_is_asked_seldom_how_far_the_learners_are(
    tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "SECONDS_BETWEEN_LOOKS", 0.01)
    define = {"far": {"filesystem": "pyarrow.fs:LocalFileSystem", "path": str(tmp_path), "one_writer": True}}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps(define))
    run = replace(run_of(dataset), output=str(tmp_path))
    looks = {uri: threading.Semaphore(0) for uri in (str(tmp_path), "far://run")}
    monkeypatch.setattr(group, "last_updates", lambda folder: looks[folder.uri].release() or 0)
    near, far = looks.values()
    with group._progress(replace(run, output="far://run")), group._progress(run):
        assert near.acquire(timeout=30) and near.acquire(timeout=30)
        assert not far.acquire(blocking=False)
    assert far.acquire(blocking=False), "at the end"


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
    """It writes to a folder relative to this process, though learners have other working directories."""
    monkeypatch.chdir(tmp_path)
    interrupt = signal.getsignal(signal.SIGINT)
    settings = {"optimizer": SETTINGS["optimizer"] | {"max_epochs": 120, "updates_per_iteration": 100}}
    with killing("LearnerProcess", once=has_states(tmp_path / "killed")):
        killed = train(dataset, Path("killed"), learners=1, **settings)
    assert killed.last_checkpoint == str(tmp_path / "killed" / "last")
    assert signal.getsignal(signal.SIGINT) is interrupt
    whole = train(dataset, tmp_path / "whole", learners=0, **settings)
    assert killed.updates == whole.updates
    assert killed.losses == whole.losses


def run_of(dataset: str, *, streamed: bool = True, **settings: Any) -> Run:
    """Not opened yet; what is streamed comes in windows of 300 steps."""
    config = parse(TrainingConfig, SETTINGS | {"data": {"window_steps": 300, "prelearners": 0}} | settings)
    return Run(config, Recorded.of(open_dataset(dataset), config.data), None, None, None, "", streamed=streamed)


def test_a_feeder_gives_a_learner_that_starts_again_the_same_chunks(dataset: str) -> None:
    """Windows of a stream, asked for by two learners one apart, then anew from the start and from the middle."""
    run = run_of(dataset)

    def read(feeder: LoaderActor, *asked: tuple[int, int]) -> list[Any]:
        found = [feeder.window(*place) for place in asked]
        return [None if one is None else ray.get(one.steps)["obs"].tobytes() for one in found]

    whole = [steps.columns["obs"].numpy().tobytes() for epoch in (0, 1) for steps in loader_of(run).windows(epoch)]
    count = len(whole) // 2
    assert count > 3
    feeder = LoaderActor(run)
    places = [(epoch, number) for epoch in (0, 1) for number in range(count)]
    apart = [place for pair in zip(places, [places[0], *places], strict=False) for place in pair]
    assert read(feeder, *apart) == [whole[places.index(place)] for place in apart]
    assert read(feeder, (1, count), (0, count)) == [None, None]
    assert read(feeder, *places[:3]) == whole[:3], "anew from the start"
    assert read(feeder, *places[:2]) == whole[:2], "and again"
    assert read(LoaderActor(run), (1, 2), (1, 3)) == whole[count + 2 : count + 4], "from the middle"


def test_a_feeder_that_failed_does_not_say_that_the_epoch_is_over(dataset: str) -> None:
    """Learners that start again ask for the window that was not there."""
    run = run_of(dataset)
    feeder = LoaderActor(run)
    feeder._loader = loader = loader_of(run)
    whole, away = loader.windows, [True]

    def failing(epoch: int, first: int = 0) -> Iterator[Any]:
        for number, steps in enumerate(whole(epoch, first), first):
            if number == 2 and away[0]:
                raise RuntimeError("the disk is away")
            yield steps

    loader.windows = failing  # type: ignore[method-assign]
    assert feeder.window(0, 0) and feeder.window(0, 1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the disk is away"):
            feeder.window(0, 2)
        assert feeder.window(0, 1), "from where a learner would go on"
    away[0] = False
    assert feeder.window(0, 2)


@pytest.mark.parametrize("streamed", [False, True])
def test_learners_know_how_fast_their_feeder_reads(dataset: str, streamed: bool) -> None:
    feeder = LoaderActor(run_of(dataset, streamed=streamed))
    actor = SimpleNamespace(window=SimpleNamespace(remote=lambda *place: ray.put(feeder.window(*place))))
    loader = SharedLoader(actor, "window")
    assert sum(map(len, loader.windows(0))) == 2_000
    assert loader.resident == (not streamed)
    assert loader.read.steps == 2_000 and loader.read.bytes > 2_000 * 4 * 4 and loader.read.seconds > 0


def test_bad_data_in_the_middle_of_a_stream_ends_all_learners(tmp_path: Path) -> None:
    nan = balancing_episodes(1)[0].observations.copy()
    nan[7] = np.nan
    episodes = [*balancing_episodes(12), *broken(observations=nan)[-1:]]
    data = dataset_of(tmp_path / "data", episodes, environment=None, rows=1)
    with pytest.raises(NonFiniteError, match=r"Column obs is NaN or infinite"):
        train(data, tmp_path / "out", learners=2, data={"resident_bytes": 0, "window_steps": 100})


def test_too_many_deaths_end_the_run(tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That a real one leaves its state, and that learners start again, is shown by the slow test of a learner that dies."""
    attempts: list[Any] = []

    class Reads:
        def __init__(self, run: Run) -> None: ...

        def window(self, epoch: int, number: int) -> None: ...

    def lost(*_: Any, **__: Any) -> None:
        attempts.append(None)
        raise ray.exceptions.RayActorError if len(attempts) < 3 else TimeoutError("not placed")

    monkeypatch.setattr(group, "LoaderActor", Reads)
    monkeypatch.setattr(group, "_learned", lost)
    run = run_of(dataset, compute={"learners": 1, "cpus_per_learner": 0.5, "max_failures": 2})
    with pytest.raises(LearnersLostError, match=r"more than 2 times; the last time: not placed.*resume from") as raised:
        group.learn_together(replace(run, output=str(tmp_path)), start=0.0)
    assert raised.value.may_pass and len(attempts) == 3


@pytest.mark.parametrize("own", [NonFiniteError, ray.exceptions.RayActorError])
def test_the_error_of_a_learner_itself_is_raised(monkeypatch: pytest.MonkeyPatch, own: type[Exception]) -> None:
    """And not that of another one, which stopped for its sake and ended before it."""
    errors = {"first": OtherLearnerError(), "second": OtherLearnerError(), "third": own()}

    def fetch(learned: str) -> None:
        raise errors[learned]

    monkeypatch.setattr(group, "fetch", fetch)
    monkeypatch.setattr(ray, "wait", lambda learned: (learned[:1], learned[1:]))
    with pytest.raises(own):
        group._awaited([*errors])
    with pytest.raises(OtherLearnerError):
        group._awaited(["first", "second"])


def test_learners_that_could_never_start_are_refused(tmp_path: Path, dataset: str) -> None:
    with pytest.raises(ConfigError, match=r"1000 learners want 500 CPUs, but Ray has \d+: they would never start"):
        train(dataset, tmp_path / "out", learners=1000)


@pytest.mark.slow
def test_a_prelearner_that_dies_is_started_again_and_nothing_changes(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "data", balancing_episodes(150, 20), rows=1, environment=None)  # it takes a while
    data = {"resident_bytes": 0, "window_steps": 600, "prelearners": 1, "cpus_per_prelearner": 0.5}
    optimizer = SETTINGS["optimizer"] | {"max_epochs": 1}
    with killing("MapWorker", once=lambda: True):
        killed = train(dataset, tmp_path / "killed", learners=0, data=data, optimizer=optimizer)
    whole = train(dataset, tmp_path / "whole", learners=0, data=data | {"prelearners": 0}, optimizer=optimizer)
    assert killed.losses == whole.losses
