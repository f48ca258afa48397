"""Parameters of the series of policies that a training keeps."""

from __future__ import annotations

from pydantic import Field, model_validator

from offline_core.runtime.config import Config


class KeepConfig(Config):
    """Which policies stay in iterations/<updates>, of those at the ends of iterations."""

    every_iterations: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Keep the policy of every so many iterations. None: of each one if last is set, else of none.",
    )
    last: int | None = Field(None, ge=1, le=1_000_000, description="Of those, only the latest so many stay. None: all of them.")
    best: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="So many of the best policies stay as well: by mean return, or by held-out loss where the policy is not "
        "played and losses compare. None: no more.",
    )

    @model_validator(mode="after")
    def _keeps_something(self) -> KeepConfig:
        if (self.every_iterations, self.last, self.best) == (None, None, None):
            raise ValueError("it keeps nothing: set every_iterations, last or best, or leave keep out")
        return self

    @property
    def interval(self) -> int | None:
        """Iterations from one policy to the next; None: only the best are kept."""
        return 1 if self.every_iterations is None and self.last is not None else self.every_iterations
