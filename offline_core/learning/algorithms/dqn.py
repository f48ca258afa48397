"""Deep Q-learning from saved experience (Mnih et al. 2015; double: van Hasselt et al. 2016; dueling: Wang et al. 2016)."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, Gamma, LossOutput
from offline_core.learning.returns import N_STEP_DISCOUNTS, N_STEP_REWARDS, add_n_step_columns
from offline_core.policies.config import NetworkConfig
from offline_core.policies.head import masked
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.data.episodes.nested import Nested
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps
    from offline_core.policies.policy import Policy


class DQN(Algorithm):
    """Q-learning from saved experience (Mnih et al. 2015)."""

    gamma: Gamma = 0.99
    n_step: int = Field(3, ge=1, le=1_000, description="Rewards that are summed before the target network estimates the rest.")
    double: bool = Field(True, description="The learned network chooses the next action, the target network values it.")
    dueling: bool = Field(True, description="Q is the sum of a value and the actions' advantages.")
    target_network_interval_updates: int = Field(
        500, ge=1, le=10**9, description="Updates after which the target network is replaced."
    )

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, columns.NEW_OBS, N_STEP_REWARDS, N_STEP_DISCOUNTS)
    needs_next_obs: ClassVar[bool] = True
    has_errors: ClassVar[bool] = True

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        """The policy's most likely action is the one with the highest value.

        Dueling: the policy's logits are the advantages, its value function is the value.
        """
        from offline_core.policies.policy import Policy

        one_choice_only(self, spaces[1])
        network = self.policy_network(network, spaces[1])
        networks.policy = Policy(*spaces, network, value_function=self.dueling, seed=seed)
        head: Any = networks.policy.head
        networks.first_action = int(head.starts)
        networks.target = copy.deepcopy(networks.policy).requires_grad_(False).eval()

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        if networks.updates == 0:  # the policy may have got a filter or weights meanwhile
            networks.target.load_state_dict(networks.policy.state_dict())
        add_n_step_columns(steps, n=self.n_step, gamma=self.gamma)

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        all_q = self.q(networks.policy, batch[columns.OBS])
        return self.output(networks, batch, all_q, self.penalties(networks, batch, all_q))

    def output(self, networks: Networks, batch: Batch, all_q: Tensor, penalties: dict[str, Tensor]) -> LossOutput:
        """Return the loss of temporal differences and the penalties (B,), from Q of all actions (B, actions).

        Huber's loss bounds the gradient of temporal differences beyond 1. Near the end of an episode, n is the number of steps
        left.
        """
        q = taken(networks, batch, all_q)
        with torch.no_grad():
            target_q = self.q(networks.target, batch[columns.NEW_OBS])
            chooser = networks.policy if self.double else networks.target
            best = chooser(batch[columns.NEW_OBS]).argmax(dim=1, keepdim=True)
            following = target_q.gather(1, best).squeeze(1)
            target = batch[N_STEP_REWARDS] + batch[N_STEP_DISCOUNTS] * following
        metrics = {"q": q, "q_min": q, "q_max": q, "td_error": (q - target).abs(), "target_q": target}
        loss = torch.nn.functional.huber_loss(q, target, reduction="none")
        if penalties:
            metrics |= {"td_loss": loss, **penalties}
            loss = loss + sum(penalties.values())
        return LossOutput(loss, metrics, metrics["td_error"].detach())

    def penalties(self, networks: Networks, batch: Batch, all_q: Tensor) -> dict[str, Tensor]:
        """Return what is added to the loss of each step (B,), from Q of all actions (B, actions)."""
        return {}

    def after_update(self, networks: Networks, means: dict[str, Tensor]) -> None:
        if (networks.updates + 1) % self.target_network_interval_updates == 0:
            networks.target.load_state_dict(networks.policy.state_dict())

    def q(self, policy: Policy, observations: Nested) -> Tensor:
        """Return Q of all actions, the lowest number there is of those that are not allowed: (B, actions)."""
        if not self.dueling:
            q: Tensor = policy(observations)
            return q.float()
        advantages, values = (output.float() for output in policy.inputs_and_values(observations))
        return dueling(values, advantages, policy.allowed(observations))


def taken(networks: Networks, batch: Batch, outputs: Tensor) -> Tensor:
    """Return the outputs (B,) of the actions that were taken, from those of all actions (B, actions)."""
    actions = batch[columns.ACTIONS]
    indices = actions.reshape(len(actions), 1).long() - networks.first_action
    return outputs.gather(1, indices).squeeze(1)


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
        more = "; with bounds also cql, td3_bc, rebrac or cal_ql" if isinstance(space, gym.spaces.Box) else ""
        raise ConfigError(
            f"{type(algorithm).__name__} chooses among a list of actions; it cannot act in {space}. "
            f"Use one of bc, marwil, awac, iql there{more}."
        )
