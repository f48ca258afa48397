"""An expert that was killed goes on from its last state, with all that it had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.store.location import Location
from offline_core.learning import evaluations
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.learner import Learner
from offline_core.learning.metrics import read_metrics
from offline_core.learning.play import Play
from offline_core.learning.result import ExpertResult
from offline_core.learning.state import States
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.cases import slow_but

PPO: dict[str, Any] = {
    "total_steps": 2_000,
    "num_envs": 8,
    "rollout_steps": 32,
    "evaluation": {"episodes": 5, "target_return": 500},
    "network": {"hidden_sizes": [8], "normalize_observations": True},
}
SAC: dict[str, Any] = {
    "algorithm": "sac",
    "environment": {"id": "Pendulum-v1"},
    "total_steps": 600,
    "rollouts_per_iteration": 25,
    "evaluation": {"episodes": 2},
    "network": {"hidden_sizes": [8]},
    "replay": {"learning_starts_steps": 100, "capacity_steps": 300},
    "optimizer": {"batch_size": 16},
}


SHORT = SAC | {"total_steps": 400}


class KilledError(BaseException):
    """Not an error that anything handles."""


def train(output: Path, settings: dict[str, Any], **more: Any) -> ExpertResult:
    return train_expert(parse(ExpertConfig, settings | more), output=str(output))


def killed_after(saves: int, output: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """Train until so many states are stored."""
    left, save = [saves], States.save

    def saved_and_killed(states: Any, *arguments: Any) -> None:
        save(states, *arguments)
        left[0] -= 1
        if not left[0]:
            raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(States, "save", saved_and_killed)
        train(output, settings, **more)


@pytest.mark.parametrize("settings", [PPO, SHORT], ids=["ppo", "sac"])
def test_it_goes_on_from_its_last_state(tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    killed_after(2, tmp_path, settings, monkeypatch)
    before, folder = read_metrics(Location.of(str(tmp_path))), Location.of(str(tmp_path))
    restored, restore = [], Learner.restore

    def seen(learner: Learner, state: dict[str, torch.Tensor], **counts: Any) -> None:
        restore(learner, state, **counts)
        restored.append((counts["updates"], learner.updates))
        now = learner.state()
        assert all(torch.equal(state[name], now[name]) for name in now)

    monkeypatch.setattr(Learner, "restore", seen)
    result = train(tmp_path, settings)
    last = before[-1]
    assert restored == [(last["updates"], last["updates"])] and last["updates"] > 0
    assert read_metrics(folder)[: len(before)] == before
    assert result.env_steps > last["env_steps"]
    scores = [score for _, score in result.curve]
    best = read_policy_manifest(result.checkpoint)
    assert result.mean_return == max(scores) == best.metrics["episode_return_mean"]
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("settings", [PPO, pytest.param(SAC, marks=pytest.mark.slow)], ids=["ppo", "sac"])
def test_the_best_is_that_of_the_state_it_goes_on_from(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed after a third evaluation, the best so far, was stored, and before the state of it was."""
    scores = iter([1.0, 5.0, 9.0, *[2.0] * 50])
    played = evaluations.rollouts
    monkeypatch.setattr(
        evaluations,
        "rollouts",
        lambda *arguments, **more: replace(played(*arguments, **more), returns=np.array([next(scores)])),
    )
    save, saved = States.save, list[str]()

    def killed_before_the_third(states: Any, *arguments: Any) -> None:
        if len(saved) == 2:
            raise KilledError
        save(states, *arguments)
        saved.append(read_policy_manifest(str(tmp_path / "best")).weights_sha256)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(States, "save", killed_before_the_third)
        train(tmp_path, settings)
    assert read_policy_manifest(str(tmp_path / "best")).metrics["episode_return_mean"] == 9
    result = train(tmp_path, settings)
    assert [score for _, score in result.curve][:3] == [1, 5, 2]
    best = read_policy_manifest(result.checkpoint)
    assert result.mean_return == best.metrics["episode_return_mean"] == 5 and best.weights_sha256 == saved[1]


@pytest.mark.slow
def test_what_it_played_before_is_learned_from_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring holds 300 steps: at 400 it has forgotten the first ones, and so have its files."""
    killed_after(4, tmp_path, SAC, monkeypatch)
    rings = []
    restore, save = Play.restore, Play.save

    def seen(play: Play, *saved: Any) -> None:
        restore(play, *saved)
        rings.append(play.ring.rows_from(0))

    monkeypatch.setattr(Play, "restore", seen)
    killed_after(1, tmp_path, SAC, monkeypatch)
    held: list[Any] = []
    monkeypatch.setattr(Play, "save", lambda play: held.append(play.ring.rows_from(0)) or save(play))
    train(tmp_path / "whole", SAC)
    (found,), unbroken = rings, held[3]
    last = len(unbroken["obs"]) - 2  # the episodes that were open then end there, and new ones begin
    for name, column in found.items():
        assert torch.equal(column[: last - 1], unbroken[name][1:last]), name
    assert found["is_step"].sum() > 285


def test_a_damaged_file_of_the_ring_costs_its_steps_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    killed_after(3, tmp_path, SHORT, monkeypatch)
    first, *_ = sorted((tmp_path / "checkpoints").glob("steps-*"))
    first.write_bytes(first.read_bytes()[:-1])
    assert train(tmp_path, SHORT).env_steps == 400
    assert "its steps are not learned from again" in caplog.text


def test_a_recording_has_what_was_recorded_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = {"every_rollouts": 2, "episodes": 3}
    killed_after(2, tmp_path, PPO, monkeypatch, recording=recording)
    result = train(tmp_path, PPO, recording=recording)
    assert result.recording is not None
    found = list(open_dataset(result.recording.uri).episodes())
    assert len(found) == result.recording.episodes == 3 * 4, "after rollouts 2, 4, 6 and 8"
    assert len({episode.eps_id for episode in found}) == len(found)


@pytest.mark.parametrize("settings", [pytest.param(PPO, marks=pytest.mark.slow), SHORT], ids=["ppo", "sac"])
@pytest.mark.parametrize("kills", slow_but([1, 3], 3))
def test_a_replay_has_each_step_once_however_often_it_was_killed(
    tmp_path: Path, settings: dict[str, Any], kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings | {"recording": {"replay": True}}
    for _ in range(kills):
        killed_after(1, tmp_path, settings, monkeypatch)
    result = train(tmp_path, settings)
    assert result.recording is not None
    found = list(open_dataset(result.recording.uri).episodes())
    assert result.recording.steps == result.env_steps == sum(map(len, found))
    assert len({episode.eps_id for episode in found}) == len(found)
    assert all(episode.is_done for episode in found)


def test_other_parameters_begin_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_after(1, tmp_path, PPO, monkeypatch)
    result = train(tmp_path, PPO, seed=1)
    other = train(tmp_path / "other", PPO, seed=1)
    weights = [read_policy_manifest(each.checkpoint).weights_sha256 for each in (result, other)]
    assert weights[0] == weights[1] and result.curve == other.curve


def test_snapshots_are_the_first_policies_that_reach_a_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"snapshots_at_returns": [15, 30, 499], "total_steps": 20_000, "evaluation": {"episodes": 5, "target_return": 60}}
    killed_after(1, tmp_path, PPO, monkeypatch, **wanted)
    result = train(tmp_path, PPO, **wanted)
    assert list(result.snapshots) == [15, 30]
    for reached, uri in result.snapshots.items():
        first = next(score for _, score in result.curve if score >= reached)
        assert read_policy_manifest(uri).metrics["episode_return_mean"] == first
    again = train(tmp_path, PPO, **wanted)
    assert again.reused and again.snapshots == result.snapshots
