"""Deep Q-learning from saved experience (Mnih et al. 2015; double: van Hasselt et al. 2016; dueling: Wang et al. 2016)."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor
from torch.nn import functional

from offline_core.episodes import columns
from offline_core.episodes.nested import Nested
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.dqn_config import DQNConfig
from offline_core.learning.returns import N_STEP_DISCOUNTS, N_STEP_REWARDS, add_n_step_columns
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.categorical import CategoricalHead
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
        self.policy = Policy(observation_space, action_space, network, value_function=self.config.dueling, seed=seed)
        head = self.policy.head
        if not isinstance(head, CategoricalHead) or len(head.sizes) != 1:
            raise ConfigError(
                f"{type(self).__name__} chooses among a list of actions; it cannot act in {action_space}. "
                "Use bc, marwil or iql there."
            )
        self.first_action = int(head.starts)
        self.target = copy.deepcopy(self.policy).requires_grad_(False)
        self.updates = 0

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        if self.updates == 0:
            self.target.load_state_dict(self.policy.state_dict())  # the policy may have got a filter or weights meanwhile
        add_n_step_columns(steps, n=self.config.n_step, gamma=self.config.gamma)

    def forward(self, batch: Batch) -> LossOutput:
        all_q = self.q(self.policy, batch[columns.OBS])
        q = all_q.gather(1, self.indices(batch[columns.ACTIONS])).squeeze(1)
        with torch.no_grad():
            target_q = self.q(self.target, batch[columns.NEW_OBS])
            chooser = self.q(self.policy, batch[columns.NEW_OBS]) if self.config.double else target_q
            following = target_q.gather(1, chooser.argmax(dim=1, keepdim=True)).squeeze(1)
            target = batch[N_STEP_REWARDS] + batch[N_STEP_DISCOUNTS] * following
        metrics = {"q": q, "q_min": q, "q_max": q, "td_error": (q - target).abs(), "target_q": target}
        penalty = self.penalty(all_q, q)
        loss = functional.huber_loss(q, target, reduction="none")
        if penalty is not None:
            metrics |= {"td_loss": loss, "penalty": penalty}
            loss = loss + penalty
        metrics = {name: term.detach() for name, term in metrics.items()}
        return LossOutput(loss, metrics, metrics["td_error"])

    def penalty(self, all_q: Tensor, q: Tensor) -> Tensor | None:
        """Return what is added to the loss of each step (B,), from Q of all actions (B, actions) and of those taken (B,)."""
        return None

    def after_update(self, means: dict[str, Tensor]) -> None:
        self.updates += 1
        if self.updates % self.config.target_network_interval_updates == 0:
            self.target.load_state_dict(self.policy.state_dict())

    def get_extra_state(self) -> Tensor:
        """Return the number of updates, for checkpoints; not a buffer, as reading it from a GPU would wait for the update."""
        return torch.tensor(self.updates)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore what `get_extra_state` returned."""
        self.updates = int(state)

    def q(self, policy: Policy, observations: Nested) -> Tensor:
        """Return Q of all actions: (B, actions)."""
        if not self.config.dueling:
            q: Tensor = policy(observations)
            return q.float()
        advantages, values = (output.float() for output in policy.inputs_and_values(observations))
        return values[:, None] + advantages - advantages.mean(dim=1, keepdim=True)

    def indices(self, actions: Tensor) -> Tensor:
        """Return actions (B, …) as indices (B, 1) int64 from 0."""
        return actions.reshape(len(actions), 1).long() - self.first_action
