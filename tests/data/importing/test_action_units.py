"""Recorded samples → what the environment got, and how probable that was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.importing.action_units import in_env_units
from offline_core.policies.gaussian import GaussianHead

BOX = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
FACTORS = np.array([2.0, 5.0])


def samples(count: int = 2000) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(actions of a Gaussian around and beyond -1 and 1, what RLlib records beside them)."""
    rng = np.random.default_rng(0)
    mean, log_std = rng.normal(0, 0.5, (count, 2)), rng.normal(-0.5, 0.3, (count, 2))
    z = rng.normal(size=(count, 2))
    logs = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=1)
    extras = {"action_logp": logs.astype(np.float32), "action_dist_inputs": np.float32(np.concatenate([mean, log_std], 1))}
    return mean + z * np.exp(log_std), extras


def test_samples_are_clipped_and_scaled() -> None:
    actions, _ = samples()
    found = in_env_units(actions, {}, (-1, 1), BOX)
    np.testing.assert_allclose(found.actions, [0, 5] + FACTORS * np.clip(actions, -1, 1), atol=1e-6)
    assert found.clipped.tolist() == (np.abs(actions) > 1).any(axis=1).tolist()
    assert found.extras == {} and 0.2 < found.clipped.mean() < 0.8


def test_log_probabilities_are_those_of_the_clipped_gaussian() -> None:
    """As policies of ours have them: density inside, at a bound the whole tail beyond it; in the units of the environment."""
    actions, extras = samples()
    found = in_env_units(actions, extras, (-1, 1), BOX)
    inputs = torch.from_numpy(found.extras["action_dist_inputs"])
    own = GaussianHead(BOX, 1).log_prob(inputs, torch.from_numpy(found.actions.astype(np.float32))).detach()
    np.testing.assert_allclose(found.extras["action_logp"], own, atol=1e-4)
    assert found.extras["action_logp"].dtype == found.extras["action_dist_inputs"].dtype == np.float32


@pytest.mark.parametrize("beside", ["no inputs", "inputs of another distribution"])
def test_of_what_was_clipped_it_is_not_known_without_its_distribution(beside: str) -> None:
    actions, extras = samples()
    inputs = extras.pop("action_dist_inputs")
    more = {} if beside == "no inputs" else {"action_dist_inputs": inputs + 1}
    found = in_env_units(actions, extras | more, (-1, 1), BOX)
    logs = found.extras["action_logp"]
    assert np.isnan(logs).tolist() == found.clipped.tolist()
    np.testing.assert_allclose(logs[~found.clipped], extras["action_logp"][~found.clipped] - np.log(10), rtol=1e-4)
    assert not more or found.extras["action_dist_inputs"].tolist() == more["action_dist_inputs"].tolist()


def test_what_is_in_the_units_of_the_environment_stays_to_the_bit() -> None:
    """So that what was imported can be imported again."""
    actions, extras = samples()
    once = in_env_units(actions, extras, (-1, 1), BOX)
    again = in_env_units(once.actions, once.extras, (BOX.low, BOX.high), BOX)
    assert np.array_equal(again.actions, once.actions) and not again.clipped.any()
    assert all(np.array_equal(again.extras[name], values) for name, values in once.extras.items())


def test_a_range_by_component_is_clipped_to_alone() -> None:
    found = in_env_units(np.array([[3.0, -1.0], [1.0, 4.0]]), {}, (BOX.low, BOX.high), BOX)
    assert found.actions.tolist() == [[2.0, 0.0], [1.0, 4.0]] and found.clipped.tolist() == [True, False]
