"""Estimates of policies whose observations say which actions are allowed: others count for nothing, and are never NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.episodes.action_masks import with_mask
from offline_core.judging.estimation.config import FQEConfig
from offline_core.judging.estimation.logged import log_probabilities
from offline_core.judging.estimation.q_function import QFunction, chosen
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy, as_tensors

FOUR = spaces.Discrete(4)


@pytest.mark.parametrize("explore", [True, False])
def test_q_functions_expect_allowed_actions_alone(explore: bool) -> None:
    policy = Policy(with_mask(spaces.Box(-1, 1, (3,)), FOUR), FOUR, NetworkConfig(hidden_sizes=[8]))
    rng = np.random.default_rng(0)
    masks = (rng.random((200, 4)) < 0.3).astype(np.int8)
    masks[np.arange(200), rng.integers(0, 4, 200)] = 1
    seen = as_tensors({"action_mask": masks, "observations": rng.uniform(-1, 1, (200, 3)).astype(np.float32)})
    with torch.no_grad():
        inputs = policy(seen)
        weights = chosen(policy.head, inputs, explore=explore, samples=1, generator=torch.Generator()).double()
        function = QFunction(policy, FQEConfig().network, center=0.0, scale=1.0)
        values = [function(seen, torch.zeros(200), torch.eye(4)[[action] * 200]).double() for action in range(4)]
        found = function(seen, torch.zeros(200), weights.float())
    free = Policy(spaces.Box(-1, 1, (3,)), FOUR, NetworkConfig(hidden_sizes=[8]))
    free.load_state_dict(policy.state_dict())
    logits = np.where(masks == 1, free(seen["observations"]).detach().double().numpy(), -np.inf)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = shares if explore else np.eye(4)[logits.argmax(axis=1)]
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(found, (expected * torch.stack(values, dim=1).numpy()).sum(axis=1), atol=1e-5)
    for action in range(4):
        ratios = log_probabilities(policy, inputs, torch.full((200,), action), explore=explore).numpy() - np.log(0.25)
        assert not np.isnan(ratios).any()
        assert (np.exp(ratios)[masks[:, action] == 0] == 0).all()
        np.testing.assert_allclose(np.exp(ratios) / 4, expected[:, action], atol=1e-6)
