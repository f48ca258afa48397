"""Conservative Q-learning of continuous actions (Kumar et al. 2020), on soft actor-critic (Haarnoja et al. 2018)."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.learning.algorithms.cql_config import ContinuousCQLConfig
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.steps import Batch
from offline_core.policies.config import NetworkConfig

CACHED_ROWS = 1_280
"""Sampled actions that a CPU values together: of more, what layers of 256 units give does not stay in its cache."""


class ContinuousCQL(SAC):
    """Soft actor-critic whose critics are kept low outside the data by α · (log ∫ exp Q(s, ·) - Q(s, a)).

    The integral is estimated from actions drawn uniformly, by the actor here, and by the actor at the next observation,
    each weighted by its density. With `lagrange_threshold` the penalty has a multiplier, which grows while it is larger.
    """

    config_class = ContinuousCQLConfig
    config: ContinuousCQLConfig

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        super().build(observation_space, action_space, network, seed)
        self.uniform_log_prob = -self.log_half_ranges - self.free_components * math.log(2)
        if self.config.lagrange_threshold is not None:
            self.log_multiplier = nn.Parameter(torch.zeros(()))

    def penalty(
        self, batch: Batch, encoded: Tensor, inputs: Tensor, new_inputs: Tensor, q: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        gap = self.gap(self.sampled_values(batch, encoded, inputs, new_inputs), q)
        if self.config.lagrange_threshold is None:
            return gap, {"penalty": gap}
        excess = gap - self.config.lagrange_threshold * len(q)
        multiplier = self.log_multiplier.exp().clamp(max=1e6)
        metrics = {"penalty": gap, "multiplier": multiplier.expand_as(gap)}
        return multiplier.detach() * excess - multiplier * excess.detach(), metrics

    def gap(self, exponents: Tensor, q: Tensor) -> Tensor:
        """Return α · (log ∫ exp Q(s, a) da - Q(s, a)), summed over the critics: (B,).

        Arguments:
            exponents: (critics, samples, B), see `sampled_values`.
            q: (critics, B), of the actions that were taken.
        """
        log_integral = torch.logsumexp(exponents, dim=1) - math.log(exponents.shape[1])
        gap: Tensor = self.config.alpha * (log_integral - q).sum(dim=0)
        return gap

    def sampled_values(self, batch: Batch, encoded: Tensor, inputs: Tensor, new_inputs: Tensor) -> Tensor:
        """Return Q less log density of sampled actions: (critics, samples, B)."""
        samples = self.config.action_samples
        with torch.no_grad():
            uniform = self.uniform_actions(samples * len(inputs))
            drawn, log_probs = self.head.rsample(torch.cat([inputs.repeat(samples, 1), new_inputs.repeat(samples, 1)]))
            log_probs = torch.cat([log_probs.new_full((len(uniform),), self.uniform_log_prob), log_probs])
        actions = torch.cat([uniform, drawn])
        whole = max(1, len(inputs))
        parts = [actions] if actions.is_cuda else actions.split(whole * max(1, CACHED_ROWS // whole))
        q = self.calibrated(torch.cat([self.critics(encoded, part) for part in parts], dim=1), batch)
        exponents: Tensor = (q - log_probs).unflatten(1, (3 * samples, len(inputs)))
        return exponents

    def calibrated(self, q: Tensor, batch: Batch) -> Tensor:
        """Return the values (critics, samples · B) of sampled actions that the penalty sees."""
        return q

    def uniform_actions(self, count: int) -> Tensor:
        """Draw actions (count, *action shape) uniformly between the bounds; where these are equal, there is one value."""
        return self.head.to_space(2 * torch.rand(count, self.head.size, device=self.head.center.device) - 1)
