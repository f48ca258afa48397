"""The user's own module in place of ours."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from pydantic import ValidationError
from torch import Tensor, nn

from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.layers import ACTIVATIONS
from offline_core.policies.policy import Policy

VECTOR = spaces.Box(-1, 1, (4,))


class Residual(nn.Module):
    """x + tanh(W x), and a batch norm that must not notice that the module was tried out."""

    def __init__(self, input_size: int, network: NetworkConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(input_size, input_size)
        self.norm = nn.BatchNorm1d(input_size)
        self.network = network

    def forward(self, encoded: Tensor) -> Tensor:
        return self.norm(encoded + torch.tanh(self.inner(encoded)))


class Breaks(Residual):
    def forward(self, encoded: Tensor) -> Tensor:
        raise RuntimeError("no mood")


class Scalar(Residual):
    def forward(self, encoded: Tensor) -> Tensor:
        return encoded.sum(dim=1)


class Picky(nn.Module):
    def __init__(self) -> None:
        super().__init__()


@pytest.fixture(autouse=True)
def package() -> Iterator[None]:
    """The classes of this file as an installed module `someones`."""
    module = types.ModuleType("someones")
    for thing in (Residual, Breaks, Scalar, Picky, VECTOR):
        setattr(module, getattr(thing, "__name__", "vector"), thing)
    sys.modules["someones"] = module
    yield
    del sys.modules["someones"]


def own(name: str, **more: Any) -> NetworkConfig:
    return NetworkConfig(module=name, **more)


def test_it_stands_in_for_the_hidden_layers() -> None:
    network = own("someones:Residual", hidden_sizes=[7])
    policy = Policy(VECTOR, spaces.Discrete(3), network, value_function=True)
    assert isinstance(policy.hidden, Residual) and isinstance(policy.value_hidden, Residual)
    assert policy.hidden is not policy.value_hidden
    assert policy.hidden.network == network and policy.hidden.inner.in_features == 4
    assert policy.hidden.training and policy.hidden.norm.num_batches_tracked == 0
    seen = torch.randn(9, 4)
    torch.testing.assert_close(policy.eval()(seen), policy.head(policy.hidden(seen)))
    assert policy.act(np.zeros((5, 4), np.float32)).shape == (5,)


def test_its_weights_follow_the_seed() -> None:
    one, same, other = (Policy(VECTOR, spaces.Discrete(3), own("someones:Residual"), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.hidden.inner.weight, same.hidden.inner.weight)
    assert not torch.equal(one.hidden.inner.weight, other.hidden.inner.weight)


def test_it_sees_frames_side_by_side_and_sequences_step_by_step() -> None:
    framed = Policy(VECTOR, spaces.Discrete(3), own("someones:Residual", frames=3))
    assert framed.hidden[1].inner.in_features == 12
    assert framed(torch.randn(5, 3, 4)).shape == (5, 3)
    remembering = Policy(VECTOR, spaces.Discrete(3), own("someones:Residual", recurrent="gru"))
    assert remembering(torch.randn(2, 6, 4)).shape == (12, 3)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("nowhere_at_all:Net", "cannot be imported.*nowhere_at_all"),
        ("someones:Missing", "cannot be imported.*Missing"),
        ("someones:vector", "has to be a subclass of torch's Module"),
        ("os:system", "has to be a subclass of torch's Module"),
        ("someones:Picky", r"failed with 4 inputs: TypeError"),
        ("someones:Breaks", "failed with 4 inputs.*no mood"),
        ("someones:Scalar", r"made torch.float32 \(2,\) of \(2, 4\) inputs"),
    ],
)
def test_what_is_wrong_with_it_is_said(path: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        Policy(VECTOR, spaces.Discrete(3), own(path))
    assert path in str(caught.value)


@pytest.mark.parametrize("path", ["Net", "package.module.Net", "package:Net()", "a b:C", ":Net", "package:"])
def test_a_path_names_a_module_and_a_class(path: str) -> None:
    with pytest.raises(ValidationError, match="module"):
        own(path)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("silu", lambda x: x / (1 + np.exp(-x))),
        ("elu", lambda x: np.where(x > 0, x, np.exp(x) - 1)),
        ("relu", lambda x: np.maximum(x, 0)),
        ("tanh", np.tanh),
        ("linear", lambda x: x),
        ("gelu", lambda x: x * np.vectorize(lambda y: 0.5 * np.frompyfunc(__import__("math").erfc, 1, 1)(-y / 2**0.5))(x)),
    ],
)
def test_activations_are_what_they_are_called(name: str, function: Any) -> None:
    x = np.linspace(-3, 3, 13)
    np.testing.assert_allclose(ACTIVATIONS[name]()(torch.from_numpy(x)).numpy(), function(x).astype(float), atol=1e-6)
    NetworkConfig(activation=name)  # type: ignore[arg-type]
