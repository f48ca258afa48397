"""Scaled rewards, against gymnasium's running returns worked out by a loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.reader import episodes
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.on_policy import RewardScale
from offline_core.learning.experts.rollout import Rollout
from offline_core.learning.experts.train import train_expert
from offline_core.runtime.config import parse


def rollout(steps: int, seed: int) -> Rollout:
    """Steps of two copies; the second one is reset after step 2, which it terminated, and ends with a truncation."""
    rewards = torch.from_numpy(np.random.default_rng(seed).normal(3.0, 2.0, (steps, 2))).float()
    terminated, truncated, is_step = (torch.zeros(steps, 2, dtype=torch.bool) for _ in range(3))
    is_step[:] = True
    terminated[2, 1], truncated[-1, 1] = True, True
    is_step[3, 1], rewards[3, 1] = False, 0.0
    return Rollout(torch.zeros(steps + 1, 2, 1), torch.zeros(steps, 2), rewards, terminated, truncated, is_step)


def test_rewards_are_divided_by_the_deviation_of_the_returns_so_far() -> None:
    scale, seen, open_returns = RewardScale(2, gamma=0.9), [], np.zeros(2)
    for seed in range(3):
        played = rollout(8, seed)
        for t in range(8):
            for copy in range(2):
                open_returns[copy] = 0.9 * open_returns[copy] + float(played.rewards[t, copy])
                if played.is_step[t, copy]:
                    seen.append(open_returns[copy])
                if played.terminated[t, copy] or played.truncated[t, copy]:
                    open_returns[copy] = 0.0
        scaled = scale.scaled(played)
        np.testing.assert_allclose(scaled.rewards, (played.rewards / np.std(seen)).clip(-10, 10), rtol=1e-5)
        assert torch.equal(scaled.terminated, played.terminated)


def test_it_goes_on_from_its_state() -> None:
    scale, other = RewardScale(2, gamma=0.9), RewardScale(2, gamma=0.9)
    scale.scaled(rollout(8, 0))
    other.restore(scale.state())
    scale.returns.zero_()
    assert torch.equal(scale.scaled(rollout(8, 1)).rewards, other.scaled(rollout(8, 1)).rewards)


def test_recorded_and_evaluated_returns_stay_those_of_the_environment(tmp_path: Path) -> None:
    values = {
        "environment": {"id": "Pendulum-v1"},
        "total_steps": 512,
        "num_envs": 4,
        "rollout_steps": 32,
        "evaluation_episodes": 2,
        "recording": {"every_rollouts": 2, "episodes": 2},
        "ppo": {"normalize_rewards": True},
    }
    result = train_expert(parse(ExpertConfig, values), output=str(tmp_path))
    assert result.recording is not None
    assert all(episode.rewards.sum() < -300 for episode in episodes(open_dataset(result.recording.uri)))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(line["episode_return_mean"] < -300 and line["value_loss"] < 50 for line in lines)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_stays_one(reward: float) -> None:
    played = rollout(8, 0)
    played.rewards[1, 0] = reward
    assert RewardScale(2, gamma=0.9).scaled(played).rewards.isnan().any()
