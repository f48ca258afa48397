"""The interface of an action distribution.

All methods take `inputs` (B, inputs_size), as `forward` returns them and as recordings store them in
`action_dist_inputs`: the probability of a recorded action can be computed without the policy that chose it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from offline_core.data.episodes.nested import Nested
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Generator, Tensor


class Head(Protocol):
    """Actions are tensors in the units of the environment: (B,) for Discrete, (B, *shape) otherwise, or nested ones.

    A generator has to be on the device of the inputs.
    """

    inputs_size: int

    def __call__(self, features: Tensor) -> Tensor: ...
    def sample(self, inputs: Tensor, generator: Generator | None = None) -> Nested: ...
    def mode(self, inputs: Tensor) -> Nested: ...
    def log_prob(self, inputs: Tensor, actions: Nested) -> Tensor: ...
    def entropy(self, inputs: Tensor) -> Tensor: ...
    def to_env(self, actions: Nested) -> Nested: ...


def masked(numbers: Tensor, allowed: Tensor | None) -> Tensor:
    """Numbers (B, choices), the lowest of their type where a choice is not allowed; None: all are."""
    return numbers if allowed is None else numbers.masked_fill(~allowed, torch.finfo(numbers.dtype).min)
