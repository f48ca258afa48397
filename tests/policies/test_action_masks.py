"""Policies whose observations say which actions are allowed: distributions, exports, and masks that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces

from offline_core.data.episodes import nested
from offline_core.data.episodes.action_masks import with_mask
from offline_core.errors import ConfigError, SpaceError
from offline_core.policies.config import NetworkConfig, TransformerConfig
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.policy import Policy, as_tensors
from tests.cases import slow_but
from tests.policies.test_export import exported

VECTOR = spaces.Box(-1, 1, (3,))
SEVEN = spaces.Discrete(7, start=-2)
TWO_CHOICES = spaces.MultiDiscrete([3, 4])


def observations(rows: int, action_space: gym.Space[Any] = SEVEN, seed: int = 0, axes: tuple[int, ...] = ()) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    sizes = [7] if action_space is SEVEN else [3, 4]
    masks = (rng.random((rows, *axes, 7)) < 0.3).astype(np.int8)
    masks[..., np.cumsum([0, *sizes[:-1]]) + rng.integers(0, sizes)] = 1
    return {"action_mask": masks, "observations": rng.uniform(-1, 1, (rows, *axes, 3)).astype(np.float32)}


def masked(action_space: gym.Space[Any] = SEVEN, **network: Any) -> Policy:
    policy = Policy(
        with_mask(VECTOR, action_space), action_space, NetworkConfig(hidden_sizes=[8], **network), value_function=True
    )
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(20).add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return policy


def is_legal(masks: np.ndarray, actions: np.ndarray, action_space: gym.Space[Any]) -> bool:
    if action_space is SEVEN:
        return bool(np.take_along_axis(masks, actions[:, None] + 2, axis=1).all())
    return bool(np.take_along_axis(masks, actions + np.array([0, 3]), axis=1).all())


@pytest.mark.parametrize("action_space", [SEVEN, TWO_CHOICES])
@pytest.mark.parametrize("explore", [True, False])
def test_actions_are_legal_and_nothing_else_changes(action_space: Any, explore: bool) -> None:
    policy = masked(action_space)
    seen = observations(2000, action_space)
    chosen = policy.choose(seen, explore=explore)
    assert is_legal(seen["action_mask"], chosen.actions, action_space)
    assert not is_legal(
        seen["action_mask"], policy.act(seen | {"action_mask": np.ones_like(seen["action_mask"])}), action_space
    )
    plain = Policy(VECTOR, action_space, policy.network, value_function=True)
    plain.load_state_dict(policy.state_dict())
    with torch.no_grad():
        inputs, values = policy.inputs_and_values(as_tensors(seen))
        free, same = plain.inputs_and_values(as_tensors(seen["observations"]))
        assert torch.equal(values, same)
        allowed = torch.from_numpy(seen["action_mask"] == 1)
        assert torch.equal(inputs, free.where(allowed, torch.finfo(torch.float32).min))
        parts = [
            torch.distributions.Categorical(logits=part.double())
            for part in free.where(allowed, -torch.inf).split([7] if action_space is SEVEN else [3, 4], dim=1)
        ]
        entropy = sum(-(part.probs * part.probs.clamp(min=1e-300).log()).sum(dim=1) for part in parts)
        np.testing.assert_allclose(policy.head.entropy(inputs), entropy, atol=1e-5)
    assert np.isfinite(chosen.extras["action_logp"]).all()
    assert (policy.head.log_prob(inputs, torch.from_numpy(chosen.actions)).exp() > 0).all()


@pytest.mark.parametrize("network", [{"normalize_observations": True}, {"frames": 3}, {"recurrent": "gru"}])
def test_the_network_does_not_see_the_mask_and_the_latest_one_counts(network: dict[str, Any]) -> None:
    policy = masked(**network)
    axes = (3,) if policy.network.remembers else ()
    seen = observations(50, axes=axes)
    if policy.network.normalize_observations:
        policy.encoder.update_statistics(as_tensors(seen))
        assert policy.encoder.mean.shape == (3,)
    inputs = policy(as_tensors(seen))
    counted = seen["action_mask"][:, -1] if network.get("frames") else seen["action_mask"].reshape(-1, 7)
    np.testing.assert_array_equal(inputs.detach().numpy() == np.finfo(np.float32).min, counted == 0)


def test_a_decision_transformer_chooses_among_allowed_actions() -> None:
    transformer = TransformerConfig(units=8, layers=1, context_steps=4, target_return=1.0, return_scale=1.0)
    network = NetworkConfig(hidden_sizes=[8], transformer=transformer)
    policy = DecisionTransformer(with_mask(VECTOR, SEVEN), SEVEN, network).eval()
    state = policy.initial_state(30)
    for step in range(6):
        seen = observations(30, seed=step)
        actions, state = policy.act(seen, state, explore=True)
        assert is_legal(seen["action_mask"], actions, SEVEN)
        state = state.received(np.ones(30))


@pytest.mark.parametrize("action_space", slow_but([SEVEN, TWO_CHOICES], TWO_CHOICES))
@pytest.mark.parametrize("network", slow_but([{}, {"frames": 2}], {}))
def test_onnxruntime_never_returns_a_forbidden_action(tmp_path: Path, action_space: Any, network: dict[str, Any]) -> None:
    policy = masked(action_space, **network)
    _, described = exported(policy, tmp_path, "onnx", "torch_export")
    assert {port.name for port in described.inputs} == {"obs/action_mask", "obs/observations"}
    session = onnxruntime.InferenceSession(tmp_path / "out" / "policy.onnx")
    axes = (2,) if network else ()
    for seed in range(10):
        seen = observations(500, action_space, seed, axes)
        actions, _ = session.run(["actions", "action_dist_inputs"], nested.flatten(seen, "obs"))
        assert is_legal(seen["action_mask"][:, -1] if network else seen["action_mask"], actions, action_space)


@pytest.mark.parametrize(
    ("mask", "message"),
    [(np.zeros((2, 7), np.int8), "allows no action"), (np.full((2, 7), 2, np.int8), "neither 0 nor 1")],
)
def test_masks_that_are_none_are_refused(mask: np.ndarray, message: str) -> None:
    policy = masked()
    for act in (policy.act, lambda seen: policy.choose(seen, explore=True)):
        with pytest.raises(SpaceError, match=message):
            act(observations(2) | {"action_mask": mask})


def test_one_component_without_a_choice_is_refused() -> None:
    mask = np.array([[1, 1, 1, 0, 0, 0, 0]], np.int8)
    with pytest.raises(SpaceError, match="allows no action"):
        masked(TWO_CHOICES).act(observations(1, TWO_CHOICES) | {"action_mask": mask})


@pytest.mark.parametrize(
    ("space", "actions", "message"),
    [
        (with_mask(VECTOR, SEVEN), spaces.Box(-1, 1, (7,)), "for Discrete and MultiDiscrete actions"),
        (with_mask(VECTOR, SEVEN), spaces.Discrete(6), "one number for each of their 6 choices"),
        (spaces.Dict({"action_mask": spaces.MultiBinary(7)}), SEVEN, "nothing else"),
    ],
)
def test_masks_of_other_actions_are_refused(space: Any, actions: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Policy(space, actions)
