"""The Decision Transformer (Chen et al. 2021, "Decision Transformer: Reinforcement Learning via Sequence Modeling")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.actor_critic import without_bounds
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.returns import RETURNS_TO_GO, discounted_sums, steps_left
from offline_core.policies.config import NetworkConfig, TransformerConfig, TransformerLayers
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps

TIMES = "times"
"""(R,) int64: the steps of the episode before this one."""
EXPLORATION_STD = 0.1
"""Of sampled Box actions, in halves of their range, unless `network.fixed_std` says otherwise: as TD3's."""


class DT(TransformerLayers, Algorithm):
    """Actions as the continuation of a sequence that ends with a given return (Chen et al. 2021, arXiv 2106.01345)."""

    target_return: float | None = Field(
        None,
        allow_inf_nan=False,
        description="Return that the policy plays for, wherever its checkpoint is played. None: the best of the dataset.",
    )
    return_scale: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Returns are divided by this before the network sees them. None: the dataset's largest, by size.",
    )

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, columns.REWARDS)
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, RETURNS_TO_GO, TIMES)
    loss_compares: ClassVar[bool] = True

    @property
    def sequence_steps(self) -> int:
        return self.context_steps

    def of_dataset(self, lowest: float, highest: float) -> DT:
        """The parameters for a dataset whose returns are between these."""
        scale = max(abs(lowest), abs(highest)) or 1.0
        return self.model_copy(
            update={
                "target_return": highest if self.target_return is None else self.target_return,
                "return_scale": scale if self.return_scale is None else self.return_scale,
            }
        )

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        from offline_core.policies.decision_transformer import DecisionTransformer

        network = self.policy_network(network, spaces[1])
        networks.policy = DecisionTransformer(*spaces, network, seed=seed)

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        """Return the network with the transformer and the head that it needs.

        Raises:
            ConfigError: The network has a memory, actions are composite or have no bounds, or no returns are set.
        """
        if network.remembers:
            raise ConfigError(
                "dt sees the last dt.context_steps steps by itself: set network.frames to 1 and network.recurrent to None."
            )
        if isinstance(action_space, gym.spaces.Dict | gym.spaces.Tuple):
            raise ConfigError(f"dt cannot act in {action_space}: use bc, marwil, iql or awac for Dict and Tuple actions.")
        if self.target_return is None or self.return_scale is None:
            raise ConfigError(
                "Nothing says what returns there are: train on a dataset, or set dt.target_return and dt.return_scale."
            )
        settings: dict[str, Any] = {"transformer": TransformerConfig(**self.model_dump())}
        if isinstance(action_space, gym.spaces.Box):
            if not action_space.is_bounded():
                raise ConfigError(without_bounds("dt", action_space))
            settings |= {"bounded_mean": True, "squash": False, "fixed_std": network.fixed_std or EXPLORATION_STD}
        return NetworkConfig(**network.model_dump() | settings)

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        steps.columns[RETURNS_TO_GO] = discounted_sums(steps.columns[columns.REWARDS], steps_left(steps), 1.0).float()
        rows = torch.arange(len(steps.episode), device=steps.episode.device)
        steps.columns[TIMES] = rows - steps.first[steps.episode]

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """Clone each action, given the last steps and the return that followed.

        By the squared error of the action for Box actions, in halves of their range, and by cross-entropy for others.
        """
        policy: Any = networks.policy
        inputs = policy.inputs(batch[columns.OBS], batch[columns.ACTIONS], batch[RETURNS_TO_GO], batch[TIMES]).float()
        head = policy.head
        if isinstance(policy.action_space, gym.spaces.Box):
            return LossOutput((head.mean_action(inputs) - head.scaled(batch[columns.ACTIONS])).square().mean(dim=1), {})
        loss = -head.log_prob(inputs, batch[columns.ACTIONS])
        return LossOutput(loss, {"entropy": head.entropy(inputs)})
