"""The action head that chooses by value among actions that the data's policy would take, too."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
from torch import Tensor, nn
from torch.nn import functional

from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.head import masked

RULED_OUT = -1e9
"""Logit of an action that is ruled out: no value is as low, and its square is finite in float32."""


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
