"""Functions of the user's that see a training's metrics as it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import offline_core as offline
from offline_core.data.store.json_files import line_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning import metrics
from offline_core.learning.metrics import METRICS_FILE, MetricsLog, MetricsTail, observe_metrics, read_metrics
from offline_core.policies.manifest import read_policy_manifest
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

SETTINGS: dict[str, Any] = {
    "optimizer": {"batch_size": 100, "max_epochs": 2, "updates_per_iteration": 10},
    "evaluation": {"play": False},
}


@pytest.fixture
def data(tmp_path: Path) -> str:
    return dataset_of(tmp_path / "data", balancing_episodes())


def test_each_record_is_told_once_it_is_written_and_changes_nothing(tmp_path: Path, data: str) -> None:
    told: list[dict[str, Any]] = []
    behind: list[int] = []

    def see(record: dict[str, Any]) -> None:
        told.append(dict(record))
        behind.append(len(read_metrics(Location.of(str(tmp_path / "seen")))) - len(told))
        record.clear()

    seen = offline.train(data, output=tmp_path / "seen", on_metrics=see, **SETTINGS)
    assert told == read_metrics(Location.of(str(tmp_path / "seen"))) and len(told) == 40
    assert min(behind) == 0, "it is in the file by then"
    unseen = offline.train(data, output=tmp_path / "unseen", **SETTINGS)
    manifests = [read_policy_manifest(run.last_checkpoint) for run in (seen, unseen)]
    assert manifests[0].weights_sha256 == manifests[1].weights_sha256
    assert manifests[0].operation == manifests[1].operation
    told.clear()
    assert offline.train(data, output=tmp_path / "seen", on_metrics=told.append, **SETTINGS).reused and not told


def test_what_it_raises_ends_the_training_which_goes_on_from_its_last_state(tmp_path: Path, data: str) -> None:
    class EnoughError(Exception):
        pass

    def stop(record: dict[str, Any]) -> None:
        if record["updates"] == 25:
            raise EnoughError("seen enough")

    with pytest.raises(EnoughError, match="seen enough"):
        offline.train(data, output=tmp_path / "run", on_metrics=stop, **SETTINGS)
    told: list[dict[str, Any]] = []
    whole = offline.train(data, output=tmp_path / "whole", **SETTINGS)
    resumed = offline.train(data, output=tmp_path / "run", on_metrics=told.append, **SETTINGS)
    assert [record["updates"] for record in told] == [*range(21, 41)], "what is new"
    assert resumed.losses == whole.losses and resumed.networks_sha256 == whole.networks_sha256


def test_play_is_told_as_well(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    offline.train_expert(
        "CartPole-v1",
        output=tmp_path / "expert",
        total_steps=4_000,
        rollout_steps=64,
        num_envs=8,
        evaluation={"episodes": 3},
        on_metrics=told.append,
    )
    assert {record["env_steps"] for record in told if "value_loss" in record}
    assert any("episode_return_mean" in record for record in told)


def test_what_is_no_function_is_refused_and_other_stages_have_none(tmp_path: Path, data: str) -> None:
    with pytest.raises(ConfigError, match="on_metrics is a str; give a function of a record"):
        offline.train(data, output=tmp_path / "run", on_metrics="print", **SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on_metrics"):
        offline.check(data, on_metrics=print)  # type: ignore[call-arg]


def test_what_another_process_writes_is_told_once_and_not_what_an_earlier_run_left(tmp_path: Path) -> None:
    here, told = Location.of(str(tmp_path)), list[dict[str, Any]]()
    with MetricsLog(here) as log:
        log.add({"updates": 1, "loss": 9.0, "iteration": 1, "update_seconds": 0.5})
    with observe_metrics(told.append):
        tail = MetricsTail(here)
        with MetricsLog(here) as log:
            told.clear()
            for updates in (1, 2, 3):
                log._write([{"updates": updates, "loss": 1.0 / updates}])
                tail.tell()
                tail.tell()
    assert told == [{"updates": updates, "loss": 1.0 / updates} for updates in (1, 2, 3)]


def test_only_what_is_appended_is_read_and_of_a_file_that_replaces_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, told, read = Location.of(str(tmp_path)), list[dict[str, Any]](), list[int]()
    real = metrics.read_lines
    monkeypatch.setattr(metrics, "read_lines", lambda data, where: (read.append(data.count(b"\n")), real(data, where))[1])
    with observe_metrics(told.append):
        tail = MetricsTail(here)
        file = tmp_path / METRICS_FILE
        file.write_bytes(line_of({"updates": 1, "loss": 1.0}))
        tail.tell()
        for updates in (2, 3):
            with file.open("ab") as opened:
                opened.write(line_of({"updates": updates, "loss": 1.0}))
            tail.tell()
        with file.open("ab") as opened:
            opened.write(line_of({"updates": 4, "loss": 1.0})[:-5])
        tail.tell()
        file.write_bytes(b"".join(line_of({"updates": updates, "loss": 2.0}) for updates in (1, 2)))
        tail.tell()
        file.write_bytes(b"".join(line_of({"updates": updates, "loss": 1.0}) for updates in (1, 2, 3, 4)))
        tail.tell()
    assert [(each["updates"], each["loss"]) for each in told] == [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2), (4, 1)]
    assert read == [1, 1, 1, 0, 2, 4]


def test_a_part_that_is_gone_once_it_is_read_costs_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run on a store joins the parts into the file, and deletes them."""
    told: list[dict[str, Any]] = []
    with observe_metrics(told.append):
        tail = MetricsTail(Location.of(str(tmp_path)))
        (tmp_path / METRICS_FILE).write_bytes(line_of({"updates": 1, "loss": 1.0}))
        with monkeypatch.context() as patched:
            patched.setattr(Location, "files", lambda _: ["gone.jsonl"])
            tail.tell()
        assert told == []
        tail.tell()
    assert [record["updates"] for record in told] == [1]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_learners_in_other_processes_are_told_here_and_ended_by_an_error(tmp_path: Path, data: str) -> None:
    together = SETTINGS | {"compute": {"learners": 2, "cpus_per_learner": 0.5}}
    told: list[dict[str, Any]] = []
    offline.train(data, output=tmp_path / "seen", on_metrics=told.append, **together)
    assert told == read_metrics(Location.of(str(tmp_path / "seen"))) and len(told) == 40

    def stop(record: dict[str, Any]) -> None:
        raise ZeroDivisionError(record["updates"])

    with pytest.raises(ZeroDivisionError, match=r"^1$"):
        offline.train(data, output=tmp_path / "stopped", on_metrics=stop, **together)
