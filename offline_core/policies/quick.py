"""Sample actions of small policies with numpy: for few observations a call of Torch takes longer than its arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
import numpy as np
from torch import Generator, nn

from offline_core.data.episodes.nested import Nested
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.gaussian import LOG_STD_RANGE, GaussianHead
from offline_core.policies.policy import Policy, PolicyState

MAX_PRODUCT = 64**3
"""Multiplications of a layer beyond which numpy's BLAS starts threads."""

Array = np.ndarray
Function = Callable[[Array], Array]

_ACTIVATIONS: dict[type[nn.Module], Function] = {
    nn.Tanh: np.tanh,
    nn.ReLU: lambda x: np.maximum(x, 0),
    nn.Identity: lambda x: x,
}


class QuickPolicy:
    """Plays as a policy is now, with exploration: it looks at the same weights, which have to be updated in place.

    Its random numbers are numpy's, and its products may differ in the last bits.

    Arguments:
        policy: one that `plays` is true of.
        seed: of the actions.
    """

    def __init__(self, policy: Policy, *, seed: int) -> None:
        self._policy = policy
        self._functions = [_encoding(policy), *(_layer(module) for module in policy.hidden.children())]
        head, random = cast(Any, policy.head), np.random.default_rng(seed)
        self._functions.append(_gaussian(head, random) if isinstance(head, GaussianHead) else _categorical(head, random))

    @staticmethod
    def plays(policy: Policy, batch_size: int) -> bool:
        """Whether the policy is of plain layers, and so many observations are few enough."""
        network, head = policy.network, policy.head
        return (
            isinstance(policy.observation_space, gym.spaces.Box)
            and not (network.remembers or policy.encoder.scaled)
            and isinstance(policy.hidden, nn.Sequential)
            and all(isinstance(layer, nn.Linear) or type(layer) in _ACTIVATIONS for layer in policy.hidden)
            and isinstance(head, GaussianHead | CategoricalHead)
            and type(head) in (GaussianHead, CategoricalHead)  # a subclass has another distribution
            and head.dtype != np.float16
            and batch_size * max([policy.encoder.size, *network.hidden_sizes]) ** 2 <= MAX_PRODUCT
        )

    def initial_state(self, batch_size: int) -> PolicyState:
        """The state of so many episodes, which never changes."""
        return self._policy.initial_state(batch_size)

    def act(
        self, observations: Nested, state: PolicyState, *, explore: bool, generator: Generator | None = None
    ) -> tuple[Nested, PolicyState]:
        """Sample actions (B, *action shape) for observations (B, …). `generator` is not drawn from."""
        assert explore
        x: Array = observations
        for function in self._functions:
            x = function(x)
        return x, state


def _encoding(policy: Policy) -> Function:
    encoder = policy.encoder
    if not encoder.normalize:
        return lambda observations: observations.reshape(len(observations), -1).astype(np.float32)
    mean, variance, clip = encoder.mean.numpy(), encoder.variance.numpy(), encoder.clip

    def normalized(observations: Array) -> Array:
        scale = (1 / np.sqrt(variance + 1e-8)).astype(np.float32)
        flat = observations.reshape(len(observations), -1).astype(np.float32)
        scaled: Array = np.clip((flat - mean.astype(np.float32)) * scale, -clip, clip)
        return scaled

    return normalized


def _layer(module: nn.Module) -> Function:
    if not isinstance(module, nn.Linear):
        return _ACTIVATIONS[type(module)]
    weight, bias = module.weight.detach().numpy().T, module.bias.detach().numpy()
    return lambda x: x @ weight + bias


def _gaussian(head: GaussianHead, random: np.random.Generator) -> Function:
    linear, log_std = _layer(head.mean), head.log_std.detach().numpy()
    low, high, center, half_range = (part.numpy() for part in (head.low, head.high, head.center, head.half_range))

    def sample(features: Array) -> Array:
        mean = linear(features)
        if head.bounded_mean:
            mean = np.tanh(mean)
        noise = random.standard_normal(mean.shape, np.float32) * np.exp(np.clip(log_std, *LOG_STD_RANGE))
        actions: Array = np.clip(center + half_range * (mean + noise), low, high)
        return actions.reshape(len(actions), *head.shape).astype(head.dtype, copy=False)

    return sample


def _categorical(head: CategoricalHead, random: np.random.Generator) -> Function:
    logits, starts = _layer(head.logits), head.starts.numpy()
    cuts = np.cumsum(head.sizes)[:-1]

    def sample(features: Array) -> Array:
        """Draw actions as the largest of the logits with Gumbel noise (Gumbel 1954)."""
        perturbed = logits(features)
        perturbed = perturbed + random.gumbel(size=perturbed.shape)
        parts = [part.argmax(axis=1) for part in (np.split(perturbed, cuts, axis=1) if len(cuts) else [perturbed])]
        actions: Array = np.stack(parts, axis=1) + starts
        return actions.reshape(len(actions), *head.shape).astype(head.dtype, copy=False)

    return sample
