"""Parameters of implicit Q-learning."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import ActorCriticConfig


class IQLConfig(ActorCriticConfig):
    """Values from the better actions of the data alone (Kostrikov et al. 2021)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.iql:IQL"

    beta: float = Field(3.0, ge=0, le=1e4, description="How much better actions count more, per unit of reward; 0 clones.")
    expectile: float = Field(0.7, gt=0, lt=1, description="0.5 values the data's average action, towards 1 its best.")
    max_weight: float = Field(100.0, gt=0, le=1e6, description="A step counts this much at most.")
