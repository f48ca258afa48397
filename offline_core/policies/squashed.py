"""The action head of bounded Box spaces whose actions never reach the bounds: a Gaussian squashed by tanh."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from offline_core.errors import ConfigError
from offline_core.policies.gaussian import BoxHead

EDGE = 1e-6
"""Actions closer to a bound than this share of half the range count as that close: log-probabilities stay finite."""
ENTROPY_NODES = 32


class SquashedGaussianHead(BoxHead):
    """tanh of a diagonal Gaussian, scaled to the bounds (Haarnoja et al. 2018, "Soft Actor-Critic", appendix C).

    `inputs` are (mean, log std) before tanh, so in units of the network; both depend on the state. Log-probabilities
    are densities in the units of the environment, with the exact Jacobian.

    `log_prob` goes by the distances of an action to its bounds, and is right for that action. The log-probability of
    `rsample` goes by what was drawn before tanh, and is right for that. They differ by the rounding of the action to float32,
    which is coarse next to a bound that is not 0: with bounds -1 and 1, a draw x of 3 leaves a distance to the bound that is
    right to 6e-6 of itself, one of 5 to 3e-4, one of 7 to 0.02. Times |±1 - (x - mean) / 2 std²| that is the difference of
    the log-probabilities. Beyond 7.25 (`EDGE`) all actions count as one for `log_prob`: float32 is saturated.

    Raises:
        ConfigError: a component has no bound on one side.
    """

    def __init__(self, space: gym.spaces.Box, features: int) -> None:
        super().__init__(space)
        if not torch.isfinite(self.high - self.low).all():
            raise ConfigError(f"Actions of {space} cannot be squashed: give it finite bounds, or set squash to false.")
        self.mean = nn.Linear(features, self.size)
        self.log_std = nn.Linear(features, self.size)
        for linear in (self.mean, self.log_std):
            nn.init.orthogonal_(linear.weight, gain=0.01)
            nn.init.zeros_(linear.bias)
        nodes, weights = np.polynomial.hermite_e.hermegauss(ENTROPY_NODES)
        self.nodes: Tensor
        self.node_weights: Tensor
        self.register_buffer("nodes", torch.from_numpy(nodes).float(), persistent=False)
        self.register_buffer("node_weights", torch.from_numpy(weights / weights.sum()).float(), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        inputs = torch.cat([self.mean(features), self.log_std(features).clamp(-8.0, 2.0)], dim=1)
        return inputs.to(torch.promote_types(inputs.dtype, torch.float32))  # bfloat16 is too coarse next to a bound

    def sample(self, inputs: Tensor, generator: Generator | None = None) -> Tensor:
        return self._squashed(self._drawn(inputs, generator))

    def rsample(self, inputs: Tensor, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Actions (B, *action shape) and their log-probabilities (B,), both differentiable with respect to `inputs`."""
        drawn = self._drawn(inputs, generator)
        return self._squashed(drawn), self._log_prob(inputs, drawn)

    def mode(self, inputs: Tensor) -> Tensor:
        """The action of the Gaussian's mean: the median, which does not move to a bound as the standard deviation grows."""
        return self._squashed(inputs.chunk(2, dim=1)[0])

    def unit_mean(self, features: Tensor) -> Tensor:
        """(B, features) → the mode in units of the network, (B, components)."""
        return torch.tanh(self.mean(features))

    def mean_action(self, inputs: Tensor) -> Tensor:
        """Compute the same as `unit_mean`, from the distribution's inputs."""
        return torch.tanh(inputs.chunk(2, dim=1)[0])

    def log_prob(self, inputs: Tensor, actions: Tensor) -> Tensor:
        return self._log_prob(inputs, self._drawn_for(self.flat(actions, inputs.dtype)))

    def entropy(self, inputs: Tensor) -> Tensor:
        """That of the Gaussian, and the mean of the log-Jacobian by Gauss-Hermite quadrature (the two have no closed form)."""
        mean, log_std = inputs.chunk(2, dim=1)
        slope = (_log_slope(mean[..., None] + log_std.exp()[..., None] * self.nodes) * self.node_weights).sum(dim=-1)
        return self._sum(log_std + 0.5 * math.log(2 * math.pi * math.e) + slope + self.half_range.log())

    def _squashed(self, drawn: Tensor) -> Tensor:
        """From the nearer bound: 1 - tanh |x| = 2 / (e^2|x| + 1) keeps its digits where tanh has none left."""
        below = drawn < 0
        distance = 2 * self.half_range * torch.sigmoid(2 * torch.where(below, drawn, -drawn))
        return self._actions(torch.where(below, self.low + distance, self.high - distance))

    def _drawn_for(self, flat: Tensor) -> Tensor:
        """The inverse: artanh of the share of half the range, by the distances to both bounds."""
        edge = EDGE * self.half_range
        above = (flat - self.low).clamp(edge, 2 * self.half_range - edge)
        below = (self.high - flat).clamp(edge, 2 * self.half_range - edge)
        lead = above - below
        return torch.copysign(0.5 * torch.log1p(lead.abs() / torch.minimum(above, below)), lead)

    def _log_prob(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        mean, log_std = inputs.chunk(2, dim=1)
        z = (drawn - mean) * torch.exp(-log_std)
        gaussian = -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)
        return self._sum(gaussian - _log_slope(drawn) - self.half_range.log())


def _log_slope(x: Tensor) -> Tensor:
    """log (d tanh x / dx) = log (1 - tanh² x), exact far out."""
    return 2 * (math.log(2) - x - functional.softplus(-2 * x))
