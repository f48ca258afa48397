"""Deep Q-learning from saved experience (Mnih et al. 2015; double: van Hasselt et al. 2016; dueling: Wang et al. 2016)."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import gymnasium as gym
import torch
from torch import Tensor
from torch.nn import functional

from offline_core.data.episodes import columns
from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.dqn_config import DQNConfig
from offline_core.learning.returns import N_STEP_DISCOUNTS, N_STEP_REWARDS, add_n_step_columns
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.categorical import CategoricalHead, masked
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy


class DQN(Algorithm):
    """Learns the value of each action; the policy's most likely action is the one with the highest.

    Dueling: the policy's logits are the advantages, its value function is the value. Huber's loss bounds the gradient of
    temporal differences beyond 1. Near the end of an episode, n is the number of steps left.
    """

    stored = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns = (columns.OBS, columns.ACTIONS, columns.NEW_OBS, N_STEP_REWARDS, N_STEP_DISCOUNTS)
    needs_next_obs = True
    has_errors = True
    config_class = DQNConfig
    config: DQNConfig

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        one_choice_only(self, action_space)
        network = self.policy_network(network)
        self.policy = Policy(observation_space, action_space, network, value_function=self.config.dueling, seed=seed)
        self.first_action = int(cast(CategoricalHead, self.policy.head).starts)
        self.target = copy.deepcopy(self.policy).requires_grad_(False).eval()

    def policy_network(self, network: NetworkConfig) -> NetworkConfig:
        """Return the network of the policy: `network` with what the algorithm needs."""
        return network

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        if self.updates == 0:
            self.target.load_state_dict(self.policy.state_dict())  # the policy may have got a filter or weights meanwhile
        add_n_step_columns(steps, n=self.config.n_step, gamma=self.config.gamma)

    def forward(self, batch: Batch) -> LossOutput:
        all_q = self.q(self.policy, batch[columns.OBS])
        return self.output(batch, all_q, self.penalties(batch, all_q))

    def output(self, batch: Batch, all_q: Tensor, penalties: dict[str, Tensor]) -> LossOutput:
        """Return the loss of temporal differences and the penalties (B,), from Q of all actions (B, actions)."""
        q = self.taken(batch, all_q)
        with torch.no_grad():
            target_q = self.q(self.target, batch[columns.NEW_OBS])
            chooser = self.policy if self.config.double else self.target
            best = chooser(batch[columns.NEW_OBS]).argmax(dim=1, keepdim=True)
            following = target_q.gather(1, best).squeeze(1)
            target = batch[N_STEP_REWARDS] + batch[N_STEP_DISCOUNTS] * following
        metrics = {"q": q, "q_min": q, "q_max": q, "td_error": (q - target).abs(), "target_q": target}
        loss = functional.huber_loss(q, target, reduction="none")
        if penalties:
            metrics |= {"td_loss": loss, **penalties}
            loss = loss + sum(penalties.values())
        metrics = {name: term.detach() for name, term in metrics.items()}
        return LossOutput(loss, metrics, metrics["td_error"])

    def penalties(self, batch: Batch, all_q: Tensor) -> dict[str, Tensor]:
        """Return what is added to the loss of each step (B,), from Q of all actions (B, actions)."""
        return {}

    def after_update(self, means: dict[str, Tensor]) -> None:
        if (self.updates + 1) % self.config.target_network_interval_updates == 0:
            self.target.load_state_dict(self.policy.state_dict())

    def q(self, policy: Policy, observations: Nested) -> Tensor:
        """Return Q of all actions, the lowest number there is of those that are not allowed: (B, actions)."""
        if not self.config.dueling:
            q: Tensor = policy(observations)
            return q.float()
        advantages, values = (output.float() for output in policy.inputs_and_values(observations))
        return dueling(values, advantages, policy.allowed(observations))

    def taken(self, batch: Batch, outputs: Tensor) -> Tensor:
        """Return the outputs (B,) of the actions that were taken, from those of all actions (B, actions)."""
        return outputs.gather(1, self.indices(batch[columns.ACTIONS])).squeeze(1)

    def indices(self, actions: Tensor) -> Tensor:
        """Return actions (B, …) as indices (B, 1) int64 from 0."""
        return actions.reshape(len(actions), 1).long() - self.first_action


def dueling(values: Tensor, advantages: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return Q of all actions (B, actions), from the values (B,) of the observations and the actions' advantages.

    Arguments:
        allowed: (B, actions) bool, the actions whose mean advantage is 0, and whose Q is not the lowest number. None: all.
    """
    if allowed is None:
        return values[:, None] + advantages - advantages.mean(dim=1, keepdim=True)
    return masked(values[:, None] + advantages - mean_of_allowed(advantages, allowed)[:, None], allowed)


def mean_of_allowed(numbers: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the means (B,) of numbers (B, actions) over the actions that are allowed (B, actions); None: over all."""
    if allowed is None:
        return numbers.mean(dim=1)
    return numbers.masked_fill(~allowed, 0.0).sum(dim=1) / allowed.sum(dim=1).clamp(min=1)


def one_choice_only(algorithm: Algorithm, space: gym.Space[Any]) -> None:
    """Check that an action is one of a list.

    Raises:
        ConfigError: It is not.
    """
    lists = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
    if not isinstance(space, lists) or math.prod(space.shape or ()) != 1:
        raise ConfigError(
            f"{type(algorithm).__name__} chooses among a list of actions; it cannot act in {space}. "
            "Use bc, marwil or iql there."
        )
