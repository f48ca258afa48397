"""Parameters of conservative Q-learning for Discrete actions."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from offline_core.learning.algorithms.dqn_config import DQNConfig

Alpha = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        title="Alpha",
        description="Weight of the conservative penalty; 0 is plain Q-learning. For continuous actions it is added to δ², as "
        "in RLlib, and for Discrete ones to Huber's δ²/2, where the same alpha weighs twice as much.",
    ),
]
NStep = Annotated[
    int,
    Field(
        ge=1,
        le=1_000,
        title="Steps",
        description="Rewards that are summed before the target networks estimate the rest: 1 in the paper and in RLlib. With "
        "more, actions are valued by what the behaviour policy did after them.",
    ),
]


class DiscreteCQLConfig(DQNConfig):
    """Q-learning that keeps actions outside the data below those in it (Kumar et al. 2020)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.discrete_cql:DiscreteCQL"

    n_step: NStep = 1
    alpha: Alpha = 1.0
