"""Observations of any supported space → one flat vector per step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from offline_core.errors import ConfigError


class Encoder(nn.Module):
    """Flattens boxes, one-hots discrete values, concatenates dicts and tuples in their space's order; normalises if asked.

    The normaliser's statistics are buffers: they travel with the weights, so the same filter acts in training,
    recording, evaluation and export, while the data on disk stays raw.
    """

    def __init__(self, space: gym.Space[Any], *, normalize: bool, clip: float = 10.0) -> None:
        super().__init__()
        self.space = space
        self.normalize = normalize
        self.clip = clip
        self.size = _flat_size(space)
        self.mean: Tensor
        self.variance: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(self.size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(self.size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, observations: Any) -> Tensor:
        """Nested tensors (B, …) → (B, size), float32."""
        flat = _flatten(observations, self.space)
        if not self.normalize:
            return flat
        scale = torch.rsqrt(self.variance + 1e-8).float()
        return ((flat - self.mean.float()) * scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update_statistics(self, observations: Any) -> None:
        """Takes a batch of observations into the running mean and variance (Chan et al. 1979, in float64)."""
        flat = _flatten(observations, self.space).double()
        variance, mean = torch.var_mean(flat, dim=0, unbiased=False)
        total = self.count + len(flat)
        delta = mean - self.mean
        merged = self.variance * self.count + variance * len(flat) + delta**2 * self.count * len(flat) / total
        self.mean += delta * len(flat) / total
        self.variance.copy_(merged / total)
        self.count.copy_(total)


def _flat_size(space: gym.Space[Any]) -> int:
    match space:
        case gym.spaces.Box() | gym.spaces.Discrete() | gym.spaces.MultiDiscrete() | gym.spaces.MultiBinary():
            return int(gym.spaces.flatdim(space))
        case gym.spaces.Dict():
            return sum(map(_flat_size, space.spaces.values()))
        case gym.spaces.Tuple():
            return sum(map(_flat_size, space.spaces))
    raise ConfigError(f"A policy cannot look at {type(space).__name__} observations; turn them into numbers first.")


def _flatten(value: Any, space: gym.Space[Any]) -> Tensor:
    match space:
        case gym.spaces.Discrete():
            return functional.one_hot((value.long() - int(space.start)).reshape(-1), int(space.n)).float()
        case gym.spaces.MultiDiscrete():
            start = torch.as_tensor(space.start.astype(np.int64), device=value.device)  # torch cannot subtract a uint16
            columns = (value.long() - start).reshape(len(value), -1).unbind(dim=1)
            sizes = space.nvec.reshape(-1).tolist()
            return torch.cat([functional.one_hot(c, n) for c, n in zip(columns, sizes, strict=True)], dim=1).float()
        case gym.spaces.Dict():
            return torch.cat([_flatten(value[key], child) for key, child in space.spaces.items()], dim=1)
        case gym.spaces.Tuple():
            return torch.cat([_flatten(part, child) for part, child in zip(value, space.spaces, strict=True)], dim=1)
    flat: Tensor = value.reshape(len(value), -1).float()
    return flat
