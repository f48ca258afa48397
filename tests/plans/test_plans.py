"""What a plan says, held against what the operation then does; and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig
from offline_core.data.curation.converting import convert
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ConversionConfig
from offline_core.errors import CheckpointError, ConfigError, DatasetNotFoundError, SchemaError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.sweep import sweep
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.plans.conversion import plan_compaction, plan_conversion
from offline_core.plans.plan import Plan
from offline_core.plans.recording import plan_recording
from offline_core.plans.sweeping import plan_sweep
from offline_core.plans.training import plan_training
from offline_core.policies.recording.config import RecordingConfig
from offline_core.runtime.config import parse
from tests.data.datasets.factories import episode, write_dataset

TRAINING = parse(TrainingConfig, {"optimizer": {"max_epochs": 2, "batch_size": 100}, "evaluation": {"play": False}})


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Twelve episodes in three files."""
    write_dataset(
        tmp_path / "table", [episode(number, steps=100) for number in range(12)], format="table", max_rows_per_file=400
    )
    return str(tmp_path / "table")


@pytest.mark.parametrize(
    ("plan", "run"),
    [
        (plan_conversion, lambda **places: convert(ConversionConfig(), **places)),
        (plan_compaction, lambda **places: compact(CompactionConfig(), **places)),
    ],
    ids=["convert", "compact"],
)
def test_a_copy_is_planned_from_a_part_of_it(table: str, tmp_path: Path, plan: Any, run: Any) -> None:
    config = ConversionConfig() if plan is plan_conversion else CompactionConfig()
    before = sorted(tmp_path.rglob("*"))
    planned: Plan = plan(config, dataset=table, output=str(tmp_path / "out"))
    assert sorted(tmp_path.rglob("*")) == before and planned.reused is None
    made = run(dataset=table, output=str(tmp_path / "out")).dataset
    (reads,), (writes,) = planned.reads, planned.writes
    assert (reads.files, reads.episodes, reads.steps) == (3, 12, 1_200)
    assert (writes.files, writes.episodes, writes.steps) == (len(open_dataset(made.uri).manifest.files), 12, 1_200)
    assert writes.bytes == pytest.approx(made.bytes, rel=0.5)
    assert planned.seconds > 0 and planned.memory_bytes > 2**20
    again = plan(config, dataset=table, output=str(tmp_path / "out"))
    assert again.reused is not None and again.reused.startswith(f"{made.uri} version 1"), "it would do nothing"


def test_a_recording_is_planned_from_a_few_episodes(cartpole_policy: str, tmp_path: Path) -> None:
    planned = plan_recording(RecordingConfig(episodes=100, rounds=2), policy=cartpole_policy, output=str(tmp_path / "out"))
    (writes,) = planned.writes
    assert writes.episodes == 200 and writes.steps and writes.bytes and not (tmp_path / "out").exists()
    with pytest.raises(CheckpointError):
        plan_recording(RecordingConfig(), policy=str(tmp_path / "nothing"), output=str(tmp_path / "out"))


def test_a_training_is_planned_from_a_few_updates(table: str, tmp_path: Path) -> None:
    planned = plan_training(TRAINING, dataset=table, output=str(tmp_path / "policy"))
    assert not (tmp_path / "policy").exists() and planned.reused is None
    assert "24 updates in 2 epochs" in " ".join(planned.measured)
    train(TRAINING, dataset=table, output=str(tmp_path / "policy"))
    assert plan_training(TRAINING, dataset=table, output=str(tmp_path / "policy")).reused == str(tmp_path / "policy" / "best")
    with pytest.raises(DatasetNotFoundError):
        plan_training(TRAINING, dataset=str(tmp_path / "nothing"), output=str(tmp_path / "policy"))


def test_a_sweep_is_planned_from_a_few_updates_of_its_settings(table: str, tmp_path: Path) -> None:
    values = {"training": TRAINING.model_dump(exclude_unset=True), "grid": {"algorithm": ["bc", "marwil"]}, "seeds": 2}
    place = {"dataset": table, "output": str(tmp_path / "sweep")}
    with pytest.raises(ConfigError, match="nothing to compare the runs by"):
        plan_sweep(parse(SweepConfig, values), **place)
    values |= {"training": values["training"] | {"evaluation": {"episodes": 2, "environment": {"id": "CartPole-v1"}}}}
    config = parse(SweepConfig, values | {"parallel": 1, "resamples": 10})
    planned = plan_sweep(config, **place)
    assert not (tmp_path / "sweep").exists() and planned.reused is None and planned.seconds > 0
    assert "2 settings with 2 seeds: 4 of 4 runs are to be trained, 1 at once" in planned.measured
    sweep(config, **place)
    assert plan_sweep(config, **place).reused == place["output"]


@pytest.mark.parametrize("plan", [plan_training, plan_conversion], ids=["train", "convert"])
def test_files_that_were_not_imported_are_not_planned(rllib_recordings: Path, tmp_path: Path, plan: Any) -> None:
    config = TRAINING if plan is plan_training else ConversionConfig()
    with pytest.raises(SchemaError, match="Import it first"):
        plan(config, dataset=str(rllib_recordings / "cartpole_episodes"), output=str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())
