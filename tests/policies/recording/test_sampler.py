"""Episodes that are played while they are asked for, alone and in a mixture."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import CheckpointError, ConfigError
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.recording.mixing import EPISODES_PER_ROUND, MixtureConfig, mix, sample_episodes
from offline_core.runtime.config import EnvironmentSpec


def test_episodes_without_end_each_complete_and_another(cartpole_policy: str) -> None:
    def played(seed: int, count: int) -> list[Episode]:
        stream = sample_episodes(cartpole_policy, read_policy_manifest(cartpole_policy), environment=None, seed=seed)
        return list(itertools.islice(stream, count))

    found = played(1, 2 * EPISODES_PER_ROUND + 3)
    assert len({e.eps_id for e in found}) == len(found)
    assert all(e.is_done and e.validate() for e in found)
    assert played(1, 5) == found[:5]
    assert played(2, 1) != found[:1]


def test_a_mixture_of_a_recording_and_a_policy_that_plays(cartpole_policy: str, rllib_recordings: Path, tmp_path: Path) -> None:
    recorded = import_data(
        ImportConfig(), source=str(rllib_recordings / "cartpole_episodes"), output=str(tmp_path / "recorded")
    ).dataset.uri
    config = MixtureConfig(datasets={recorded: 0.75}, policies={cartpole_policy: 0.25}, steps=4_000, seed=5)
    result = mix(config, output=str(tmp_path / "mixed"))
    assert result.is_complete and sum(result.steps.values()) == result.dataset.steps >= 4_000
    assert abs(result.steps[recorded] / result.dataset.steps - 0.75) < 0.13  # an episode has up to 500 steps
    dataset = open_dataset(result.dataset.uri)
    assert {parent.kind for parent in dataset.manifest.parents} == {"dataset", "checkpoint"}
    lived = [e for e in dataset.episodes() if e.custom_data.get("policy_id")]
    assert sum(map(len, lived)) == result.steps[cartpole_policy]


def test_a_mixture_has_the_environment_that_its_sources_have(cartpole_policy: str, tmp_path: Path) -> None:
    def mixed(name: str, **config: Any) -> EnvironmentSpec | None:
        result = mix(MixtureConfig(steps=100, **config), output=str(tmp_path / name))
        return open_dataset(result.dataset.uri).manifest.environment

    assert mixed("played", policies={cartpole_policy: 1.0}) == EnvironmentSpec(id="CartPole-v1")
    played = {str(tmp_path / "played"): 1.0}
    assert mixed("copied", datasets=played) == EnvironmentSpec(id="CartPole-v1")
    both: dict[str, Any] = {"datasets": played, "policies": {cartpole_policy: 1.0}, "seed": 1}
    assert mixed("both", **both) == EnvironmentSpec(id="CartPole-v1")
    other = EnvironmentSpec(id="CartPole-v1", kwargs={"sutton_barto_reward": True})
    assert mixed("differ", **both, environment=other) is None


def test_what_cannot_be_mixed(cartpole_policy: str, rllib_recordings: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs datasets or policies"):
        mix(MixtureConfig(), output=str(tmp_path / "none"))
    pendulum = str(tmp_path / "pendulum")
    import_data(ImportConfig(), source=str(rllib_recordings / "pendulum_episodes"), output=pendulum)
    with pytest.raises(ConfigError, match="cannot be mixed"):
        mix(MixtureConfig(datasets={pendulum: 1.0}, policies={cartpole_policy: 1.0}), output=str(tmp_path / "spaces"))
    with pytest.raises(CheckpointError):
        mix(MixtureConfig(policies={str(tmp_path / "nowhere"): 1.0}), output=str(tmp_path / "missing"))
    assert not [place for name in ("none", "spaces", "missing") for place in (tmp_path / name).glob("_versions/*.json")]
