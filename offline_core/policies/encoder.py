"""Encode observations of any supported space as one flat vector per step."""

from __future__ import annotations

import copy
import functools
import logging
import math
from collections.abc import Mapping
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import without_mask
from offline_core.data.episodes.spaces import space_leaves
from offline_core.errors import ConfigError
from offline_core.policies.config import ImageLayout

log = logging.getLogger(__name__)

SMALLEST_IMAGE = 5
"""Pixels on the shorter side; anything smaller is a grid of numbers, and is flattened."""
NUMERIC = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
"""Spaces of single values that a policy encodes."""
VARIANCE_FLOOR = 1e-8
"""Added to the variance of observations: one that never changes is not blown up."""


class Encoder(nn.Module):
    """Flattens boxes, one-hots discrete values, concatenates dicts and tuples in their space's order; normalises if asked.

    Without normalisation, images of uint8 are scaled to 0..1. The normaliser's statistics are buffers: they travel with
    the weights, so the same filter acts in training, recording, evaluation and export, while the data on disk stays raw.
    A mask of actions is no part of what is encoded.
    """

    def __init__(
        self, space: gym.Space[Any], *, normalize: bool, clip: float = 10.0, image_layout: ImageLayout = "auto"
    ) -> None:
        super().__init__()
        self.space = _with_plain_numbers(without_mask(space))
        self.normalize = normalize
        self.clip = clip
        leaves = leaf_spaces(self.space)
        self.size = sum(map(gym.spaces.flatdim, leaves))
        self.mean: Tensor
        self.variance: Tensor
        self.count: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.zeros(self.size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(self.size, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        scales = [
            torch.full((gym.spaces.flatdim(leaf),), 1 / 255 if _has_bytes(leaf, image_layout) else 1.0) for leaf in leaves
        ]
        self.scaled = not normalize and any(_has_bytes(leaf, image_layout) for leaf in leaves)
        self.register_buffer("scale", torch.cat(scales) if self.scaled else None, persistent=False)

    def forward(self, observations: Any, *, axes: int = 1) -> Tensor:
        """Nested tensors with so many leading axes, (B, …) or (B, L, …) → (B, size) or (B, L, size), float32."""
        flat = flattened(observations, self.space, axes)
        if self.normalize:
            scale = torch.rsqrt(self.variance + VARIANCE_FLOOR).float()
            return ((flat - self.mean.float()) * scale).clamp(-self.clip, self.clip)
        return flat * self.scale if self.scaled else flat

    @torch.no_grad()
    def update_statistics(self, observations: Any) -> None:
        """Update the running mean and variance with a batch of observations (B, …) (Chan et al. 1979, in float64)."""
        flat = flattened(observations, self.space, axes=1).double()
        variance, mean = torch.var_mean(flat, dim=0, unbiased=False)
        self.merge_statistics(len(flat), mean, variance)

    @torch.no_grad()
    def merge_statistics(self, count: float | Tensor, mean: Tensor, variance: Tensor) -> None:
        """Update the running mean and variance with those of `count` other observations, more than 0."""
        total = self.count + count
        delta = mean - self.mean
        merged = self.variance * self.count + variance * count + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.variance.copy_(merged / total)
        self.count.copy_(total)


def leaf_spaces(space: gym.Space[Any]) -> list[gym.Space[Any]]:
    """Return the spaces whose values are concatenated in a flat observation.

    Raises:
        ConfigError: One of them is not numeric.
    """
    leaves = [*space_leaves(space, columns.OBS).values()]
    for leaf in leaves:
        if not isinstance(leaf, NUMERIC):
            raise ConfigError(f"A policy cannot encode {type(leaf).__name__} observations; turn them into numbers first.")
    return leaves


def misfit(value: Any, space: gym.Space[Any], layout: ImageLayout, path: str = "observations") -> str | None:
    """Return the sentence that says why a nested array (B, …) is no batch of a space; None if it is one.

    Only shapes are looked at. What is flattened has to have the numbers of its space, an image its axes.
    """
    match space:
        case gym.spaces.Dict():
            if not isinstance(value, Mapping) or (lost := [key for key in space.spaces if key not in value]):
                what = f"lack {', '.join(lost)}" if isinstance(value, Mapping) else f"are {type(value).__name__}"
                return f"{path} {what}: give a dict of arrays with the keys {', '.join(space.spaces)}."
            children = [(value[key], child, f"{path}/{key}") for key, child in space.spaces.items()]
        case gym.spaces.Tuple():
            if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
                return f"{path} are {type(value).__name__}: give a tuple of {len(space.spaces)} arrays."
            children = [(value[i], child, f"{path}/{i}") for i, child in enumerate(space.spaces)]
        case _:
            return _misfit_of_array(value, space, layout, path)
    return next((said for child in children if (said := misfit(child[0], child[1], layout, child[2]))), None)


def _misfit_of_array(value: Any, space: gym.Space[Any], layout: ImageLayout, path: str) -> str | None:
    one = space.shape or ()
    got = getattr(value, "shape", None)
    if (
        got is not None
        and len(got)
        and (got[1:] == one or (math.prod(got[1:]) == math.prod(one) and not is_image(space, layout)))
    ):
        return None
    wanted = f"({', '.join(['B', *map(str, one)])}{'' if one else ','})"
    if got is None:
        return f"{path} are {wanted}, got {type(value).__name__}: give a numpy array."
    batch = f" That is one without the batch: give {path}[None]." if got == one else ""
    return f"{path} are {wanted}, got {tuple(got)}.{batch}"


def is_image(space: gym.Space[Any], layout: ImageLayout) -> bool:
    """Whether convolutions go over it: a Box of three axes and at least 5×5 pixels, see `channels_first`."""
    if not isinstance(space, gym.spaces.Box) or len(space.shape) != 3:
        return False
    return min(image_shape(space, layout)[1:]) >= SMALLEST_IMAGE


def image_shape(space: gym.spaces.Box, layout: ImageLayout) -> tuple[int, int, int]:
    """(channels, height, width)."""
    first, second, third = space.shape
    return (first, second, third) if channels_first(space, layout) else (third, first, second)


def channels_first(space: gym.spaces.Box, layout: ImageLayout) -> bool:
    """Whether the first of three axes is the channels, and not the last.

    `auto` takes the last, as in gymnasium, and the first only for (C ≤ 4, H ≥ 16, W ≥ 16).
    """
    if layout == "auto":
        return space.shape[0] <= 4 and min(space.shape[1:]) >= 16
    return layout == "channels_first"


def log_layout_guesses(space: gym.Space[Any]) -> None:
    """Log what `auto` makes of Boxes that could be images with channels first; each shape once a process."""
    for leaf in leaf_spaces(space):
        if isinstance(leaf, gym.spaces.Box) and is_image(leaf, "channels_first") and not channels_first(leaf, "auto"):
            _log_layout_guess(leaf.shape)


@functools.cache
def _log_layout_guess(shape: tuple[int, ...]) -> None:
    height, width, channels = shape
    seen = f"an image of {height}×{width} pixels and {channels} channels"
    log.info(
        "Observations of shape %s are taken as %s. If their channels are the first axis, set network.image_layout to "
        "channels_first.",
        shape,
        seen if min(height, width) >= SMALLEST_IMAGE else "numbers, not as an image",
    )


def _has_bytes(space: gym.Space[Any], layout: ImageLayout) -> bool:
    return is_image(space, layout) and space.dtype == np.uint8


def _with_plain_numbers(space: gym.Space[Any]) -> gym.Space[Any]:
    """Return the space with numbers of choices as Python's integers: Torch's compiler takes NumPy's for tensors."""
    space = copy.copy(space)
    match space:
        case gym.spaces.Discrete():
            space.n, space.start = cast(Any, int(space.n)), cast(Any, int(space.start))
        case gym.spaces.Dict():
            space.spaces = {key: _with_plain_numbers(child) for key, child in space.spaces.items()}
        case gym.spaces.Tuple():
            space.spaces = tuple(map(_with_plain_numbers, space.spaces))
    return space


def flattened(value: Any, space: gym.Space[Any], axes: int) -> Tensor:
    """Nested tensors (*leading axes, …) of a space → (*leading axes, size), float32: numbers, and one-hots of choices."""
    match space:
        case gym.spaces.Discrete():
            return functional.one_hot((value.long() - int(space.start)).reshape(value.shape[:axes]), int(space.n)).float()
        case gym.spaces.MultiDiscrete():
            parts = value.long().flatten(axes).unbind(dim=-1)
            starts, sizes = space.start.reshape(-1).tolist(), space.nvec.reshape(-1).tolist()
            choices = zip(parts, starts, sizes, strict=True)
            return torch.cat([functional.one_hot(c - start, n) for c, start, n in choices], dim=-1).float()
        case gym.spaces.Dict():
            return torch.cat([flattened(value[key], child, axes) for key, child in space.spaces.items()], dim=-1)
        case gym.spaces.Tuple():
            return torch.cat([flattened(part, child, axes) for part, child in zip(value, space.spaces, strict=True)], dim=-1)
    flat: Tensor = value.flatten(axes) if value.ndim > axes else value.unsqueeze(-1)
    return flat.float()
