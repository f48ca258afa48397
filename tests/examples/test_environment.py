"""examples/environment.py."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import offline_core as offline
from examples.environment import Corridor


def test_it_is_an_environment_as_gymnasium_has_them() -> None:
    check_env(gym.make("Corridor-v0").unwrapped, skip_render_check=True)
    corridor = Corridor(length=3)
    for seed in range(9):
        observation, _ = corridor.reset(seed=seed)
        steps = [corridor.step(1) for _ in range(3 - round(3 * float(observation[0])))]
        assert [terminated for _, _, terminated, _, _ in steps] == [False] * (len(steps) - 1) + [True]
        assert [info["is_success"] for *_, info in steps] == [terminated for _, _, terminated, _, _ in steps]
        assert sum(reward for _, reward, *_ in steps) == 1 - len(steps)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_an_expert_learns_it_and_workers_of_ray_play_it(tmp_path: Path) -> None:
    expert = offline.train_expert("examples.environment:Corridor-v0", output=tmp_path / "expert")
    assert expert.reached_target and expert.metrics["episode_return_mean"] >= -5.5
    assert expert.metrics["success_rate"] == 1.0
    data = offline.record(expert, episodes=12, explore=False, output=tmp_path / "recording")
    assert (data.ref.episodes, data.manifest.statistics.terminated) == (12, 12)
