"""Parameters of learning off-policy from play."""

from __future__ import annotations

from pydantic import Field, model_validator

from offline_core.learning.optimizer_config import NetworkRate, OptimizerConfig
from offline_core.runtime.config import Config


class OnlineConfig(Config):
    """How sac and td3 learn from what they play."""

    learning_rate: float = Field(3e-4, ge=1e-8, le=10.0, description="Step size of Adam.")
    networks: dict[str, NetworkRate] = Field(
        {},
        description='Rates of single networks, as JSON: {"critics": {"learning_rate": 1e-3}}. Others are policy and, of sac, '
        "log_temperature.",
    )
    batch_size: int = Field(256, ge=1, le=10_000_000, description="Steps per update.")
    capacity_steps: int = Field(1_000_000, ge=1, le=10**9, description="Steps to draw from: the last ones that were played.")
    learning_starts_steps: int = Field(
        5_000,
        ge=0,
        le=10**9,
        description="Environment steps before the first update. Their actions are drawn uniformly from the action space.",
    )
    updates_per_step: float = Field(1.0, gt=0, le=1_000, description="Updates for each environment step after those.")
    max_gradient_norm: float | None = Field(
        None, gt=0.0, description="Clip the global gradient norm to this; None: do not clip."
    )

    @model_validator(mode="after")
    def _has_constant_rates(self) -> OnlineConfig:
        if falling := [name for name, rate in self.networks.items() if rate.schedule not in (None, "constant")]:
            raise ValueError(f"rates do not fall while a policy plays: leave the schedule of {', '.join(falling)} out")
        return self

    @model_validator(mode="after")
    def _holds_a_batch(self) -> OnlineConfig:
        if self.capacity_steps < self.batch_size:
            raise ValueError(
                f"capacity_steps is {self.capacity_steps:,}, and a batch has {self.batch_size:,} steps: raise it, or lower "
                "batch_size"
            )
        return self

    @property
    def optimizer(self) -> OptimizerConfig:
        """The same as parameters of a learner."""
        return OptimizerConfig(
            learning_rate=self.learning_rate,
            networks=self.networks,
            batch_size=self.batch_size,
            max_gradient_norm=self.max_gradient_norm,
        )
