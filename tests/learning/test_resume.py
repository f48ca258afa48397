"""Runs that end half-way and are called again end as if nothing had happened."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.errors import StorageError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Batched, Learner
from offline_core.learning.monitor import TrainingMonitor
from offline_core.learning.result import TrainingResult
from offline_core.learning.state import States
from offline_core.learning.train import train
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.cases import slow_but
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


def killed(dataset: str, output: Path, settings: dict[str, Any], *, at: int) -> None:
    """Train in a process of its own that kills itself before this update."""
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(dataset, output, settings, at))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def _killed(dataset: str, output: Path, settings: dict[str, Any], at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _train_until(patch, at, lambda: os.kill(os.getpid(), signal.SIGKILL))
        run_train(dataset, output, settings)


def interrupted(dataset: str, output: Path, settings: dict[str, Any], *, at: int | None = None) -> None:
    """Train in this process until before this update; None: until all is learned, and the last policy is about to be saved.

    On a disk all that a killed run had written is what an interrupted one has.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if at is None:
            patch.setattr(TrainingMonitor, "finish", interrupt)
        else:
            _train_until(patch, at, interrupt)
        run_train(dataset, output, settings)


def _train_until(patch: pytest.MonkeyPatch, at: int, end: Callable[[], None]) -> None:
    update = Learner.update

    def until(learner: Learner, indices: Tensor, of: Batched) -> bool:
        if learner.updates == at:
            end()
        return update(learner, indices, of)

    patch.setattr(Learner, "update", until)


def run_train(dataset: str, output: Path, settings: dict[str, Any]) -> TrainingResult:
    return train(parse(TrainingConfig, settings), dataset=dataset, output=str(output))


def digest(result: TrainingResult) -> str:
    return read_policy_manifest(result.last_checkpoint).weights_sha256


def untimed(record: dict[str, float]) -> dict[str, float]:
    """Without times, and without the checksum, which is of these too."""
    return {name: value for name, value in record.items() if not name.endswith(("_seconds", "_per_second", "checksum"))}


ALONE = SETTINGS | {"evaluation": {}}
"""Nobody plays."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes(), rows=5, environment=None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, dataset: str) -> TrainingResult:
    """Of the same run, unbroken."""
    return run_train(dataset, tmp_path_factory.mktemp("whole"), ALONE)


BUFFER = {"capacity_steps": 450, "read_episodes": 3, "batches_per_read": 2, "sampling": "prioritized"}
BY_EPOCH = ALONE | {"optimizer": SETTINGS["optimizer"] | {"updates_per_iteration": None}}
"""Its states are of the end of an epoch, where no targets are kept for the next one."""
CASES = {
    "played": SETTINGS,
    "streamed": ALONE | {"data": {"prelearners": 0, "resident_bytes": 0, "window_steps": 600}},
    "buffer": ALONE | {"data": {"prelearners": 0, "buffer": BUFFER}},
    "by epoch": BY_EPOCH,
    "buffer by epoch": BY_EPOCH | {"data": {"prelearners": 0, "buffer": BUFFER}},
    "target network": ALONE | {"algorithm": "dqn", "dqn": {"target_network_interval_updates": 9}},
    "critics": ALONE | {"algorithm": "iql"},
    "sequences": ALONE | {"algorithm": "dt", "dt": {"layers": 1, "units": 8, "context_steps": 5}},
    "updates": ALONE | {"optimizer": SETTINGS["optimizer"] | {"max_epochs": 1, "max_updates": 59}},
}


@pytest.mark.parametrize("case", slow_but(CASES, "streamed", "buffer", "by epoch", "target network", "sequences"))
def test_a_run_that_ends_half_way_twice_ends_with_the_same_bits(tmp_path: Path, dataset: str, case: str) -> None:
    settings = CASES[case]
    whole = run_train(dataset, tmp_path / "whole", settings)
    # of 64 (of a buffer 56, by updates 59), between the states after 21 and 28, and after 49 and 56
    (killed if case == "played" else interrupted)(dataset, tmp_path / "broken", settings, at=24)
    interrupted(dataset, tmp_path / "broken", settings, at=51)
    again = run_train(dataset, tmp_path / "broken", settings)
    assert again.updates == whole.updates == settings["optimizer"].get("max_updates", whole.updates)
    assert again.losses == whole.losses
    assert again.curve == whole.curve
    for name in ("best", "last"):
        one, other = (read_policy_manifest(str(tmp_path / run / name)) for run in ("whole", "broken"))
        assert one.weights_sha256 == other.weights_sha256
        assert one.metrics == other.metrics
    records = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("whole", "broken")]
    one, other = ([untimed(json.loads(line)) for line in lines] for lines in records)
    assert one == other
    assert not (tmp_path / "broken" / "checkpoints").exists(), "nothing is left to go on from"


def test_a_run_that_ended_when_all_was_learned_only_has_to_finish(tmp_path: Path, dataset: str, whole: TrainingResult) -> None:
    interrupted(dataset, tmp_path, ALONE)
    again = run_train(dataset, tmp_path, ALONE)
    assert again.losses == whole.losses and digest(again) == digest(whole)


def test_patience_is_over_in_a_run_that_goes_on_too(tmp_path: Path, dataset: str) -> None:
    """The held-out loss rises from the start, for the step size is absurd; the run is interrupted as it ends."""
    optimizer = ALONE["optimizer"] | {"learning_rate": 3.0, "max_epochs": 8, "schedule": "constant"}
    settings = ALONE | {"algorithm": "bc", "optimizer": optimizer, "evaluation": {"held_out": dataset, "patience": 2}}
    whole = run_train(dataset, tmp_path / "whole", settings)
    assert whole.updates < 8 * 16
    interrupted(dataset, tmp_path / "broken", settings)
    again = run_train(dataset, tmp_path / "broken", settings)
    assert (again.updates, again.held_out_losses, again.metrics) == (whole.updates, whole.held_out_losses, whole.metrics)


def test_memory_that_is_short_is_told_before_the_work_and_not_of_what_is_done(
    tmp_path: Path, dataset: str, whole: TrainingResult, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=30_000))
    said = "30.0 kB are free: set data.resident_bytes to 0"
    again = run_train(dataset, Path(whole.last_checkpoint).parent, ALONE)
    assert again.reused and again.losses == whole.losses and said not in caplog.text
    assert run_train(dataset, tmp_path, ALONE).losses == whole.losses and said in caplog.text


def test_a_run_goes_on_though_a_state_is_damaged(tmp_path: Path, dataset: str, whole: TrainingResult) -> None:
    interrupted(dataset, tmp_path, ALONE, at=30)
    states = sorted((tmp_path / "checkpoints").glob("*.safetensors"))
    assert len(states) == 2
    states[-1].write_bytes(states[-1].read_bytes()[:-8])
    assert run_train(dataset, tmp_path, ALONE).losses == whole.losses


@pytest.mark.parametrize(("version", "said"), [(3, "older version"), (5, "newer version")])
def test_a_state_of_another_version_is_told_and_the_run_begins_anew(
    tmp_path: Path, dataset: str, whole: TrainingResult, caplog: pytest.LogCaptureFixture, version: int, said: str
) -> None:
    interrupted(dataset, tmp_path, ALONE, at=30)
    for file in (tmp_path / "checkpoints").glob("*.json"):
        state = json.loads(without_checksum(file.read_bytes(), file.name))
        file.write_bytes(with_checksum(json.dumps(state | {"state_version": version})))
    with caplog.at_level("WARNING", "offline_core"):
        assert run_train(dataset, tmp_path, ALONE).losses == whole.losses
    assert "Cannot resume from" in caplog.text and said in caplog.text


def test_another_run_does_not_go_on_with_the_states_of_this_one(tmp_path: Path, dataset: str) -> None:
    interrupted(dataset, tmp_path / "run", ALONE, at=10)
    again, fresh = (run_train(dataset, tmp_path / name, ALONE | {"seed": 1}) for name in ("run", "fresh"))
    assert again.losses == fresh.losses


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_a_place_that_goes_away_in_mid_run_is_named_and_the_run_goes_on_when_it_is_back(
    tmp_path: Path, dataset: str, whole: TrainingResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a mount does that is lost: what was there is out of reach, and nothing can be written."""
    output, away = tmp_path / "out", tmp_path / "away"
    save = States.save

    def saved_and_lost(*given: Any) -> None:
        save(*given)
        output.rename(away)
        output.write_text("no folder")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match=rf"Cannot (write|delete|list|look at) {output}"):
        patch.setattr(States, "save", saved_and_lost)
        run_train(dataset, output, ALONE)
    output.unlink()
    away.rename(output)
    resumed = run_train(dataset, output, ALONE)
    assert not resumed.reused and digest(resumed) == digest(whole)
