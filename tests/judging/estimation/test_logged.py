"""How probable recorded actions are: the most likely ones alone, and at bounds that a squashed policy never reaches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.judging.estimation.logged import log_probabilities
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

SEES = spaces.Box(-1, 1, (1,), np.float32)


def test_the_most_likely_action_is_certain_and_all_others_are_impossible() -> None:
    space = spaces.Dict({"x": spaces.Discrete(2, start=3), "y": spaces.MultiDiscrete([2, 2])})
    policy = Policy(SEES, space)
    inputs = torch.tensor([[0.0, 1.0, 1.0, 0.0, 0.0, 1.0]] * 3)
    actions = {"x": torch.tensor([4, 3, 4]), "y": torch.tensor([[0, 1], [0, 1], [1, 1]])}
    found = log_probabilities(policy, inputs, actions, explore=False)
    assert found.dtype == torch.float64 and found.tolist() == [0.0, -np.inf, -np.inf]
    sampled = log_probabilities(policy, inputs, actions, explore=True)
    assert sampled.dtype == torch.float64 and sampled[0] == pytest.approx(3 * np.log(np.e / (1 + np.e)))


@pytest.mark.parametrize("squash", [True, False])
def test_a_squashed_gaussian_is_never_at_a_bound_where_somebody_else_may_have_been(squash: bool) -> None:
    """Components of no width do not count; a clipped Gaussian has the tail there, whoever acted."""
    low, high = np.float32([-2, -1, 3]), np.float32([2, 1, 3])
    space = spaces.Dict({"push": spaces.Box(low, high), "turn": spaces.Discrete(2)})
    policy = Policy(SEES, space, NetworkConfig(squash=squash))
    inputs = torch.zeros(4, policy.head.inputs_size)
    push = torch.tensor([[0.0, 0.5, 3.0], [2.0, 0.5, 3.0], [0.0, -1.0, 3.0], [1.999, 0.999, 3.0]])
    actions = {"push": push, "turn": torch.tensor([0, 1, 0, 1])}
    own = policy.head.log_prob(inputs, actions).double()
    assert torch.isfinite(own).all()
    found = log_probabilities(policy, inputs, actions, explore=True, reaches_bounds=False)
    impossible = torch.tensor([False, squash, squash, False])
    assert torch.equal(found, own.masked_fill(impossible, -torch.inf))
    assert torch.equal(log_probabilities(policy, inputs, actions, explore=True), own), "who acted squashed, too"
