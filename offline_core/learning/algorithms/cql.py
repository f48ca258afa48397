"""Conservative Q-learning (Kumar et al. 2020): CQL(H) for Discrete actions, and for continuous ones on soft actor-critic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import gymnasium as gym
from pydantic import Field

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.dqn import DQN, taken
from offline_core.learning.algorithms.sac import SAC, squashed
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch

CACHED_ROWS = 1_280
"""Sampled actions that a CPU values together: of more, what layers of 256 units give does not stay in its cache."""

Alpha = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        description="Weight of the conservative penalty; 0 is plain Q-learning. For continuous actions it is added to δ², as "
        "in RLlib, and for Discrete ones to Huber's δ²/2, where the same alpha weighs twice as much.",
    ),
]


class DiscreteCQL(DQN):
    """Q-learning that keeps actions outside the data below those in it (Kumar et al. 2020)."""

    n_step: int = Field(1, ge=1, le=1_000, description="Rewards that are summed before the targets estimate the rest.")
    alpha: Alpha = 1.0

    def penalties(self, networks: Networks, batch: Batch, all_q: Tensor) -> dict[str, Tensor]:
        """α · (log Σ exp Q(s, ·) - Q(s, a)): actions outside the data are not worth more."""
        return {"penalty": self.alpha * (all_q.logsumexp(dim=1) - taken(networks, batch, all_q))}


class ContinuousCQL(SAC):
    """An actor and critics that keep actions outside the data below those in it (Kumar et al. 2020)."""

    entropy_backup: bool = Field(
        False,
        description="Continuous actions only: next values include the policy's entropy, as those of SAC do.",
    )
    alpha: Alpha = 1.0
    action_samples: int = Field(
        10,
        ge=1,
        le=1_000,
        description="Continuous actions only: actions of each kind that the penalty is estimated from.",
    )
    lagrange_threshold: float | None = Field(
        None,
        description="Continuous actions only: scale the penalty so that it is this large on average. None: do not.",
    )

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        super().build(networks, spaces, network, seed)
        networks.uniform_log_prob = -networks.log_half_ranges - networks.free_components * math.log(2)
        if self.lagrange_threshold is not None:
            networks.log_multiplier = torch.nn.Parameter(torch.zeros(()))

    def penalty(
        self, networks: Networks, batch: Batch, encoded: Tensor, inputs: Tensor, new_inputs: Tensor, q: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Keep critics low outside the data, by α · (log ∫ exp Q(s, ·) - Q(s, a)).

        The integral is estimated from actions drawn uniformly, by the actor here, and by the actor at the next observation,
        each weighted by its density. With `lagrange_threshold` the penalty has a multiplier, which grows while it is larger.
        """
        gap = self.gap(self.sampled_values(networks, batch, encoded, inputs, new_inputs), q)
        if self.lagrange_threshold is None:
            return gap, {"penalty": gap}
        excess = gap - self.lagrange_threshold * len(q)
        multiplier = networks.log_multiplier.exp().clamp(max=1e6)
        metrics = {"penalty": gap, "multiplier": multiplier.expand_as(gap)}
        return multiplier.detach() * excess - multiplier * excess.detach(), metrics

    def gap(self, exponents: Tensor, q: Tensor) -> Tensor:
        """Return α · (log ∫ exp Q(s, a) da - Q(s, a)), summed over the critics: (B,).

        Arguments:
            exponents: (critics, samples, B), see `sampled_values`.
            q: (critics, B), of the actions that were taken.
        """
        log_integral = torch.logsumexp(exponents, dim=1) - math.log(exponents.shape[1])
        gap: Tensor = self.alpha * (log_integral - q).sum(dim=0)
        return gap

    def sampled_values(self, networks: Networks, batch: Batch, encoded: Tensor, inputs: Tensor, new_inputs: Tensor) -> Tensor:
        """Return Q less log density of sampled actions: (critics, samples, B)."""
        samples, head = self.action_samples, squashed(networks)
        with torch.no_grad():
            uniform = uniform_actions(networks, samples * len(inputs))
            drawn, log_probs = head.rsample(torch.cat([inputs.repeat(samples, 1), new_inputs.repeat(samples, 1)]))
            log_probs = torch.cat([log_probs.new_full((len(uniform),), networks.uniform_log_prob), log_probs])
        actions = torch.cat([uniform, drawn])
        whole = max(1, len(inputs))
        parts = [actions] if actions.is_cuda else actions.split(whole * max(1, CACHED_ROWS // whole))
        q = self.calibrated(torch.cat([networks.critics(encoded, part) for part in parts], dim=1), batch)
        exponents: Tensor = (q - log_probs).unflatten(1, (3 * samples, len(inputs)))
        return exponents

    def calibrated(self, q: Tensor, batch: Batch) -> Tensor:
        """Return the values (critics, samples · B) of sampled actions that the penalty sees."""
        return q


def uniform_actions(networks: Networks, count: int) -> Tensor:
    """Draw actions (count, *action shape) uniformly between the bounds; where these are equal, there is one value."""
    head = squashed(networks)
    return head.to_space(2 * torch.rand(count, head.size, device=head.center.device) - 1)


class CQL(DiscreteCQL, ContinuousCQL):
    """Q-learning that keeps actions outside the data below those in it (Kumar et al. 2020).

    Double, dueling and the target interval are for Discrete actions only.
    """

    def for_actions(self, space: gym.Space[Any]) -> Algorithm:
        kind = ContinuousCQL if isinstance(space, gym.spaces.Box) else DiscreteCQL
        fields = type(self).model_fields
        used = {name: getattr(self, name) for name in fields if name in kind.model_fields}
        changed = [f"cql.{name}" for name in fields if name not in used and getattr(self, name) != fields[name].default]
        if changed:
            raise ConfigError(f"With actions in {space}, {' and '.join(changed)} would change nothing: leave that out.")
        return kind(**used)
