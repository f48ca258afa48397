"""The networks that an algorithm learns, as one module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.steps import Batch
from offline_core.learning.together import is_alone, summed
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy


class Networks(nn.Module):
    """A policy and the networks learned beside it. Its `state_dict()` holds all that a checkpoint needs.

    The algorithm makes them, and says how they learn. The learner calls
        algorithm.prepare(networks, steps, spec)     once for steps that were loaded
        algorithm.refresh(networks, steps, spec)     if `refresh_rows` is not 0: before the first update, and now and then
        algorithm.before_update(networks), networks(batch), algorithm.after_update(networks, means)     each update
        algorithm.log_metrics(networks, means)       each report

    Arguments:
        algorithm: an `Algorithm`; that of these actions learns.
        observation_space, action_space: of the policy.
        network: layers of the policy, and of all networks beside it.
        seed: of the initial weights.

    Raises:
        ConfigError: It cannot learn to act in these spaces, or with such a network.
    """

    policy: Policy
    updates: int = 0
    """Updates so far."""
    counts: bool = True
    """This learner's batch is its share of the global one. False: it has no share, and the batch stands in."""

    def __init__(
        self,
        algorithm: Any,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig = NetworkConfig(),
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.algorithm = algorithm = algorithm.for_actions(action_space)
        if network.recurrent and columns.NEW_OBS in algorithm.batch_columns:
            raise ConfigError(
                f"{type(algorithm).__name__} values later observations, which a recurrent network would see without those "
                "before them: set network.recurrent to None and network.frames to 4, say, or use bc or marwil."
            )
        if network.imitation_threshold is not None:
            raise ConfigError(
                "network.imitation_threshold is what bcq sets in its policy: leave it out, and set bcq.threshold."
            )
        if network.transformer is not None:
            raise ConfigError("network.transformer is what dt sets in its policy: leave it out, and set the parameters of dt.")
        algorithm.build(self, (observation_space, action_space), network, seed)

    if TYPE_CHECKING:  # whatever else the algorithm builds

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def forward(self, batch: Batch) -> Any:
        """Return the algorithm's `LossOutput`; gradients go through the loss alone."""
        output = self.algorithm.loss(self, batch)
        return output._replace(metrics={name: term.detach() for name, term in output.metrics.items()})

    def mean_of_all(self, values: Tensor) -> Tensor:
        """Return the mean, over the batches of all learners while they learn; without gradients then."""
        if is_alone() or not torch.is_grad_enabled():
            return values.mean()
        sums = summed(torch.stack([values.detach().sum(), values.new_tensor(float(values.numel()))]) * self.counts)
        return sums[0] / sums[1]
