"""Discrete batch-constrained Q-learning (Fujimoto et al. 2019, "Benchmarking Batch Deep Reinforcement Learning Algorithms")."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.data.episodes.nested import Nested
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.bcq_config import BCQConfig
from offline_core.learning.algorithms.dqn import DQN, dueling, mean_of_allowed
from offline_core.learning.steps import Batch
from offline_core.policies.categorical import masked
from offline_core.policies.config import NetworkConfig
from offline_core.policies.constrained import ConstrainedHead
from offline_core.policies.policy import Policy


class BCQ(DQN):
    """Deep Q-learning among the actions that an imitator of the data, learned beside, finds likely enough.

    So do the targets choose, and so does the policy, which the imitator is a part of. Its penalty keeps the imitator from
    being certain.
    """

    config_class = BCQConfig
    config: BCQConfig

    def policy_network(self, network: NetworkConfig) -> NetworkConfig:
        return network.model_copy(update={"imitation_threshold": self.config.threshold})

    def forward(self, batch: Batch) -> LossOutput:
        all_q, log_probs = self.values_and_log_probs(self.policy, batch[columns.OBS])
        allowed = self.policy.allowed(batch[columns.OBS])
        known = log_probs if allowed is None else log_probs.masked_fill(~allowed, 0.0)  # the square of others is infinite
        penalties = {
            "imitation_loss": -self.taken(batch, log_probs),
            "log_prob_penalty": self.config.log_prob_penalty * mean_of_allowed(known.square(), allowed),
        }
        return self.output(batch, all_q, penalties)

    def q(self, policy: Policy, observations: Nested) -> Tensor:
        return self.values_and_log_probs(policy, observations)[0]

    def values_and_log_probs(self, policy: Policy, observations: Nested) -> tuple[Tensor, Tensor]:
        """Return Q of all actions, and the imitator's log-probabilities of them: (B, actions) each."""
        allowed = policy.allowed(observations)
        outputs = cast(ConstrainedHead, policy.head).values_and_log_probs(policy.features(observations), allowed)
        q, log_probs = (output.float() for output in outputs)
        return dueling(policy.values(observations).float(), q, allowed) if self.config.dueling else masked(
            q, allowed
        ), log_probs
