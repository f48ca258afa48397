"""Training from a replay buffer: the schedule, the filter, what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offline_core as offline
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.learning.test_train import balancing_episodes, dataset_of

SETTINGS: dict[str, Any] = {
    "network": {"hidden_sizes": [8]},
    "optimizer": {"batch_size": 64, "max_epochs": 2, "updates_per_iteration": 3},
    "evaluation": {"play": False},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes(10, 50), rows=3, environment=None)


def run_train(dataset: str, output: Path, buffer: dict[str, Any], **settings: Any) -> TrainingResult:
    config = parse(TrainingConfig, SETTINGS | settings | {"data": {"buffer": buffer}})
    return train(config, dataset=dataset, output=str(output))


def test_it_learns_from_so_many_batches_a_read(tmp_path: Path, dataset: str) -> None:
    result = run_train(dataset, tmp_path, {"capacity_steps": 200, "read_episodes": 4, "batches_per_read": 2})
    assert (result.updates, result.steps, result.epochs) == (2 * 3 * 2, 12 * 64, 2.0)


def test_an_epoch_is_of_the_episodes_that_connectors_leave(tmp_path: Path, dataset: str) -> None:
    """Seven of ten: two reads of four, by which the learning rate falls, too."""
    data = {"buffer": {"capacity_steps": 200, "read_episodes": 4}, "connectors": [{"path": "tests.learning.own:Halves"}]}
    config = parse(TrainingConfig, SETTINGS | {"data": data})
    result = train(config, dataset=dataset, output=str(tmp_path))
    assert (result.updates, result.epochs) == (2 * 2, 2.0)


@pytest.mark.parametrize("algorithm", ["marwil", "dqn", "iql", "cql"])
def test_errors_of_values_are_what_steps_are_drawn_by(tmp_path: Path, dataset: str, algorithm: str) -> None:
    buffer = {"capacity_steps": 200, "read_episodes": 4}
    results = [
        run_train(dataset, tmp_path / sampling, buffer | {"sampling": sampling}, algorithm=algorithm)
        for sampling in ("uniform", "prioritized")
    ]
    one, other = (read_policy_manifest(result.checkpoint).weights_sha256 for result in results)
    assert one != other and results[0].updates == results[1].updates


def test_errors_of_continuous_actions_too(tmp_path: Path) -> None:
    """On RLlib's own recording of Pendulum."""
    recording = Path(__file__).parents[2] / "data" / "rllib" / "pendulum_episodes"
    buffer = {"capacity_steps": 1000, "read_episodes": 10, "sampling": "prioritized"}
    imported = offline.import_data(recording, output=tmp_path / "imported")
    result = run_train(imported.ref.uri, tmp_path, buffer, algorithm="cql", network={"hidden_sizes": [8], "squash": True})
    assert result.updates == 4 and np.isfinite(result.losses).all()


def test_memories_learn_from_sequences_of_a_buffer(tmp_path: Path, dataset: str) -> None:
    network = {"hidden_sizes": [8], "recurrent": "gru", "recurrent_units": 8}
    result = run_train(dataset, tmp_path, {"capacity_steps": 200, "read_episodes": 4}, network=network)
    assert result.updates == 6 and np.isfinite(result.losses).all()


def test_the_filter_is_of_all_steps_that_were_in_the_buffer(tmp_path: Path, dataset: str) -> None:
    network = {"hidden_sizes": [8], "normalize_observations": True}
    result = run_train(dataset, tmp_path, {"capacity_steps": 200, "read_episodes": 4}, network=network)
    seen = np.concatenate([episode.observations[:-1] for episode in balancing_episodes(10, 50)])
    np.testing.assert_allclose(load_policy(result.checkpoint).encoder.mean, seen.mean(axis=0), rtol=1e-4, atol=1e-6)


def test_a_batch_larger_than_the_buffer_is_drawn_with_replacement(dataset: str, tmp_path: Path) -> None:
    """As RLlib's buffers draw: 64 steps of at most 50, so some are there twice."""
    optimizer = SETTINGS["optimizer"] | {"replacement": True}
    result = run_train(dataset, tmp_path, {"capacity_steps": 50, "read_episodes": 1}, optimizer=optimizer)
    assert result.updates > 0


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "smaller than a batch": ({"capacity_steps": 63}, {}, "capacity_steps is 63, and a batch has 64 steps"),
    "no errors": ({"sampling": "prioritized"}, {}, "BC learns no values"),
    "sequences": ({"sampling": "prioritized"}, {"network": {"recurrent": "lstm"}}, "draws single steps"),
    "not there": ({"buffer_class": {"path": "tests.learning.replay.own:Gone"}}, {}, "cannot be imported"),
    "no buffer": ({"buffer_class": {"path": "tests.learning.replay.own:NoBuffer"}}, {}, "has to be a subclass"),
    "raises": ({"buffer_class": {"path": "tests.learning.replay.own:CannotBeMade"}}, {}, "cannot be made with"),
    "arguments": ({"buffer_class": {"path": "tests.learning.replay.own:Longest"}}, {}, "cannot be made with no arguments"),
    "two ways": (
        {"buffer_class": {"path": "tests.learning.replay.own:Raises"}, "sampling": "prioritized"},
        {},
        "draws by itself",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, dataset: str, case: str) -> None:
    buffer, settings, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        run_train(dataset, tmp_path / "output", buffer, **settings)
    assert not (tmp_path / "output").exists()
