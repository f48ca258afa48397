"""The action head of Dict and Tuple spaces."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import torch
from torch import Generator, Tensor, nn

from offline_core.data.episodes.nested import Nested
from offline_core.policies.head import Head


class CompositeHead(nn.Module):
    """One independent head a part, in the order of the space; `inputs` are those of the parts, concatenated.

    Actions are nested as the space: dicts or tuples of the parts' actions.
    """

    def __init__(self, space: gym.spaces.Dict | gym.spaces.Tuple, parts: list[nn.Module]) -> None:
        super().__init__()
        self.keys: list[Any] = list(space.spaces) if isinstance(space, gym.spaces.Dict) else list(range(len(parts)))
        self.named = isinstance(space, gym.spaces.Dict)
        self._parts = nn.ModuleList(parts)
        self.sizes = [part.inputs_size for part in self.parts]
        self.inputs_size = sum(self.sizes)

    @property
    def parts(self) -> list[Head]:
        """The head of each part."""
        return [cast(Head, part) for part in self._parts]

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([part(features) for part in self.parts], dim=1)

    def sample(self, inputs: Tensor, generator: Generator | None = None) -> Nested:
        return self._nested([part.sample(own, generator) for part, own in self._split(inputs)])

    def mode(self, inputs: Tensor) -> Nested:
        return self._nested([part.mode(own) for part, own in self._split(inputs)])

    def log_prob(self, inputs: Tensor, actions: Nested) -> Tensor:
        parts = zip(self._split(inputs), self.keys, strict=True)
        return torch.stack([part.log_prob(own, actions[key]) for (part, own), key in parts]).sum(dim=0)

    def entropy(self, inputs: Tensor) -> Tensor:
        return torch.stack([part.entropy(own) for part, own in self._split(inputs)]).sum(dim=0)

    def to_env(self, actions: Nested) -> Nested:
        return self._nested([part.to_env(actions[key]) for part, key in zip(self.parts, self.keys, strict=True)])

    def _split(self, inputs: Tensor) -> list[tuple[Head, Tensor]]:
        return list(zip(self.parts, inputs.split(self.sizes, dim=1), strict=True))

    def _nested(self, values: list[Any]) -> Nested:
        return dict(zip(self.keys, values, strict=True)) if self.named else tuple(values)
