"""Stages in Weights & Biases, by its own package in its offline mode, and stages without it."""

from __future__ import annotations

import json
import logging
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.store.location import Location
from offline_core.keeping import wandb_tracking
from offline_core.keeping.perform import perform
from offline_core.learning.config import TrainingConfig
from offline_core.learning.metrics import read_metrics
from offline_core.learning.result import TrainingResult
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.runtime.config import parse
from offline_core.runtime.stage import STAGES
from tests.keeping.promotion.decisions import policy_at
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

pytestmark = pytest.mark.filterwarnings("default")
BLOCK = 32 * 2**10
Runs = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """A project without a server; gives what W&B's package wrote of each run."""
    wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")
    wandb.teardown()  # it reads its variables once in a process
    monkeypatch.setenv(wandb_tracking.PROJECT, "balance")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for name, value in wandb_tracking._DEFAULTS.items():
        monkeypatch.setenv(name, value)

    def written() -> list[dict[str, Any]]:
        wandb.teardown()  # its own process writes, and ends with this
        return [read_run(file) for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]

    yield written
    wandb.teardown()


def records_of(data: bytes) -> Iterator[bytes]:
    """The records of W&B's file, a log as LevelDB has it after a head of 7 bytes: parts of kind 1 whole, 4 last."""
    at, parts = 7, list[bytes]()
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        parts.append(data[at + 7 : at + 7 + length])
        at += 7 + length
        if kind in (1, 4):
            yield b"".join(parts)
            parts.clear()


def read_run(file: Path) -> dict[str, Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, Any] = {"history": [], "summary": {}}
    for data in records_of(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        match record.WhichOneof("record_type"):
            case "run":
                run = record.run
                found |= {"name": run.display_name, "project": run.project, "type": run.job_type}
                found["config"] = {item.key: json.loads(item.value_json) for item in run.config.update}
            case "history":
                found["history"].append({i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item})
            case "summary":
                found["summary"] |= {
                    item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.summary.update
                }
            case "exit":
                found["exit"] = record.exit.exit_code
    return found


def trained(tmp_path: Path, **optimizer: Any) -> TrainingResult:
    data = dataset_of(tmp_path / "data", balancing_episodes(), environment=None)
    settings = {"optimizer": {"batch_size": 200, "max_epochs": 2, "updates_per_iteration": 5} | optimizer}
    result = perform(
        STAGES["train"], parse(TrainingConfig, settings), {"dataset": data, "output": str(tmp_path / "out"), "version": None}
    )
    assert isinstance(result, TrainingResult)
    return result


def test_a_training_is_a_run_with_its_metrics_as_they_come_its_result_and_card(tmp_path: Path, runs: Runs) -> None:
    result = trained(tmp_path)
    [run] = runs()
    assert (run["name"], run["project"], run["type"], run["exit"]) == ("train", "balance", "train", 0)
    assert run["config"]["optimizer"] == {"batch_size": 200, "max_epochs": 2, "updates_per_iteration": 5}
    rows = [row for row in run["history"] if "loss" in row]
    recorded = read_metrics(Location.of(str(tmp_path / "out")))
    assert [(row["updates"], row["loss"]) for row in rows] == [(record["updates"], record["loss"]) for record in recorded]
    assert run["summary"]["checkpoint"] == result.checkpoint and run["summary"]["updates"] == result.updates
    assert any("card" in row for row in run["history"])


def test_a_reused_result_is_no_second_run(tmp_path: Path, runs: Runs) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    for _ in range(2):
        perform(STAGES["evaluate"], EvaluationConfig(episodes=3), {"policy": policy})
    [run] = runs()
    assert run["name"] == "evaluate" and run["config"]["episodes"] == 3


def test_a_stage_that_fails_is_a_run_that_failed(tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    from offline_core.learning import learning_from_log

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(learning_from_log, "_result", fails)
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path)
    [run] = runs()
    assert run["exit"] == 1 and run["history"]


def test_neither_words_of_the_command_nor_secrets_are_in_what_is_written(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["offline", "train", "s3://key:hunter2@bucket/data"])
    monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    trained(tmp_path)
    assert len(runs()) == 1
    for file in tmp_path.glob("wandb/**/*"):
        if file.is_file():
            data = file.read_bytes()
            assert b"hunter2" not in data and b"f" * 40 not in data, file


def test_nothing_is_reported_unless_a_project_is_named(tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wandb_tracking.PROJECT)
    monkeypatch.setitem(sys.modules, "wandb", None)
    trained(tmp_path)
    assert not runs()


def test_a_tracker_that_is_gone_is_one_warning_and_the_training_goes_on(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with caplog.at_level(logging.WARNING, "offline_core"):
        assert trained(tmp_path).updates == 20
    assert caplog.text.count("W&B does not have this stage, whose work goes on: UsageError: No API key") == 1


def test_a_tracker_without_its_package_is_a_warning(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with caplog.at_level(logging.WARNING, "offline_core"):
        trained(tmp_path)
    assert caplog.text.count("pip install -c constraints.txt '.[wandb]'") == 1
