"""The policies to choose from, of a checkpoint, of a training and of a sweep."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.errors import CheckpointError, ConfigError, LocationError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import SweepResult
from offline_core.judging.sweeps.sweep import sweep
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.policies.candidates import candidates_of
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

TRAINING: dict[str, Any] = {
    "network": {"hidden_sizes": [8]},
    "optimizer": {"updates_per_iteration": 5, "batch_size": 100, "max_epochs": 1, "learning_rate": 0.01},
    "evaluation": {"episodes": 2, "location": "process", "target_return": 501},
    "data": {"prelearners": 0},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, data: str) -> tuple[Path, TrainingResult]:
    output = tmp_path_factory.mktemp("trained")
    config = parse(TrainingConfig, TRAINING | {"keep": {"every_iterations": 2}})
    return output, train(config, dataset=data, output=str(output))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, data: str) -> tuple[Path, SweepResult]:
    output = tmp_path_factory.mktemp("swept")
    run_sweep = {"training": TRAINING, "grid": {"optimizer.learning_rate": [0.01, 0.02]}, "seeds": 2, "parallel": 1}
    return output, sweep(parse(SweepConfig, run_sweep), dataset=data, output=str(output))


def fingerprints(uris: list[str]) -> list[str]:
    return [read_policy_manifest(uri).fingerprint for uri in uris]


def test_a_checkpoint_is_its_only_candidate(trained: tuple[Path, TrainingResult]) -> None:
    assert candidates_of(trained[1].best) == [trained[1].best]


def test_a_training_has_its_series_then_what_is_not_in_it(trained: tuple[Path, TrainingResult]) -> None:
    output, result = trained
    found, kept = candidates_of(str(output)), [each.checkpoint for each in result.kept]
    assert [each.updates for each in result.kept] == [10, 20]
    assert found[:2] == kept and set(found[2:]) <= {result.best}, "the last policy is that of 20 updates"
    assert set(fingerprints(found)) == set(fingerprints([*kept, result.best, result.last]))
    assert len(set(fingerprints(found))) == len(found)


def test_a_sweep_has_the_policy_of_each_setting_and_seed(swept: tuple[Path, SweepResult]) -> None:
    output, result = swept
    assert candidates_of(str(output)) == [run.checkpoint for setting in result.settings for run in setting.runs]
    assert len(candidates_of(str(output))) == 4


@pytest.mark.parametrize("kind", ["trained", "swept"])
def test_a_folder_that_was_moved_has_its_own(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    output, _ = request.getfixturevalue(kind)
    shutil.copytree(output, tmp_path / "moved")
    found = candidates_of(str(tmp_path / "moved"))
    assert found == [each.replace(str(output), f"{tmp_path}/moved") for each in candidates_of(str(output))]


def test_what_has_no_candidates_is_said(tmp_path: Path, data: str, trained: tuple[Path, TrainingResult]) -> None:
    unfinished = shutil.copytree(trained[0], tmp_path / "unfinished")
    (unfinished / "result.json").unlink()
    for place in (tmp_path, tmp_path / "none", Path(data), unfinished):
        with pytest.raises(ConfigError, match=f"{place} is neither a policy nor the folder of a finished training"):
            candidates_of(str(place))


def test_a_candidate_that_is_gone_is_named(tmp_path: Path, trained: tuple[Path, TrainingResult]) -> None:
    copy = shutil.copytree(trained[0], tmp_path / "copy")
    shutil.rmtree(copy / "last")
    with pytest.raises(CheckpointError, match=f"no policy at {copy}/last"):
        candidates_of(str(copy))


def test_a_result_cannot_lead_out_of_its_folder(tmp_path: Path, swept: tuple[Path, SweepResult]) -> None:
    copy = shutil.copytree(swept[0], tmp_path / "copy")
    file, first = copy / "result.json", swept[1].settings[0].runs[0].checkpoint
    text = without_checksum(file.read_bytes(), str(file)).decode()
    file.write_bytes(with_checksum(text.replace(first, "s3://elsewhere/../../../secret")))
    with pytest.raises(LocationError, match="no file below it"):
        candidates_of(str(copy))


def test_they_are_listed_without_torch() -> None:
    code = "import sys, offline_core.policies.candidates; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
