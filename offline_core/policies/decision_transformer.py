"""A policy that chooses the action that goes with its last steps and the return that it is to reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.encoder import flattened
from offline_core.policies.gaussian import BoxHead
from offline_core.policies.policy import Context, Policy, PolicyState, as_tensors

ACTION = 2
"""Place of the action among the three tokens of a step, after its return to go and its observation."""


class DecisionTransformer(Policy):
    """The Decision Transformer of Chen et al. 2021 (arXiv 2106.01345): a causal transformer over the last steps of an episode.

    Each step is three tokens: its return to go, its observation (after the hidden layers of `network`), its action. The step's
    time in the episode is embedded in each, so they are the same wherever in the context they stand. The action comes from the
    token of the observation, which sees itself and the tokens before it.

    While it plays, the return to go begins with `network.transformer.target_return` and falls by the rewards that came.

    Arguments:
        network: with `transformer`.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig,
        *,
        value_function: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, network, value_function=value_function, seed=seed)
        assert network.transformer is not None
        self.transformer = network.transformer
        units, dropout = self.transformer.units, self.transformer.dropout
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.return_token = nn.Linear(1, units)
            self.observation_token = nn.Linear(self.hidden_size, units)
            self.action_token = nn.Linear(gym.spaces.flatdim(action_space), units)
            self.time = nn.Embedding(self.transformer.max_episode_steps, units)
            self.before = nn.Sequential(nn.LayerNorm(units), nn.Dropout(dropout))
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(units, self.transformer.heads, 4 * units, dropout, batch_first=True, norm_first=True)
                for _ in range(self.transformer.layers)
            )
            self.after = nn.LayerNorm(units)
            for part in (self.return_token, self.observation_token, self.action_token, self.time, self.layers):
                part.apply(_initialize)

    def forward(self, observations: Nested) -> Tensor:
        """Raise a ConfigError: observations alone do not decide an action. See `inputs`, and `act`."""
        raise ConfigError(
            "A decision transformer chooses by its last steps and the rewards that came, not by single observations: it can be "
            "played and recorded, and neither exported nor estimated."
        )

    def inputs(self, observations: Nested, actions: Tensor, returns_to_go: Tensor, times: Tensor) -> Tensor:
        """Distribution inputs (S·L, inputs) of S sequences of L steps, which are all that is seen of their episodes.

        Arguments:
            observations: (S, L, …), nested.
            actions: (S·L, *action shape), seen by the steps after them.
            returns_to_go: (S·L,), the sum of the rewards from the step on.
            times: (S·L,) int64, steps of the episode before it.
        """
        encoded = self.encode(observations)
        tokens = self._tokens(encoded.flatten(0, 1), returns_to_go, times)
        tokens = torch.cat([tokens, self._action_tokens(actions, times)], dim=1)
        features: Tensor = self._attended(tokens.unflatten(0, encoded.shape[:2]))
        return self.head_inputs(features.flatten(0, 1), self.allowed(observations))

    def initial_state(self, batch_size: int) -> PolicyState:
        shape = (batch_size, self.transformer.context_steps, ACTION + 1, self.transformer.units)
        nothing = torch.zeros(batch_size, dtype=torch.int64)
        return PolicyState(np.ones(batch_size, bool), context=Context(torch.zeros(shape), nothing.double(), nothing))

    def _step(self, observations: Nested, state: PolicyState | None) -> tuple[Tensor, PolicyState | None]:
        self._check_allowed(observations)
        if state is None or state.context is None:
            return super()._step(observations, None)
        if state.rewards is None and not state.starts.all():
            raise ConfigError(
                "A decision transformer goes by the rewards that came of its actions: after each step of the environment, tell "
                "it with 'state = state.received(rewards)'."
            )
        context, starts = state.context, torch.from_numpy(state.starts)
        rewards = torch.zeros(len(starts)) if state.rewards is None else torch.from_numpy(state.rewards)
        returns = (context.returns_to_go - rewards).masked_fill(starts, self.transformer.target_return)
        times = context.steps.masked_fill(starts, 0)
        latest = self._tokens(self.encoder(as_tensors(observations)), returns, times)
        latest = torch.cat([latest, torch.zeros_like(latest[:, :1])], dim=1)  # its action is not known, nor seen
        tokens = torch.cat([context.tokens[:, 1:], latest[:, None]], dim=1)
        features = self._latest(tokens, (times + 1).clamp(max=self.transformer.context_steps))
        inputs = self.head_inputs(features, self.allowed(as_tensors(observations), axes=1))
        return inputs, PolicyState(np.zeros_like(state.starts), context=Context(tokens, returns, times + 1))

    def _latest(self, tokens: Tensor, seen: Tensor) -> Tensor:
        """Features (B, units) of the latest steps. As in training, sequences begin with their first step, and padding is last.

        Arguments:
            tokens: (B, context_steps, 3, units), the latest step last.
            seen: (B,) how many of the steps count.
        """
        copies, context = torch.arange(len(tokens)), self.transformer.context_steps
        rows = (context - seen[:, None] + torch.arange(int(seen.max()))).clamp(max=context - 1)
        return self._attended(tokens[copies[:, None], rows])[copies, seen - 1]

    def _acted(self, state: PolicyState, actions: Tensor) -> PolicyState:
        assert state.context is not None
        tokens = state.context.tokens.clone()
        tokens[:, -1, ACTION:] = self._action_tokens(actions, state.context.steps - 1)
        return replace(state, context=replace(state.context, tokens=tokens))

    def _tokens(self, encoded: Tensor, returns_to_go: Tensor, times: Tensor) -> Tensor:
        """(B, 2, units) of returns to go (B,) and encoded observations (B, …)."""
        returns = self.return_token((returns_to_go[:, None] / self.transformer.return_scale).float())
        return torch.stack([returns, self.observation_token(self.hidden(encoded))], dim=1) + self._time(times)

    def _action_tokens(self, actions: Tensor, times: Tensor) -> Tensor:
        """(B, 1, units) of actions (B, *action shape): a Box in the network's units, others as one-hots."""
        head = self.head
        flat = head.scaled(actions) if isinstance(head, BoxHead) else flattened(actions, self.action_space, 1)
        tokens: Tensor = self.action_token(flat)[:, None] + self._time(times)
        return tokens

    def _time(self, times: Tensor) -> Tensor:
        """(B, 1, units) of times (B,)."""
        embedded: Tensor = self.time(times.clamp(max=self.transformer.max_episode_steps - 1))
        return embedded[:, None]

    def _attended(self, tokens: Tensor) -> Tensor:
        """(S, L, 3, units) → features (S, L, units) of the steps, at their observations."""
        hidden: Tensor = self.before(tokens.flatten(1, 2))
        mask = nn.Transformer.generate_square_subsequent_mask(hidden.shape[1], hidden.device, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        features: Tensor = self.after(hidden[:, ACTION - 1 :: ACTION + 1])
        return features


def _initialize(module: nn.Module) -> None:
    """Initialise weights as GPT-2 does: small weights, and biases of zero."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
