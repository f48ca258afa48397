"""Action heads of floating-point Box spaces: what two distributions share, and the clipped Gaussian."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn

from offline_core.errors import ConfigError
from offline_core.runtime.torch_settings import is_traced

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

    def _drawn(self, inputs: Tensor, generator: Generator | None) -> Tensor:
        """(B, components) of a Gaussian with these means and log standard deviations."""
        mean, log_std = inputs.chunk(2, dim=1)
        return mean + log_std.exp() * torch.randn_like(mean, generator=generator)

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
        mean = self.center + self.half_range * self.unit_mean(features)
        log_std = self.log_std.clamp(*LOG_STD_RANGE) + self.half_range.log()
        return torch.cat([mean, log_std.expand_as(mean)], dim=1)

    def unit_mean(self, features: Tensor) -> Tensor:
        """(B, features) → the mean in units of the network, (B, components), not clipped."""
        mean: Tensor = self.mean(features)
        return torch.tanh(mean) if self.bounded_mean else mean

    def sample(self, inputs: Tensor, generator: Generator | None = None) -> Tensor:
        return self._actions(self._drawn(inputs, generator))

    def mode(self, inputs: Tensor) -> Tensor:
        return self._actions(inputs.chunk(2, dim=1)[0])

    def mean_action(self, inputs: Tensor) -> Tensor:
        """Compute the same as `unit_mean`, from the distribution's inputs."""
        return (inputs.chunk(2, dim=1)[0] - self.center) / self.half_range

    def log_prob(self, inputs: Tensor, actions: Tensor) -> Tensor:
        flat = self.flat(actions, inputs.dtype).clamp(self.low, self.high)  # as environments clip
        log_probs: Tensor = _ClippedGaussian.apply(inputs, flat, flat <= self.low, flat >= self.high)[0]  # type: ignore[no-untyped-call]
        return self._sum(log_probs)

    def entropy(self, inputs: Tensor) -> Tensor:
        """Return the entropy of the Gaussian before clipping, as an entropy bonus should widen that."""
        return (inputs.chunk(2, dim=1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(dim=1)


class _ClippedGaussian(torch.autograd.Function):
    """Log-probabilities (B, n) of clipped Gaussians at actions (B, n), for `inputs` (B, 2n), with which of them are at a bound.

    Inside it is the density; at a bound log Φ(z), exact far out, and so is its gradient (that of torch.special.log_ndtr is not:
    in float32, infinite at -1e6). Second and third output: the derivatives by mean and log std.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(inputs: Tensor, actions: Tensor, at_low: Tensor, at_high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_std = inputs.chunk(2, dim=1)
        precision = torch.exp(-log_std)
        z = (actions - mean) * precision
        slope, square = z, z * z
        log_probs = square * -0.5 - log_std - 0.5 * math.log(2 * math.pi)
        by_log_std = square - 1
        at_bound = at_low | at_high
        if is_traced() or inputs.is_cuda or at_bound.any():  # to look would make a GPU wait
            tail = torch.where(at_low, z, -z)  # at a bound z is where the tail begins
            log_probs = torch.where(at_bound, torch.special.log_ndtr(tail), log_probs)
            of_tail = math.sqrt(2 / math.pi) / torch.special.erfcx(tail * -math.sqrt(0.5))
            slope = torch.where(at_bound, torch.where(at_low, -of_tail, of_tail), z)
            by_log_std = torch.where(at_bound, slope * z, by_log_std)
        return log_probs, slope * precision, by_log_std

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, Tensor, Tensor]) -> None:
        context.mark_non_differentiable(*outputs[1:])
        context.save_for_backward(*outputs[1:])

    @staticmethod
    def backward(context: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None, None]:
        by_mean, by_log_std = context.saved_tensors
        return torch.cat([by_mean * gradient, by_log_std * gradient], dim=1), None, None, None


def _float32_bounds(space: gym.spaces.Box) -> tuple[Tensor, Tensor]:
    """(low, high), flat; rounded inwards, so that an action clipped to them lies in a float64 space as well."""
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    with np.errstate(over="ignore"):
        low32, high32 = low.astype(np.float32), high.astype(np.float32)
        low32 = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
        high32 = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    return torch.from_numpy(low32), torch.from_numpy(high32)
