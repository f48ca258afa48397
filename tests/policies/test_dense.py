"""Networks as one node of Torch's graph: the numbers and gradients of Torch's own layers."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from offline_core.policies import dense
from offline_core.policies.dense import ELEMENTWISE, NONE, Layer, Layers, side_by_side

SIZES = (3, 5, 17, 1)


@pytest.fixture
def no_network_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a node, also where oneDNN is no faster."""
    monkeypatch.setattr(dense, "LARGE", 0)
    monkeypatch.setattr(dense, "one_dnn", lambda: torch.mm)


def networks(activation: nn.Module, *, norms: bool = False) -> list[Layer]:
    """Random float64 layers of two networks."""
    generator, found = torch.Generator().manual_seed(0), []

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    for inputs, outputs in pairwise(SIZES):
        is_last = outputs == SIZES[-1]
        bias, scale, shift = (drawn(2, 1, outputs) for _ in range(3))
        normed = (scale, shift) if norms and not is_last else (None, None)
        found.append(Layer(drawn(2, inputs, outputs), bias, NONE if is_last else activation, *normed))
    return found


def parameters(layers: list[Layer]) -> list[Tensor]:
    return [tensor for layer in layers for tensor in (*layer[:2], *layer[3:]) if tensor is not None]


def with_parameters(layers: list[Layer], tensors: tuple[Tensor, ...]) -> list[Layer]:
    """The layers with these tensors, in the order of `parameters`."""
    each = iter(tensors)
    return [
        Layer(next(each), next(each), layer.activation, *(None if t is None else next(each) for t in layer[3:]))
        for layer in layers
    ]


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("activation", ELEMENTWISE)
def test_networks_side_by_side(activation: type[nn.Module], norms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = networks(activation(), norms=norms)
    x = torch.randn(7, SIZES[0], generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    by_torch = side_by_side(x, layers)
    monkeypatch.setattr(dense, "LARGE", 0)
    torch.testing.assert_close(side_by_side(x, layers), by_torch)
    gradients = lambda x, *tensors: side_by_side(x, with_parameters(layers, tensors))  # noqa: E731
    assert torch.autograd.gradcheck(gradients, (x, *parameters(layers)))


def test_fixed_networks_pass_gradients_on_and_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = networks(nn.Tanh())
    x = torch.ones(4, SIZES[0], dtype=torch.float64, requires_grad=True)
    (by_torch,) = torch.autograd.grad(side_by_side(x, layers).sum(), x)
    fixed = with_parameters(layers, tuple(tensor.detach() for tensor in parameters(layers)))
    monkeypatch.setattr(dense, "LARGE", 0)
    (through,) = torch.autograd.grad(side_by_side(x, fixed).sum(), x)
    torch.testing.assert_close(through, by_torch)


def test_functions_of_functions_see_torchs_own_operations(no_network_is_small: None) -> None:
    layers = networks(nn.ReLU())
    x = torch.ones(3, 4, SIZES[0], dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(lambda part: side_by_side(part, layers))(x)[1], side_by_side(x[1], layers))


@pytest.mark.parametrize("activation", ELEMENTWISE)
def test_layers_of_one_network_between_other_modules(activation: type[nn.Module], no_network_is_small: None) -> None:
    torch.manual_seed(0)
    ours = Layers(
        nn.Flatten(),
        nn.Linear(6, 4),
        activation(),
        nn.Dropout(0.0),
        nn.Linear(4, 5),
        nn.Linear(5, 4),
        nn.ReLU(),
        nn.ReLU(),
        nn.Linear(4, 2),
    ).double()
    torchs = nn.Sequential(*copy.deepcopy(ours))
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    for each in (ours, torchs):
        each(x).square().sum().backward()
    torch.testing.assert_close(ours(x), torchs(x))
    for one, other in zip(ours.parameters(), torchs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
