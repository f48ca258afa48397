"""The result of going on by play."""

from __future__ import annotations

from pydantic import Field

from offline_core.runtime.result import PolicyResult


class FineTuneResult(PolicyResult):
    """The best policy, and what play made of the first one."""

    checkpoint: str = Field(description="The best policy, which may be the first one.")
    start_return: float = Field(description="Mean greedy return of the first policy.")
    metrics: dict[str, float] = Field(description="Of the best policy's evaluation.")
    target_return: float | None
    reached_target: bool
    env_steps: int = Field(description="Environment steps, without resets.")
    updates: int
    rollbacks: int = Field(description="How often an evaluation fell below that of the first policy, and the best came back.")
    curve: list[tuple[int, float]] = Field(description="(environment steps, mean greedy return) of each evaluation.")
    seconds: float

    @property
    def mean_return(self) -> float:
        """In the evaluation of the best policy."""
        return self.metrics["episode_return_mean"]

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint
