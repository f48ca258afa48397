"""Going on by play from a training: it begins with its networks, is never worse than its start, and goes on after a kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offline_core as offline
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError
from offline_core.learning import evaluations
from offline_core.learning.checkpoints import load_networks
from offline_core.learning.fine_tuning.config import FineTuneConfig
from offline_core.learning.fine_tuning.fine_tune import fine_tune
from offline_core.learning.learner import Learner
from offline_core.learning.monitor import TrainingMonitor
from offline_core.learning.play import Play
from offline_core.learning.result import NETWORKS_FILE, FineTuneResult
from offline_core.learning.step_ring import StepRing
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.rollouts import Rollouts

SMALL = {"hidden_sizes": [8]}
PENDULUM = {"id": "Pendulum-v1"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of Pendulum by a random policy, and trainings from it."""
    root = tmp_path_factory.mktemp("fine-tuning")
    few = {
        "total_steps": 16,
        "num_envs": 4,
        "rollout_steps": 2,
        "rollouts_per_iteration": 8,
        "evaluation": {"episodes": 2, "target_return": 0.0},
    }
    expert = offline.train_expert("Pendulum-v1", output=root / "nothing", network=SMALL, **few)
    offline.record(expert, output=root / "data", episodes=4)
    for algorithm in ("iql", "bc"):
        offline.train(
            root / "data",
            output=root / algorithm,
            algorithm=algorithm,
            network=SMALL,
            optimizer={"max_updates": 20, "batch_size": 64},
            evaluation={"play": False},
            data={"rewards": {"scale": 0.1}} if algorithm == "iql" else {},
        )
    return root


def tuned(world: Path, output: Path, training: str = "iql", **settings: Any) -> FineTuneResult:
    few: dict[str, Any] = {"total_steps": 240, "num_envs": 2, "rollouts_per_iteration": 40, "evaluation": {"episodes": 2}}
    few |= {"replay": {"learning_starts_steps": 40}, "optimizer": {"batch_size": 32}, "environment": PENDULUM}
    config = FineTuneConfig(**few | settings)
    return fine_tune(config, training=str(world / training), dataset=str(world / "data"), output=str(output))


def test_it_begins_with_the_policy_of_the_training_and_is_never_worse(world: Path, tmp_path: Path) -> None:
    result = tuned(world, tmp_path)
    start = offline.evaluate(world / "iql" / "last", episodes=2, environment=PENDULUM)
    assert result.curve[0][0] == 0 and [steps for steps, _ in result.curve[1:]] == [80, 160, 240]
    assert np.isfinite(start.metrics["episode_return_mean"])
    assert result.updates == 240 - 40 and result.mean_return == max(score for _, score in result.curve)
    assert result.start_return == result.curve[0][1] <= result.mean_return
    assert tuned(world, tmp_path).reused


@pytest.mark.slow
def test_the_same_seed_makes_the_same_policy(world: Path, tmp_path: Path) -> None:
    one, other = tuned(world, tmp_path / "one"), tuned(world, tmp_path / "other")
    assert one.curve == other.curve
    weights = [load_policy(result.best).state_dict() for result in (one, other)]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_half_of_a_batch_is_recorded_and_rewards_are_scaled_alike(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    batches: list[Any] = []
    draw, update = StepRing.draw, Learner.update

    def seen(ring: StepRing, size: int, generator: torch.Generator) -> torch.Tensor:
        drawn.append(size)
        return draw(ring, size, generator)

    monkeypatch.setattr(StepRing, "draw", seen)
    monkeypatch.setattr(
        Learner, "update", lambda learner, indices, of: batches.append(of.columns) or update(learner, indices, of)
    )
    tuned(world, tmp_path, total_steps=60)
    assert set(drawn) == {16} and {len(each["obs"]) for each in batches} == {32}
    rewards = torch.stack([each["n_step_rewards"] for each in batches])
    fresh, recorded = rewards[:, :16], rewards[:, 16:]  # of Pendulum -16 to 0, learned as a tenth
    assert -1.7 < fresh.min() < -0.1 and -1.7 < recorded.min() < -0.1


def test_evaluations_below_the_first_bring_the_best_networks_back(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([-500.0, -400.0, -900.0, -450.0, -900.0, -900.0])
    networks: list[dict[str, torch.Tensor]] = []
    collect, played = TrainingMonitor._collect, evaluations.rollouts

    def scored(*arguments: Any, **more: Any) -> Rollouts:
        return replace(played(*arguments, **more), returns=np.array([next(scores)]))

    def seen(monitor: TrainingMonitor, *, wait: bool) -> None:
        policy, measured = monitor.learner.networks.policy, len(monitor.curve)
        before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
        collect(monitor, wait=wait)
        if len(monitor.curve) > measured:
            networks.extend([before, {name: tensor.clone() for name, tensor in policy.state_dict().items()}])

    monkeypatch.setattr(evaluations, "rollouts", scored)
    monkeypatch.setattr(TrainingMonitor, "_collect", seen)
    result = tuned(world, tmp_path, total_steps=400, roll_back_after=2)
    assert [value for _, value in result.curve] == [-500.0, -400.0, -900.0, -450.0, -900.0, -900.0]
    assert (result.rollbacks, result.start_return, result.mean_return) == (1, -500.0, -400.0), "two in a row"
    best, fallen, back = networks[2], networks[10], networks[11]
    assert any(not torch.equal(tensor, fallen[name]) for name, tensor in best.items())
    assert all(torch.equal(tensor, back[name]) for name, tensor in best.items())
    assert all(torch.equal(*pair) for pair in zip(networks[4].values(), networks[5].values(), strict=True)), "not after one"


def test_a_run_that_was_stopped_goes_on(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = TrainingMonitor._save, []

    def save_and_stop(monitor: TrainingMonitor) -> None:
        real(monitor)
        calls.append(monitor)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingMonitor, "_save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        tuned(world, tmp_path)
    result = tuned(world, tmp_path)
    assert [steps for steps, _ in result.curve] == [0, 80, 160, 240] and result.updates == 200


def test_a_training_without_critics_is_refused(world: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is by bc, which has no critics"):
        tuned(world, tmp_path / "out", "bc")
    with pytest.raises(ConfigError, match="not the folder of a finished training"):
        tuned(world, tmp_path / "out", "data")
    assert not (tmp_path / "out").exists()


def test_what_no_environment_mends_is_said_before_one_is_asked_for(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offline_core.policies.manifest.recorded_environment", lambda *_, **__: None)
    for training, told in (
        ("bc", "is by bc, which has no critics"),
        ("iql", f"Policy {world}/iql does not name the environment"),
    ):
        with pytest.raises(ConfigError, match=told):
            tuned(world, tmp_path / "out", training, environment=None)


def test_networks_that_were_changed_are_refused(world: Path, tmp_path: Path) -> None:
    file = world / "iql" / NETWORKS_FILE
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    try:
        with pytest.raises(CorruptFileError, match=r"networks\.safetensors is not what the training wrote"):
            tuned(world, tmp_path)
    finally:
        file.write_bytes(data)


def test_what_does_not_fit_is_refused(world: Path, tmp_path: Path) -> None:
    offline.record(world / "nothing" / "best", output=tmp_path / "same", episodes=1)
    other = offline.train_expert(
        "CartPole-v1", output=tmp_path / "cartpole", network=SMALL, total_steps=64, evaluation={"target_return": 0}
    )
    offline.record(other, output=tmp_path / "other", episodes=1)
    config = FineTuneConfig(environment=PENDULUM)
    with pytest.raises(ConfigError, match="was recorded with other spaces"):
        fine_tune(config, training=str(world / "iql"), dataset=str(tmp_path / "other"), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("algorithm", ["rebrac", "td3_bc"])
def test_targets_go_on_as_they_were(world: Path, tmp_path: Path, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    training = offline.train(
        world / "data",
        output=tmp_path / "training",
        algorithm=algorithm,
        network=SMALL,
        optimizer={"max_updates": 20, "batch_size": 64},
        evaluation={"play": False},
    )
    begun: list[Any] = []
    play = Play._play

    def seen(playing: Play) -> None:
        begun.append({name: tensor.clone() for name, tensor in playing._networks.state_dict().items()})
        play(playing)

    monkeypatch.setattr(Play, "_play", seen)
    few: dict[str, Any] = {"total_steps": 60, "num_envs": 2, "rollouts_per_iteration": 30, "evaluation": {"episodes": 1}}
    few |= {"replay": {"learning_starts_steps": 40}, "optimizer": {"batch_size": 32}}
    result = offline.fine_tune(training, world / "data", output=tmp_path / "out", environment=PENDULUM, **few)
    kept = load_networks(Location.of(str(tmp_path / "training")), str(training.networks_sha256))
    assert all(torch.equal(tensor, kept[name]) for name, tensor in begun[0].items())
    assert result.updates == 20
