"""A policy that remembers makes of recorded observations what it made of them at play."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.evaluation.off_policy import observations
from offline_core.evaluation.off_policy.observations import Observations, distribution_inputs
from offline_core.evaluation.off_policy.probabilities import log_probabilities
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

LENGTHS = [3, 1, 7, 2]
SPACE = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)})


@pytest.mark.parametrize("at_a_time", [8192, 4])
@pytest.mark.parametrize("network", [{}, {"frames": 3}, {"recurrent": "lstm"}, {"recurrent": "gru"}])
def test_as_at_play(network: dict[str, object], at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "ROWS_AT_A_TIME", at_a_time)
    policy = Policy(SPACE, spaces.Discrete(4), NetworkConfig(hidden_sizes=[8], **network), seed=1).eval()
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (sum(LENGTHS), 2)).astype(np.float32), rng.integers(3, size=sum(LENGTHS))
    played = []
    for start, length in zip(np.cumsum([0, *LENGTHS[:-1]]), LENGTHS, strict=True):
        acting = policy.acting(1)
        for t in range(length):
            row = slice(start + t, start + t + 1)
            actions = acting.act({"a": a[row], "b": b[row]}, np.array([t == 0]), explore=False)
            played.append(actions.extras["action_dist_inputs"][0])
    starts = torch.zeros(sum(LENGTHS), dtype=torch.bool)
    starts[torch.tensor([0, *np.cumsum(LENGTHS)[:-1]])] = True
    found = distribution_inputs(policy, Observations({"obs/a": torch.tensor(a), "obs/b": torch.tensor(b)}, starts, SPACE))
    np.testing.assert_allclose(found, np.stack(played), atol=1e-6)


def test_the_most_likely_action_is_certain_and_all_others_are_impossible() -> None:
    space = spaces.Dict({"x": spaces.Discrete(2, start=3), "y": spaces.MultiDiscrete([2, 2])})
    policy = Policy(spaces.Box(-1, 1, (1,)), space)
    inputs = torch.tensor([[0.0, 1.0, 1.0, 0.0, 0.0, 1.0]] * 3)
    actions = {"x": torch.tensor([4, 3, 4]), "y": torch.tensor([[0, 1], [0, 1], [1, 1]])}
    found = log_probabilities(policy, inputs, actions, explore=False)
    assert found.dtype == torch.float64 and found.tolist() == [0.0, -np.inf, -np.inf]
    sampled = log_probabilities(policy, inputs, actions, explore=True)
    assert sampled.dtype == torch.float64 and sampled[0] == pytest.approx(3 * np.log(np.e / (1 + np.e)))
