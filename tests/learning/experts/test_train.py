"""Making experts: the same each time, honest about the target, nothing written when it cannot work."""

from __future__ import annotations

import logging
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EnvironmentNotFoundError, LearningError, StorageError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.metrics import series
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.rollouts import rollouts
from offline_core.runtime.config import EnvironmentSpec, parse
from offline_core.runtime.overlay import overlaid
from offline_core.runtime.seeding import derive_seed
from tests.learning.play.rollouts import SPEC, ppo_in


def tiny(**values: object) -> ExpertConfig:
    base = {
        "total_steps": 2_000,
        "num_envs": 8,
        "rollout_steps": 32,
        "evaluation": {"episodes": 5},
        "network": {"hidden_sizes": [8]},
    }
    return parse(ExpertConfig, overlaid(base, values))


def test_same_seed_same_expert_to_the_bit(tmp_path: Path) -> None:
    sha = [
        read_policy_manifest(train_expert(tiny(seed=seed), output=str(tmp_path / name)).checkpoint).weights_sha256
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert sha[0] == sha[1] != sha[2]


def test_torch_is_left_with_the_threads_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [3]
    monkeypatch.setattr(torch, "get_num_threads", lambda: counts[-1])
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    train_expert(tiny(total_steps=8, compute={"threads": 2}), output=str(tmp_path))
    assert 2 in counts and counts[-1] == 3


def test_a_target_that_is_not_reached_is_said_and_the_best_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = train_expert(tiny(evaluation={"target_return": 500}), output=str(tmp_path))
    assert not result.reached_target
    assert "did not reach the target return of 500" in caplog.text
    assert result.metrics["episode_return_mean"] == max(mean for _, mean in result.curve)
    load_policy(result.checkpoint)
    returns = series(Location.of(str(tmp_path)), "episode_return_mean")
    assert returns == result.curve and len(returns) >= 3


def test_it_stops_at_the_target(tmp_path: Path) -> None:
    result = train_expert(
        tiny(evaluation={"target_return": 5}, total_steps=10**6, rollouts_per_iteration=2), output=str(tmp_path)
    )
    assert result.reached_target and len(result.curve) == 1
    assert 256 < result.env_steps <= 512, "of two rollouts of 8 times 32 steps, less those that only reset"


def test_it_gives_up_when_evaluations_get_no_better(tmp_path: Path) -> None:
    """With a rate of nearly nothing, so that all policies are alike."""
    config = tiny(optimizer={"learning_rate": 1e-8}, evaluation={"patience": 2, "target_return": 500}, rollouts_per_iteration=1)
    result = train_expert(config, output=str(tmp_path))
    returns = [mean for _, mean in result.curve]
    assert len(returns) == returns.index(max(returns)) + 3 < 8 and not result.reached_target


@pytest.mark.parametrize("actions", ["greedy", "sampled"])
def test_the_target_is_met_by_the_actions_that_are_asked_for(tmp_path: Path, actions: str) -> None:
    """A policy by lot is recorded as it was evaluated only if evaluations sample, too."""
    config = tiny(total_steps=256, evaluation={"actions": actions})
    result = train_expert(config, output=str(tmp_path))
    seed = derive_seed(config.seed, "evaluation")
    played = [
        rollouts(load_policy(result.checkpoint), config.environment, episodes=5, seed=seed, explore=explore).metrics
        for explore in (actions == "sampled", actions != "sampled")
    ]
    assert result.metrics == played[0] != played[1]
    assert result.actions == actions


@pytest.mark.parametrize("total_steps", [3, 9, 600])
def test_it_takes_no_more_steps_than_it_may(tmp_path: Path, total_steps: int) -> None:
    """Fewer than one of each copy; one of each, and one left over; two rollouts, and part of a third."""
    result = train_expert(tiny(total_steps=total_steps, evaluation={"target_return": 500}), output=str(tmp_path))
    assert max(0, total_steps - 8) < result.env_steps <= total_steps
    assert result.curve[-1][0] == result.env_steps, "what was learned last is evaluated"


def test_steps_that_are_not_used_up_change_nothing(tmp_path: Path) -> None:
    results = [
        train_expert(tiny(evaluation={"target_return": 5}, total_steps=steps), output=str(tmp_path / str(steps)))
        for steps in (10**9, 2 * 32 * 8)
    ]
    assert results[0].env_steps == results[1].env_steps and results[0].reached_target
    sha = {read_policy_manifest(result.checkpoint).weights_sha256 for result in results}
    assert len(sha) == 1


@pytest.mark.slow
def test_the_default_masters_cartpole(tmp_path: Path) -> None:
    result = train_expert(ExpertConfig(), output=str(tmp_path))
    assert result.reached_target and result.metrics["episode_return_mean"] >= 475


def test_what_cannot_work_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotFoundError, match="CartPoleX-v1"):
        train_expert(tiny(environment={"id": "CartPoleX-v1"}), output=str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="gravityy"):
        train_expert(tiny(environment={"id": "Pendulum-v1", "kwargs": {"gravityy": 1}}), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file/below"):
        train_expert(tiny(), output=str(tmp_path / "file" / "below"))


class Corridor(gym.Env):
    """Walk right for a reward; composite observations; ends by a time limit that is a truncation."""

    observation_space = gym.spaces.Dict({"at": gym.spaces.Discrete(6), "clock": gym.spaces.Box(0, 1, (1,), np.float32)})
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = 0, 0
        return self._observation(), {}

    def step(self, action):
        self.at = min(5, max(0, self.at + (1 if action else -1)))
        self.time += 1
        return self._observation(), float(self.at == 5), False, self.time == 10, {}

    def _observation(self):
        return {"at": np.int64(self.at), "clock": np.array([self.time / 10], np.float32)}


gym.register("OfflineTests/Corridor-v0", Corridor)
CORRIDOR = EnvironmentSpec(id=f"{__name__}:OfflineTests/Corridor-v0")


def test_composite_observations_can_be_learned_from(tmp_path: Path) -> None:
    config = tiny(
        environment=CORRIDOR.model_dump(),
        evaluation={"target_return": 6},
        total_steps=30_000,
        optimizer={"learning_rate": 0.01},
    )
    assert train_expert(config, output=str(tmp_path)).reached_target


def test_steps_that_only_reset_are_not_learned_from() -> None:
    networks, [rollout] = ppo_in(CORRIDOR, 33, copies=3, gamma=0.9, gae_lambda=0.8)
    assert len(rollout) == 3 * 30, "ten steps and a reset, three times over, in each of the three copies"
    assert rollout.offsets.diff().tolist() == [11, 11, 11, 1] * 3, "the last row is the next episode's first observation"
    networks.algorithm.prepare(networks, rollout, SPEC)
    assert rollout.batch(rollout.rows, SPEC)["advantages"].isfinite().all()


def test_a_rollout_goes_on_in_the_next_one() -> None:
    """Nothing ended at the cut: its steps are worth what came, and the value of the observation that the rollout stops at."""
    networks, [first, second] = ppo_in(CORRIDOR, 16, 17, copies=3, gamma=0.9, gae_lambda=0.8)
    assert len(first) == 3 * 15, "ten steps, a reset, five steps, of each of three copies"
    cuts, begins = first.last[1::2], second.first[::3]
    for name in ("obs/at", "obs/clock"):
        assert torch.equal(first.columns[name][cuts], second.columns[name][begins])
    networks.algorithm.prepare(networks, first, SPEC)
    values, rewards = first.columns["old_values"], first.columns["rewards"]
    wanted = rewards[cuts - 1] + 0.9 * values[cuts]
    assert torch.allclose(first.columns["value_targets"][cuts - 1], wanted, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*reward is a NaN")
def test_a_loss_that_is_no_number_stops_with_advice(tmp_path: Path) -> None:
    with pytest.raises(LearningError, match=r"At update 1 .*loss.* became NaN or infinite.*environment"):
        train_expert(
            tiny(environment=EnvironmentSpec(id=f"{__name__}:OfflineTests/Broken-v0").model_dump()), output=str(tmp_path)
        )


class Broken(Corridor):
    """Its rewards are no numbers."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float("nan"), terminated, truncated, info


gym.register("OfflineTests/Broken-v0", Broken)
