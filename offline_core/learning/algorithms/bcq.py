"""Discrete batch-constrained Q-learning (Fujimoto et al. 2019, "Benchmarking Batch Deep Reinforcement Learning Algorithms")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.dqn import DQN, dueling, mean_of_allowed, taken
from offline_core.policies.config import NetworkConfig
from offline_core.policies.head import masked

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.data.episodes.nested import Nested
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch
    from offline_core.policies.policy import Policy


class BCQ(DQN):
    """Q-learning among actions that the data's policy would take, too (Fujimoto et al. 2019, arXiv 1910.01708)."""

    n_step: int = Field(1, ge=1, le=1_000, description="Rewards that are summed before the targets estimate the rest.")
    dueling: bool = Field(False, description="Q is the sum of a value and the actions' advantages.")
    threshold: float = Field(
        0.3,
        gt=0,
        le=1,
        description="An action may be chosen if its probability, as an imitator of the data learns it, is at least this share "
        "of the likeliest one's. 1 clones, towards 0 it is Q-learning.",
    )
    log_prob_penalty: float = Field(
        0.01,
        ge=0,
        le=1e6,
        description="Weight of the imitator's mean squared log-probability, which keeps it from being certain. The "
        "paper's code has 0.01; 0.5, d3rlpy's, lets all of two to six actions pass a threshold of 0.3, whatever the data is.",
    )

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        return network.model_copy(update={"imitation_threshold": self.threshold})

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """Learn values among the actions that an imitator of the data, learned beside, finds likely enough.

        So do the targets choose, and so does the policy, which the imitator is a part of. Its penalty keeps the imitator from
        being certain.
        """
        policy = networks.policy
        all_q, log_probs = self.values_and_log_probs(policy, batch[columns.OBS])
        allowed = policy.allowed(batch[columns.OBS])
        known = log_probs if allowed is None else log_probs.masked_fill(~allowed, 0.0)  # the square of others is infinite
        penalties = {
            "imitation_loss": -taken(networks, batch, log_probs),
            "log_prob_penalty": self.log_prob_penalty * mean_of_allowed(known.square(), allowed),
        }
        return self.output(networks, batch, all_q, penalties)

    def q(self, policy: Policy, observations: Nested) -> Tensor:
        return self.values_and_log_probs(policy, observations)[0]

    def values_and_log_probs(self, policy: Policy, observations: Nested) -> tuple[Tensor, Tensor]:
        """Return Q of all actions, and the imitator's log-probabilities of them: (B, actions) each."""
        allowed, head = policy.allowed(observations), policy.head
        outputs = head.values_and_log_probs(policy.features(observations), allowed)  # type: ignore[attr-defined]
        q, log_probs = (output.float() for output in outputs)
        if self.dueling:
            return dueling(policy.values(observations).float(), q, allowed), log_probs
        return masked(q, allowed), log_probs
