"""Scaled rewards, against gymnasium's running returns worked out by a loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.store.location import Location
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.metrics import series
from offline_core.learning.step_ring import RewardScale
from offline_core.runtime.config import parse


def rollout(steps: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rewards, ends and steps of two copies; the second is reset after step 2, which it ended, and ends with the last step."""
    rewards = torch.from_numpy(np.random.default_rng(seed).normal(3.0, 2.0, (steps, 2))).float()
    ends, is_step = torch.zeros(steps, 2, dtype=torch.bool), torch.ones(steps, 2, dtype=torch.bool)
    ends[2, 1] = ends[-1, 1] = True
    is_step[3, 1], rewards[3, 1] = False, 0.0
    return rewards, ends, is_step


def scaled(scale: RewardScale, steps: int, seed: int) -> Tensor:
    rewards, ends, is_step = rollout(steps, seed)
    return scale.scaled(rewards, ends=ends, is_step=is_step)


def test_rewards_are_divided_by_the_deviation_of_the_returns_so_far() -> None:
    scale, seen, open_returns = RewardScale(2, gamma=0.9), [], np.zeros(2)
    for seed in range(3):
        rewards, ends, is_step = rollout(8, seed)
        for t in range(8):
            for copy in range(2):
                open_returns[copy] = 0.9 * open_returns[copy] + float(rewards[t, copy])
                if is_step[t, copy]:
                    seen.append(open_returns[copy])
                if ends[t, copy]:
                    open_returns[copy] = 0.0
        np.testing.assert_allclose(scaled(scale, 8, seed), (rewards / np.std(seen)).clip(-10, 10), rtol=1e-5)


def test_it_goes_on_from_its_state() -> None:
    scale, other = RewardScale(2, gamma=0.9), RewardScale(2, gamma=0.9)
    scaled(scale, 8, 0)
    other.restore(scale.state())
    scale.returns.zero_()
    assert torch.equal(scaled(scale, 8, 1), scaled(other, 8, 1))


def test_recorded_and_evaluated_returns_stay_those_of_the_environment(tmp_path: Path) -> None:
    values = {
        "environment": {"id": "Pendulum-v1"},
        "total_steps": 512,
        "num_envs": 4,
        "rollout_steps": 32,
        "evaluation": {"episodes": 2},
        "recording": {"every_rollouts": 2, "episodes": 2},
        "ppo": {"normalize_rewards": True},
    }
    result = train_expert(parse(ExpertConfig, values), output=str(tmp_path))
    assert result.recording is not None
    assert all(episode.rewards.sum() < -300 for episode in open_dataset(result.recording.uri).episodes())
    returns, losses = (series(Location.of(str(tmp_path)), name) for name in ("episode_return_mean", "value_loss"))
    assert returns and all(mean < -300 for _, mean in returns)
    assert losses and all(loss < 50 for _, loss in losses)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_stays_one(reward: float) -> None:
    rewards, ends, is_step = rollout(8, 0)
    rewards[1, 0] = reward
    assert RewardScale(2, gamma=0.9).scaled(rewards, ends=ends, is_step=is_step).isnan().any()
