"""A policy: the same object plays, records, learns and is exported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn

from offline_core.data.episodes import action_masks, columns, nested
from offline_core.data.episodes.action_masks import ACTION_MASK
from offline_core.data.episodes.nested import Nested
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.errors import ConfigError, SpaceError
from offline_core.policies.config import ImageLayout, NetworkConfig
from offline_core.policies.encoder import Encoder, is_image, log_layout_guesses, misfit
from offline_core.policies.head import Head
from offline_core.policies.heads import make_head
from offline_core.policies.layers import Memory, make_layers
from offline_core.runtime.reporting.card import Card

if TYPE_CHECKING:
    from offline_core.data.inputs.frames import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What a decision transformer sees again of B episodes; its size does not grow with them."""

    tokens: Tensor
    """(B, context_steps, 3, units): return to go, observation and action of the last steps, the latest last."""
    returns_to_go: Tensor
    """(B,) float64, at the latest step."""
    steps: Tensor
    """(B,) int64, steps of the episode so far; only so many tokens are of it."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyState:
    """The memory of B episodes, one a row. `Policy.initial_state` makes it, `Policy.act` takes it and returns the next one."""

    starts: np.ndarray
    """(B,) bool: the next observation is the first of its episode."""
    frames: Nested | None = None
    """(B, frames, …): the latest observations as numpy arrays, the oldest first."""
    memory: Tensor | None = None
    """(B, units): the memory of a recurrent policy."""
    context: Context | None = None
    """The context of a decision transformer."""
    rewards: np.ndarray | None = None
    """(B,) rewards of the last actions; None: not yet known."""

    def received(self, rewards: np.ndarray) -> PolicyState:
        """The state after these rewards (B,) for the last actions; only a decision transformer looks at them."""
        return self if self.context is None else replace(self, rewards=rewards)

    def reset(self, starts: np.ndarray) -> PolicyState:
        """Forget what was seen in the rows where `starts` (B,) is true: a new episode begins there."""
        if self.frames is None and self.memory is None and self.context is None:
            return self  # nothing was seen
        return replace(self, starts=self.starts | starts)

    def stacked(self, observations: Nested, frames: int) -> Nested:
        """(B, frames, …): the frames after these observations (B, …); before its first one, an episode repeats that."""

        def push(leaf: np.ndarray, stack: np.ndarray) -> np.ndarray:
            pushed = np.concatenate([stack[:, 1:], leaf[:, None]], axis=1)
            pushed[self.starts] = leaf[self.starts][:, None]
            return pushed

        if self.frames is None:
            return nested.map_leaves(lambda leaf: np.repeat(leaf[:, None], frames, axis=1), observations)
        return nested.map_leaves(push, observations, self.frames)


class Actions(NamedTuple):
    """Actions for a batch of observations, and what a recording needs beside them."""

    actions: Nested
    """(B, *action shape), in the environment's units and dtype; nested as the action space."""
    extras: dict[str, np.ndarray]
    """`action_dist_inputs` (B, inputs) and `action_logp` (B,), float32."""
    state: PolicyState | None
    """The next state, if one was given."""


class Policy(nn.Module):
    """Observation → action distribution, and a value function if wanted.

    Observations are nested tensors as the observation space nests them, with leading axes
        (B, …)           of B steps,
        (B, frames, …)   if the network looks at several frames: the oldest first; an episode begins with copies of its
                         first observation,
        (S, L, …)        if it is recurrent: S sequences of L steps, from an empty memory.
    Outputs have one leading axis, B or S·L (all steps of the first sequence, then of the second, …): losses do not depend
    on sequences. To play step by step, see `act`.

    Observations may say which actions are allowed (`data/episodes/action_masks.py`). The network does not see that; the
    distribution inputs of other actions are the lowest number there is, so that nothing here ever chooses one.

    Arguments:
        observation_space, action_space: of one step.
        network: its layers.
        value_function: also estimate the value of an observation (`values`).
        seed: of the initial weights.

    Raises:
        ConfigError: observations say which actions are allowed, and these are no such actions.
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
        self.input_columns: InputColumns | None = None
        """What observations are made of, as the dataset says that the policy learned from."""
        self.uri = ""
        """The URI of the checkpoint that it was loaded from, for messages."""
        self._axes = 2 if network.remembers else 1
        self.has_masks = action_masks.is_masked(observation_space)
        if self.has_masks:
            action_masks.check_spaces(observation_space, action_space)
        if network.image_layout == "auto":
            log_layout_guesses(observation_space)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = Encoder(
                observation_space, normalize=network.normalize_observations, image_layout=network.image_layout
            )
            self.hidden, features = make_layers(self.encoder, network)
            self.hidden_size = features
            self.memory = _make_memory(network, features)
            outputs = network.head_inputs(features)
            self._head = make_head(action_space, outputs, network)
            if value_function:
                self.value_hidden: nn.Module = nn.Identity()
                self.value_memory: Memory | None = None
                if not network.share_layers:
                    without = {"dropout": 0.0, "imitation_threshold": None}
                    self.value_hidden, features = make_layers(self.encoder, network.model_copy(update=without))
                    self.value_memory = _make_memory(network, features)
                    outputs = features if self.value_memory is None else network.recurrent_units
                self.value = nn.Linear(outputs, 1)
                nn.init.orthogonal_(self.value.weight)
                nn.init.zeros_(self.value.bias)

    @property
    def head(self) -> Head:
        """The action distribution."""
        return cast(Head, self._head)

    def check_spaces(self, where: str, spaces: tuple[gym.Space[Any], gym.Space[Any]]) -> None:
        """Check that sizes match. Bounds may differ: a policy learned from imported data may have guessed ones.

        Arguments:
            where: what has these (observation, action) spaces, for a message.

        Raises:
            ConfigError: this policy cannot act there.
        """
        own_spaces = (self.observation_space, self.action_space)
        for what, own, space in zip(("observation", "action"), own_spaces, spaces, strict=True):
            if not spaces_fit(own, space, self.network.image_layout):
                policy = f"Policy {self.uri}" if self.uri else "The policy"
                raise ConfigError(f"{policy} has the {what} space {own}, {where} has {space}.")

    def forward(self, observations: Nested) -> Tensor:
        """Observations → distribution inputs (B, inputs)."""
        return self.head_inputs(self.features(observations), self.allowed(observations))

    def features(self, observations: Nested) -> Tensor:
        """Input (B, features) of the action distribution."""
        return self._features(self.encode(observations))

    def inputs_and_values(self, observations: Nested) -> tuple[Tensor, Tensor]:
        """Distribution inputs (B, inputs) and values (B,); needs the value function."""
        encoded = self.encode(observations)
        features = self._features(encoded)
        inputs = self.head_inputs(features, self.allowed(observations))
        return inputs, self._value(features if self.network.share_layers else self._value_features(encoded))

    def values(self, observations: Nested) -> Tensor:
        """Values (B,) of observations; needs the value function."""
        encoded = self.encode(observations)
        return self._value(self._features(encoded) if self.network.share_layers else self._value_features(encoded))

    def encode(self, observations: Nested) -> Tensor:
        """Input of the layers: (B, size), (B, frames, size) or (S, L, size), float32."""
        encoded: Tensor = self.encoder(observations, axes=self._axes)
        return encoded

    def head_inputs(self, features: Tensor, allowed: Tensor | None) -> Tensor:
        """Features (B, features) → distribution inputs (B, inputs), of allowed actions (B, inputs) bool; None: of all."""
        inputs: Tensor = self.head(features) if allowed is None else self._head(features, allowed)
        return inputs

    def allowed(self, observations: Nested, axes: int | None = None) -> Tensor | None:
        """Which actions are allowed (B, choices) bool, at the latest of several frames; None if observations do not say.

        Arguments:
            axes: leading ones of the observations; None: those of `forward`.
        """
        if not self.has_masks:
            return None
        mask: Tensor = observations[ACTION_MASK].bool()
        if (axes or self._axes) == 1:
            return mask
        return mask[:, -1] if self.network.frames > 1 else mask.flatten(0, 1)

    def step(self, observations: Nested, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step of a recurrent policy, as a function of its memory.

        Arguments:
            observations: one of each sequence, (S, …).
            state: (S, memory.state_size), first `memory.empty(S)`.

        Returns:
            Distribution inputs (S, inputs), and the next state.
        """
        assert self.memory is not None
        features, state = self.memory(self.hidden(self.encoder(observations))[:, None], state)
        return self.head_inputs(features[:, 0], self.allowed(observations, axes=1)), state

    def _features(self, encoded: Tensor) -> Tensor:
        return _through(encoded, self.hidden, self.memory)

    def _value_features(self, encoded: Tensor) -> Tensor:
        return _through(encoded, self.value_hidden, self.value_memory)

    def _value(self, features: Tensor) -> Tensor:
        values: Tensor = self.value(features).squeeze(1)
        return values

    def initial_state(self, batch_size: int) -> PolicyState:
        """The state of so many episodes before their first observation; see `act`."""
        return PolicyState(np.ones(batch_size, bool), memory=None if self.memory is None else self.memory.empty(batch_size))

    @overload
    def act(self, observations: Nested, *, explore: bool = False, generator: Generator | None = None) -> Nested: ...
    @overload
    def act(
        self, observations: Nested, state: PolicyState, *, explore: bool = False, generator: Generator | None = None
    ) -> tuple[Nested, PolicyState]: ...
    @torch.inference_mode()
    def act(
        self,
        observations: Nested,
        state: PolicyState | None = None,
        *,
        explore: bool = False,
        generator: Generator | None = None,
    ) -> Nested:
        """Choose actions for a batch of observations; numpy arrays in, numpy arrays out.

            actions = policy.act(observations)

        A policy that remembers earlier observations takes a state, and returns the next one beside the actions:

            state = policy.initial_state(batch_size)
            actions, state = policy.act(observations, state)

        Any policy can be called this way. `state.reset(starts)` begins new episodes in some of the rows. A decision transformer
        has to hear of the rewards for its actions, too: `state = state.received(rewards)`.

        Arguments:
            observations: (B, …), nested as the observation space.
            explore: sample the actions; otherwise take the most likely ones.
            generator: of the samples; None: Torch's own.

        Raises:
            ConfigError: the policy remembers (`network.remembers`), and there is no `state`.
            SpaceError: observations do not have the shapes of their space, one is not finite, or the mask of one allows no
                action, or is none.
        """
        if said := misfit(observations, self.observation_space, self.network.image_layout):
            raise SpaceError(f"{said[0].upper()}{said[1:]}")
        for leaf in nested.leaves(observations):
            if leaf.dtype.kind == "f" and not (np.abs(leaf) <= MOST).all():
                row = int((np.abs(leaf) <= MOST).reshape(len(leaf), -1).all(axis=1).argmin())
                raise SpaceError(f"Observation {row} holds NaN, or a number that is infinite as float32: no action follows.")
        inputs, after = self._step(observations, state)
        actions = self.head.sample(inputs, generator) if explore else self.head.mode(inputs)
        chosen = self.head.to_env(actions)
        return chosen if after is None else (chosen, self._acted(after, actions))

    def act_on(self, rows: Rows, *, explore: bool = False, generator: Generator | None = None) -> Any:
        """Choose actions for raw rows, made into observations as the import of the training data did it.

            setpoints = policy.act_on({"tin": [20.5, None], "mode": ["heat", "off"]})

        An exported graph begins after the encoding: it takes what `observations_of` makes of the rows, and its actions are
        numbers, which `made_of.labels` of the export names.

        Arguments:
            rows: see `observations_of`.

        Returns:
            (B, …) actions as the log has them: values of bins, or categories, where it says these.

        Raises:
            ConfigError: see `observations_of`, or the policy remembers earlier observations: give `act` its state and those
                of `observations_of`.
            SchemaError: a column is missing, or a value is missing or unknown and has no fill.
        """
        actions = self.act(self.observations_of(rows), explore=explore, generator=generator)
        assert self.input_columns is not None
        return self.input_columns.raw_actions(actions)

    def observations_of(self, rows: Rows) -> np.ndarray:
        """Make the observations of raw rows as the import of the training data did: what `act` and exported graphs take.

            actions, _ = onnxruntime.InferenceSession("policy.onnx").run(None, {"obs": policy.observations_of(rows)})

        Arguments:
            rows: B of them, a Polars or PyArrow table, columns by name, or a mapping for each row, with the columns in
                `input_columns.steps.columns`.

        Returns:
            (B, …) in the dtype of the observation space.

        Raises:
            ConfigError: what observations are made of is not known, or they have an action mask, which raw rows do not say.
            SchemaError: a column is missing, or a value is missing or unknown and has no fill.
        """
        if self.input_columns is None:
            raise ConfigError(
                "This policy learned from data that does not say which raw columns its observations are made of: import with "
                "a list of columns as mapping.obs, each of numbers, or of lists that are equally long. Or make observations "
                "yourself, for policy.act."
            )
        if self.has_masks:
            raise ConfigError(
                "This policy needs to know which actions are allowed, which raw rows do not say: make observations yourself, "
                f"with the key {ACTION_MASK}, for policy.act."
            )
        return self.input_columns.observations(rows, self.observation_space)

    @torch.inference_mode()
    def choose(
        self, observations: Nested, state: PolicyState | None = None, *, explore: bool, generator: Generator | None = None
    ) -> Actions:
        """`act`, with the distribution inputs and log-probabilities that recordings keep."""
        inputs, after = self._step(observations, state)
        actions = self.head.sample(inputs, generator) if explore else self.head.mode(inputs)
        extras = {
            columns.ACTION_DIST_INPUTS: inputs.numpy(),
            columns.ACTION_LOGP: self.head.log_prob(inputs, actions).numpy(),
        }
        return Actions(self.head.to_env(actions), extras, None if after is None else self._acted(after, actions))

    def _step(self, observations: Nested, state: PolicyState | None) -> tuple[Tensor, PolicyState | None]:
        """Distribution inputs (B, inputs), and the next state."""
        self._check_allowed(observations)
        if state is None:
            if self.network.remembers:
                raise ConfigError(
                    "This policy remembers earlier steps (network.frames, network.recurrent, dt): give it a state with "
                    "'actions, state = policy.act(observations, state)'; policy.initial_state(batch_size) is the first one."
                )
            return self(as_tensors(observations)), None
        if not self.network.remembers:
            return self(as_tensors(observations)), state
        seen = np.zeros_like(state.starts)
        if state.memory is None:
            frames = state.stacked(observations, self.network.frames)
            return self(as_tensors(frames)), PolicyState(seen, frames)
        memory = state.memory.masked_fill(torch.from_numpy(state.starts)[:, None], 0.0)
        inputs, memory = self.step(as_tensors(observations), memory)
        return inputs, PolicyState(seen, memory=memory)

    def _check_allowed(self, observations: Nested) -> None:
        if self.has_masks:
            action_masks.check_masks(observations[ACTION_MASK], self.action_space)

    def _acted(self, state: PolicyState, actions: Nested) -> PolicyState:
        """The state after these actions (B, …), as tensors."""
        return state

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{name}={value}' for name, value in self._described().items())})"

    def _repr_html_(self) -> str:
        return Card("Policy", self._described()).html(is_page=False)

    def _described(self) -> dict[str, object]:
        network = self.network.model_dump(exclude_defaults=True)
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "hidden_sizes": self.network.hidden_sizes,
            **network,
            "value_function": self.value_function,
            "parameters": f"{sum(parameter.numel() for parameter in self.parameters()):,}",
        }


def as_tensors(arrays: Nested) -> Nested:
    """Nested numpy arrays as tensors, without a copy unless they are read-only, not contiguous or of another `tensor_dtype`."""
    return nested.map_leaves(
        lambda array: torch.from_numpy(np.require(array, tensor_dtype(array.dtype), requirements=["C", "W"])), arrays
    )


MOST = float(np.finfo(np.float32).max)
"""Larger numbers are infinite where a policy computes."""
_WIDER = {"uint16": np.int32, "uint32": np.int64, "uint64": np.float64}


def tensor_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype itself, or a wider one in place of the unsigned ones that Torch cannot gather."""
    return np.dtype(_WIDER.get(dtype.name, dtype))


def _make_memory(network: NetworkConfig, features: int) -> Memory | None:
    return None if network.recurrent is None else Memory(network.recurrent, features, network.recurrent_units)


def _through(encoded: Tensor, hidden: nn.Module, memory: Memory | None) -> Tensor:
    """Encoded observations → features (B, …), or (S·L, …) through a memory."""
    if memory is None:
        features: Tensor = hidden(encoded)
        return features
    by_step = hidden(encoded.flatten(0, 1)).unflatten(0, encoded.shape[:2])
    return torch.flatten(memory(by_step)[0], 0, 1)


def spaces_fit(own: gym.Space[Any], other: gym.Space[Any], layout: ImageLayout) -> bool:
    """Whether sizes match; bounds may differ."""
    if type(own) is not type(other):
        return False
    if isinstance(own, gym.spaces.Dict) and isinstance(other, gym.spaces.Dict):
        return own.keys() == other.keys() and all(spaces_fit(own[key], other[key], layout) for key in own)
    if isinstance(own, gym.spaces.Tuple) and isinstance(other, gym.spaces.Tuple):
        return len(own) == len(other) and all(spaces_fit(*pair, layout) for pair in zip(own, other, strict=True))
    return gym.spaces.flatdim(own) == gym.spaces.flatdim(other) and (own.shape == other.shape or not is_image(own, layout))
