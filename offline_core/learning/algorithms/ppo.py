"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from offline_core.data.episodes import columns, nested
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, Gamma, LossOutput, evaluating
from offline_core.learning.returns import steps_left, value_targets
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from typing import Any

    import gymnasium as gym
    from torch import Tensor

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps

LOG_PROBS, ADVANTAGES = "old_log_probs", "advantages"
"""(R,) float32: of the actions, under the policy that chose them; of the steps, mean 0 and standard deviation 1."""
VALUES, VALUE_TARGETS = "old_values", "value_targets"
"""(R,) float32: of the value function before the rollout was learned from, and what it is to say."""


class PPO(Algorithm):
    """A policy that learns from each of its rollouts, then forgets it (Schulman et al. 2017)."""

    num_epochs: int = Field(10, ge=1, le=1_000, description="How often each step of a rollout is learned from.")
    gamma: Gamma = 0.99
    gae_lambda: float = Field(0.95, ge=0, le=1, description="Advantages: 0 trusts the value function, 1 the rewards that came.")
    clip_range: float = Field(
        0.2, ge=1e-4, le=10, description="A step's probability is pushed up or down by this share at most."
    )
    entropy_coefficient: float = Field(0.0, ge=0, le=100, description="Weight of the bonus for acting at random.")
    value_coefficient: float = Field(
        0.01,
        ge=0,
        le=100,
        description="Weight of the value function's loss. Small, or its gradients alone use up optimizer.max_gradient_norm.",
    )
    value_clip_range: float | None = Field(
        None,
        gt=0,
        le=1e8,
        description="A value's gain from moving further than this in an update does not count. None: it does.",
    )
    normalize_rewards: bool = Field(
        False,
        description="Learn from rewards divided by the standard deviation of the returns so far; recordings keep the rewards.",
    )

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, LOG_PROBS, ADVANTAGES, VALUES, VALUE_TARGETS)
    needs_next_obs: ClassVar[bool] = True
    has_value_function: ClassVar[bool] = True
    adam_epsilon: ClassVar[float] = 1e-5

    @property
    def epochs_per_rollout(self) -> int:
        return self.num_epochs

    @property
    def reward_scale_gamma(self) -> float | None:
        return self.gamma if self.normalize_rewards else None

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        if spaces[1].shape is None:
            raise ConfigError(f"PPO cannot train a policy with Dict or Tuple actions, found {spaces[1]}.")
        super().build(networks, spaces, network, seed)
        networks.has_new_values = networks.only_values = False

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        """Return it with orthogonal first weights, as the authors' code has them (Engstrom et al. 2020)."""
        return network if network.orthogonal_weights is not None else network.model_copy(update={"orthogonal_weights": True})

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        """Add what the policy that played says of its steps, by generalised advantage estimation (see `value_targets`).

        Where the value function is new, and the policy was trained before, the first rollout teaches the value function alone:
        its advantages are noise, and an update with them would undo much of the policy.
        """
        policy, rows = networks.policy, steps.rows
        with torch.no_grad(), evaluating(policy):  # as it played
            inputs, values = policy.inputs_and_values(nested.unflatten(steps.columns, columns.OBS, policy.observation_space))
            targets = value_targets(
                steps.columns[columns.REWARDS],
                values,
                steps_left(steps),
                terminated=steps.columns[columns.TERMINATEDS],
                gamma=self.gamma,
                gae_lambda=self.gae_lambda,
            )
            advantages = targets - values
            counted = advantages[rows]
            steps.columns[ADVANTAGES] = ((advantages - counted.mean()) / (counted.std(correction=0) + 1e-8)).float()
            log_probs = torch.zeros_like(values)  # other rows have no action
            log_probs[rows] = policy.head.log_prob(inputs[rows], steps.columns[columns.ACTIONS][rows])
            steps.columns[LOG_PROBS] = log_probs
            steps.columns[VALUES], steps.columns[VALUE_TARGETS] = values, targets.float()
        networks.only_values = networks.has_new_values and networks.updates == 0
        for name, parameter in policy.named_parameters():
            parameter.requires_grad_(name.startswith("value") or not networks.only_values)

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """Return the clipped surrogate (equation 7), the value function's squared error, and the entropy's bonus.

        With `value_clip_range`, the error is the larger one of the value and of the value no further than that from the old
        one (the authors' code; Engstrom et al. 2020, arXiv 2005.12729).
        """
        policy, advantages = networks.policy, batch[ADVANTAGES]
        inputs, values = policy.inputs_and_values(batch[columns.OBS])
        if networks.only_values:
            errors = (values - batch[VALUE_TARGETS]).square()
            return LossOutput(errors, {"value_loss": errors})
        log_ratio = policy.head.log_prob(inputs, batch[columns.ACTIONS]) - batch[LOG_PROBS]
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.clip_range, 1 + self.clip_range)
        policy_loss = -torch.minimum(ratio * advantages, clipped * advantages)
        value_loss = self._value_loss(values, batch)
        entropy = policy.head.entropy(inputs)
        loss = policy_loss + self.value_coefficient * value_loss
        if self.entropy_coefficient:
            loss = loss - self.entropy_coefficient * entropy
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": ratio - 1 - log_ratio,  # Schulman 2020, "Approximating KL Divergence"
        }
        return LossOutput(loss, metrics)

    def _value_loss(self, values: Tensor, batch: Batch) -> Tensor:
        errors: Tensor = (values - batch[VALUE_TARGETS]).square()
        limit = self.value_clip_range
        if limit is None:
            return errors
        near = batch[VALUES] + (values - batch[VALUES]).clamp(-limit, limit)
        return errors.maximum((near - batch[VALUE_TARGETS]).square())
