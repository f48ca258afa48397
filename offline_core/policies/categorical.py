"""The action heads of Discrete, MultiDiscrete and MultiBinary spaces: of any choice, or of what an imitator would do, too."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from offline_core.policies.head import masked

RULED_OUT = -1e9
"""Logit of an action that is ruled out: no value is as low, and its square is finite in float32."""


class CategoricalHead(nn.Module):
    """One independent categorical per component; `inputs` are their logits, concatenated.

    Of choices that are not allowed they are the lowest number of their type: their probability is 0, and so is each gradient.
    It is not -inf, for 0 · inf in the entropy is NaN.
    """

    def __init__(self, sizes: list[int], starts: list[int], space: gym.Space[Any], features: int) -> None:
        super().__init__()
        self.sizes = sizes
        self.inputs_size = sum(sizes)
        self.shape = tuple(space.shape or ())
        self.dtype = np.dtype(space.dtype)
        self.starts: Tensor
        self.register_buffer("starts", torch.tensor(starts), persistent=False)
        self.logits = nn.Linear(features, self.inputs_size)
        nn.init.orthogonal_(self.logits.weight, gain=0.01)
        nn.init.zeros_(self.logits.bias)

    def forward(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Features (B, features), and which choices are allowed (B, inputs) bool → (B, inputs)."""
        return masked(self.logits(features), allowed)

    def sample(self, inputs: Tensor, generator: Generator | None = None) -> Tensor:
        parts = [_drawn(part.softmax(dim=1), generator) for part in inputs.split(self.sizes, dim=1)]
        return self._actions(torch.cat(parts, dim=1))

    def mode(self, inputs: Tensor) -> Tensor:
        return self._actions(torch.stack([part.argmax(dim=1) for part in inputs.split(self.sizes, dim=1)], dim=1))

    def log_prob(self, inputs: Tensor, actions: Tensor) -> Tensor:
        columns = (actions.reshape(inputs.shape[0], len(self.sizes)).long() - self.starts).split(1, dim=1)
        if len(self.sizes) == 1:
            return functional.log_softmax(inputs, dim=1).gather(1, columns[0]).squeeze(1)
        parts = zip(inputs.split(self.sizes, dim=1), columns, strict=True)
        return torch.stack([functional.log_softmax(p, dim=1).gather(1, c).squeeze(1) for p, c in parts]).sum(dim=0)

    def entropy(self, inputs: Tensor) -> Tensor:
        logs = [functional.log_softmax(part, dim=1) for part in inputs.split(self.sizes, dim=1)]
        return torch.stack([-(log.exp() * log).sum(dim=1) for log in logs]).sum(dim=0)

    def to_env(self, actions: Tensor) -> np.ndarray:
        return actions.numpy().astype(self.dtype, copy=False)

    def _actions(self, indices: Tensor) -> Tensor:
        return (indices + self.starts).reshape(indices.shape[0], *self.shape)


class ConstrainedHead(CategoricalHead):
    """`inputs` are values of actions, and `RULED_OUT` where an imitator finds an action too unlikely (Fujimoto et al. 2019).

    So the mode is the action of the highest value among those whose probability is at least `threshold` times that of the
    likeliest one. The first half of the features is for the values, the second for the imitator.
    """

    def __init__(self, sizes: list[int], starts: list[int], space: gym.Space[Any], features: int, threshold: float) -> None:
        super().__init__(sizes, starts, space, features // 2)
        self.log_threshold = math.log(threshold)
        self.imitator = nn.Linear(features // 2, self.inputs_size)
        nn.init.orthogonal_(self.imitator.weight, gain=0.01)
        nn.init.zeros_(self.imitator.bias)

    def forward(self, features: Tensor, allowed: Tensor | None = None) -> Tensor:
        values, log_probs = self.values_and_log_probs(features, allowed)
        unlikely = log_probs - log_probs.amax(dim=1, keepdim=True) < self.log_threshold
        return masked(values.masked_fill(unlikely, RULED_OUT), allowed)

    def values_and_log_probs(self, features: Tensor, allowed: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values of all actions, none ruled out, and the imitator's log-probabilities of them: (B, actions) each.

        The imitator chooses among actions that are allowed.
        """
        of_values, of_imitator = features.chunk(2, dim=1)
        return self.logits(of_values), functional.log_softmax(masked(self.imitator(of_imitator), allowed), dim=1)


def _drawn(probabilities: Tensor, generator: Generator | None) -> Tensor:
    """Draw one choice (B, 1) by its probabilities (B, choices); a GPU does what `multinomial` does, without looking at them."""
    if not probabilities.is_cuda:
        return torch.multinomial(probabilities, 1, generator=generator)
    return (probabilities / torch.empty_like(probabilities).exponential_(generator=generator)).argmax(dim=1, keepdim=True)
