"""Stages in MLflow's tracker and registry, and stages without them."""

from __future__ import annotations

import logging
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import offline_core as offline
from offline_core.data.store.location import Location
from offline_core.keeping import mlflow_tracking
from offline_core.keeping.perform import perform
from offline_core.keeping.promotion.config import PromotionConfig, RollbackConfig
from offline_core.keeping.tracking import tracked
from offline_core.learning import learning_from_log
from offline_core.learning.config import TrainingConfig
from offline_core.learning.metrics import read_metrics, tell
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.runtime.config import parse
from offline_core.runtime.stage import STAGES
from tasks import artifacts
from tasks.stages import evaluate, promote, rollback
from tests.keeping.promotion.decisions import policy_at
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def without_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda *_, **__: None)


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database with its tables, which take it seconds to make."""
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}", f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_store: Path) -> Iterator[Any]:
    """MLflow's client of a tracker in a file."""
    import mlflow

    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path)}"
    monkeypatch.setenv(mlflow_tracking.TRACKER, uri)
    monkeypatch.delenv("MLFLOW_REGISTRY_URI", raising=False)
    monkeypatch.chdir(tmp_path)  # artifacts go below it
    for name, value in mlflow_tracking._DEFAULTS.items():
        monkeypatch.setenv(name, value)
    yield mlflow.MlflowClient(uri, uri)


def runs(tracker: Any) -> list[Any]:
    experiment = tracker.get_experiment_by_name(mlflow_tracking.EXPERIMENT)
    return list(reversed(tracker.search_runs([experiment.experiment_id])))


def version(found: Any) -> int:
    """A number, or its text, by the version of MLflow."""
    return int(found.version)


def test_a_stage_is_a_run_with_parameters_metrics_and_its_card(tracker: Any, tmp_path: Path) -> None:
    policy = policy_at(tmp_path / "policy", 1)
    for _ in range(2):  # a reused result is no second run
        result = evaluate.fn(EvaluationConfig(episodes=3), policy=policy)
    [run] = runs(tracker)
    assert run.info.run_name == "evaluate" and run.info.status == "FINISHED"
    assert run.data.params == {"episodes": "3"}
    assert run.data.metrics["metrics.episode_return_mean"] == result.mean_return
    assert run.data.tags["checkpoint"] == policy and "torch" in run.data.tags
    assert {each.path for each in tracker.list_artifacts(run.info.run_id)} == {"card.html", "card.md", "card.png"}


def test_a_training_has_the_curves_of_its_metrics(tracker: Any, tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(), environment=None)
    config = parse(TrainingConfig, {"optimizer": {"batch_size": 200, "max_epochs": 2, "updates_per_iteration": 5}})
    arguments = {"dataset": data, "output": str(tmp_path / "out"), "version": None}
    trained = perform(STAGES["train"], config, arguments)
    [run] = runs(tracker)
    assert run.info.status == "FINISHED" and run.data.params["optimizer.batch_size"] == "200"
    assert run.data.tags["checkpoint"] == trained.checkpoint and run.data.metrics["updates"] == trained.updates
    logged = [(each.step, each.value) for each in tracker.get_metric_history(run.info.run_id, "loss")]
    recorded = read_metrics(Location.of(str(tmp_path / "out")))
    assert logged == [(record["updates"], record["loss"]) for record in recorded if "loss" in record]
    assert perform(STAGES["train"], config, arguments).reused and len(runs(tracker)) == 1


def test_a_stage_that_fails_is_a_run_that_failed(tracker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(learning_from_log, "_result", fails)
    data = dataset_of(tmp_path / "data", balancing_episodes(), environment=None)
    config = parse(TrainingConfig, {"optimizer": {"batch_size": 200, "max_epochs": 1}})
    with pytest.raises(ZeroDivisionError):
        perform(STAGES["train"], config, {"dataset": data, "output": str(tmp_path / "out"), "version": None})
    [run] = runs(tracker)
    assert run.info.status == "FAILED" and "loss" in run.data.metrics


def test_a_run_that_loses_a_report_ends(tracker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with tracked(TrainingConfig(), operation="train", has_metrics=True):
        tell([{"updates": 1, "loss[a]": 1.0}])
        monkeypatch.setattr(type(tracker), "log_batch", lambda *_, **__: 1 / 0)
        monkeypatch.setattr(mlflow_tracking, "_SECONDS_BETWEEN_BATCHES", 0.0)
        tell([{"updates": 2, "loss[a]": 1.0}])
        tell([{"updates": 3, "loss[a]": 1.0}])
    monkeypatch.undo()
    [run] = runs(tracker)
    assert run.info.status == "FAILED" and run.data.metrics == {"updates": 1.0, "loss_a_": 1.0}


def test_aliases_are_those_of_the_registry(tracker: Any, tmp_path: Path) -> None:
    registry = str(tmp_path / "registry" / "hvac")
    first, second = (policy_at(tmp_path / str(number), number) for number in (1, 2))
    config = PromotionConfig(override="a test")
    promote.fn(config, registry=registry, source=first)
    assert version(tracker.get_model_version_by_alias("hvac", "champion")) == 1
    promoted = promote.fn(config, registry=registry, source=second)
    found = tracker.get_model_version_by_alias("hvac", "champion")
    assert version(found) == 2 and found.tags["fingerprint"] == promoted.move.fingerprint
    folder = tracker.download_artifacts(found.run_id, "policy", str(tmp_path))
    assert offline.load_policy(folder).action_space.n == 2
    rollback.fn(RollbackConfig(), registry=registry)
    assert version(tracker.get_model_version_by_alias("hvac", "champion")) == 1
    assert len(tracker.search_model_versions("name='hvac'")) == 2 and len(runs(tracker)) == 3


def test_an_alias_that_was_missed_is_made_up_for(tracker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, policy = str(tmp_path / "registry" / "hvac"), policy_at(tmp_path / "policy", 1)
    with monkeypatch.context() as lost:
        lost.delenv(mlflow_tracking.TRACKER)
        promote.fn(PromotionConfig(override="a test"), registry=registry, source=policy)
    assert promote.fn(PromotionConfig(override="again"), registry=registry, source=policy).reused
    assert version(tracker.get_model_version_by_alias("hvac", "champion")) == 1


def test_a_tracker_that_is_gone_is_a_warning_soon(
    tracker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as bound:  # a port at which connections are refused
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv(mlflow_tracking.TRACKER, f"http://me:hidden@127.0.0.1:{bound.getsockname()[1]}")
        with caplog.at_level(logging.WARNING, "offline_core"):
            made = promote.fn(
                PromotionConfig(override="a test"),
                registry=str(tmp_path / "registry" / "hvac"),
                source=policy_at(tmp_path / "policy", 1),
            )
    assert not made.reused and "MLflow does not have this stage, whose work goes on: MlflowException" in caplog.text
    assert "hidden" not in caplog.text
    assert (tmp_path / "registry" / "hvac" / "history" / "000001.md").is_file(), "the card is there all the same"


def test_a_tracker_without_its_package_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(mlflow_tracking.TRACKER, "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for name, value in mlflow_tracking._DEFAULTS.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.WARNING, "offline_core"):
        evaluate.fn(EvaluationConfig(episodes=2), policy=policy_at(tmp_path / "policy", 1))
    assert "pip install -c constraints.txt '.[mlflow]'" in caplog.text
