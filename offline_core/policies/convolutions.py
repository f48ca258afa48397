"""Layers over the images in an observation."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.errors import ConfigError
from offline_core.policies.config import ConvolutionPadding, ImageLayout
from offline_core.policies.encoder import channels_first, image_shape, is_image, leaf_spaces

Layers = list[tuple[int, int, int]]
"""(channels, kernel, stride) of each."""

NATURE: Layers = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
"""Mnih et al. 2015, "Human-level control through deep reinforcement learning"."""


def default_layers(pixels: int) -> Layers:
    """By the shorter side: Nature's from 36 on; smaller kernels and strides from 16 on; below that, two of 3×3 at stride 1."""
    if pixels >= 36:
        return NATURE
    return [(32, 4, 2), (64, 3, 2), (64, 3, 1)] if pixels >= 16 else [(32, 3, 1), (64, 3, 1)]


class Convolutions(nn.Module):
    """Encoded observations (B, size), or (B, frames, size) → (B, features): images through layers of their own, the rest as is.

    Stacked frames are channels.

    Raises:
        ConfigError: without padding a kernel is larger than the output of the layer before.
    """

    def __init__(
        self,
        space: gym.Space[Any],
        *,
        layers: Layers | None,
        frames: int,
        activation: type[nn.Module],
        image_layout: ImageLayout = "auto",
        padding: ConvolutionPadding = "valid",
    ) -> None:
        super().__init__()
        self.frames = frames
        self.image_layout = image_layout
        leaves = list(leaf_spaces(space))
        self.sizes = [gym.spaces.flatdim(leaf) for leaf in leaves]
        self.images = [leaf if isinstance(leaf, gym.spaces.Box) and is_image(leaf, image_layout) else None for leaf in leaves]
        self.features = sum(frames * size for size, image in zip(self.sizes, self.images, strict=True) if image is None)
        self.stacks = nn.ModuleList()
        for image in self.images:
            if image is not None:
                channels, *pixels = image_shape(image, image_layout)
                chosen = default_layers(min(pixels)) if layers is None else layers
                sizes = _sizes(chosen, pixels, padding)
                self.stacks.append(_stack(chosen, frames * channels, sizes, activation, padding))
                self.features += math.prod(sizes[-1]) * (chosen[-1][0] if chosen else frames * channels)

    def forward(self, encoded: Tensor) -> Tensor:
        stacks = iter(self.stacks)
        parts = zip(encoded.split(self.sizes, dim=-1), self.images, strict=True)
        return torch.cat(
            [part.flatten(1) if image is None else next(stacks)(self._pixels(part, image)) for part, image in parts], dim=1
        )

    def _pixels(self, part: Tensor, image: gym.spaces.Box) -> Tensor:
        """(B, frames · channels, height, width)."""
        stacked = part.reshape(-1, self.frames, *image.shape)
        if not channels_first(image, self.image_layout):
            stacked = stacked.permute(0, 1, 4, 2, 3)
        return stacked.flatten(1, 2)


def _stack(
    layers: Layers, inputs: int, sizes: list[tuple[int, int]], activation: type[nn.Module], padding: ConvolutionPadding
) -> nn.Sequential:
    modules: list[nn.Module] = []
    for (channels, kernel, stride), size in zip(layers, sizes, strict=False):  # sizes also has the output
        convolution = nn.Conv2d(inputs, channels, kernel, stride)
        nn.init.orthogonal_(convolution.weight, gain=2**0.5)
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        if padding == "same" and any(around := _around(size, kernel, stride)):
            modules.append(nn.ZeroPad2d(around))
        modules += [convolution, activation()]
        inputs = channels
    return nn.Sequential(*modules, nn.Flatten())


def _around(size: tuple[int, int], kernel: int, stride: int) -> tuple[int, int, int, int]:
    """(left, right, top, bottom) zeros with which a layer's output has a pixel for each `stride` of its input.

    As TensorFlow's `same` and RLlib's `same_padding`: where the number is odd, the last side gets one more.
    """
    height, width = (max(0, (-(-pixels // stride) - 1) * stride + kernel - pixels) for pixels in size)
    return width // 2, width - width // 2, height // 2, height - height // 2


def _sizes(layers: Layers, pixels: list[int], padding: ConvolutionPadding) -> list[tuple[int, int]]:
    """(height, width) of the image and of each layer's output.

    Raises:
        ConfigError: without padding a kernel is larger than the output of the layer before.
    """
    height, width = pixels
    sizes = [(height, width)]
    for number, (_, kernel, stride) in enumerate(layers, start=1):
        if padding == "same":
            height, width = -(-height // stride), -(-width // stride)
        elif kernel <= min(height, width):
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        else:
            raise ConfigError(
                f"Convolution {number} has a kernel of {kernel}, but its input is only {height}×{width} of an image of "
                f"{pixels[0]}×{pixels[1]} pixels. Give network.convolutions smaller kernels or strides, or set "
                "network.convolution_padding to same."
            )
        sizes.append((height, width))
    return sizes
