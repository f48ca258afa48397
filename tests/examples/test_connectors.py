"""Rewards are clipped, frames stacked as gymnasium stacks them, MARWIL's sequence gives what MARWIL computes."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation

import offline_core as offline
from examples.frame_stacking import StackFrames
from examples.marwil_sequence import AdvantageWeights, NextObservations
from examples.reward_clipping import clip_rewards
from flows.settings import read_values

EXAMPLES = Path(__file__).parents[2] / "examples"


class Replay(gym.Env):
    """Shows given observations, one after the other."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, observations: np.ndarray) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, observations.shape[1:], np.float32)
        self._observations = observations

    def reset(self, **_: object) -> tuple[np.ndarray, dict]:
        self._t = 0
        return self._observations[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._t += 1
        return self._observations[self._t], 0.0, False, False, {}


def test_rewards_are_clipped_and_the_rest_left_alone() -> None:
    steps = offline.EpisodeBatch.from_steps({"obs": np.zeros((3, 1)), "rewards": np.array([-3.0, 0.5, 9.0])}, [3])
    clipped = clip_rewards(steps, high=2.0)
    assert clipped["rewards"].tolist() == [-1.0, 0.5, 2.0]
    assert clipped["obs"] is steps["obs"] and steps["rewards"].tolist() == [-3.0, 0.5, 9.0]


def test_frames_are_those_of_gymnasium() -> None:
    episodes = [
        np.random.default_rng(seed).normal(size=(length, 4)).astype(np.float32) for seed, length in enumerate((6, 1, 3))
    ]
    expected = []
    for observations in episodes:
        env = FrameStackObservation(Replay(observations), 3)
        expected += [env.reset()[0], *(env.step(0)[0] for _ in observations[1:])]
    found = StackFrames(3)(offline.EpisodeBatch.from_steps({"obs": np.concatenate(episodes)}, [6, 1, 3]))
    np.testing.assert_array_equal(found["obs"], np.stack(expected))


def test_a_policy_of_stacked_frames_plays_where_frames_are_stacked(balancing: str, tmp_path: Path) -> None:
    connector = {"path": "examples.frame_stacking:StackFrames", "arguments": {"frames": 4}}
    settings = {
        "data": {"connectors": [connector], "prelearners": 0},
        "evaluation": {"environment": {"id": "examples.frame_stacking:StackedCartPole-v1"}, "episodes": 20},
        "optimizer": {"max_epochs": 30},
    }
    result = offline.train(balancing, config=settings, output=tmp_path)
    assert offline.load_policy(result.best).observation_space.shape == (4, 4)
    assert result.metrics["episode_return_mean"] > 150


def test_a_policy_of_changed_observations_is_not_played_in_the_old_environment(balancing: str, tmp_path: Path) -> None:
    connector = {"path": "examples.frame_stacking:StackFrames"}
    settings = {"data": {"connectors": [connector]}, "optimizer": {"max_epochs": 1}}
    assert not offline.train(balancing, config=settings, output=tmp_path).metrics
    wrong = settings | {"evaluation": {"environment": {"id": "CartPole-v1"}}}
    with pytest.raises(offline.errors.ConfigError, match="The policy has the observation space"):
        offline.train(balancing, config=wrong, output=tmp_path / "wrong")


def test_marwils_sequence_weighs_by_gae(balancing: str, tmp_path: Path) -> None:
    """By hand: δ = r + γ V' - V, Â = δ + γλ Â', for an episode that terminates and one that is truncated."""
    critic = str(tmp_path / "critic")
    marwil = {"algorithm": "marwil", "optimizer": {"max_epochs": 1}, "evaluation": {"episodes": 1}}
    offline.train(balancing, config=marwil, output=critic)
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    steps = {"obs": observations, "rewards": np.array([1.0, 2.0, 3.0, 4.0, 5.0])}
    steps["terminateds"] = np.array([False, False, True, False, False])
    rows = offline.EpisodeBatch.from_steps(steps, [3, 2], np.zeros((2, 4), np.float32))
    found = AdvantageWeights(f"{critic}/best", gamma=0.9, gae_lambda=0.8)(NextObservations()(rows))
    with torch.no_grad():
        value = offline.load_policy(f"{critic}/best").values(torch.tensor(rows["obs"])).double().numpy()
    advantages = np.zeros(7)
    for t, is_last, bootstrap in ((2, True, 0.0), (1, False, 0.9), (0, False, 0.9), (5, True, 0.9), (4, False, 0.9)):
        advantages[t] = rows["rewards"][t] + bootstrap * value[t + 1] - value[t]
        advantages[t] += 0.0 if is_last else 0.9 * 0.8 * advantages[t + 1]
    weights = np.exp(advantages / 10.0).clip(max=20.0)
    np.testing.assert_allclose(found.of_steps("weights"), weights[rows.is_step], rtol=1e-4)
    np.testing.assert_array_equal(found["new_obs"][:3], rows["obs"][1:4])


@pytest.mark.slow
def test_marwils_sequence_trains_as_its_file_says(balancing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marwil = {"algorithm": "marwil", "optimizer": {"max_epochs": 3}, "evaluation": {"episodes": 5}}
    monkeypatch.chdir(tmp_path)
    offline.train(balancing, config=marwil, output="runs/critic")
    values = read_values(["evaluation.episodes=20", "optimizer.max_epochs=20"], str(EXAMPLES / "marwil_sequence.yaml"))
    result = offline.train(balancing, config=values, output="runs/policy")
    assert result.metrics["episode_return_mean"] > 150
    assert "weight" in result.training_metrics
