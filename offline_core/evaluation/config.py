"""Parameters of an evaluation."""

from __future__ import annotations

from pydantic import Field

from offline_core.config import Config, EnvironmentSpec
from offline_core.own_code import OwnCode


class EvaluationConfig(Config):
    """How a finished policy is put to the test."""

    episodes: int = Field(100, ge=1, le=1_000_000, description="Episodes to play.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Start states and actions; a stream that no other stage uses.")
    explore: bool = Field(False, description="Sample actions from the policy; otherwise always take the most likely one.")
    environment: EnvironmentSpec | None = Field(
        None, title="Environment", description="Where to play; None: where the policy was trained."
    )
    metrics: list[OwnCode] = Field(
        [],
        title="Metrics",
        description="Classes of your own with look(step) and result(), beside the metrics that are there.",
        exclude_if=lambda own: not own,
    )
