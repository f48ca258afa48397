"""What the parameters of every algorithm have in common. This module and the `*_config` modules do not import Torch."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.policies.config import Size
from offline_core.runtime.config import Config

Gamma = Annotated[float, Field(ge=0, le=1, description="Discount of the rewards, per step.")]


class AlgorithmConfig(Config):
    """Parameters of one algorithm, and the class that learns with them."""

    implementation: ClassVar[str] = ""
    """`module:Class` of the algorithm. It is imported when a training begins, for it needs Torch."""

    def for_actions(self, space: gym.Space[Any]) -> AlgorithmConfig:
        """Return the parameters to build the algorithm from, which may be another one's.

        Raises:
            ConfigError: A parameter has no effect with these actions.
        """
        return self

    @classmethod
    def algorithm_class(cls) -> Any:
        """Import the class of the algorithm."""
        module, _, name = cls.implementation.partition(":")
        return getattr(importlib.import_module(module), name)


class CriticConfig(Config):
    """Networks that value an action: observation and action enter together at the first layer."""

    number: int = Field(2, ge=1, le=100, description="Critics that differ in their first weights; the smallest value counts.")
    hidden_sizes: list[Size] | None = Field(
        None, max_length=10, description="Units of each hidden layer. None: those of the policy."
    )
    layer_norm: bool = Field(False, description="Normalise each hidden layer's output over its units.")


class ActorCriticConfig(AlgorithmConfig):
    """What algorithms share that learn critics and a policy."""

    gamma: Gamma = 0.99
    n_step: int = Field(
        1,
        ge=1,
        le=1_000,
        description="Rewards that are summed before the targets estimate the rest: 1 in the papers. With more, actions are "
        "valued by what the behaviour policy did after them.",
    )
    target_rate: float = Field(
        0.005, gt=0, le=1, description="How far an update moves the target networks to the learned ones."
    )
    critics: CriticConfig = Field(CriticConfig(), description="The networks that value actions.")
