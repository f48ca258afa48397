"""Recurrent policies: a sequence at once is the same as step by step."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError

from offline_core.data.episodes import nested
from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.layers import Memory
from offline_core.policies.policy import Policy, as_tensors
from tests.policies.sampling import observed

Kind = Literal["lstm", "gru"]
both = pytest.mark.parametrize("kind", ["lstm", "gru"])
VECTOR = spaces.Box(-1, 1, (3,))
SPACES: list[gym.Space[Any]] = [
    VECTOR,
    spaces.Discrete(4, start=2),
    spaces.Dict(eye=spaces.Box(0, 255, (6, 6, 1), np.uint8), at=spaces.Tuple([VECTOR, spaces.MultiDiscrete([[2], [3]])])),
]


def recurrent(kind: Kind, space: gym.Space[Any] = VECTOR, **more: Any) -> Policy:
    return Policy(space, spaces.Discrete(3), NetworkConfig(hidden_sizes=[8], recurrent=kind, recurrent_units=5), **more)


def sequences(space: gym.Space[Any], count: int, steps: int) -> Any:
    """(count, steps, …)."""
    return as_tensors(observed(space, count, steps))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_an_lstm_is_the_one_of_the_books() -> None:
    memory = Memory("lstm", 2, 3)
    w_ih, w_hh, *_ = (parameter.detach().numpy() for parameter in memory.parameters())
    x = np.random.default_rng(0).normal(size=(4, 6, 2)).astype(np.float32)
    h, c, expected = np.zeros((4, 3)), np.zeros((4, 3)), []
    for t in range(6):
        i, f, g, o = np.split(x[:, t] @ w_ih.T + h @ w_hh.T, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        expected.append(h)
    found, state = memory(torch.from_numpy(x))
    np.testing.assert_allclose(found.detach().numpy(), np.stack(expected, axis=1), atol=1e-6)
    np.testing.assert_allclose(state.detach().numpy(), np.concatenate([h, c], axis=1), atol=1e-6)


@both
def test_a_sequence_in_pieces_is_the_same(kind: Kind) -> None:
    memory, x = Memory(kind, 2, 3), torch.randn(4, 9, 2, generator=torch.Generator().manual_seed(0))
    whole, end = memory(x)
    first, state = memory(x[:, :4])
    second, state = memory(x[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(state, end, atol=1e-6, rtol=1e-5)
    assert torch.equal(memory.empty(4), torch.zeros(4, memory.state_size))


@both
@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_stepping_is_the_same_as_the_sequence_at_once(kind: Kind, space: gym.Space[Any]) -> None:
    policy, seen = recurrent(kind, space), sequences(space, 4, 7)
    with torch.no_grad():
        at_once = policy(seen)
        assert at_once.shape == (28, 3)
        assert policy.memory is not None
        state = policy.memory.empty(4)
        for t in range(7):
            inputs, state = policy.step(nested.map_leaves(lambda leaf, t=t: leaf[:, t], seen), state)
            torch.testing.assert_close(inputs, at_once.reshape(4, 7, 3)[:, t], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("kind", "share_layers"), [("lstm", False), ("gru", True)])
def test_values_and_inputs_are_the_same_together_and_apart(kind: Kind, share_layers: bool) -> None:
    network = NetworkConfig(hidden_sizes=[8], recurrent=kind, recurrent_units=5, share_layers=share_layers)
    policy = Policy(VECTOR, spaces.Box(-1, 1, (2,)), network, value_function=True)
    seen = sequences(VECTOR, 3, 6)
    inputs, values = policy.inputs_and_values(seen)
    assert inputs.shape == (18, 4) and values.shape == (18,)
    torch.testing.assert_close(policy(seen), inputs)
    torch.testing.assert_close(policy.values(seen), values)
    values.sum().backward()
    taught = {name.partition(".")[0] for name, parameter in policy.named_parameters() if parameter.grad is not None}
    assert taught == ({"hidden", "memory", "value"} if share_layers else {"value_hidden", "value_memory", "value"})


@both
def test_what_came_before_matters_and_what_comes_later_does_not(kind: Kind) -> None:
    policy, seen = recurrent(kind), sequences(VECTOR, 1, 6)
    changed = seen.clone()
    changed[:, 2] += 1.0
    with torch.no_grad():
        differs = (policy(seen) != policy(changed)).any(dim=1)
    assert differs.tolist() == [False, False, True, True, True, True]


def test_two_ways_to_remember_are_one_too_many() -> None:
    with pytest.raises(ValidationError, match="set frames to 1, or recurrent to None"):
        NetworkConfig(recurrent="lstm", frames=2)


@pytest.mark.parametrize("network", [NetworkConfig(recurrent="gru"), NetworkConfig(frames=2)], ids=["recurrent", "frames"])
def test_acting_on_one_observation_is_refused_where_that_is_not_enough(network: NetworkConfig) -> None:
    policy, seen = Policy(VECTOR, spaces.Discrete(2), network), np.zeros((4, 3), np.float32)
    for act in (policy.act, policy.choose):
        with pytest.raises(ConfigError, match=r"policy\.initial_state"):
            act(seen, explore=False)
