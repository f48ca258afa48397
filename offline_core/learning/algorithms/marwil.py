"""MARWIL (Wang et al. 2018, "Exponentially Weighted Imitation Learning for Batched Historical Data")."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns, nested
from offline_core.learning.algorithms.algorithm import ROWS_AT_A_TIME, Algorithm, Gamma, LossOutput, evaluating
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.weights import advantage_weights, weight_metrics
from offline_core.learning.returns import discounted_sums, steps_left, value_targets
from offline_core.learning.together import summed
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps
    from offline_core.policies.policy import Policy

VALUE_TARGETS = "value_targets"
"""(R,) float32: the discounted return of the whole rest of the episode, or GAE(λ)'s estimate of it."""
RETURNS, BOOTSTRAP = "discounted_returns", "bootstrap_discounts"
"""(R,) float32, where λ = 1: discounted rewards to the end, and the factor of the last value (0 once terminated)."""

COLUMN_WORK = 0.01
"""Cost of arithmetic with a column, per row, in observations that a network evaluates."""


class MARWIL(Algorithm):
    """Cloning that weighs each step by its advantage (Wang et al. 2018)."""

    beta: float = Field(1.0, ge=0, le=100, description="How much better steps count more; 0 is behaviour cloning.")
    gamma: Gamma = 0.99
    gae_lambda: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Value targets: 1 trusts the rewards that came, 0 the value function one step on.",
    )
    value_coefficient: float = Field(1.0, gt=0, le=1e6, description="Weight of the value function's loss.")
    normalize_values: bool = Field(
        True,
        description="Divide the value function's loss by the variance of its targets in the data, of the first window when "
        "streaming: so it weighs the same against the policy's whatever the rewards are. False: RLlib's formula.",
    )
    max_weight: float = Field(20.0, gt=0, le=1e6, description="A step counts this much at most.")
    normalizer_rate: float = Field(
        0.01,
        gt=0,
        le=1,
        description="How far an update moves the mean squared advantage, which advantages are divided by the root of.",
    )
    normalizer_start: float | None = Field(
        None,
        gt=0,
        description="The mean squared advantage to begin with; None: that of the data, of 65,536 steps at most, and when "
        "streaming of the first window. RLlib's is 100, with a rate of 1e-8.",
    )

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, VALUE_TARGETS)
    needs_next_obs: ClassVar[bool] = True
    has_value_function: ClassVar[bool] = True
    has_errors: ClassVar[bool] = True
    records_after_update: ClassVar[bool] = True

    def for_actions(self, space: gym.Space[Any]) -> Algorithm:
        """With β = 0, behaviour cloning: without a value function, whose gradients would use up the norm that is allowed."""
        return self if self.beta else BC()

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        super().build(networks, spaces, network, seed)
        start = torch.nan if self.normalizer_start is None else self.normalizer_start
        networks.register_buffer("normalizer", torch.tensor(start))
        networks.register_buffer("value_variance", torch.tensor(torch.nan if self.normalize_values else 1.0))

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        if self.gae_lambda == 1:
            left, gamma = steps_left(steps), self.gamma
            is_open = ~steps.columns[columns.TERMINATEDS][steps.last - 1]
            steps.columns[RETURNS] = discounted_sums(steps.columns[columns.REWARDS], left, gamma).float()
            steps.columns[BOOTSTRAP] = (gamma ** left.double() * is_open[steps.episode]).float()
        starting = bool(networks.normalizer.isnan() or networks.value_variance.isnan())
        if starting or not self.refresh_rows(networks, steps, spec):  # else the learner refreshes before the first update
            self.refresh(networks, steps, spec)
        if starting:
            rows = steps.sample(max(1, ROWS_AT_A_TIME // observations_a_sequence(spec)))
            targets = steps.columns[VALUE_TARGETS][rows]
            errors = targets - values_of(networks.policy, steps, rows, spec)
            sums = [torch.ones_like(targets), errors.square(), targets, targets.square()]
            number, squares, values, squared_values = summed(torch.stack([terms.double().sum() for terms in sums])).unbind()
            if not number:
                return  # a window that a prelearner has left empty
            networks.normalizer.copy_((squares / number).where(networks.normalizer.isnan(), networks.normalizer))
            variance = (squared_values / number - (values / number).square()).clamp(min=0)
            variance = variance.where(variance > 0, 1.0)
            networks.value_variance.copy_(variance.where(networks.value_variance.isnan(), networks.value_variance))

    def refresh(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        if self.gae_lambda == 1:
            last_values = values_of(networks.policy, steps, steps.last, spec)
            targets = steps.columns[RETURNS].addcmul(steps.columns[BOOTSTRAP], last_values[steps.episode])
        else:
            targets = value_targets(
                steps.columns[columns.REWARDS],
                values_of(networks.policy, steps, torch.arange(len(steps.episode), device=steps.episode.device), spec),
                steps_left(steps),
                terminated=steps.columns[columns.TERMINATEDS],
                gamma=self.gamma,
                gae_lambda=self.gae_lambda,
            ).float()
        steps.columns[VALUE_TARGETS] = targets

    def refresh_rows(self, networks: Networks, steps: Steps, spec: BatchSpec) -> float:
        if self.gae_lambda < 1:
            return float(observations_of_all(steps, spec))
        if not steps.columns[BOOTSTRAP].any():
            return 0.0
        return len(steps.last) * observations_a_sequence(spec) + COLUMN_WORK * len(steps.episode)

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """Clone each action with the weight exp(β · A / √c), where A is the advantage of the step.

        c is the running mean of A². It starts at that of the dataset, and an update moves it by 1 % of the way: this averages
        the noise of 100 batches, and still follows the value function, which learns in the first thousand updates or so.
        """
        inputs, values = (output.float() for output in networks.policy.inputs_and_values(batch[columns.OBS]))
        targets = batch[VALUE_TARGETS]
        advantages = targets - values
        exponents = self.beta * advantages / (1e-8 + networks.normalizer.sqrt())
        weights, metrics = advantage_weights(exponents, self.max_weight)
        policy_loss = -weights * networks.policy.head.log_prob(inputs, batch[columns.ACTIONS])
        squared = advantages.square()
        value_loss = 0.5 * squared / networks.value_variance
        metrics |= {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": networks.policy.head.entropy(inputs),
            "advantage": advantages,
            "squared_advantage": squared,
            "value_target": targets,
            "squared_value_target": targets.square(),
        }
        loss = policy_loss + self.value_coefficient * value_loss
        return LossOutput(loss, metrics, advantages.detach().abs())

    def after_update(self, networks: Networks, means: dict[str, Tensor]) -> None:
        networks.normalizer.lerp_(means["squared_advantage"], self.normalizer_rate)

    def log_metrics(self, networks: Networks, means: dict[str, float]) -> dict[str, float]:
        unexplained = means["squared_advantage"] - means["advantage"] ** 2
        variance = means["squared_value_target"] - means["value_target"] ** 2
        return {
            **weight_metrics(means, "squared_advantage", "squared_value_target"),
            "explained_variance": 1 - unexplained / max(variance, 1e-30),
            "normalizer": float(networks.normalizer),
        }


def values_of(policy: Policy, steps: Steps, rows: Tensor, spec: BatchSpec) -> Tensor:
    """Return the policy's present values (len(rows),) float32 of these rows' observations, in evaluation mode.

    A recurrent policy runs once through each sequence with one of the rows in it, with the burn-in of the training.
    Memory: `ROWS_AT_A_TIME` observations.
    """
    one_step = replace(spec, columns=(columns.OBS,), sequence_steps=None)
    with torch.no_grad(), evaluating(policy):
        if spec.sequence_steps is None:
            return torch.cat([_values(policy, steps, part, one_step) for part in rows.split(ROWS_AT_A_TIME)])
        since = rows - steps.first[steps.episode[rows].long()]
        starts, sequence = (rows - since % spec.sequence_steps).unique(return_inverse=True)
        episode, length = steps.episode[starts].long(), observations_a_sequence(spec)
        begin = torch.maximum(starts - spec.burn_in_steps, steps.first[episode])
        seen = torch.minimum(begin[:, None] + torch.arange(length, device=rows.device), steps.last[episode][:, None])
        values = torch.cat([_values(policy, steps, part, one_step) for part in seen.split(max(1, ROWS_AT_A_TIME // length))])
        return values[sequence, rows - begin[sequence]]


def _values(policy: Policy, steps: Steps, rows: Tensor, spec: BatchSpec) -> Tensor:
    """Return the values of rows (B,), or of sequences of rows (S, L), in the shape of `rows`."""
    batch = steps.batch(rows.flatten(), spec)
    batch = {path: column.unflatten(0, rows.shape) for path, column in batch.items()}
    values = policy.values(nested.unflatten(batch, columns.OBS, policy.observation_space))
    return values.reshape(rows.shape).float()


def observations_a_sequence(spec: BatchSpec) -> int:
    """Return how many observations `values_of` evaluates for a single value."""
    return 1 if spec.sequence_steps is None else spec.burn_in_steps + spec.sequence_steps


def observations_of_all(steps: Steps, spec: BatchSpec) -> int:
    """Return how many observations `values_of` evaluates for the values of all rows."""
    if spec.sequence_steps is None:
        return len(steps.episode)
    sequences = (steps.last - steps.first) // spec.sequence_steps + 1
    return int(sequences.sum()) * observations_a_sequence(spec)
