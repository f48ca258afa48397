"""Point 10: what comes between the environment and the network travels with the policy."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.episodes import Episode
from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.evaluate import evaluate_policy
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.storage.manifest import Operation
from tests.seeds.forms import by_id, observations, run_import, train
from tests.storage.sources.factories import write_steps


def test_10_frame_stacking_travels_with_the_policy(recording: str, tmp_path: Path) -> None:
    result = train(recording, tmp_path, network={"frames": 3})
    policy = load_policy(result.checkpoint)
    assert policy.network.frames == 3 and policy.observation_space.shape == (4,)
    seen = observations(recording)[:3]
    chosen = []
    for order in ([0, 1, 2], [1, 0, 2]):
        acting = policy.acting(1)
        steps = [acting.act(seen[[row]], np.array([t == 0]), explore=False) for t, row in enumerate(order)]
        chosen.append(steps[-1].extras["action_dist_inputs"])
    assert (chosen[0] != chosen[1]).any(), "it plays by earlier observations, which the environment does not stack"
    assert evaluate_policy(EvaluationConfig(episodes=2), policy=result.checkpoint).metrics["episodes"] == 2


def test_10_the_mean_std_filter_is_that_of_the_data_and_is_in_the_checkpoint(recording: str, tmp_path: Path) -> None:
    result = train(recording, tmp_path, network={"normalize_observations": True})
    encoder = load_policy(result.checkpoint).encoder
    seen = observations(recording).astype(np.float64)
    np.testing.assert_allclose(encoder.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(encoder.variance, seen.var(axis=0), rtol=1e-5)


def test_10_the_same_filter_serves_in_evaluation(recording: str, tmp_path: Path) -> None:
    """What is played is given raw observations, and does what its network says to filtered ones; unfiltered, otherwise."""
    result = train(recording, tmp_path, network={"normalize_observations": True})
    policy = load_policy(result.checkpoint)
    seen = observations(recording)
    filtered = (seen - policy.encoder.mean.numpy()) / np.sqrt(policy.encoder.variance.numpy())
    chosen = policy.greedy(seen)
    policy.encoder.mean.zero_()
    policy.encoder.variance.fill_(1.0)
    assert (policy.greedy(filtered) == chosen).mean() > 0.99
    assert (policy.greedy(seen) != chosen).any()


def test_10_raw_data_stays_raw_on_disk(recording: str, tmp_path: Path) -> None:
    def files() -> dict[str, str]:
        found = sorted(path for path in Path(recording).rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    before = files()
    train(recording, tmp_path, network={"normalize_observations": True, "frames": 2})
    assert files() == before
    first = next(iter(by_id(recording).values())).observations[0]
    assert np.abs(first).max() <= 0.05, "CartPole begins within 0.05, and so it is recorded"


@pytest.mark.parametrize("squash", [False, True], ids=["clipped", "squashed"])
def test_10_actions_are_clipped_or_scaled_to_the_bounds(tmp_path: Path, squash: bool) -> None:
    """Sampled with a spread that goes far beyond them: what is played, and recorded, lies within."""
    own = spaces.Box(-1, 1, (3,)), spaces.Box(np.float32([-2, 10]), np.float32([2, 30]))
    policy = Policy(*own, NetworkConfig(hidden_sizes=[4], squash=squash))
    save_policy(policy, str(tmp_path), operation=Operation(name="untrained"))
    actions = load_policy(str(tmp_path)).act(np.zeros((500, 3), np.float32), explore=True).actions
    low, high = own[1].low, own[1].high
    assert (actions >= low).all() and (actions <= high).all()
    assert (actions.max(axis=0) - actions.min(axis=0) > 0.9 * (high - low)).all(), "scaled to all of them"
    assert ((actions == low) | (actions == high)).any() is np.bool_(not squash)


def test_10_recorded_actions_are_scaled_to_the_units_of_the_environment(tmp_path: Path) -> None:
    """As RLlib records Box actions: between -1 and 1."""
    columns = {
        "eps_id": [1, 1],
        "obs": [[0.0] * 3] * 2,
        "actions": [[0.5], [-1.0]],
        "rewards": [0.0, 0.0],
        "done": [False, True],
    }
    write_steps(tmp_path / "in" / "x.parquet", columns)
    rules = {"recorded_action_range": (-1, 1), "episodes": {"last_new_obs": "repeat"}, "environment": {"id": "Pendulum-v1"}}
    found: dict[str, Episode] = run_import(tmp_path / "in", tmp_path / "out", **rules)[1]
    np.testing.assert_array_equal(found["1"].actions, np.float32([[1.0], [-2.0]]))
