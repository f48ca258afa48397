"""Runs that are killed and called again end as if nothing had happened."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from offline_core.errors import StorageError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.monitor import TrainingMonitor
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train_policy
from offline_core.policies.manifest import fingerprint_of, read_policy_manifest
from offline_core.runtime.config import parse
from tests.learning.test_train import balancing_episodes, dataset_of

SETTINGS = {
    "algorithm": "marwil",
    "network": {"hidden_sizes": [16]},
    "marwil": {"gae_lambda": 0.9},
    "optimizer": {
        "batch_size": 128,
        "max_epochs": 4,
        "updates_per_iteration": 7,
        "learning_rate": 0.01,
        "schedule": "cosine",
    },
    "evaluation": {"episodes": 3, "target_return": 501, "environment": {"id": "CartPole-v1"}},
    "data": {"prelearners": 0},  # not `auto`, which measures updates: here all are counted
}
FORKS = multiprocessing.get_context("forkserver")
"""Processes to be killed are forked from one that has imported everything, which takes longer than their training."""
FORKS.set_forkserver_preload([__name__])


def killed(dataset: str, output: Path | str, settings: dict[str, Any], *, at: int) -> None:
    """Train in a process of its own that kills itself before this update."""
    process = FORKS.Process(target=_train_until, args=(at, settings, dataset, str(output), dict(os.environ)))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _train_until(at: int, settings: dict[str, Any], dataset: str, output: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    update = Learner.update

    def until_killed(learner: Learner, indices: Tensor) -> bool:
        if learner.updates == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(learner, indices)

    Learner.update = until_killed  # type: ignore[method-assign]
    train_policy(parse(TrainingConfig, settings), dataset=dataset, output=output)


def killed_at_the_end(config: TrainingConfig, dataset: str, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train until all is learned, and the last policy is about to be saved."""

    def killed_there(monitor: TrainingMonitor) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrainingMonitor, "finish", killed_there)
        train_policy(config, dataset=dataset, output=str(output))


def untimed(record: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in record.items() if not name.endswith(("_seconds", "_per_second"))}


ALONE = SETTINGS | {"evaluation": {}}
"""Nobody plays, so no Ray is started."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes(), rows=5, environment=None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, dataset: str) -> TrainingResult:
    """Of the same run, unbroken."""
    return train_policy(parse(TrainingConfig, ALONE), dataset=dataset, output=str(tmp_path_factory.mktemp("whole")))


BUFFER = {"capacity_steps": 450, "read_episodes": 3, "batches_per_read": 2, "sampling": "prioritized"}
BY_EPOCH = ALONE | {"optimizer": SETTINGS["optimizer"] | {"updates_per_iteration": None}}
"""Its states are of the end of an epoch, where no targets are kept for the next one."""
CASES = {
    "played": SETTINGS,
    "streamed": ALONE | {"data": {"prelearners": 0, "resident_bytes": 0, "window_steps": 600}},
    "buffer": ALONE | {"data": {"prelearners": 0, "buffer": BUFFER}},
    "by epoch": BY_EPOCH,
    "buffer by epoch": BY_EPOCH | {"data": {"prelearners": 0, "buffer": BUFFER}},
}


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow if "epoch" in case else ()) for case in CASES])
def test_a_run_that_is_killed_twice_ends_with_the_same_bits(tmp_path: Path, dataset: str, case: str) -> None:
    settings = CASES[case]
    config = parse(TrainingConfig, settings)
    whole = train_policy(config, dataset=dataset, output=str(tmp_path / "whole"))
    for at in (24, 51):  # of 64 (of a buffer 56), between the states after 21 and 28, and after 49 and 56
        killed(dataset, tmp_path / "killed", settings, at=at)
    again = train_policy(config, dataset=dataset, output=str(tmp_path / "killed"))
    assert again.updates == whole.updates
    assert again.losses == whole.losses
    assert again.curve == whole.curve
    for name in ("best", "last"):
        one, other = (read_policy_manifest(str(tmp_path / run / name)) for run in ("whole", "killed"))
        assert one.weights_sha256 == other.weights_sha256
        assert one.metrics == other.metrics
    records = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("whole", "killed")]
    one, other = ([untimed(json.loads(line)) for line in lines] for lines in records)
    assert one == other
    assert not (tmp_path / "killed" / "checkpoints").exists(), "nothing is left to go on from"


def test_a_run_that_was_killed_when_all_was_learned_only_has_to_finish(
    tmp_path: Path, dataset: str, whole: TrainingResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(TrainingConfig, ALONE)
    killed_at_the_end(config, dataset, tmp_path, monkeypatch)
    again = train_policy(config, dataset=dataset, output=str(tmp_path))
    assert again.losses == whole.losses
    one, other = (read_policy_manifest(result.last_checkpoint) for result in (again, whole))
    assert one.weights_sha256 == other.weights_sha256


def test_patience_is_over_in_a_run_that_goes_on_too(tmp_path: Path, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The held-out loss rises from the start, for the step size is absurd; the run is killed as it ends."""
    optimizer = ALONE["optimizer"] | {"learning_rate": 3.0, "max_epochs": 8, "schedule": "constant"}
    evaluation = {"held_out": dataset, "patience": 2}
    config = parse(TrainingConfig, ALONE | {"algorithm": "bc", "optimizer": optimizer, "evaluation": evaluation})
    whole = train_policy(config, dataset=dataset, output=str(tmp_path / "whole"))
    assert whole.updates < 8 * 16
    killed_at_the_end(config, dataset, tmp_path / "killed", monkeypatch)
    again = train_policy(config, dataset=dataset, output=str(tmp_path / "killed"))
    assert (again.updates, again.held_out_losses, again.metrics) == (whole.updates, whole.held_out_losses, whole.metrics)


def test_a_run_goes_on_as_it_began_though_memory_has_become_short(tmp_path: Path, dataset: str, whole: TrainingResult) -> None:
    killed(dataset, tmp_path / "run", ALONE, at=30)
    short = parse(TrainingConfig, ALONE | {"data": {"prelearners": 0, "resident_bytes": 0}})
    again = train_policy(short, dataset=dataset, output=str(tmp_path / "run"))
    assert again.losses == whole.losses


def test_what_is_done_is_found_though_memory_has_become_short(
    tmp_path: Path, dataset: str, whole: TrainingResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(TrainingConfig, ALONE)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=30_000))
    again = train_policy(config, dataset=dataset, output=str(Path(whole.last_checkpoint).parent))
    assert again.reused and again.losses == whole.losses
    anew = train_policy(config, dataset=dataset, output=str(tmp_path / "anew"))
    ways = [read_policy_manifest(result.checkpoint).operation.config["streamed"] for result in (again, anew)]
    assert ways == [False, True], "or else this test would show nothing"


def test_another_run_does_not_go_on_with_the_states_of_this_one(tmp_path: Path, dataset: str) -> None:
    killed(dataset, tmp_path / "run", ALONE, at=10)
    config = parse(TrainingConfig, ALONE | {"seed": 1})
    again = train_policy(config, dataset=dataset, output=str(tmp_path / "run"))
    fresh = train_policy(config, dataset=dataset, output=str(tmp_path / "fresh"))
    assert again.losses == fresh.losses


def test_a_damaged_state_is_passed_over(tmp_path: Path, dataset: str, whole: TrainingResult) -> None:
    killed(dataset, tmp_path / "run", ALONE, at=30)
    states = sorted((tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    assert len(states) == 2
    states[-1].write_bytes(states[-1].read_bytes()[:-8])
    again = train_policy(parse(TrainingConfig, ALONE), dataset=dataset, output=str(tmp_path / "run"))
    assert again.losses == whole.losses


@pytest.mark.parametrize("algorithm", ["dqn", "iql"])
def test_networks_beside_the_policy_go_on_too(tmp_path: Path, dataset: str, algorithm: str) -> None:
    """Target networks, and when they are next brought up to date."""
    settings = ALONE | {"algorithm": algorithm, "dqn": {"target_network_interval_updates": 9}}
    killed(dataset, tmp_path / "run", settings, at=33)
    again = train_policy(parse(TrainingConfig, settings), dataset=dataset, output=str(tmp_path / "run"))
    whole = train_policy(parse(TrainingConfig, settings), dataset=dataset, output=str(tmp_path / "whole"))
    assert again.losses == whole.losses
    one, other = (read_policy_manifest(str(tmp_path / run / "last")) for run in ("run", "whole"))
    assert one.weights_sha256 == other.weights_sha256


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_a_place_that_goes_away_in_mid_run_is_named_and_the_run_goes_on_when_it_is_back(tmp_path: Path, dataset: str) -> None:
    """As a mount does that is lost: what was there is out of reach, and nothing can be written."""
    config = parse(TrainingConfig, ALONE | {"optimizer": ALONE["optimizer"] | {"max_epochs": 60}})
    output, away = tmp_path / "out", tmp_path / "away"

    def take_away() -> None:
        while not list(output.glob("checkpoints/*.json")):
            time.sleep(0.001)
        output.rename(away)
        output.write_text("no folder")

    taker = threading.Thread(target=take_away)
    taker.start()
    with pytest.raises(StorageError, match=rf"Cannot (write|delete|list|look at) {output}"):
        train_policy(config, dataset=dataset, output=str(output))
    taker.join()
    output.unlink()
    away.rename(output)
    resumed = train_policy(config, dataset=dataset, output=str(output))
    whole = train_policy(config, dataset=dataset, output=str(tmp_path / "whole"))
    assert not resumed.reused and fingerprint_of(resumed.last_checkpoint) == fingerprint_of(whole.last_checkpoint)
