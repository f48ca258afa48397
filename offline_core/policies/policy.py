"""A policy as one thing: the same object is expert, recorder, evaluated, trained and exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn

from offline_core.episodes import columns, nested
from offline_core.episodes.nested import Nested
from offline_core.errors import ConfigError
from offline_core.policies.config import ImageLayout, NetworkConfig
from offline_core.policies.encoder import Encoder, is_image, tell_guesses
from offline_core.policies.head import Head
from offline_core.policies.heads import make_head
from offline_core.policies.layers import make_layers
from offline_core.policies.memory import Memory

if TYPE_CHECKING:
    from offline_core.policies.acting import Acting


class Actions(NamedTuple):
    """What a policy decided for a batch of observations."""

    actions: Nested
    """(B, *action shape), in the environment's units and dtype; nested as the action space."""
    extras: dict[str, np.ndarray]
    """`action_dist_inputs` (B, inputs) and `action_logp` (B,), float32."""


class Policy(nn.Module):
    """Observation → action distribution, with a value function beside it if asked for.

    Observations are nested tensors as the observation space nests them, with leading axes
        (B, …)           of B steps,
        (B, frames, …)   if the network looks at several frames: the oldest first; what would be before an episode's
                         first observation is that observation,
        (S, L, …)        if it is recurrent: S sequences of L steps, with nothing remembered before the first.
    What comes of them has one leading axis, B or S·L (all steps of the first sequence, then those of the second, …), so
    that losses need not know about sequences. To play step by step, see `acting`.

    Arguments:
        observation_space, action_space: what it sees and does.
        network: its layers.
        value_function: also estimate the value of an observation (`values`).
        seed: of the initial weights.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig = NetworkConfig(),
        *,
        value_function: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space
        self.network = network
        self.value_function = value_function
        self._axes = 2 if network.remembers else 1
        if network.image_layout == "auto":
            tell_guesses(observation_space)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = Encoder(
                observation_space, normalize=network.normalize_observations, image_layout=network.image_layout
            )
            self.hidden, features = make_layers(self.encoder, network)
            self.memory = _make_memory(network, features)
            outputs = features if self.memory is None else network.recurrent_units
            self._head = make_head(action_space, outputs, squash=network.squash)
            if value_function:
                self.value_hidden: nn.Module = nn.Identity()
                self.value_memory: Memory | None = None
                if not network.share_layers:
                    self.value_hidden, _ = make_layers(self.encoder, network)
                    self.value_memory = _make_memory(network, features)
                self.value = nn.Linear(outputs, 1)
                nn.init.orthogonal_(self.value.weight)
                nn.init.zeros_(self.value.bias)

    @classmethod
    def load(cls, uri: str, *, allow_code: bool = False) -> Policy:
        """The policy of the checkpoint at `uri`, in evaluation mode; see `offline_core.policies.checkpoint.load_policy`."""
        from offline_core.policies.checkpoint import load_policy

        return load_policy(uri, allow_code=allow_code)

    @property
    def head(self) -> Head:
        """The action distribution."""
        return cast(Head, self._head)

    def check_spaces(self, environment: str, spaces: tuple[gym.Space[Any], gym.Space[Any]]) -> None:
        """Sizes have to match; bounds need not, as those of a policy learned from foreign data may have been guessed.

        Raises:
            ConfigError: this policy cannot act in an environment with these (observation, action) spaces.
        """
        ours = (self.observation_space, self.action_space)
        for what, own, found in zip(("observation", "action"), ours, spaces, strict=True):
            if not _fits(own, found, self.network.image_layout):
                raise ConfigError(f"The policy has the {what} space {own}, environment {environment} has {found}.")

    def forward(self, observations: Nested) -> Tensor:
        """Observations → distribution inputs (B, inputs)."""
        return self.head(self._features(self.encode(observations)))

    def inputs_and_values(self, observations: Nested) -> tuple[Tensor, Tensor]:
        """Distribution inputs (B, inputs) and values (B,); needs the value function."""
        encoded = self.encode(observations)
        features = self._features(encoded)
        return self.head(features), self._value(features if self.network.share_layers else self._value_features(encoded))

    def values(self, observations: Nested) -> Tensor:
        """Values (B,) of observations; needs the value function."""
        encoded = self.encode(observations)
        return self._value(self._features(encoded) if self.network.share_layers else self._value_features(encoded))

    def encode(self, observations: Nested) -> Tensor:
        """What the layers see: (B, size), (B, frames, size) or (S, L, size), float32."""
        encoded: Tensor = self.encoder(observations, axes=self._axes)
        return encoded

    def step(self, observations: Nested, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step of a recurrent policy, as a function of what it remembers.

        Arguments:
            observations: one of each sequence, (S, …).
            state: (S, memory.state_size), `memory.empty(S)` at the beginning.

        Returns:
            Distribution inputs (S, inputs), and the next state.
        """
        assert self.memory is not None
        features, state = self.memory(self.hidden(self.encoder(observations))[:, None], state)
        return self.head(features[:, 0]), state

    def _features(self, encoded: Tensor) -> Tensor:
        return _through(encoded, self.hidden, self.memory)

    def _value_features(self, encoded: Tensor) -> Tensor:
        return _through(encoded, self.value_hidden, self.value_memory)

    def _value(self, features: Tensor) -> Tensor:
        values: Tensor = self.value(features).squeeze(1)
        return values

    def acting(self, num_envs: int) -> Acting:
        """This policy at play in so many copies of an environment, remembering what it has to of each."""
        from offline_core.policies.acting import Acting

        return Acting(self, num_envs)

    @torch.inference_mode()
    def act(self, observations: Nested, *, explore: bool, generator: Generator | None = None) -> Actions:
        """Actions for a batch of observations as numpy arrays (B, …): sampled if `explore`, else the most likely ones.

        Raises:
            ConfigError: what this policy does depends on earlier observations too.
        """
        return self.choose(self._inputs_of_one_step(observations), explore=explore, generator=generator)

    @torch.inference_mode()
    def greedy(self, observations: Nested) -> Nested:
        """The most likely actions (B, *action shape) for a batch of observations as numpy arrays; see `act`."""
        return self.head.to_env(self.head.mode(self._inputs_of_one_step(observations)))

    def choose(self, inputs: Tensor, *, explore: bool, generator: Generator | None = None) -> Actions:
        """Actions out of distribution inputs (B, inputs)."""
        actions = self.head.sample(inputs, generator) if explore else self.head.mode(inputs)
        extras = {
            columns.ACTION_DIST_INPUTS: inputs.numpy(),
            columns.ACTION_LOGP: self.head.log_prob(inputs, actions).numpy(),
        }
        return Actions(self.head.to_env(actions), extras)

    def _inputs_of_one_step(self, observations: Nested) -> Tensor:
        if self.network.remembers:
            raise ConfigError(
                "This policy has to remember earlier observations (network.frames or network.recurrent), so it cannot act on "
                "one at a time: play it with policy.acting(num_envs)."
            )
        inputs: Tensor = self(as_tensors(observations))
        return inputs


def as_tensors(observations: Nested) -> Nested:
    """Nested numpy arrays as tensors, by view where that may be written to; Arrow's, for one, may not."""
    return nested.map_leaves(lambda array: torch.from_numpy(np.require(array, requirements=["C", "W"])), observations)


def _make_memory(network: NetworkConfig, features: int) -> Memory | None:
    return None if network.recurrent is None else Memory(network.recurrent, features, network.recurrent_units)


def _through(encoded: Tensor, hidden: nn.Module, memory: Memory | None) -> Tensor:
    """What the policy's layers see → features (B, …), or (S·L, …) through a memory."""
    if memory is None:
        features: Tensor = hidden(encoded)
        return features
    by_step = hidden(encoded.flatten(0, 1)).unflatten(0, encoded.shape[:2])
    return torch.flatten(memory(by_step)[0], 0, 1)


def _fits(own: gym.Space[Any], found: gym.Space[Any], layout: ImageLayout) -> bool:
    if type(own) is not type(found):
        return False
    if isinstance(own, gym.spaces.Dict) and isinstance(found, gym.spaces.Dict):
        return own.keys() == found.keys() and all(_fits(own[key], found[key], layout) for key in own)
    if isinstance(own, gym.spaces.Tuple) and isinstance(found, gym.spaces.Tuple):
        return len(own) == len(found) and all(_fits(*pair, layout) for pair in zip(own, found, strict=True))
    return gym.spaces.flatdim(own) == gym.spaces.flatdim(found) and (own.shape == found.shape or not is_image(own, layout))
