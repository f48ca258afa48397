"""A policy: reproducible weights, actions that the environment takes, probabilities that hold."""

from __future__ import annotations

import random
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from offline_core.data.episodes import nested
from offline_core.errors import ConfigError, SpaceError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy, as_tensors
from tests.policies.sampling import observed

VECTOR = spaces.Box(-1, 1, (4,))
ACTIONS: list[gym.Space[Any]] = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-5),
    spaces.Discrete(4, dtype=np.int32),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, -2], [3, 0]]),
    spaces.MultiDiscrete([2, 3], dtype=np.uint8),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Box(-2, 2, (1,)),
    spaces.Box(-2, 2, ()),
    spaces.Box(np.array([[0.1, -7]]), np.array([[0.7, 30]]), dtype=np.float64),
    spaces.Box(0, np.inf, (2,)),
    spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    spaces.Box(-1, 1, (2,), np.float16),
    spaces.Dict(hands=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]), legs=spaces.Box(0, 1, (1,), np.float64)),
    spaces.Tuple([spaces.Dict([("steer", spaces.Box(-2, 2, (2,))), ("gear", spaces.Discrete(4, start=1))])]),
]
OBSERVATIONS: list[gym.Space[Any]] = [
    VECTOR,
    spaces.Discrete(4, start=1),
    spaces.Box(0, 255, (8, 8, 1), np.uint8),
    spaces.Dict(position=VECTOR, goal=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])),
    spaces.Tuple([VECTOR, spaces.MultiDiscrete([2, 3])]),
]


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in policy.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(1)
    first = weights(Policy(VECTOR, spaces.Discrete(2), value_function=True, seed=3))
    torch.manual_seed(2)
    assert same(first, weights(Policy(VECTOR, spaces.Discrete(2), value_function=True, seed=3)))
    other = weights(Policy(VECTOR, spaces.Discrete(2), value_function=True, seed=4))
    assert not torch.equal(first["hidden.0.weight"], other["hidden.0.weight"])


def test_random_numbers_of_others_are_left_alone() -> None:
    def states() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]

    before = states()
    policy = Policy(VECTOR, spaces.Box(-1, 1, (2,)), value_function=True)
    policy.act(observed(VECTOR, 4), explore=True, generator=torch.Generator().manual_seed(0))
    policy.act(observed(VECTOR, 4))
    assert states() == before


@pytest.mark.parametrize("space", ACTIONS, ids=str)
@pytest.mark.parametrize("explore", [True, False])
def test_environments_take_the_actions(space: gym.Space[Any], explore: bool) -> None:
    policy, observations, batched = Policy(VECTOR, space), observed(VECTOR, 30) * 1e3, batch_space(space, 30)
    chosen = policy.choose(observations, explore=explore, generator=torch.Generator().manual_seed(0))
    assert chosen.state is None and batched.contains(chosen.actions)
    for action in iterate(batched, chosen.actions):
        assert space.contains(action if space.shape is None else np.asarray(action))
    assert space.shape is None or chosen.actions.dtype == space.dtype
    assert nested.equal(policy.act(observations, explore=explore, generator=torch.Generator().manual_seed(0)), chosen.actions)


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_recorded_probabilities_are_those_of_the_recorded_actions(space: gym.Space[Any]) -> None:
    """Recorded columns agree with each other: no policy is needed to check them."""
    policy = Policy(VECTOR, space)
    observations = observed(VECTOR, 200)
    chosen = policy.choose(observations, explore=True, generator=torch.Generator().manual_seed(0))
    inputs, log_probs = chosen.extras["action_dist_inputs"], chosen.extras["action_logp"]
    assert inputs.dtype == log_probs.dtype == np.float32
    assert log_probs.shape == (200,)
    again = policy.head.log_prob(torch.from_numpy(inputs), nested.map_leaves(torch.from_numpy, chosen.actions))
    np.testing.assert_allclose(log_probs, again.numpy(), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        np.testing.assert_allclose(inputs, policy(as_tensors(observations)).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("share_layers", "hidden_sizes"), [(False, []), (True, [5]), (False, [8, 6])])
@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_values_and_inputs_are_the_same_together_and_apart(
    space: gym.Space[Any], share_layers: bool, hidden_sizes: list[int]
) -> None:
    """And the value teaches the policy's layers only if they are shared."""
    network = NetworkConfig(hidden_sizes=hidden_sizes, share_layers=share_layers, activation="relu")
    policy = Policy(space, spaces.Discrete(3), network, value_function=True)
    observations = as_tensors(observed(space, 9))
    inputs, values = policy.inputs_and_values(observations)
    assert inputs.shape == (9, 3)
    assert values.shape == (9,)
    torch.testing.assert_close(policy.values(observations), values)
    torch.testing.assert_close(policy(observations), inputs)
    assert len(values.unique()) > 1, "the value does not depend on the observation"
    values.sum().backward()
    taught = {name.partition(".")[0] for name, parameter in policy.named_parameters() if parameter.grad is not None}
    assert taught - {"hidden", "value_hidden"} == {"value"}
    assert not hidden_sizes or ("hidden" if share_layers else "value_hidden") in taught
    assert share_layers or "hidden" not in taught


@pytest.mark.parametrize("network", [{}, {"frames": 3}, {"recurrent": "lstm"}, {"recurrent": "gru"}, {"squash": True}], ids=str)
def test_every_weight_gets_a_gradient(network: dict[str, Any]) -> None:
    """What has none is never learned."""
    space = spaces.Dict(eye=spaces.Box(0, 255, (8, 9, 3), np.uint8), at=VECTOR)
    policy = Policy(space, ACTIONS[-1], NetworkConfig(**network))
    seen = as_tensors(observed(space, 4, *([3] if policy.network.remembers else [])))
    policy(seen).square().sum().backward()
    assert all(parameter.grad is not None for parameter in policy.parameters())


def test_the_network_is_the_one_described() -> None:
    policy = Policy(VECTOR, spaces.Discrete(3), NetworkConfig(hidden_sizes=[7, 5]))
    w = {name: tensor.numpy() for name, tensor in policy.state_dict().items()}
    observations = observed(VECTOR, 6)
    features = np.tanh(observations @ w["hidden.0.weight"].T + w["hidden.0.bias"])
    features = np.tanh(features @ w["hidden.2.weight"].T + w["hidden.2.bias"])
    expected = features @ w["_head.logits.weight"].T + w["_head.logits.bias"]
    with torch.no_grad():
        np.testing.assert_allclose(policy(as_tensors(observations)).numpy(), expected, rtol=1e-4, atol=1e-6)


def test_a_fresh_policy_prefers_nothing() -> None:
    """Small last weights: exploration begins evenly, whatever the first observation."""
    policy = Policy(VECTOR, spaces.Discrete(4))
    with torch.no_grad():
        probabilities = policy(as_tensors(observed(VECTOR, 50))).softmax(dim=1)
    assert probabilities.numpy() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (spaces.Dict(a=VECTOR, b=VECTOR), spaces.Dict(a=VECTOR, c=VECTOR)),
        (spaces.Dict(a=VECTOR, b=spaces.Discrete(2)), spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(4))),
        (spaces.Tuple([VECTOR]), spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (2,))])),
        (spaces.Box(0, 255, (8, 6, 3), np.uint8), spaces.Box(0, 255, (6, 8, 3), np.uint8)),
        (VECTOR, spaces.Discrete(4)),
    ],
    ids=["keys", "sizes", "lengths", "pixels", "kinds"],
)
def test_what_has_the_same_size_all_in_all_need_not_fit(own: gym.Space[Any], found: gym.Space[Any]) -> None:
    policy, actions = Policy(own, spaces.Discrete(2)), spaces.Discrete(2)
    policy.check_spaces("here", (own, actions))
    with pytest.raises(ConfigError, match="observation space"):
        policy.check_spaces("there", (found, actions))


def test_bounds_and_axes_of_vectors_may_differ() -> None:
    policy = Policy(spaces.Tuple([VECTOR]), spaces.Dict(a=spaces.Box(-1, 1, (2,))))
    found = (spaces.Tuple([spaces.Box(-5, np.inf, (2, 2))]), spaces.Dict(a=spaces.Box(-3, 3, (2,))))
    policy.check_spaces("there", found)


def test_observations_that_may_not_be_written_to_are_looked_at() -> None:
    """As those out of an Arrow table or Ray's object store; also every second one, backwards."""
    policy, observations = Policy(VECTOR, spaces.Discrete(4)), observed(VECTOR, 10)
    expected = policy.choose(observations, explore=False).extras["action_dist_inputs"]
    backwards = observations[::-1].copy()[::-1]
    observations.setflags(write=False)
    for view in (observations, backwards):
        np.testing.assert_array_equal(policy.choose(view, explore=False).extras["action_dist_inputs"], expected)
    np.testing.assert_allclose(policy.choose(view[::2], explore=False).extras["action_dist_inputs"], expected[::2], rtol=1e-5)


def test_arrays_that_may_be_written_to_are_not_copied() -> None:
    array = np.arange(6.0).reshape(3, 2)
    tensors = as_tensors({"a": array, "b": (array,)})
    array[0, 0] = 99.0
    assert tensors["a"][0, 0] == tensors["b"][0][0, 0] == 99.0


@pytest.mark.parametrize(
    ("space", "observations", "message"),
    [
        (VECTOR, np.zeros((2, 5)), r"^Observations are \(B, 4\), got \(2, 5\)\.$"),
        (VECTOR, np.zeros(4), r"^Observations are \(B, 4\), got \(4,\)\. .* give observations\[None\]\.$"),
        (VECTOR, [[0.0] * 4], r"^Observations are \(B, 4\), got list: give a numpy array\.$"),
        (spaces.Discrete(3), np.zeros((2, 3), int), r"^Observations are \(B,\), got \(2, 3\)\.$"),
        (spaces.Box(0, 255, (8, 9, 1), np.uint8), np.zeros((2, 1, 8, 9), np.uint8), r"are \(B, 8, 9, 1\), got \(2, 1, 8, 9\)"),
        (spaces.Dict(arm=VECTOR), {"arm": np.zeros((2, 3))}, r"^Observations/arm are \(B, 4\), got \(2, 3\)\.$"),
        (spaces.Dict(arm=VECTOR), {"leg": np.zeros((2, 4))}, "^Observations lack arm: give a dict of arrays with the keys arm"),
        (spaces.Tuple([VECTOR]), np.zeros((2, 4)), "^Observations are ndarray: give a tuple of 1 arrays"),
    ],
)
def test_observations_of_other_shapes_are_refused_by_name(space: gym.Space[Any], observations: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        Policy(space, spaces.Discrete(2)).act(observations)


def test_a_vector_in_other_axes_is_taken() -> None:
    policy = Policy(VECTOR, spaces.Discrete(2))
    observations = observed(VECTOR, 6)
    assert (policy.act(observations.reshape(6, 2, 2)) == policy.act(observations)).all()


@pytest.mark.parametrize("action_space", [gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,))])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
def test_an_observation_that_is_no_number_has_no_action(action_space: gym.Space[Any], number: float) -> None:
    policy = Policy(gym.spaces.Box(-np.inf, np.inf, (4,)), action_space, NetworkConfig(), seed=0)
    observations = np.zeros((3, 4))
    observations[1, 2] = number
    with pytest.raises(SpaceError, match=r"Observation 1 holds NaN, or a number that is infinite"):
        policy.act(observations)
