"""Parameters of soft actor-critic."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import ActorCriticConfig


class SACConfig(ActorCriticConfig):
    """A random policy that maximises values and entropy (Haarnoja et al. 2018, arXiv 1812.05905). For play, not for logs."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.sac:SAC"

    entropy_backup: bool = Field(True, description="Next values include the policy's entropy, as in the paper.")
    target_entropy: float | None = Field(
        None,
        description="Entropy that the policy is held at, in nats, in units where the bounds of actions are ±1. None: -1 for "
        "each component.",
    )
