"""Action heads of floating-point Box spaces: what two distributions share, and the clipped Gaussian."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn

from offline_core.errors import ConfigError

LOG_STD_RANGE = (-8.0, 2.0)
"""In units of the network."""


class BoxHead(nn.Module):
    """The bounds of a Box space as float32 buffers (components,), and the conversion of actions to its dtype."""

    def __init__(self, space: gym.spaces.Box) -> None:
        super().__init__()
        self.shape = space.shape
        self.dtype = np.dtype(space.dtype)
        low, high = _float32_bounds(space)
        bounded = torch.isfinite(high - low) & (high > low)  # neither a range beyond float32 nor a point can be a scale
        center = torch.where(bounded, low + (high - low) / 2, torch.zeros_like(low).clamp(low, high))
        self.size = len(low)
        self.inputs_size = 2 * self.size
        self.low: Tensor
        self.high: Tensor
        self.center: Tensor
        self.half_range: Tensor
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)
        self.register_buffer("center", center, persistent=False)
        self.register_buffer("half_range", torch.where(bounded, (high - low) / 2, 1.0), persistent=False)

    def to_env(self, actions: Tensor) -> np.ndarray:
        return actions.numpy().astype(self.dtype, copy=False)

    def flat(self, actions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """(B, *action shape) of the space's dtype → (B, components) of the network's: a loss has one dtype."""
        return actions.reshape(len(actions), self.size).to(dtype)

    def scaled(self, actions: Tensor) -> Tensor:
        """(B, *action shape) in the environment's units → (B, components) in the network's: bounds are -1 and 1."""
        return (self.flat(actions) - self.center) / self.half_range

    def to_space(self, scaled: Tensor) -> Tensor:
        """The inverse of `scaled`, clipped to the bounds."""
        return self._actions(self.center + self.half_range * scaled)

    def _actions(self, flat: Tensor) -> Tensor:
        if self.dtype == np.float16:
            flat = flat.half().float()  # the recorded action has to be the one that the environment gets
        return torch.clamp(flat, self.low, self.high).reshape(flat.shape[0], *self.shape)

    def _sum(self, per_component: Tensor) -> Tensor:
        """(B, components) → (B,); a component whose bounds are equal is certain."""
        return per_component.masked_fill(self.low >= self.high, 0.0).sum(dim=1)


class GaussianHead(BoxHead):
    """A diagonal Gaussian whose samples are clipped to the bounds of the space; `inputs` are (mean, log std), unclipped.

    The probability of an action at a bound is the whole tail beyond it; inside, the density is the Gaussian's (Fujita &
    Maeda 2018, "Clipped Action Policy Gradient"). So recordings hold the action that the environment got, with its true
    log-probability. The network works in units where the bounds are -1 and 1; its standard deviation does not depend on
    the state. Without both bounds, the units are the environment's.

    Arguments:
        bounded_mean: keep the mean within the bounds by tanh.
        fixed_std: the standard deviation in units of the network; None: learned.

    Raises:
        ConfigError: a mean is bounded and a component has no bound on one side.
    """

    def __init__(
        self, space: gym.spaces.Box, features: int, *, bounded_mean: bool = False, fixed_std: float | None = None
    ) -> None:
        super().__init__(space)
        if bounded_mean and not torch.isfinite(self.high - self.low).all():
            raise ConfigError(f"A mean of {space} cannot be bounded: give it finite bounds, or set bounded_mean to false.")
        self.bounded_mean = bounded_mean
        self.mean = nn.Linear(features, self.size)
        nn.init.orthogonal_(self.mean.weight, gain=0.01)
        nn.init.zeros_(self.mean.bias)
        log_std = torch.full((self.size,), 0.0 if fixed_std is None else math.log(fixed_std))
        self.log_std = nn.Parameter(log_std, requires_grad=fixed_std is None)

    def forward(self, features: Tensor) -> Tensor:
        mean = self.mean(features)
        mean = self.center + self.half_range * (torch.tanh(mean) if self.bounded_mean else mean)
        log_std = self.log_std.clamp(*LOG_STD_RANGE) + self.half_range.log()
        return torch.cat([mean, log_std.expand_as(mean)], dim=1)

    def sample(self, inputs: Tensor, generator: Generator | None = None) -> Tensor:
        mean, log_std = inputs.chunk(2, dim=1)
        return self._actions(mean + log_std.exp() * torch.randn_like(mean, generator=generator))

    def mode(self, inputs: Tensor) -> Tensor:
        return self._actions(inputs.chunk(2, dim=1)[0])

    def mean_action(self, inputs: Tensor) -> Tensor:
        """The mean in units of the network, (B, components), not clipped."""
        return (inputs.chunk(2, dim=1)[0] - self.center) / self.half_range

    def log_prob(self, inputs: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = inputs.chunk(2, dim=1)
        flat = self.flat(actions, inputs.dtype).clamp(self.low, self.high)  # as environments clip
        z = (flat - mean) * torch.exp(-log_std)
        inside = -0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)
        at_low, at_high = flat <= self.low, flat >= self.high
        tail: Tensor = _LogNormalCDF.apply(torch.where(at_low, z, -z))  # type: ignore[no-untyped-call]  # at a bound z is where the tail begins
        return self._sum(torch.where(at_low | at_high, tail, inside))

    def entropy(self, inputs: Tensor) -> Tensor:
        """Of the Gaussian before clipping, as an entropy bonus should widen that."""
        return (inputs.chunk(2, dim=1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=1)


class _LogNormalCDF(torch.autograd.Function):
    """log Φ(z), exact far out, and so is its gradient (that of torch.special.log_ndtr is not: in float32, infinite at -1e6)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor) -> Tensor:
        log_cdf: Tensor = torch.special.log_ndtr(z)
        return log_cdf

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        context.save_for_backward(*inputs)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (z,) = context.saved_tensors
        slope: Tensor = math.sqrt(2 / math.pi) / torch.special.erfcx(z * -math.sqrt(0.5))
        return gradient * slope


def _float32_bounds(space: gym.spaces.Box) -> tuple[Tensor, Tensor]:
    """(low, high), flat; rounded inwards, so that an action clipped to them lies in a float64 space as well."""
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    with np.errstate(over="ignore"):
        low32, high32 = low.astype(np.float32), high.astype(np.float32)
        low32 = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
        high32 = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    return torch.from_numpy(low32), torch.from_numpy(high32)
