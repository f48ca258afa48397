"""Values of actions of any space: an ensemble of critics (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.data.episodes.nested import Nested
from offline_core.policies.config import NetworkConfig
from offline_core.policies.dense import NONE, Layer, side_by_side
from offline_core.policies.encoder import VARIANCE_FLOOR, Encoder, leaf_spaces
from offline_core.policies.gaussian import BoxHead
from offline_core.policies.layers import ACTIVATIONS, make_trunk
from offline_core.runtime.seeding import derive_seed


class Critics(nn.Module):
    """Critics that differ in their initial weights alone: the smallest of two overestimates less.

    Observation and action enter together. The layers of all critics are stacked, so that each is one batched product.
    Convolutions, or a user's module, come before, and are shared. Weights begin as `torch.nn.Linear`'s do.

    Arguments:
        encoder: the policy's; `observed` is the input, so that the policy's filter applies.
        action_space: of the actions.
        network: of the policy; the layers over the observation.
        seed: of the initial weights.
        number, hidden_sizes, layer_norm: see `CriticConfig`.
    """

    def __init__(
        self,
        encoder: Encoder,
        action_space: gym.Space[Any],
        network: NetworkConfig,
        *,
        seed: int,
        number: int = 2,
        hidden_sizes: list[int] | None = None,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.actions = _scaling_encoder(action_space)
        sizes = network.hidden_sizes if hidden_sizes is None else hidden_sizes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "critics"))
            self.trunk, self.features = make_trunk(encoder, network)
            widths = [self.features + self.actions.size, *sizes, 1]
            shapes = list(pairwise(widths))
            self.weights = nn.ParameterList([_uniform(number, *shape, inputs=shape[0]) for shape in shapes])
            self.biases = nn.ParameterList([_uniform(number, 1, out, inputs=inputs) for inputs, out in shapes])
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        if layer_norm:
            self.scales.extend(nn.Parameter(torch.ones(number, 1, size)) for size in sizes)
            self.shifts.extend(nn.Parameter(torch.zeros(number, 1, size)) for size in sizes)
        self.activation = ACTIVATIONS[network.activation]()

    def forward(self, encoded: Tensor, actions: Nested) -> Tensor:
        """Return the values (critics, B) of nested actions (B, …) at B observations as encoded by `observed`.

        With K actions for each observation, those for all observations one after the other: (K·B, …) → (critics, K·B).
        """
        return self._values(self.trunk(encoded), actions, fixed=False)

    def fixed(self, encoded: Tensor, actions: Nested, *, first: int | None = None) -> Tensor:
        """Return the same with gradients of the actions alone: none teaches the critics.

        Arguments:
            first: of so many critics, the first ones; None: of all.
        """
        with torch.no_grad():
            features = self.trunk(encoded)
        return self._values(features, actions, fixed=True, first=first)

    def _values(self, x: Tensor, actions: Nested, *, fixed: bool, first: int | None = None) -> Tensor:
        flat = self.actions(actions)
        if len(flat) > len(x):
            x = x.repeat(len(flat) // len(x), 1)
        layers = list(self._layers(fixed=fixed, first=first))
        values: Tensor = side_by_side(torch.cat([x, flat.to(x.dtype)], dim=1), layers).squeeze(2).float()
        return values

    def _layers(self, *, fixed: bool, first: int | None) -> Iterator[Layer]:
        lists = (self.weights, self.biases, self.scales, self.shifts)
        parameters = zip_longest(*([p.detach()[:first] for p in tensors] if fixed else tensors for tensors in lists))
        for number, (weight, bias, scale, shift) in enumerate(parameters, start=1):
            yield Layer(weight, bias, NONE if number == len(self.weights) else self.activation, scale, shift)


def _uniform(*shape: int, inputs: int) -> nn.Parameter:
    bound = 1 / math.sqrt(max(1, inputs))
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def _scaling_encoder(space: gym.Space[Any]) -> Encoder:
    """Return an encoder to one-hot values, and to components of a Box scaled to ±1 where they have bounds."""
    encoder = Encoder(space, normalize=True, clip=math.inf)
    boxes = [
        BoxHead(leaf) if isinstance(leaf, gym.spaces.Box) else int(gym.spaces.flatdim(leaf)) for leaf in leaf_spaces(space)
    ]
    centers = [torch.zeros(box) if isinstance(box, int) else box.center for box in boxes]
    half_ranges = [torch.ones(box) if isinstance(box, int) else box.half_range for box in boxes]
    encoder.mean.copy_(torch.cat(centers))
    encoder.variance.copy_(torch.cat(half_ranges).double().square() - VARIANCE_FLOOR)
    return encoder
