"""Point 10: what comes between the environment and the network travels with the policy."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.gaussian import GaussianHead
from offline_core.policies.policy import Policy
from tests.acceptance.forms import by_id, observations, run_import, run_train


def test_10_frame_stacking_travels_with_the_policy(recording: str, tmp_path: Path) -> None:
    result = run_train(recording, tmp_path, network={"frames": 3})
    policy = load_policy(result.checkpoint)
    assert policy.network.frames == 3 and policy.observation_space.shape == (4,)
    seen = observations(recording)[:3]
    chosen = []
    for order in ([0, 1, 2], [1, 0, 2]):
        state = policy.initial_state(1)
        for row in order[:-1]:
            _, state = policy.act(seen[[row]], state)
        chosen.append(policy.choose(seen[[order[-1]]], state, explore=False).extras["action_dist_inputs"])
    assert (chosen[0] != chosen[1]).any(), "it plays by earlier observations, which the environment does not stack"
    assert evaluate(EvaluationConfig(episodes=2), policy=result.checkpoint).metrics["episodes"] == 2


@pytest.fixture(scope="module")
def filtered(recording: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy with a filter of its observations."""
    return run_train(recording, tmp_path_factory.mktemp("filtered"), network={"normalize_observations": True}).checkpoint


def test_10_the_mean_std_filter_is_that_of_the_data_and_is_in_the_checkpoint(recording: str, filtered: str) -> None:
    encoder = load_policy(filtered).encoder
    seen = observations(recording).astype(np.float64)
    np.testing.assert_allclose(encoder.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(encoder.variance, seen.var(axis=0), rtol=1e-5)


@pytest.mark.slow
def test_10_the_same_filter_serves_in_evaluation(recording: str, filtered: str) -> None:
    """What is played is given raw observations, and does what its network says to filtered ones; unfiltered, otherwise."""
    policy = load_policy(filtered)
    seen = observations(recording)
    scaled = (seen - policy.encoder.mean.numpy()) / np.sqrt(policy.encoder.variance.numpy())
    chosen = policy.act(seen)
    policy.encoder.mean.zero_()
    policy.encoder.variance.fill_(1.0)
    assert (policy.act(scaled) == chosen).mean() > 0.99
    assert (policy.act(seen) != chosen).any()


@pytest.mark.slow
def test_10_raw_data_stays_raw_on_disk(recording: str, tmp_path: Path) -> None:
    def files() -> dict[str, str]:
        found = sorted(path for path in Path(recording).rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    before = files()
    run_train(recording, tmp_path, network={"normalize_observations": True, "frames": 2})
    assert files() == before
    first = next(iter(by_id(recording).values())).observations[0]
    assert np.abs(first).max() <= 0.05, "CartPole begins within 0.05, and so it is recorded"


@pytest.mark.parametrize("squash", [False, True], ids=["clipped", "squashed"])
def test_10_actions_are_clipped_or_scaled_to_the_bounds(tmp_path: Path, squash: bool) -> None:
    """Sampled with a spread that goes far beyond them: what is played, and recorded, lies within."""
    own = spaces.Box(-1, 1, (3,)), spaces.Box(np.float32([-2, 10]), np.float32([2, 30]))
    policy = Policy(*own, NetworkConfig(hidden_sizes=[4], squash=squash))
    save_policy(policy, str(tmp_path), operation=Operation(name="untrained"))
    actions = load_policy(str(tmp_path)).act(np.zeros((500, 3), np.float32), explore=True)
    low, high = own[1].low, own[1].high
    assert (actions >= low).all() and (actions <= high).all()
    assert (actions.max(axis=0) - actions.min(axis=0) > 0.9 * (high - low)).all(), "scaled to all of them"
    assert ((actions == low) | (actions == high)).any() is np.bool_(not squash)


RLLIBS = {"pendulum_episodes": 1508, "pendulum_table": 1308}
"""Steps whose action RLlib recorded beyond -1 and 1, by recording."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recording", "declared"),
    [("pendulum_table", {"recorded_action_range": (-1, 1)}), ("pendulum_table", {}), ("pendulum_episodes", {})],
    ids=["declared", "told from a table", "told from episodes"],
)
def test_10_rllibs_continuous_actions_are_those_the_environment_got(
    rllib_recordings: Path, tmp_path: Path, recording: str, declared: dict[str, Any]
) -> None:
    """The recorded actions replayed through the environment give the recorded observations."""
    rules = declared | {"environment": {"id": "Pendulum-v1"}}
    result, found = run_import(rllib_recordings / recording, tmp_path / "out", **rules)
    assert result.counts.clipped_actions == RLLIBS[recording] and result.counts.steps == 4000
    assert any("taken as normalised by RLlib" in note for note in result.notes) is not bool(declared)
    assert f"{RLLIBS[recording]:,} steps" in result.notes[-1]
    assert max(map(replay_error, found.values())) <= 1e-5
    logs = np.concatenate([each.extras["action_logp"] for each in found.values()])
    inputs = np.concatenate([each.extras["action_dist_inputs"] for each in found.values()])
    actions = np.concatenate([np.asarray(each.actions) for each in found.values()])
    head = GaussianHead(spaces.Box(-2, 2, (1,)), features=1)
    own = head.log_prob(torch.from_numpy(inputs), torch.from_numpy(actions)).detach().numpy()
    np.testing.assert_allclose(logs, own, atol=1e-4)


def replay_error(episode: Episode) -> float:
    """The largest difference between what Pendulum answers to the recorded actions and what was recorded."""
    env = gym.make("Pendulum-v1").unwrapped
    observations = np.asarray(episode.observations, np.float64)
    env.reset()
    error = 0.0
    for now, action, after in zip(observations[:-1], np.asarray(episode.actions), observations[1:], strict=True):
        env.state = np.array([np.arctan2(now[1], now[0]), now[2]])  # type: ignore[attr-defined]
        error = max(error, float(np.abs(env.step(action)[0] - after).max()))
    return error


@pytest.mark.slow
def test_10_a_clone_of_rllibs_recording_acts_in_the_units_of_the_environment(rllib_recordings: Path, tmp_path: Path) -> None:
    """It is at the bounds as often as RLlib's policy was."""
    run_import(rllib_recordings / "pendulum_table", tmp_path / "data", environment={"id": "Pendulum-v1"})
    optimizer = {"max_epochs": 10, "updates_per_iteration": 600}
    result = run_train(str(tmp_path / "data"), tmp_path / "clone", optimizer=optimizer, evaluation={"play": False})
    policy = load_policy(result.checkpoint)
    actions = policy.act(observations(str(tmp_path / "data")), explore=True)
    share = RLLIBS["pendulum_table"] / 4000
    assert (np.abs(actions) == 2).mean() == pytest.approx(share, abs=0.06) and np.abs(actions).max() == 2


@pytest.mark.slow
def test_10_rllibs_actions_without_bounds_are_refused(rllib_recordings: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"normalised to \[-1, 1\].*declare them by environment\.id or by action_space"):
        run_import(rllib_recordings / "pendulum_table", tmp_path / "out")
    assert not (tmp_path / "out").exists()
