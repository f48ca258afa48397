"""Data that runs share: read once, the same to the bit, and never written to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.episodes import Episode, EpisodeBatch
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.runs import asked_runs
from offline_core.judging.sweeps.scheduling import SharedColumns, is_shared
from offline_core.judging.sweeps.settings import settings_of
from offline_core.learning import data_loader
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import loaded_columns
from offline_core.learning.run import Run
from offline_core.learning.train import train
from offline_core.learning.work import make_run
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.judging.sweeps.test_sweep import DYING, SWEEP, TRAINING, run_sweep
from tests.learning.datasets import SPACES, dataset_of
from tests.learning.test_train import balancing_episodes

BOX = gym.spaces.Box(-1, 1, (2,), np.float32)
DISCRETE_ONLY = {"dqn", "bcq"}


@pytest.fixture(scope="module")
def discrete(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("discrete"), balancing_episodes(6, 50), environment=None, rows=2)


@pytest.fixture(scope="module")
def continuous(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng = np.random.default_rng(0)
    episodes = [
        Episode(
            eps_id=str(number),
            observations=rng.normal(size=(51, 4)).astype(np.float32),
            actions=rng.uniform(-0.9, 0.9, (50, 2)).astype(np.float32),
            rewards=rng.normal(size=50),
            truncated=True,
        )
        for number in range(6)
    ]
    return dataset_of(tmp_path_factory.mktemp("continuous"), episodes, spaces=(SPACES[0], BOX), environment=None, rows=2)


def training(algorithm: str, **values: Any) -> TrainingConfig:
    base = {"optimizer": {"batch_size": 64, "max_updates": 6, "updates_per_iteration": 3}, "network": {"hidden_sizes": [8]}}
    base |= {"dt": {"layers": 1, "units": 8, "context_steps": 4}} if algorithm == "dt" else {}
    squash = {"network": {"hidden_sizes": [8], "squash": True}} if algorithm in ("sac", "cql", "cal_ql") else {}
    return parse(TrainingConfig, base | squash | {"algorithm": algorithm, "data": {"prelearners": 0}} | values)


@pytest.mark.parametrize("algorithm", algorithms())
def test_no_algorithm_writes_to_what_others_read(tmp_path: Path, discrete: str, continuous: str, algorithm: str) -> None:
    """A run that shares is the run alone, to the bit; the arrays stay as they were, and could not be written to."""
    data, config = discrete if algorithm in DISCRETE_ONLY else continuous, training(algorithm)
    alone = train(config, dataset=data, output=str(tmp_path / "alone"))
    columns = loaded_columns(make_run(config, data, str(tmp_path / "run"), None))
    before = {path: column.copy() for path, column in columns.columns.items()}
    for column in columns.columns.values():
        column.flags.writeable = False
    shared = train(config, dataset=data, output=str(tmp_path / "shared"), loaded=columns)
    assert shared.losses == alone.losses
    hashes = [read_policy_manifest(result.last_checkpoint).weights_sha256 for result in (alone, shared)]
    assert hashes[0] == hashes[1]
    assert all((columns[path] == column).all() for path, column in before.items())


def test_rewards_are_scaled_for_each_run(tmp_path: Path, continuous: str) -> None:
    config = training("iql", data={"prelearners": 0, "rewards": {"scale": 10.0}})
    columns = loaded_columns(make_run(training("iql"), continuous, str(tmp_path / "run"), None))
    alone, shared = (
        train(config, dataset=continuous, output=str(tmp_path / name), **how)
        for name, how in {"alone": {}, "shared": {"loaded": columns}}.items()
    )
    assert shared.losses == alone.losses


def test_a_sweep_reads_each_set_of_columns_once(tmp_path: Path, discrete: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bc` needs fewer than `marwil` and `iql`; a single run reads by itself."""
    read: list[Run] = []

    def counted(run: Run) -> EpisodeBatch:
        read.append(run)
        return loaded_columns(run)

    monkeypatch.setattr(data_loader, "loaded_columns", counted)
    held_out = TRAINING | {"evaluation": {"held_out": discrete}}
    run_sweep(discrete, tmp_path, training=held_out, grid={"optimizer.learning_rate": [0.1, 0.01]}, seeds=3)
    assert len(read) == 1


def test_what_is_shared_is_let_go_with_the_last_run(tmp_path: Path, discrete: str) -> None:
    config = parse(SweepConfig, SWEEP | {"grid": {"algorithm": ["bc", "marwil", "dqn", DYING]}})
    asked = asked_runs(settings_of(config), dataset=discrete, output=str(tmp_path), version=None)
    bc, marwil, dqn, own = (planned.run for planned in asked)
    assert [is_shared(run) for run in (bc, marwil, dqn, own)] == [True, True, True, False]
    shared = SharedColumns([bc, bc, marwil, own, own], in_store=False)
    first, second = shared.take(bc), shared.take(bc)
    assert first is second and {*first.columns} == {"obs", "actions", ROW_GROUP}
    assert shared._found == {} and shared.take(marwil) is None and shared.take(own) is None


@pytest.mark.usefixtures("ray_up")
def test_workers_read_the_object_store_without_a_copy(tmp_path: Path, discrete: str) -> None:
    import ray

    config = parse(SweepConfig, SWEEP | {"grid": {"algorithm": ["marwil"]}})
    (planned,) = asked_runs(settings_of(config), dataset=discrete, output=str(tmp_path), version=None)
    found = ray.get(SharedColumns([planned.run, planned.run], in_store=True).take(planned.run))
    assert not any(column.flags.owndata or column.flags.writeable for column in found.columns.values())
