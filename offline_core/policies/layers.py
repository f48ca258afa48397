"""The layers between an encoded observation and its features: convolutions and hidden layers, or a user module."""

from __future__ import annotations

import math
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.errors import ConfigError
from offline_core.policies.config import ConvolutionPadding, ImageLayout, NetworkConfig
from offline_core.policies.dense import Layers
from offline_core.policies.encoder import Encoder, channels_first, image_shape, is_image, leaf_spaces
from offline_core.runtime.user_code import import_class

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "linear": nn.Identity,
}

Convolved = list[tuple[int, int, int]]
"""(channels, kernel, stride) of each."""

NATURE: Convolved = [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
"""Mnih et al. 2015, "Human-level control through deep reinforcement learning"."""


def make_layers(encoder: Encoder, network: NetworkConfig) -> tuple[nn.Module, int]:
    """A module from encoded observations, (B, size) or (B, frames, size), to (B, features), and the number of features.

    With `imitation_threshold`, features of the imitator follow those of the policy: of hidden layers of its own, over the same
    convolutions or user module, or the same features again with `share_layers`.

    Raises:
        ConfigError: the network does not fit the observations, or the user module cannot be used.
    """
    trunk, inputs = make_trunk(encoder, network)
    sizes = network.hidden_sizes if network.module is None else []
    features = sizes[-1] if sizes else inputs
    if network.imitation_threshold is not None:
        shared, own = (sizes, []) if network.share_layers else ([], sizes)
        fork = Fork(*(Layers(*_hidden_layers(inputs, own, network)) for _ in range(2)))
        return Layers(trunk, *_hidden_layers(inputs, shared, network), fork), 2 * features
    if network.module is not None:
        return trunk, inputs
    before = list(trunk) if isinstance(trunk, nn.Sequential) else [trunk]
    return Layers(*before, *_hidden_layers(inputs, sizes, network)), features


class Fork(nn.Module):
    """Features of two modules side by side: (B, features) → (B, those of the first, then those of the second)."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([self.first(features), self.second(features)], dim=1)


def _hidden_layers(inputs: int, sizes: list[int], network: NetworkConfig) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for size in sizes:
        linear = nn.Linear(inputs, size)
        if network.orthogonal_weights:
            make_orthogonal(linear)
        layers += [linear, ACTIVATIONS[network.activation](), *([nn.Dropout(network.dropout)] if network.dropout else [])]
        inputs = size
    return layers


def make_orthogonal(layer: nn.Linear | nn.Conv2d) -> None:
    """Let a layer begin with orthogonal weights, of a gain that suits ReLU, and without biases (Saxe et al. 2013)."""
    nn.init.orthogonal_(layer.weight, gain=2**0.5)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


def make_trunk(encoder: Encoder, network: NetworkConfig) -> tuple[nn.Module, int]:
    """What comes before the hidden layers: a module from (B, size) or (B, frames, size) to (B, features), and features.

    The user module, convolutions, or nothing but the frames side by side.

    Raises:
        ConfigError: as `make_layers`.
    """
    inputs = network.frames * encoder.size
    layers: list[nn.Module] = [nn.Flatten()] if network.frames > 1 else []
    if network.module is not None:
        module, features = _user_module(network.module, inputs, network)
        return (nn.Sequential(*layers, module) if layers else module), features
    if any(is_image(leaf, network.image_layout) for leaf in leaf_spaces(encoder.space)):
        convolutions = Convolutions(
            encoder.space,
            layers=network.convolutions,
            frames=network.frames,
            activation=ACTIVATIONS[network.activation],
            image_layout=network.image_layout,
            padding=network.convolution_padding,
            orthogonal=bool(network.orthogonal_weights),
        )
        return convolutions, convolutions.features
    if network.convolutions:
        raise ConfigError(f"The observations {encoder.space} have no image: set network.convolutions to None.")
    return nn.Sequential(*layers), inputs


def _user_module(path: str, inputs: int, network: NetworkConfig) -> tuple[nn.Module, int]:
    """`Class(inputs, network)` of `package.module:Class`, a torch module from (B, inputs) to (B, features), both float32.

    Raises:
        ConfigError: it cannot be imported, is not a torch module, fails, or gives outputs of another shape or type.
    """
    kind = import_class(path, "network's module", nn.Module)
    try:
        module = kind(inputs, network).eval()
        with torch.no_grad():
            features = module(torch.zeros(2, inputs))
    except Exception as error:  # user code may raise anything
        raise ConfigError(f"The network's module {path!r} failed with {inputs} inputs: {error!r}") from error
    if not (isinstance(features, Tensor) and features.ndim == 2 and len(features) == 2 and features.dtype == torch.float32):
        made = f"{features.dtype} {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(
            f"The network's module {path!r} made {made} of (2, {inputs}) inputs; it has to make float32 (2, features)."
        )
    return module.train(), features.shape[1]


class Memory(nn.Module):
    """An LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014) over the features of successive steps.

    Its state is one tensor (S, state_size), zero before the first step: for an LSTM, hidden and cell state side by side.
    """

    def __init__(self, kind: Literal["lstm", "gru"], inputs: int, units: int) -> None:
        super().__init__()
        self.cell = (nn.LSTM if kind == "lstm" else nn.GRU)(inputs, units, batch_first=True)
        self.parts = 2 if kind == "lstm" else 1
        self.state_size = self.parts * units
        for name, parameter in self.cell.named_parameters():
            (nn.init.zeros_ if name.startswith("bias") else nn.init.orthogonal_)(parameter)

    def empty(self, sequences: int) -> Tensor:
        """The state before the first step: (sequences, state_size)."""
        return next(self.parameters()).new_zeros(sequences, self.state_size)

    def forward(self, features: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(S, L, inputs) and the state before (None: `empty`) → (S, L, units), and the state after."""
        if state is None:
            state = features.new_zeros(features.shape[0], self.state_size)
        parts = [part[None].contiguous() for part in state.chunk(self.parts, dim=1)]
        outputs, after = self.cell(features, tuple(parts) if self.parts == 2 else parts[0])
        return outputs, torch.cat([part[0] for part in (after if self.parts == 2 else [after])], dim=1)


def default_layers(pixels: int) -> Convolved:
    """Choose layers by the shorter side in pixels.

    From 36 on these are the layers of the Nature paper, from 16 on smaller kernels and strides, below that two of 3×3.
    """
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
        layers: Convolved | None,
        frames: int,
        activation: type[nn.Module],
        image_layout: ImageLayout = "auto",
        padding: ConvolutionPadding = "valid",
        orthogonal: bool = False,
    ) -> None:
        super().__init__()
        self.frames = frames
        self.image_layout = image_layout
        leaves = leaf_spaces(space)
        self.sizes = [gym.spaces.flatdim(leaf) for leaf in leaves]
        self.images = [leaf if isinstance(leaf, gym.spaces.Box) and is_image(leaf, image_layout) else None for leaf in leaves]
        self.features = sum(frames * size for size, image in zip(self.sizes, self.images, strict=True) if image is None)
        self.stacks = nn.ModuleList()
        for image in self.images:
            if image is not None:
                channels, *pixels = image_shape(image, image_layout)
                chosen = default_layers(min(pixels)) if layers is None else layers
                sizes = _sizes(chosen, pixels, padding)
                self.stacks.append(_stack(chosen, frames * channels, sizes, activation, padding, orthogonal))
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
    layers: Convolved,
    inputs: int,
    sizes: list[tuple[int, int]],
    activation: type[nn.Module],
    padding: ConvolutionPadding,
    orthogonal: bool,
) -> nn.Sequential:
    modules: list[nn.Module] = []
    for (channels, kernel, stride), size in zip(layers, sizes, strict=False):  # sizes also has the output
        convolution = nn.Conv2d(inputs, channels, kernel, stride)
        if orthogonal:
            make_orthogonal(convolution)
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


def _sizes(layers: Convolved, pixels: list[int], padding: ConvolutionPadding) -> list[tuple[int, int]]:
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
