"""What an expert played on its way: a dataset from beginner to expert, which has no say in how it learns."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offline_core.data.datasets.dataset import open_dataset
from offline_core.errors import ConfigError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.result import ExpertResult
from offline_core.learning.step_ring import StepRing
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.recording.mixing import MixtureConfig, mix
from offline_core.runtime.config import parse

TINY: dict[str, Any] = {
    "total_steps": 2_000,
    "num_envs": 8,
    "rollout_steps": 32,
    "rollouts_per_iteration": 4,
    "evaluation": {"episodes": 5, "target_return": 500},
    "network": {"hidden_sizes": [8]},
}


SAC: dict[str, Any] = {
    "algorithm": "sac",
    "environment": {"id": "Pendulum-v1"},
    "total_steps": 1_000,
    "rollouts_per_iteration": 100,
    "evaluation": {"episodes": 1},
    "network": {"hidden_sizes": [8]},
    "replay": {"learning_starts_steps": 960},
    "optimizer": {"batch_size": 8},
}
"""Four copies, episodes of 200 steps."""


def train(output: Path, **settings: Any) -> ExpertResult:
    return train_expert(parse(ExpertConfig, TINY | settings), output=str(output))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExpertResult]:
    output = tmp_path_factory.mktemp("expert")
    return output, train(output, recording={"every_rollouts": 3, "episodes": 4})


def test_every_so_many_rollouts_the_policy_as_it_is_plays(trained: tuple[Path, ExpertResult]) -> None:
    _, result = trained
    assert result.recording is not None
    found = list(open_dataset(result.recording.uri).episodes())
    players = [episode.custom_data["policy_id"] for episode in found]
    assert len(found) == result.recording.episodes == 4 * len(set(players)) == 12, "after rollouts 3, 6 and 9"
    assert players == sorted(players, key=players.index)
    assert len({episode.eps_id for episode in found}) == len(found)
    assert all((episode.terminated or episode.truncated) and "action_logp" in episode.extras for episode in found)


def test_it_has_no_say_in_how_the_expert_learns(trained: tuple[Path, ExpertResult], tmp_path: Path) -> None:
    plain = train(tmp_path)
    assert plain.recording is None and plain.curve == trained[1].curve
    one, other = (read_policy_manifest(result.checkpoint).weights_sha256 for result in (plain, trained[1]))
    assert one == other


def test_it_is_found_again_unless_the_recording_is_gone(trained: tuple[Path, ExpertResult], tmp_path: Path) -> None:
    output = tmp_path / "copy"
    settings = {"recording": {"every_rollouts": 3, "episodes": 4}}
    first = train(output, **settings)
    again = train(output, **settings)
    assert again.reused and again.recording == first.recording
    shutil.rmtree(output / "recording")
    made = train(output, **settings)
    assert not made.reused and made.recording == first.recording


def test_a_training_that_ends_before_records_its_last_policy(tmp_path: Path) -> None:
    recording = {"every_rollouts": 1000, "episodes": 3, "format": "table"}
    result = train(tmp_path, evaluation={"episodes": 5, "target_return": 1}, recording=recording)
    assert result.reached_target and result.recording is not None and result.recording.episodes == 3


def test_it_is_a_live_source_of_a_mixture(trained: tuple[Path, ExpertResult], tmp_path: Path) -> None:
    _, result = trained
    assert result.recording is not None
    config = parse(MixtureConfig, {"datasets": {result.recording.uri: 0.5}, "policies": {result.checkpoint: 0.5}, "steps": 200})
    mixed = mix(config, output=str(tmp_path))
    assert all(steps > 0 for steps in mixed.steps.values()) and np.sum(list(mixed.steps.values())) >= 200


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_a_replay_has_what_the_learner_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    rings: list[StepRing] = []
    begin = StepRing.begin
    monkeypatch.setattr(StepRing, "begin", lambda ring, *first: rings.append(ring) or begin(ring, *first))
    result = train_expert(parse(ExpertConfig, SAC | {"recording": {"replay": True, "format": format}}), output=str(tmp_path))
    assert result.recording is not None and result.recording.steps == result.env_steps == 1_000
    dataset = open_dataset(result.recording.uri)
    assert dataset.manifest.actions == "sampled"
    found = list(dataset.episodes())
    assert [len(episode) for episode in found] == [200] * 4 + [50] * 4, "the last ones were open when the training ended"
    assert all(episode.truncated and not episode.terminated for episode in found)
    ring = rings[-1].batch(rings[-1].draw(100_000, torch.Generator().manual_seed(0)).unique(), n_step=1, gamma=0.9)
    learned = np.concatenate(
        [ring[name].reshape(1_000, -1) for name in ("obs", "actions", "new_obs", "n_step_rewards")], axis=1
    )
    recorded = np.concatenate(
        [np.column_stack([e.observations[:-1], e.actions, e.observations[1:], e.rewards]).astype(np.float32) for e in found]
    )
    assert sorted(map(tuple, learned.tolist())) == sorted(map(tuple, recorded.tolist()))


def test_a_replay_has_no_say_in_how_the_expert_learns(trained: tuple[Path, ExpertResult], tmp_path: Path) -> None:
    replayed = train(tmp_path, recording={"replay": True})
    assert replayed.recording is not None and replayed.recording.steps == replayed.env_steps
    one, other = (read_policy_manifest(result.checkpoint).weights_sha256 for result in (replayed, trained[1]))
    assert one == other


def test_a_replay_of_which_nothing_was_played_is_none(trained: tuple[Path, ExpertResult], tmp_path: Path) -> None:
    again = train(tmp_path, initial_policy=trained[1].checkpoint, evaluation={"target_return": 0}, recording={"replay": True})
    assert again.recording is None and again.env_steps == 0


@pytest.mark.parametrize("recording", [{"every_rollouts": 0}, {"episodes": 0}, {"format": "csv"}], ids=str)
def test_what_cannot_be_is_refused(recording: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"recording.{next(iter(recording))}"):
        parse(ExpertConfig, {"recording": recording})
