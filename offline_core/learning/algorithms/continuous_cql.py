"""Conservative Q-learning of continuous actions (Kumar et al. 2020), on soft actor-critic (Haarnoja et al. 2018)."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.cql_config import ContinuousCQLConfig
from offline_core.learning.algorithms.critics import Critics, observed
from offline_core.learning.returns import N_STEP_DISCOUNTS, N_STEP_REWARDS, add_n_step_columns
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.policies.squashed import SquashedGaussianHead


class ContinuousCQL(Algorithm):
    """An actor maximises the smaller of two critics, kept low outside the data by α · (log ∫ exp Q(s, ·) - Q(s, a)).

    The integral is estimated from actions drawn uniformly, by the actor here, and by the actor at the next observation,
    each weighted by its density. The actor's entropy is held at -1 per component of the action, in units where the bounds
    are ±1; next values do not include it. Three losses, each of which trains its own networks.
    Draws from Torch's global generator.
    """

    stored = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns = (columns.OBS, columns.ACTIONS, columns.NEW_OBS, N_STEP_REWARDS, N_STEP_DISCOUNTS)
    needs_next_obs = True
    has_errors = True
    config_class = ContinuousCQLConfig
    config: ContinuousCQLConfig

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        if not network.squash or not isinstance(action_space, gym.spaces.Box):
            raise ConfigError(
                f"cql needs a policy whose actions stay within their bounds: set network.squash to true for {action_space}, "
                "or use bc, marwil or iql."
            )
        self.policy = Policy(observation_space, action_space, network, seed=seed)
        self.critics = Critics(self.policy.encoder, action_space, network, seed=seed)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        log_half_ranges = float(self.head.half_range.log().sum())
        self.target_entropy = log_half_ranges - self.head.size
        self.uniform_log_prob = -log_half_ranges - self.head.size * math.log(2)

    @property
    def head(self) -> SquashedGaussianHead:
        """The actor's distribution."""
        head = self.policy.head
        assert isinstance(head, SquashedGaussianHead)
        return head

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        add_n_step_columns(steps, n=self.config.n_step, gamma=self.config.gamma)

    def forward(self, batch: Batch) -> LossOutput:
        inputs = self.policy(batch[columns.OBS]).float()
        encoded = observed(self.policy, batch[columns.OBS])
        with torch.no_grad():
            new_inputs = self.policy(batch[columns.NEW_OBS]).float()
            new_actions, _ = self.head.rsample(new_inputs)
            following = self.targets(observed(self.policy, batch[columns.NEW_OBS]), new_actions).min(dim=0).values
            target = batch[N_STEP_REWARDS] + batch[N_STEP_DISCOUNTS] * following
        q = self.critics(encoded, batch[columns.ACTIONS])
        errors = q - target
        critic_loss = errors.square()
        penalty = self.config.alpha * (self.log_integral(encoded, inputs.detach(), new_inputs) - q)

        actions, log_probs = self.head.rsample(inputs)
        fixed = {name: parameter.detach() for name, parameter in self.critics.named_parameters()}
        actor_q = torch.func.functional_call(self.critics, fixed, (encoded, actions)).min(dim=0).values
        policy_loss = self.log_temperature.exp().detach() * log_probs - actor_q
        temperature_loss = -self.log_temperature * (log_probs.detach() + self.target_entropy)
        metrics = {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss.sum(dim=0),
            "penalty": penalty.sum(dim=0),
            "entropy": -log_probs,
            "temperature": self.log_temperature.exp().expand_as(log_probs),
            "q": q.min(dim=0).values,
            "q_min": q.min(dim=0).values,
            "q_max": q.max(dim=0).values,
            "target_q": target,
        }
        loss = policy_loss + (critic_loss + penalty).sum(dim=0) + temperature_loss
        return LossOutput(loss, {name: term.detach() for name, term in metrics.items()}, errors.detach().abs().mean(dim=0))

    def log_integral(self, encoded: Tensor, inputs: Tensor, new_inputs: Tensor) -> Tensor:
        """Return log ∫ exp Q(s, a) da of each critic, (2, B), by importance sampling."""
        samples = self.config.action_samples
        with torch.no_grad():
            uniform = self.uniform_actions(samples * len(inputs))
            drawn, log_probs = self.head.rsample(torch.cat([inputs.repeat(samples, 1), new_inputs.repeat(samples, 1)]))
            log_probs = torch.cat([log_probs.new_full((len(uniform),), self.uniform_log_prob), log_probs])
        exponents = self.critics(encoded, torch.cat([uniform, drawn])) - log_probs
        exponents = exponents.unflatten(1, (3 * samples, len(inputs)))
        return torch.logsumexp(exponents, dim=1) - math.log(3 * samples)

    def uniform_actions(self, count: int) -> Tensor:
        """Draw actions (count, *action shape) uniformly between the bounds."""
        shares = 2 * torch.rand(count, self.head.size, device=self.head.center.device) - 1
        return (self.head.center + self.head.half_range * shares).reshape(count, *self.head.shape)

    def after_update(self, means: dict[str, Tensor]) -> None:
        self.targets.move_to(self.critics, self.config.target_rate)
