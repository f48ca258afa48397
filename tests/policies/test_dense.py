"""Networks as one node of Torch's graph: the numbers and gradients of Torch's own layers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from offline_core import policies
from offline_core.policies.dense import ACTIVATIONS, Layer, Layers, _by_torch, dense

SIZES = (3, 5, 17, 1)


@pytest.fixture(autouse=True)
def no_network_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies.dense, "LARGE", 0)
    monkeypatch.setattr(policies.dense, "one_dnn", lambda: torch.mm)


def layers(activation: type[nn.Module], networks: int | None, *, norms: bool = False) -> list[Layer]:
    """Random float64 layers; of several networks with their norms."""
    generator, found = torch.Generator().manual_seed(0), []

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    for inputs, outputs in pairwise(SIZES):
        is_last = outputs == SIZES[-1]
        kind = nn.Identity if is_last else activation
        if networks is None:
            found.append(Layer(drawn(outputs, inputs), drawn(outputs), kind))
            continue
        vectors = [drawn(networks, 1, outputs) for _ in range(3)]
        scale, shift = vectors[1:] if norms and not is_last else (None, None)
        found.append(Layer(drawn(networks, inputs, outputs), vectors[0], kind, scale, shift))
    return found


def rebuilt(made: list[Layer], tensors: tuple[Tensor, ...]) -> list[Layer]:
    """Return the layers with these tensors, in the order of `learned`."""
    each = iter(tensors)
    return [
        Layer(next(each), next(each), layer.activation, *(None if t is None else next(each) for t in layer[3:]))
        for layer in made
    ]


def learned(made: list[Layer]) -> list[Tensor]:
    return [tensor for layer in made for tensor in (*layer[:2], *layer[3:]) if tensor is not None]


@pytest.mark.parametrize("networks", [None, 2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_and_gradients_are_right(activation: type[nn.Module], networks: int | None) -> None:
    made = layers(activation, networks, norms=activation is nn.ReLU)
    x = torch.randn(7, SIZES[0], generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(dense(x, made), _by_torch(x, made))
    assert torch.autograd.gradcheck(lambda x, *tensors: dense(x, rebuilt(made, tensors)), (x, *learned(made)))


def test_fixed_layers_pass_gradients_on_and_get_none() -> None:
    made = layers(nn.Tanh, 2)
    fixed = rebuilt(made, tuple(tensor.detach() for tensor in learned(made)))
    x = torch.ones(4, SIZES[0], dtype=torch.float64, requires_grad=True)
    (through,) = torch.autograd.grad(dense(x, fixed).sum(), x)
    (by_torch,) = torch.autograd.grad(_by_torch(x, made).sum(), x)
    torch.testing.assert_close(through, by_torch)


def test_a_sequence_with_other_modules_gives_what_torch_gives() -> None:
    modules = [
        nn.Flatten(),
        nn.Linear(6, 4),
        nn.Tanh(),
        nn.Dropout(0.5),
        nn.Linear(4, 4),
        nn.ReLU(),
        nn.ReLU(),
        nn.Linear(4, 2),
    ]
    torch.manual_seed(0)
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(Layers(*modules).eval()(x), nn.Sequential(*modules).eval()(x))


def test_functions_of_functions_see_torchs_own_operations() -> None:
    made = layers(nn.ReLU, 2)
    x = torch.ones(3, 4, SIZES[0], dtype=torch.float64)
    batched = torch.func.vmap(lambda part: dense(part, made))(x)
    torch.testing.assert_close(batched[1], dense(x[1], made))
