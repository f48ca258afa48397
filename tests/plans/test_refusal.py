"""What is refused before anything starts is what the stage would refuse, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offline_core.conversion.config import ImportConfig
from offline_core.curation.config import PruningConfig
from offline_core.errors import ConfigError, DataError, StorageUnavailableError
from offline_core.learning.config import TrainingConfig
from offline_core.plans.refusal import refuse
from offline_core.promotion.config import PromotionConfig
from offline_core.quality.config import QualityConfig
from offline_core.runtime.config import parse


@pytest.mark.parametrize(
    ("mapping", "message"),
    [({}, "There is no column rewards and none is mapped to it"), ({"rewards": "r"}, "There is no column r to map")],
)
def test_columns_that_an_import_does_not_find(mapping: dict[str, str], message: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs.csv"
    logs.write_text("obs,actions,reward,terminateds\n0.5,1,1.0,1\n")
    parameters = {"source": str(logs), "output": str(tmp_path / "out"), "config": parse(ImportConfig, {"mapping": mapping})}
    with pytest.raises(DataError, match=message):
        refuse(parameters)
    refuse(parameters | {"config": parse(ImportConfig, {"mapping": {"rewards": "reward"}})})
    assert [*tmp_path.iterdir()] == [logs]


def test_a_dataset_that_was_never_imported_can_be_checked_and_not_trained_on(rllib_recordings: Path) -> None:
    dataset = str(rllib_recordings / "cartpole_episodes")
    refuse({"dataset": dataset, "config": QualityConfig()})
    with pytest.raises(DataError, match="Import it first"):
        refuse({"dataset": dataset, "config": TrainingConfig()})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"where": "nope > 3"}, "names the column 'nope'"),
        ({"where": "return >"}, "return >"),
        ({"where_steps": "speed <"}, "speed <"),
        ({"where": "outlier_score < 6"}, "name the folder of the scores"),
    ],
)
def test_a_condition_that_no_episode_can_be_asked_in_any_place_of_a_chain(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        refuse({"root": "runs", "pruning": parse(PruningConfig, values)})


def test_a_name_that_no_registry_takes() -> None:
    with pytest.raises(ConfigError, match="no name of a policy"):
        refuse({"registry": "runs/registry/hvac@champion", "source": "runs/decision", "config": PromotionConfig()})


def test_what_code_of_the_user_reads_is_left_to_it() -> None:
    refuse(
        {"dataset": "table of a database", "config": parse(TrainingConfig, {"data": {"data_class": {"path": "users:Data"}}})}
    )


def test_a_storage_that_does_not_answer_is_left_to_the_stage_which_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any) -> None:
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr("offline_core.plans.refusal.is_dataset", silent)
    refuse({"dataset": "s3://lake/x", "config": TrainingConfig()})
