"""MARWIL (Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data")."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.algorithm import (
    ROWS_AT_A_TIME,
    Algorithm,
    LossOutput,
    observations_a_sequence,
    observations_of_all,
    values_of,
)
from offline_core.learning.algorithms.marwil_config import MARWILConfig
from offline_core.learning.algorithms.weights import advantage_weights, weight_metrics
from offline_core.learning.returns import discounted_sums, steps_left, value_targets
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.learning.together import summed
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

VALUE_TARGETS = "value_targets"
"""(R,) float32: the discounted return of the whole rest of the episode, or GAE(λ)'s estimate of it."""
RETURNS, BOOTSTRAP = "discounted_returns", "bootstrap_discounts"
"""(R,) float32, where λ = 1: discounted rewards to the end, and the factor of the last value (0 once terminated)."""

COLUMN_WORK = 0.01
"""Cost of arithmetic with a column, per row, in observations that a network evaluates."""


class MARWIL(Algorithm):
    """Clones each action with the weight exp(β · A / √c), where A is the advantage of the step.

    c is the running mean of A². It starts at that of the dataset, and an update moves it by 1 % of the way: this averages
    the noise of 100 batches, and still follows the value function, which learns in the first thousand updates or so.
    """

    stored = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns = (columns.OBS, columns.ACTIONS, VALUE_TARGETS)
    needs_next_obs = True
    has_errors = True
    config_class = MARWILConfig
    config: MARWILConfig

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        self.policy = Policy(observation_space, action_space, network, value_function=True, seed=seed)
        start = torch.nan if self.config.normalizer_start is None else self.config.normalizer_start
        self.normalizer: Tensor
        self.register_buffer("normalizer", torch.tensor(start))
        self.value_variance: Tensor
        self.register_buffer("value_variance", torch.tensor(torch.nan if self.config.normalize_values else 1.0))

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        if self.config.gae_lambda == 1:
            left, gamma = steps_left(steps), self.config.gamma
            is_open = ~steps.columns[columns.TERMINATEDS][steps.last - 1]
            steps.columns[RETURNS] = discounted_sums(steps.columns[columns.REWARDS], left, gamma).float()
            steps.columns[BOOTSTRAP] = (gamma ** left.double() * is_open[steps.episode]).float()
        starting = bool(self.normalizer.isnan() or self.value_variance.isnan())
        if starting or not self.refresh_rows(steps, spec):  # else the learner refreshes before the first update
            self.refresh(steps, spec)
        if starting:
            rows = steps.sample(max(1, ROWS_AT_A_TIME // observations_a_sequence(spec)))
            targets = steps.columns[VALUE_TARGETS][rows]
            errors = targets - values_of(self.policy, steps, rows, spec)
            sums = [torch.ones_like(targets), errors.square(), targets, targets.square()]
            number, squares, values, squared_values = summed(torch.stack([each.double().sum() for each in sums])).unbind()
            if not number:
                return  # a window that a prelearner has left empty
            self.normalizer.copy_((squares / number).where(self.normalizer.isnan(), self.normalizer))
            variance = (squared_values / number - (values / number).square()).clamp(min=0)
            self.value_variance.copy_(variance.where(variance > 0, 1.0).where(self.value_variance.isnan(), self.value_variance))

    def refresh(self, steps: Steps, spec: BatchSpec) -> None:
        if self.config.gae_lambda == 1:
            last_values = values_of(self.policy, steps, steps.last, spec)
            targets = steps.columns[RETURNS].addcmul(steps.columns[BOOTSTRAP], last_values[steps.episode])
        else:
            targets = value_targets(
                steps.columns[columns.REWARDS],
                values_of(self.policy, steps, torch.arange(len(steps.episode), device=steps.episode.device), spec),
                steps_left(steps),
                terminated=steps.columns[columns.TERMINATEDS],
                gamma=self.config.gamma,
                gae_lambda=self.config.gae_lambda,
            ).float()
        steps.columns[VALUE_TARGETS] = targets

    def refresh_rows(self, steps: Steps, spec: BatchSpec) -> float:
        if self.config.gae_lambda < 1:
            return float(observations_of_all(steps, spec))
        if not steps.columns[BOOTSTRAP].any():
            return 0.0
        return len(steps.last) * observations_a_sequence(spec) + COLUMN_WORK * len(steps.episode)

    def forward(self, batch: Batch) -> LossOutput:
        inputs, values = (output.float() for output in self.policy.inputs_and_values(batch[columns.OBS]))
        targets = batch[VALUE_TARGETS]
        advantages = targets - values
        exponents = self.config.beta * advantages / (1e-8 + self.normalizer.sqrt())
        weights, metrics = advantage_weights(exponents, self.config.max_weight)
        policy_loss = -weights * self.policy.head.log_prob(inputs, batch[columns.ACTIONS])
        squared = advantages.square()
        value_loss = 0.5 * squared / self.value_variance
        metrics |= {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": self.policy.head.entropy(inputs),
            "advantage": advantages,
            "squared_advantage": squared,
            "value_target": targets,
            "squared_value_target": targets.square(),
        }
        loss = policy_loss + self.config.value_coefficient * value_loss
        return LossOutput(loss, {name: term.detach() for name, term in metrics.items()}, advantages.detach().abs())

    def after_update(self, means: dict[str, Tensor]) -> None:
        self.normalizer.lerp_(means["squared_advantage"], self.config.normalizer_rate)

    def log_metrics(self, means: dict[str, float]) -> dict[str, float]:
        unexplained = means["squared_advantage"] - means["advantage"] ** 2
        variance = means["squared_value_target"] - means["value_target"] ** 2
        return {
            **weight_metrics(means, "squared_advantage", "squared_value_target"),
            "explained_variance": 1 - unexplained / max(variance, 1e-30),
            "normalizer": float(self.normalizer),
        }
