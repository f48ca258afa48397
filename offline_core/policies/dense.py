"""Fully connected layers, of one network or of several side by side, as one node of Torch's graph.

Torch's own layers make some ten nodes of a network, and multiply by one library. Here the gradients are written out, and
products come from the library that multiplies faster on this machine (`runtime.products`). Small networks are left to Torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from offline_core.runtime.products import one_dnn, product
from offline_core.runtime.torch_settings import is_traced

LARGE = 2**24
"""Multiplications of a layer from which a node of ours is faster than Torch's: 256 rows of 256 units to as many."""
NONE = nn.Identity()
"""Where no activation follows."""
EPSILON = 1e-5
"""Added to the variance by a layer norm, as `torch.nn.LayerNorm` does."""


class Layer(NamedTuple):
    """One layer: of one network, or of N that have the same shapes."""

    weight: Tensor
    """(outputs, inputs), as `torch.nn.Linear` has it; of several networks (N, inputs, outputs)."""
    bias: Tensor
    """(outputs,), or (N, 1, outputs)."""
    activation: nn.Module = NONE
    """An activation of one of the kinds in `ELEMENTWISE`."""
    scale: Tensor | None = None
    """(N, 1, outputs): the scale of the layer norm that follows the activation; None if there is none."""
    shift: Tensor | None = None
    """(N, 1, outputs): the shift of this layer norm; None if there is none."""


class Elementwise(NamedTuple):
    """An elementwise function, and its gradient: from that of its output and from what it is written in."""

    function: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]
    by_output: bool
    """The gradient is a function of the output. False: of the input."""


_aten = torch.ops.aten
ELEMENTWISE: dict[type[nn.Module], Elementwise] = {
    nn.Identity: Elementwise(lambda x: x, lambda gradient, y: gradient, True),
    nn.ReLU: Elementwise(torch.relu_, lambda gradient, y: _aten.threshold_backward(gradient, y, 0), True),
    nn.Tanh: Elementwise(torch.tanh_, _aten.tanh_backward, True),
    nn.SiLU: Elementwise(functional.silu, _aten.silu_backward, False),
    nn.GELU: Elementwise(functional.gelu, lambda gradient, x: _aten.gelu_backward(gradient, x), False),
    nn.ELU: Elementwise(functional.elu, lambda gradient, x: _aten.elu_backward(gradient, 1.0, 1.0, 1.0, False, x), False),
}


class Layers(nn.Sequential):
    """`torch.nn.Sequential`, whose linear layers and the activations after them are one node where oneDNN multiplies them."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__(*modules)
        sizes = [module.weight.numel() for module in modules if isinstance(module, nn.Linear)]
        self._largest = max(sizes, default=0)

    def forward(self, x: Tensor) -> Tensor:
        if not _can_be_node(x) or len(x) * self._largest < LARGE or one_dnn() is None:
            return super().forward(x)  # type: ignore[no-any-return,no-untyped-call]
        run: list[Layer] = []
        for module in self:
            if isinstance(module, nn.Linear):
                run.append(Layer(module.weight, module.bias))
            elif run and type(module) in ELEMENTWISE and run[-1].activation is NONE:
                run[-1] = run[-1]._replace(activation=module)
            else:
                x, run = module(_node(x, run) if run else x), []
        return _node(x, run) if run else x


def side_by_side(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    """Return the output of the last layer of N networks, (N, B, outputs).

    Arguments:
        x: (B, inputs) float32, the same for all networks.
        layers: at least one, each of all networks.
    """
    largest = max(layer.weight[0].numel() for layer in layers)
    if _can_be_node(x) and len(x) * largest >= LARGE:
        return _node(x, layers)
    x = x.expand(len(layers[0].weight), -1, -1)
    for weight, bias, activation, scale, shift in layers:
        x = activation(torch.baddbmm(bias, x, weight))
        if scale is not None and shift is not None:
            x = torch.addcmul(shift, functional.layer_norm(x, x.shape[-1:], eps=EPSILON), scale)
    return x


def _can_be_node(x: Tensor) -> bool:
    """Asked first: where Torch looks at what is computed, the number of rows must not be looked at."""
    return x.device.type == "cpu" and not is_traced()


def _node(x: Tensor, layers: Sequence[Layer]) -> Tensor:
    tensors = [tensor for layer in layers for tensor in (layer.weight, layer.bias, layer.scale, layer.shift)]
    kinds = [ELEMENTWISE[type(layer.activation)] for layer in layers]
    output: Tensor = _Dense.apply(kinds, x, *tensors)  # type: ignore[no-untyped-call]
    return output


class _Dense(torch.autograd.Function):
    """`kinds`: the activations. Tensors of each layer: weight, bias, scale, shift."""

    @staticmethod
    def forward(context: Any, kinds: list[Elementwise], x: Tensor, *tensors: Tensor | None) -> Tensor:
        kept: list[Tensor] = []
        outputs = []
        several = _several(tensors)
        for network in _networks(tensors, several):
            h = x
            for kind, (weight, bias, scale, shift) in zip(kinds, network, strict=True):
                before = product(h, weight, bias)
                after = kind.function(before)
                kept += [h, after if kind.by_output else before]
                h = after
                if scale is not None:
                    h, mean, deviation = torch.native_layer_norm(after, after.shape[-1:], scale, shift, EPSILON)
                    kept += [after, mean, deviation]
            outputs.append(h)
        if any(context.needs_input_grad):
            context.kinds = kinds
            context.save_for_backward(*tensors, *kept)
        return outputs[0] if several is None else torch.stack(outputs)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradients: Tensor) -> tuple[Tensor | None, ...]:
        kinds: list[Elementwise] = context.kinds
        count = 4 * len(kinds)
        tensors, kept = context.saved_tensors[:count], list(context.saved_tensors[count:])
        x_learns, *learns = context.needs_input_grad[1:]
        several = _several(tensors)
        tensor_gradients: list[list[Tensor]] = [[] for _ in tensors]
        """For each tensor, the gradients by network, the last network first."""
        of_x: Tensor | None = None
        network_gradients = [gradients] if several is None else gradients.unbind()
        for network, gradient in zip(reversed(_networks(tensors, several)), reversed(network_gradients), strict=True):
            for number in reversed(range(len(kinds))):
                weight, _, scale, shift = network[number]
                of_weight, of_bias, of_scale, of_shift = tensor_gradients[4 * number : 4 * number + 4]
                if scale is not None:
                    deviation, mean, after = kept.pop(), kept.pop(), kept.pop()
                    gradient, by_scale, by_shift = _aten.native_layer_norm_backward(
                        gradient, after, after.shape[-1:], mean, deviation, scale, shift, [True, True, True]
                    )
                    of_scale.append(by_scale)
                    of_shift.append(by_shift)
                gradient = kinds[number].gradient(gradient, kept.pop())
                h = kept.pop()
                if learns[4 * number]:
                    of_weight.append(product(gradient.t(), h) if several is None else product(h.t(), gradient))
                if learns[4 * number + 1]:
                    of_bias.append(gradient.sum(0))
                if number or x_learns:
                    gradient = product(gradient, weight.t())
            if x_learns:
                of_x = gradient if of_x is None else of_x + gradient
        return None, of_x, *(_side_by_side(*pair) for pair in zip(tensors, tensor_gradients, learns, strict=True))


def _side_by_side(tensor: Tensor | None, parts: list[Tensor], learns: bool) -> Tensor | None:
    """Return the gradient of a tensor, from those of its networks, the last one first."""
    if tensor is None or not learns:
        return None
    return parts[0] if tensor.ndim < 3 else torch.stack(parts[::-1]).view_as(tensor)


def _several(tensors: Sequence[Tensor | None]) -> int | None:
    """Return how many networks these are of, side by side; None: of one."""
    weight = tensors[0]
    return len(weight) if weight is not None and weight.ndim == 3 else None


def _networks(tensors: Sequence[Tensor | None], several: int | None) -> list[list[Any]]:
    """Return of each network, of each layer: weight (inputs, outputs), bias, scale and shift (outputs,), as views."""
    if several is None:
        parts: list[Sequence[Tensor | None]] = [[t.t() if t is not None and t.ndim == 2 else t] for t in tensors]
    else:
        views = [t if t is None or number % 4 == 0 else t.view(several, -1) for number, t in enumerate(tensors)]
        parts = [[None] * several if view is None else view.unbind() for view in views]
    layers = [parts[first : first + 4] for first in range(0, len(parts), 4)]
    return [[[part[network] for part in layer] for layer in layers] for network in range(several or 1)]
