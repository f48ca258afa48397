"""What tests of the documented forms share: a small recording, a small training, rows to import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.report import ImportResult
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.recording.config import RecordingConfig
from offline_core.runtime.config import parse

SMALL = RecordingConfig(
    episodes=10,
    rounds=2,
    envs_per_recorder=4,
    files=FilesConfig(max_rows_per_file=4),
)

TRAINING: dict[str, Any] = {
    "network": {"hidden_sizes": [16]},
    "optimizer": {"batch_size": 64, "max_epochs": 2, "updates_per_iteration": 30, "learning_rate": 0.01},
    "evaluation": {"episodes": 2, "target_return": 501, "location": "process"},
    "data": {"prelearners": 0},  # what else would pay depends on how busy the machine is, and starts a Ray
}


def run_train(dataset: str, output: Path | str, **settings: Any) -> TrainingResult:
    """A training of a second; what is set is added to `TRAINING`, group by group."""
    groups = {name: TRAINING.get(name, {}) | value if isinstance(value, dict) else value for name, value in settings.items()}
    return train(parse(TrainingConfig, TRAINING | groups), dataset=dataset, output=str(output))


def weights(result: TrainingResult) -> str:
    """Stands for the policy at the end, to the bit."""
    return read_policy_manifest(result.last_checkpoint).weights_sha256


def metrics(output: Path) -> list[dict[str, float]]:
    """The records of a training."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def run_import(place: Any, output: Path | str, /, **config: Any) -> tuple[ImportResult, dict[str, Episode]]:
    """(result, episodes by id)"""
    source = list(map(str, place)) if isinstance(place, list) else str(place)
    result = import_data(parse(ImportConfig, config), source=source, output=str(output))
    return result, by_id(result.dataset.uri)


def by_id(dataset: str) -> dict[str, Episode]:
    return {episode.eps_id: episode for episode in open_dataset(dataset).episodes()}


def observations(dataset: str) -> np.ndarray:
    """(steps, …) of all episodes, without what follows the last step of each."""
    return np.concatenate([episode.observations[:-1] for episode in by_id(dataset).values()])
