"""Parameters of an evaluation."""

from __future__ import annotations

from pydantic import Field

from offline_core.config import Config, EnvironmentSpec
from offline_core.own_code import OwnCode

NUM_ENVS = 128
"""Copies of an environment that are played at once, at most, if nobody says otherwise."""


class EvaluationConfig(Config):
    """How a finished policy is put to the test."""

    episodes: int = Field(100, ge=1, le=1_000_000, description="Episodes to play.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Start states and actions; a stream that no other stage uses.")
    explore: bool = Field(False, description="Sample actions from the policy; otherwise always take the most likely one.")
    environment: EnvironmentSpec | None = Field(
        None, title="Environment", description="Where to play; None: where the policy was trained."
    )
    num_envs: int = Field(
        NUM_ENVS,
        ge=1,
        le=65_536,
        description="Copies of the environment that are played at once, at most. Another number plays other episodes.",
        exclude_if=lambda number: number == NUM_ENVS,
    )
    metrics: list[OwnCode] = Field(
        [],
        title="Metrics",
        description="Classes of your own with look(step) and result(), beside the metrics that are there.",
        exclude_if=lambda own: not own,
    )
