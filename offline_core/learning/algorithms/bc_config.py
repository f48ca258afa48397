"""Parameters of behaviour cloning."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig


class BCConfig(AlgorithmConfig):
    """The recorded actions are the truth (Pomerleau 1989)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.bc:BC"

    squared_error: bool = Field(
        False,
        description="Box actions only: learn the mean action by its squared error, in halves of the range, and no "
        "distribution. Otherwise the likelihood of the actions is maximised.",
    )
