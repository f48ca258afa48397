"""CQL(H) for Discrete actions (Kumar et al. 2020, "Conservative Q-Learning for Offline Reinforcement Learning")."""

from __future__ import annotations

from torch import Tensor

from offline_core.learning.algorithms.cql_config import DiscreteCQLConfig
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.steps import Batch


class DiscreteCQL(DQN):
    """Deep Q-learning with the penalty α · (log Σ exp Q(s, ·) - Q(s, a)): actions outside the data are not worth more."""

    config_class = DiscreteCQLConfig
    config: DiscreteCQLConfig

    def penalties(self, batch: Batch, all_q: Tensor) -> dict[str, Tensor]:
        return {"penalty": self.config.alpha * (all_q.logsumexp(dim=1) - self.taken(batch, all_q))}
