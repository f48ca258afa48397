"""Every stage that takes a policy takes its address, and tells of the checkpoint that it names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import offline_core as offline
from offline_core.data.datasets.dataset import open_dataset
from offline_core.errors import ConfigError
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.inspection import card_at
from offline_core.plans.recording import plan_recording
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.recording.config import RecordingConfig
from tests.keeping.promotion.decisions import CARTPOLE, policy_at
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes


@pytest.fixture
def hvac(tmp_path: Path) -> str:
    """A name with a champion."""
    name = str(tmp_path / "registry" / "hvac")
    offline.promote(policy_at(tmp_path / "policy", 1), registry=name, override="the first")
    return name


@pytest.fixture
def copy(hvac: str) -> str:
    """The checkpoint that the champion is."""
    [history] = offline.read_registry(hvac)
    return history.checkpoint(history.aliases["champion"]).uri


def evaluated(address: str, _: str, output: str) -> str:
    result = offline.evaluate(address, episodes=2)
    assert result.uri.startswith(result.checkpoint)
    return result.checkpoint


def estimated(address: str, data: str, output: str) -> str:
    result = offline.estimate(address, data, behaviour=address, methods=["wis"], gate_method="wis", resamples=10, explore=True)
    assert result.behaviour == result.checkpoint
    return result.checkpoint


def exported(address: str, _: str, output: str) -> str:
    return offline.export_policy(address, output=output, formats=["torch_export"], latency_calls=2).policy


def recorded(address: str, _: str, output: str) -> str:
    offline.record(address, episodes=2, envs_per_recorder=2, output=output)
    return open_dataset(output).manifest.parents[0].uri


def mixed(address: str, _: str, output: str) -> str:
    made = offline.mix(policies={address: 1.0}, steps=10, output=output).manifest
    assert made.operation.config["policies"] == {made.parents[0].uri: 1.0} and [*made.report["steps"]] == [made.parents[0].uri]
    return made.parents[0].uri


def continued(address: str, _: str, output: str) -> str:
    expert = offline.train_expert(
        "CartPole-v1", output=output, initial_policy=address, total_steps=2048, num_envs=4, evaluation={"episodes": 2}
    )
    return read_policy_manifest(expert.checkpoint).parents[0].uri


def learned(address: str, data: str, output: str) -> str:
    training = offline.train(
        data, output=output, initial_policy=address, optimizer={"max_epochs": 1}, evaluation={"episodes": 2}
    )
    return read_policy_manifest(training.checkpoint).parents[-1].uri


STAGES: list[Callable[[str, str, str], str]] = [evaluated, estimated, exported, recorded, mixed, continued, learned]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_stage_takes_an_address_and_names_the_checkpoint(
    hvac: str, copy: str, tmp_path: Path, stage: Callable[[str, str, str], str]
) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(4))
    assert stage(f"{hvac}@champion", data, str(tmp_path / "out")) == copy


def test_a_stage_of_an_alias_that_has_moved_is_done_anew(hvac: str, tmp_path: Path) -> None:
    first = offline.evaluate(f"{hvac}@champion", episodes=2)
    offline.promote(policy_at(tmp_path / "next", 2), registry=hvac, override="better")
    second = offline.evaluate(f"{hvac}@champion", episodes=2)
    offline.rollback(hvac)
    third = offline.evaluate(f"{hvac}@champion", episodes=2)
    assert not second.reused and second.checkpoint != first.checkpoint
    assert third == first.model_copy(update={"reused": True})


def test_a_sweep_weighs_by_an_address(hvac: str, copy: str, tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(6))

    def swept(behaviour: str) -> SweepResult:
        return offline.sweep(
            data,
            output=tmp_path / "sweep",
            training={"optimizer": {"max_epochs": 1}, "evaluation": {"play": False}},
            seeds=1,
            parallel=1,
            score="estimate",
            estimate_on=data,
            estimate={"behaviour": behaviour, "fqe": {"updates": 10}},
        )

    assert not swept(f"{hvac}@champion").reused
    assert swept(copy).reused, "the policy that the address names"


def test_two_names_of_one_policy_are_not_mixed(hvac: str, copy: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="are the same checkpoint: name it once"):
        offline.mix(policies={f"{hvac}@champion": 0.5, copy: 0.5}, steps=10, output=tmp_path / "out")


def test_a_plan_and_an_inspection_take_it(hvac: str, copy: str, tmp_path: Path) -> None:
    plan = plan_recording(RecordingConfig(episodes=2), policy=f"{hvac}@champion", output=str(tmp_path / "out"))
    assert [each.uri for each in plan.reads] == [copy]
    shown = card_at(f"{hvac}@champion").terminal(verbose=True)
    assert copy.rpartition("/")[2] in shown and CARTPOLE.id in shown


def test_a_relative_address(hvac: str, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert offline.evaluate("registry/hvac@champion", episodes=2).checkpoint == copy
    monkeypatch.chdir(tmp_path / "registry")
    assert offline.evaluate("hvac@champion", episodes=2).checkpoint == copy
