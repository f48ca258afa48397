"""Parameters of the optimiser: rates, batches, and how long to learn from a log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from offline_core.runtime.config import Config

Schedule = Literal["constant", "linear", "cosine"]


class NetworkRate(Config):
    """How fast one network learns."""

    learning_rate: float | None = Field(None, ge=1e-8, le=10.0, description="Step size. None: that of all networks.")
    schedule: Schedule | None = Field(None, description="How the learning rate falls. None: as that of all networks.")


class AdamConfig(Config):
    """Adam and its batches, wherever the steps are from."""

    learning_rate: float = Field(1e-3, ge=1e-8, le=10.0, description="Step size of Adam.")
    schedule: Schedule = Field(
        "constant", description="How the learning rate falls from its value to zero over the training; constant: it does not."
    )
    networks: dict[str, NetworkRate] = Field(
        {},
        description='Rates of single networks, as JSON: {"policy": {"learning_rate": 1e-4, "schedule": "cosine"}}. Others are '
        "value, critics and log_temperature, as far as the algorithm has them.",
    )
    warmup_updates: int = Field(0, ge=0, description="Updates over which the learning rate rises from zero.")
    batch_size: int = Field(1024, ge=1, le=10_000_000, description="Steps per update, over all learners.")
    max_gradient_norm: float | None = Field(
        None, gt=0.0, description="Clip the global gradient norm to this; None: do not clip."
    )


class OptimizerConfig(AdamConfig):
    """Adam and its batches, and how long to learn."""

    max_epochs: int = Field(20, ge=1, le=1_000_000, description="Passes over all steps of the dataset, at most.")
    max_updates: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="Updates, at most; max_epochs does not count then. None: max_epochs passes.",
    )
    updates_per_iteration: int | None = Field(
        200,
        ge=1,
        description="After so many updates: report, evaluate, and write a checkpoint to go on from. None: after each epoch.",
    )
    replacement: bool = Field(
        False,
        description="Draw the steps of each batch at random with replacement, as a replay buffer does. Otherwise an epoch has "
        "each step once.",
    )
