"""Parameters of an evaluation."""

from __future__ import annotations

from pydantic import Field

from offline_core.data.environments.vector_env import NUM_ENVS
from offline_core.runtime.config import Config, EnvironmentSpec
from offline_core.runtime.user_code import UserCode


class EvaluationConfig(Config):
    """How many episodes a finished policy plays, where, and what is measured."""

    episodes: int = Field(100, ge=1, le=1_000_000, description="Episodes to play.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of start states and actions; no other stage uses the same ones.")
    explore: bool = Field(False, description="Sample actions from the policy; otherwise always take the most likely one.")
    environment: EnvironmentSpec | None = Field(None, description="Where to play; None: where the policy was trained.")
    num_envs: int = Field(
        NUM_ENVS,
        ge=1,
        le=65_536,
        description="Copies of the environment that are played at once, at most. Another number plays other episodes.",
    )
    metrics: list[UserCode] = Field(
        [],
        description="Your classes with look(step) and result(), in addition to the built-in metrics.",
    )
