"""Networks, densities and what follows a step, in float64 and without the code under test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.critics import Critics
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.steps import Steps
from offline_core.policies.policy import Policy

CENTER, HALF_RANGE = 1.0, 2.0
"""Of `making.BOX`."""


def spread(networks: Networks) -> Any:
    """The algorithm with weights far from those that it began with, other ones in each network."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in networks.named_parameters():
            if "log_std" not in name and parameter.ndim:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return networks


def through(layers: Iterable[nn.Module], x: Tensor) -> Tensor:
    """Linear layers and activations."""
    for layer in layers:
        x = x @ layer.weight.double().T + layer.bias.double() if isinstance(layer, nn.Linear) else layer(x)
    return x


def mean_of(policy: Policy, obs: Tensor) -> Tensor:
    """Before tanh, where there is one, in units where the bounds are ±1."""
    return through([*policy.hidden, policy.head.mean], obs.double())


def q_of(critics: Critics, obs: Tensor, actions: Tensor) -> Tensor:
    """(critics, B): each by itself; observation and action, in units where the bounds are ±1, go in together."""
    found = []
    for number in range(len(critics.weights[0])):
        x = torch.cat([obs, actions], dim=1).double()
        for layer, (weight, bias) in enumerate(zip(critics.weights, critics.biases, strict=True)):
            x = x @ weight[number].double() + bias[number].double()
            if layer < len(critics.weights) - 1:
                x = critics.activation(x)
                if len(critics.scales):
                    deviations = x - x.mean(dim=1, keepdim=True)
                    x = deviations / torch.sqrt((deviations**2).mean(dim=1, keepdim=True) + 1e-5)
                    x = x * critics.scales[layer][number].double() + critics.shifts[layer][number].double()
        found.append(x.squeeze(1))
    return torch.stack(found)


def scaled(actions: Tensor) -> Tensor:
    return (actions.double() - CENTER) / HALF_RANGE


def normal_log_density(x: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    return -0.5 * ((x - mean) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)


class Following(NamedTuple):
    """What follows each step, for rewards summed over several of them."""

    rewards: Tensor
    """(N,) float64, discounted."""
    discounts: Tensor
    """(N,) float64: of the value that follows, 0 after a termination."""
    rows: Tensor
    """(N,) int64: of the observation that follows."""
    has_action: Tensor
    """(N,) bool: that row is a step, too."""


def following(steps: Steps, lengths: Sequence[int], terminated: Sequence[bool], *, gamma: float, n_step: int = 1) -> Following:
    """Step by step."""
    found = []
    first = 0
    for length, ends in zip(lengths, terminated, strict=True):
        for t in range(length):
            m = min(n_step, length - t)
            reward = sum(gamma**k * float(steps.columns["rewards"][first + t + k]) for k in range(m))
            at_end = t + m == length
            found.append((reward, 0.0 if at_end and ends else gamma**m, first + t + m, not at_end))
        first += length + 1
    rewards, discounts, rows, has_action = zip(*found, strict=True)
    return Following(
        torch.tensor(rewards, dtype=torch.float64), torch.tensor(discounts, dtype=torch.float64), torch.tensor(rows),
        torch.tensor(has_action),
    )  # fmt: skip


def check(output: LossOutput, expected: dict[str, Tensor], total: Tensor) -> None:
    """Compare the metrics, and the loss of each step."""
    for name, term in expected.items():
        torch.testing.assert_close(output.metrics[name].double(), term, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    torch.testing.assert_close(output.loss.detach().double(), total, rtol=1e-4, atol=1e-4)
