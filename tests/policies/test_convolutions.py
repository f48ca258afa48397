"""Images: which boxes are some, and what the layers make of them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional

from offline_core.errors import ConfigError
from offline_core.policies.config import ImageLayout, NetworkConfig
from offline_core.policies.encoder import Encoder, image_shape, is_image
from offline_core.policies.layers import NATURE, Convolutions, default_layers
from offline_core.policies.policy import Policy, as_tensors
from tests.policies.sampling import observed


def tensors(space: gym.Space[Any], *axes: int) -> Any:
    return as_tensors(observed(space, *axes))


def pictures(*shape: int, dtype: Any = np.uint8) -> spaces.Box:
    return spaces.Box(0, 255 if dtype == np.uint8 else 1, shape, dtype)


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((84, 84, 3), "auto", (3, 84, 84)),
        ((84, 84, 4), "auto", (4, 84, 84)),
        ((4, 84, 84), "auto", (4, 84, 84)),
        ((1, 16, 20), "auto", (1, 16, 20)),
        ((3, 15, 20), "auto", None),  # channels, or a strip three pixels high: ambiguous, and as a strip too small
        ((10, 10, 12), "auto", (12, 10, 10)),
        ((16, 16, 16), "auto", (16, 16, 16)),
        ((5, 7, 3), "auto", (3, 5, 7)),
        ((4, 9, 3), "auto", None),
        ((84, 84), "auto", None),
        ((4, 84, 84, 3), "auto", None),
        ((9, 84, 84), "channels_first", (9, 84, 84)),
        ((3, 8, 8), "channels_first", (3, 8, 8)),
        ((84, 84, 9), "channels_last", (9, 84, 84)),
        ((4, 84, 84), "channels_last", None),
        ((84, 84, 4), "channels_first", None),
    ],
)
def test_which_boxes_are_images(shape: tuple[int, ...], layout: ImageLayout, expected: tuple[int, int, int] | None) -> None:
    space = pictures(*shape)
    assert is_image(space, layout) == (expected is not None)
    if expected is not None:
        assert image_shape(space, layout) == expected


@pytest.mark.parametrize(
    ("side", "layers"),
    [
        (84, NATURE),
        (36, NATURE),
        (35, [(32, 4, 2), (64, 3, 2), (64, 3, 1)]),
        (16, [(32, 4, 2), (64, 3, 2), (64, 3, 1)]),
        (15, [(32, 3, 1), (64, 3, 1)]),
        (5, [(32, 3, 1), (64, 3, 1)]),
    ],
)
def test_default_layers_go_by_size_and_fit(side: int, layers: list[tuple[int, int, int]]) -> None:
    assert default_layers(side) == layers
    for shape in ((side, side + 3, 2), (side + 3, side, 2)):
        module = Convolutions(pictures(*shape), layers=None, frames=1, activation=nn.ReLU)
        encoded = torch.rand(3, int(np.prod(shape)))
        assert module(encoded).shape == (3, module.features)


def test_by_hand() -> None:
    """A vector passes by, an image of two channels goes through one layer: told from torch's own convolution."""
    space = spaces.Dict([("speed", spaces.Box(-1, 1, (2,))), ("eye", pictures(5, 6, 2)), ("gear", spaces.Discrete(3))])
    module = Convolutions(space, layers=[(3, 4, 2)], frames=1, activation=nn.ReLU)
    seen = tensors(space, 4)
    found = module(Encoder(space, normalize=False)(seen))
    layer = module.stacks[0][0]
    pixels = seen["eye"].float().permute(0, 3, 1, 2) / 255
    expected = functional.relu(functional.conv2d(pixels, layer.weight, layer.bias, stride=2)).flatten(1)
    assert module.features == 2 + 3 * 1 * 2 + 3
    torch.testing.assert_close(found[:, :2], seen["speed"])
    torch.testing.assert_close(found[:, 2:8], expected)
    torch.testing.assert_close(found[:, 8:], functional.one_hot(seen["gear"], 3).float())


@pytest.mark.parametrize("side", [5, 16, 84])
@pytest.mark.parametrize("layers", [[(3, 4, 2)], [(4, 8, 4), (5, 4, 2), (6, 3, 1)], [(2, 9, 3), (3, 2, 5)]])
def test_same_padding_gives_a_pixel_for_each_stride(side: int, layers: list[tuple[int, int, int]]) -> None:
    """TensorFlow's `same`: the output is the input by the stride, rounded up, and the odd zero is at the end."""
    shape = (side, side + 3, 2)
    module = Convolutions(pictures(*shape), layers=layers, frames=1, activation=nn.Identity, padding="same")
    encoded = torch.rand(2, int(np.prod(shape)))
    pixels = encoded.reshape(2, *shape).permute(0, 3, 1, 2)
    for layer, (channels, kernel, stride) in zip(
        [part for part in module.stacks[0] if isinstance(part, nn.Conv2d)], layers, strict=True
    ):
        expected = [-(-length // stride) for length in pixels.shape[2:]]
        height, width = (
            max(0, (count - 1) * stride + kernel - length) for count, length in zip(expected, pixels.shape[2:], strict=True)
        )
        pixels = functional.pad(pixels, (width // 2, width - width // 2, height // 2, height - height // 2))
        pixels = functional.conv2d(pixels, layer.weight, layer.bias, stride=stride)
        assert list(pixels.shape[1:]) == [channels, *expected]
    assert module.features == pixels[0].numel()
    torch.testing.assert_close(module(encoded), pixels.flatten(1))


def test_padding_is_kept_with_a_policy() -> None:
    declared = NetworkConfig(convolution_padding="same", convolutions=[(4, 16, 2)], hidden_sizes=[8])
    assert NetworkConfig.model_validate_json(declared.model_dump_json()) == declared
    policy = Policy(pictures(8, 8, 3), spaces.Discrete(2), declared)
    assert policy(tensors(pictures(8, 8, 3), 4)).shape == (4, 2)


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((7, 31, 29), "an image of 7×31 pixels and 29 channels"),
        ((2, 9, 11), "numbers, not as an image"),
        ((31, 29, 3), None),
        ((3, 31, 29), None),
    ],
)
def test_a_guess_at_the_channels_is_told_once(
    shape: tuple[int, ...], taken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    space, network = spaces.Dict({"eye": pictures(*shape)}), NetworkConfig(convolutions=[], hidden_sizes=[])
    with caplog.at_level("INFO", logger="offline_core.policies.encoder"):
        for layout in ("channels_first", "auto", "auto"):
            Policy(space, spaces.Discrete(2), network.model_copy(update={"image_layout": layout}))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (taken is not None)
    if taken is not None:
        assert f"shape {shape} are taken as {taken}. " in told[0] and "set network.image_layout to channels_first" in told[0]


def test_both_orders_of_axes_are_the_same_picture() -> None:
    last, first = pictures(20, 18, 3), pictures(3, 20, 18)
    picture = tensors(last, 6)
    policies = [Policy(space, spaces.Discrete(2), NetworkConfig(hidden_sizes=[8])) for space in (last, first)]
    torch.testing.assert_close(policies[0](picture), policies[1](picture.permute(0, 3, 1, 2)))


def test_a_stack_of_cameras_with_channels_first_is_declared() -> None:
    """Two cameras of three channels: the same picture as with channels last, and scaled as that, however small."""
    for side in (20, 8):
        last, first = pictures(side, side, 6), pictures(6, side, side)
        picture = tensors(last, 2)
        convolutions = [(4, 5, 1)]
        policies = [
            Policy(space, spaces.Discrete(2), NetworkConfig(image_layout=layout, convolutions=convolutions))
            for space, layout in ((last, "channels_last"), (first, "channels_first"))
        ]
        assert policies[1].hidden[0].stacks[0][0].in_channels == 6
        torch.testing.assert_close(policies[0](picture), policies[1](picture.permute(0, 3, 1, 2)))


def test_the_layout_is_kept_with_a_policy() -> None:
    declared = NetworkConfig(image_layout="channels_first")
    assert NetworkConfig.model_validate_json(declared.model_dump_json()) == declared


def test_an_environment_with_other_axes_is_refused_as_the_layout_says() -> None:
    """As an image (3, 8, 8) is another one than (8, 3, 8); as numbers, which `auto` takes both for, it would fit."""
    there = (pictures(8, 3, 8), spaces.Discrete(2))
    numbers, image = (
        Policy(pictures(3, 8, 8), spaces.Discrete(2), NetworkConfig(image_layout=layout, convolutions=[]))
        for layout in ("auto", "channels_first")
    )
    numbers.check_spaces("there", there)
    with pytest.raises(ConfigError, match=r"Box.*, there has"):
        image.check_spaces("there", there)


@pytest.mark.parametrize("shape", [(20, 18, 3), (3, 20, 18)])
def test_frames_are_channels(shape: tuple[int, ...]) -> None:
    space = spaces.Tuple([pictures(*shape), spaces.Box(-1, 1, (2,))])
    network = NetworkConfig(frames=4, convolutions=[(5, 3, 2)], hidden_sizes=[8])
    policy = Policy(space, spaces.Discrete(2), network)
    seen = tensors(space, 6, 4)
    module = policy.hidden[0]
    layer = module.stacks[0][0]
    assert layer.in_channels == 12
    channels = seen[0] if shape[0] == 3 else seen[0].permute(0, 1, 4, 2, 3)
    expected = functional.tanh(functional.conv2d(channels.float().flatten(1, 2) / 255, layer.weight, layer.bias, stride=2))
    found = module(policy.encode(seen))
    torch.testing.assert_close(found, torch.cat([expected.flatten(1), seen[1].flatten(1)], dim=1))
    assert policy(seen).shape == (6, 2)


def test_bytes_are_scaled_and_numbers_are_not() -> None:
    bytes_, floats = (Encoder(pictures(6, 6, 1, dtype=dtype), normalize=False) for dtype in (np.uint8, np.float32))
    white = torch.full((1, 6, 6, 1), 255, dtype=torch.uint8)
    torch.testing.assert_close(bytes_(white), torch.ones(1, 36))
    torch.testing.assert_close(floats(white.float()), torch.full((1, 36), 255.0))


def test_normalised_images_are_not_scaled_as_well() -> None:
    encoder = Encoder(pictures(6, 6, 1), normalize=True)
    seen = tensors(pictures(6, 6, 1), 4000)
    encoder.update_statistics(seen)
    assert encoder(seen).mean().item() == pytest.approx(0, abs=1e-3)
    assert encoder(seen).std().item() == pytest.approx(1, abs=1e-3)


def test_without_layers_an_image_is_a_vector() -> None:
    policy = Policy(pictures(6, 6, 1), spaces.Discrete(2), NetworkConfig(convolutions=[], hidden_sizes=[8]))
    assert {name for name, _ in policy.hidden.named_parameters()} == {"1.weight", "1.bias"}
    assert policy.hidden[1].in_features == 36


def test_a_kernel_larger_than_what_is_left_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Convolution 2 has a kernel of 5.*only 4×5 of an image of 9×12 pixels"):
        Policy(pictures(9, 12, 3), spaces.Discrete(2), NetworkConfig(convolutions=[(8, 3, 2), (8, 5, 1)]))


def test_layers_for_images_without_an_image_are_refused() -> None:
    with pytest.raises(ConfigError, match="have no image"):
        Policy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2), NetworkConfig(convolutions=[(8, 3, 2)]))
