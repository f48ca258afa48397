"""The parameters of a small module as one vector: a step of an optimiser costs as much for one tensor as for each of many."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FlatParameters:
    """Makes the trained parameters of a module views of one vector, and their gradients views of another.

    The module is used as before. Its gradients must be cleared by `zero_grad` of this class alone: `Module.zero_grad` would
    take them out of the vector.

    Arguments:
        module: on one device, all parameters of one type.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
        """(P,)."""
        self.gradient: Tensor = torch.zeros_like(self.vector)
        """(P,), which `vector.grad` is."""
        self.vector.grad = self.gradient
        begin = 0
        for parameter in parameters:
            end = begin + parameter.numel()
            parameter.data = self.vector.data[begin:end].view_as(parameter)
            parameter.grad = self.gradient[begin:end].view_as(parameter)
            begin = end

    def zero_grad(self) -> None:
        """Clear the gradients."""
        self.gradient.zero_()

    @torch.no_grad()
    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to this length if it is longer; return its length before, ()."""
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm
