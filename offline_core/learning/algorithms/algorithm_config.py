"""What the parameters of every algorithm have in common. This module and the `*_config` modules do not import Torch."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, ClassVar

import gymnasium as gym
from pydantic import Field

from offline_core.runtime.config import Config

Gamma = Annotated[float, Field(ge=0, le=1, title="Gamma", description="Discount of the rewards, per step.")]


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
