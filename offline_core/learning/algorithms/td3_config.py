"""Parameters of TD3, and of TD3+BC and ReBRAC, which are TD3 kept near the data."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import ActorCriticConfig


class TD3Config(ActorCriticConfig):
    """A deterministic policy and noise (Fujimoto et al. 2018, arXiv 1802.09477). For play, not for logs."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.td3:TD3"

    policy_interval_updates: int = Field(2, ge=1, le=10**6, description="The policy learns in one of so many updates.")
    target_noise: float = Field(
        0.2,
        ge=0,
        le=10,
        description="Standard deviation of the noise of next actions, in halves of their range.",
    )
    target_noise_limit: float = Field(0.5, ge=0, le=10, description="Largest noise of next actions, in halves of their range.")
    exploration_noise: float = Field(
        0.1,
        ge=1e-3,
        le=7,
        description="Standard deviation of sampled actions, in halves of their range, when the policy plays with exploration.",
    )


class TD3BCConfig(TD3Config):
    """TD3 that is pulled towards the recorded actions (Fujimoto & Gu 2021, arXiv 2106.06860)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.td3bc:TD3BC"

    alpha: float = Field(2.5, ge=0, le=1e6, description="Weight of the values against the recorded actions; 0 clones.")


class ReBRACConfig(TD3Config):
    """TD3 whose policy and critics are both penalised for leaving the recorded actions (Tarasov et al. 2023)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.rebrac:ReBRAC"

    policy_penalty: float = Field(0.01, ge=0, le=1e6, description="Weight of the policy's squared distance to the actions.")
    critic_penalty: float = Field(
        0.01,
        ge=0,
        le=1e6,
        description="Weight of the next action's squared distance to the recorded one, which lowers the targets.",
    )
    normalize_values: bool = Field(True, description="Divide the values that the policy climbs by their mean size.")
