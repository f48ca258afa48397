"""MARWIL (Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data")."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from offline_core.episodes import columns
from offline_core.learning.algorithms.algorithm import (
    ROWS_AT_A_TIME,
    Algorithm,
    Terms,
    observations_a_sequence,
    observations_of_all,
    values_of,
)
from offline_core.learning.algorithms.config import MARWILConfig
from offline_core.learning.algorithms.weights import advantage_weights, weight_numbers
from offline_core.learning.returns import discounted_sums, steps_left, value_targets
from offline_core.learning.steps import Batch, Reading, Steps
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

VALUE_TARGETS = "value_targets"
"""(R,) float32: the discounted return of the whole rest of the episode, or GAE(λ)'s estimate of it."""
RETURNS, BOOTSTRAP = "discounted_returns", "bootstrap_discounts"
"""(R,) float32, where λ = 1: rewards that came, and what the value of the last observation counts (0 once terminated)."""

COLUMN_WORK = 0.01
"""What arithmetic with a column costs a row, in observations that a network looks at."""


class MARWIL(Algorithm):
    """Clones each action with the weight exp(β · A / √c), where A says how much better it went on than expected.

    c is the running mean of A². It starts at that of the dataset, and an update moves it by 1 % of the way: the noise of
    100 batches is averaged out, and yet it follows the value function, which learns in the first thousand updates or so.
    """

    stored = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns = (columns.OBS, columns.ACTIONS, VALUE_TARGETS)
    looks_ahead = True
    has_errors = True
    config_class = MARWILConfig

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig = NetworkConfig(),
        config: MARWILConfig = MARWILConfig(),
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, network, config, seed=seed)
        self.config = config
        self.policy = Policy(observation_space, action_space, network, value_function=True, seed=seed)
        start = torch.nan if config.normalizer_start is None else config.normalizer_start
        self.normalizer: Tensor
        self.register_buffer("normalizer", torch.tensor(start))

    def prepare(self, steps: Steps, reading: Reading) -> None:
        if self.config.gae_lambda == 1:
            left, gamma = steps_left(steps), self.config.gamma
            is_open = ~steps.columns[columns.TERMINATEDS][steps.last - 1]
            steps.columns[RETURNS] = discounted_sums(steps.columns[columns.REWARDS], left, gamma).float()
            steps.columns[BOOTSTRAP] = (gamma ** left.double() * is_open[steps.episode]).float()
        starting = bool(self.normalizer.isnan())
        if starting or not self.refresh_rows(steps, reading):  # else the first update is preceded by a refresh anyway
            self.refresh(steps, reading)
        if starting:
            rows = steps.rows[:: 1 + len(steps) * observations_a_sequence(reading) // ROWS_AT_A_TIME]
            errors = steps.columns[VALUE_TARGETS][rows] - values_of(self.policy, steps, rows, reading)
            self.normalizer.copy_(errors.square().mean())

    def refresh(self, steps: Steps, reading: Reading) -> None:
        if self.config.gae_lambda == 1:
            last_values = values_of(self.policy, steps, steps.last, reading)
            targets = steps.columns[RETURNS].addcmul(steps.columns[BOOTSTRAP], last_values[steps.episode])
        else:
            targets = value_targets(
                steps.columns[columns.REWARDS],
                values_of(self.policy, steps, torch.arange(len(steps.episode), device=steps.episode.device), reading),
                steps_left(steps),
                terminated=steps.columns[columns.TERMINATEDS],
                gamma=self.config.gamma,
                gae_lambda=self.config.gae_lambda,
            ).float()
        steps.columns[VALUE_TARGETS] = targets

    def refresh_rows(self, steps: Steps, reading: Reading) -> float:
        if self.config.gae_lambda < 1:
            return float(observations_of_all(steps, reading))
        if not steps.columns[BOOTSTRAP].any():
            return 0.0
        return len(steps.last) * observations_a_sequence(reading) + COLUMN_WORK * len(steps.episode)

    def forward(self, batch: Batch) -> Terms:
        inputs, values = (output.float() for output in self.policy.inputs_and_values(batch[columns.OBS]))
        targets = batch[VALUE_TARGETS]
        advantages = targets - values
        exponents = self.config.beta * advantages / (1e-8 + self.normalizer.sqrt())
        weights, watched = advantage_weights(exponents, self.config.max_weight)
        policy_loss = -weights * self.policy.head.log_prob(inputs, batch[columns.ACTIONS])
        squared = advantages.square()
        value_loss = 0.5 * squared
        watched |= {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": self.policy.head.entropy(inputs),
            "advantage": advantages,
            "squared_advantage": squared,
            "value_target": targets,
            "squared_value_target": targets.square(),
        }
        loss = policy_loss + self.config.value_coefficient * value_loss
        return Terms(loss, {name: term.detach() for name, term in watched.items()}, advantages.detach().abs())

    def after_update(self, means: dict[str, Tensor]) -> None:
        self.normalizer.lerp_(means["squared_advantage"], self.config.normalizer_rate)

    def numbers(self, means: dict[str, float]) -> dict[str, float]:
        unexplained = means["squared_advantage"] - means["advantage"] ** 2
        variance = means["squared_value_target"] - means["value_target"] ** 2
        hidden = {"weight", "squared_weight", "squared_advantage", "squared_value_target"}
        return {
            **{name: value for name, value in means.items() if name not in hidden},
            **weight_numbers(means),
            "explained_variance": 1 - unexplained / max(variance, 1e-30),
            "normalizer": float(self.normalizer),
        }
