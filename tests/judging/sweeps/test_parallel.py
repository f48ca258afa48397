"""Sweeps whose runs train at once, as tasks of a real Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.errors import ConfigError
from offline_core.judging.sweeps import scheduling
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.runs import asked_runs
from offline_core.judging.sweeps.settings import settings_of
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from offline_core.runtime.provenance import RUN, made_in_run
from tests.judging.sweeps.dying import MARK
from tests.judging.sweeps.test_sweep import DYING, SWEEP, TRAINING, run_sweep, weights
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

pytestmark = pytest.mark.usefixtures("ray_up")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes())


@pytest.mark.slow
def test_runs_at_once_are_the_same_to_the_bit_whatever_the_others_come_to(tmp_path: Path, data: str) -> None:
    grid = {"algorithm": ["marwil", DYING], "optimizer.learning_rate": [0.01, 0.001]}
    with made_in_run("a run"):
        alone, together = (run_sweep(data, tmp_path / f"{parallel}", grid=grid, parallel=parallel) for parallel in (1, 2))
    assert len(weights(alone)) == 4 and weights(together) == weights(alone)
    assert [setting.scores for setting in together.settings] == [setting.scores for setting in alone.settings]
    assert len(alone.failures) == 4 and together.failures == alone.failures
    assert "ZeroDivisionError: nothing was divided" in str(together.failures[0])
    made = [read_policy_manifest(run.checkpoint) for of in (alone, together) for each in of.settings for run in each.runs]
    assert {policy.provenance[RUN] for policy in made} == {"a run"}


@pytest.mark.slow
def test_a_run_whose_worker_dies_goes_on(tmp_path: Path, data: str) -> None:
    (tmp_path / "marks").mkdir()
    dying = DYING | {"arguments": {"folder": str(tmp_path / "marks")}}
    result = run_sweep(data, tmp_path / "out", grid={"algorithm": [dying]}, parallel=2)
    assert (tmp_path / "marks" / MARK).exists() and result.failures == []
    assert weights(result) == weights(run_sweep(data, tmp_path / "whole", grid={"algorithm": [dying]}))


@pytest.mark.slow
def test_a_run_whose_worker_dies_too_often_fails_and_may_pass(tmp_path: Path, data: str) -> None:
    dying = DYING | {"arguments": {"folder": str(tmp_path / "nowhere")}}  # without a mark it dies each time
    compute = {"compute": {"max_failures": 0}}
    result = run_sweep(data, tmp_path / "out", grid={"algorithm": ["bc", dying]}, training=TRAINING | compute, parallel=2)
    assert [failure.may_pass for failure in result.failures] == [True, True]
    assert "WorkerCrashedError" in result.failures[0].error and len(result.settings) == 1


@pytest.mark.parametrize(
    ("values", "waiting", "parallel"),
    [
        ({}, 6, 2),
        ({}, 1, 1),
        ({}, 0, 1),
        ({"training": {"compute": {"threads": 2}}}, 6, 1),
        ({"training": {"compute": {"learners": 2}}}, 6, 1),
        ({"training": {"data": {"prelearners": 1}}}, 6, 1),
        ({"parallel": 5}, 6, 5),
        ({"parallel": 5}, 2, 2),
    ],
)
def test_as_many_train_at_once_as_there_are_cpus_for(
    tmp_path: Path, data: str, values: dict, waiting: int, parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "_cpus", lambda: 2)
    config = parse(SweepConfig, SWEEP | {"parallel": "auto"} | values)
    asked = asked_runs(settings_of(config), dataset=data, output=str(tmp_path), version=None)
    assert scheduling.parallel_runs(config.parallel, waiting, asked) == parallel


def test_runs_with_learners_of_their_own_are_not_many_at_once(tmp_path: Path, data: str) -> None:
    with pytest.raises(ConfigError, match="train one after the other: set parallel to 1"):
        run_sweep(data, tmp_path, training={"compute": {"learners": 2}}, parallel=2)
