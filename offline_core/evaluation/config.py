"""Parameters of an evaluation."""

from __future__ import annotations

from pydantic import Field

from offline_core.config import Config, EnvironmentSpec


class EvaluationConfig(Config):
    """How a finished policy is put to the test."""

    episodes: int = Field(100, ge=1, le=1_000_000, description="Episodes to play.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Start states and actions; a stream that no other stage uses.")
    explore: bool = Field(False, description="Sample actions from the policy; otherwise always take the most likely one.")
    environment: EnvironmentSpec | None = Field(
        None, title="Environment", description="Where to play; None: where the policy was trained."
    )
