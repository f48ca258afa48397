"""The Decision Transformer (Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling")."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.dt_config import DTConfig
from offline_core.learning.returns import RETURNS_TO_GO, discounted_sums, steps_left
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.config import NetworkConfig, TransformerConfig
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.gaussian import GaussianHead

TIMES = "times"
"""(R,) int64: the steps of the episode before this one."""
EXPLORATION_STD = 0.1
"""Of sampled Box actions, in halves of their range, unless `network.fixed_std` says otherwise: as TD3's."""


class DT(Algorithm):
    """Clones each action, given the last steps and the return that followed.

    The loss is the squared error of the action for Box actions, in halves of their range, and cross-entropy for others.
    """

    stored = (columns.OBS, columns.ACTIONS, columns.REWARDS)
    batch_columns = (columns.OBS, columns.ACTIONS, RETURNS_TO_GO, TIMES)
    loss_compares = True
    config_class = DTConfig
    config: DTConfig
    policy: DecisionTransformer

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        self.sequence_steps = self.config.context_steps
        self.policy = DecisionTransformer(
            observation_space, action_space, self._policy_network(network, action_space), seed=seed
        )

    def _policy_network(self, network: NetworkConfig, space: gym.Space[Any]) -> NetworkConfig:
        """Return the network with the transformer and the head that it needs.

        Raises:
            ConfigError: The network has a memory, actions are composite or have no bounds, or no returns are set.
        """
        if network.remembers:
            raise ConfigError(
                "dt sees the last dt.context_steps steps by itself: set network.frames to 1 and network.recurrent to None."
            )
        if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
            raise ConfigError(f"dt cannot act in {space}: use bc, marwil, iql or awac for Dict and Tuple actions.")
        if self.config.target_return is None or self.config.return_scale is None:
            raise ConfigError(
                "Nothing says what returns there are: train on a dataset, or set dt.target_return and dt.return_scale."
            )
        settings: dict[str, Any] = {"transformer": TransformerConfig(**self.config.model_dump())}
        if isinstance(space, gym.spaces.Box):
            if not space.is_bounded():
                raise ConfigError(f"dt needs actions with bounds, and {space} has none on one side.")
            settings |= {"bounded_mean": True, "squash": False, "fixed_std": network.fixed_std or EXPLORATION_STD}
        return NetworkConfig(**network.model_dump() | settings)

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        steps.columns[RETURNS_TO_GO] = discounted_sums(steps.columns[columns.REWARDS], steps_left(steps), 1.0).float()
        rows = torch.arange(len(steps.episode), device=steps.episode.device)
        steps.columns[TIMES] = rows - steps.first[steps.episode]

    def forward(self, batch: Batch) -> LossOutput:
        inputs = self.policy.inputs(batch[columns.OBS], batch[columns.ACTIONS], batch[RETURNS_TO_GO], batch[TIMES]).float()
        head = self.policy.head
        if isinstance(head, GaussianHead):
            return LossOutput((head.mean_action(inputs) - head.scaled(batch[columns.ACTIONS])).square().mean(dim=1), {})
        loss = -head.log_prob(inputs, batch[columns.ACTIONS])
        return LossOutput(loss, {"entropy": head.entropy(inputs).detach()})
