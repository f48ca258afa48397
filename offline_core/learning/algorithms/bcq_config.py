"""Parameters of discrete batch-constrained Q-learning."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.dqn_config import DQNConfig


class BCQConfig(DQNConfig):
    """Q-learning among actions that the data's policy would take, too (Fujimoto et al. 2019, arXiv 1910.01708)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.bcq:BCQ"

    n_step: int = Field(1, ge=1, le=1_000, description="Rewards that are summed before the targets estimate the rest.")
    dueling: bool = Field(False, description="Q is the sum of a value and the actions' advantages.")
    threshold: float = Field(
        0.3,
        gt=0,
        le=1,
        description="An action may be chosen if its probability, as an imitator of the data learns it, is at least this share "
        "of the likeliest one's. 1 clones, towards 0 it is Q-learning.",
    )
    log_prob_penalty: float = Field(
        0.01,
        ge=0,
        le=1e6,
        description="Weight of the imitator's mean squared log-probability, which keeps it from being certain. The "
        "paper's code has 0.01; 0.5, d3rlpy's, lets all of two to six actions pass a threshold of 0.3, whatever the data is.",
    )
