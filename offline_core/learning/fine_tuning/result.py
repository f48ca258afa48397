"""The result of going on by play."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

from pydantic import Field

from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import Told, episode_facts, mean_of, of_enough, returned
from offline_core.runtime.result import PolicyResult
from offline_core.runtime.units import count_text, duration_text


class FineTuneResult(PolicyResult):
    """The best policy, and what play made of the first one."""

    checkpoint: str = Field(description="The best policy, which may be the first one.")
    start_return: float = Field(description="Mean return of the first policy.")
    metrics: dict[str, float] = Field(description="Of the best policy's evaluation.")
    target_return: float | None
    reached_target: bool
    actions: Literal["greedy", "sampled"] = Field("greedy", description="Of the evaluations: the most likely ones, or drawn.")
    env_steps: int = Field(description="Environment steps, without resets.")
    updates: int
    rollbacks: int = Field(description="How often an evaluation fell below that of the first policy, and the best came back.")
    curve: list[tuple[int, float]] = Field(description="(environment steps, mean return) of each evaluation.")
    seconds: float

    def card(self) -> Card:
        told = self._told()
        picture = partial(
            figures.curve, points=self.curve, x="environment steps", y=f"mean {self.actions} return", target=self.target_return
        )
        return Card(
            "Fine-tuning",
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={
                "Policy": self.checkpoint,
                **episode_facts(self.metrics),
                "Target": "none" if self.target_return is None else f"{self.target_return:,g}",
                "Environment steps": self.env_steps,
                "Rolled back": count_text(self.rollbacks, "time"),
                "Time": duration_text(self.seconds),
            },
            details={"Updates": self.updates},
            draw=figures.drawn(lambda: [picture]) if len(self.curve) > 1 else None,  # a single point is a number
            next=command("offline", "evaluate", self.checkpoint),
            about=(self.checkpoint, None),
            places=[f"{self.checkpoint.rpartition('/')[0]}/card"],
        )

    def _told(self) -> Told:
        mean, std, episodes = mean_of(self.metrics)
        told = f"Return {returned(self.metrics, self.actions)}; it began at {self.start_return:,.1f}."
        if not mean > self.start_return:
            return Told("fair", "Not better", told)
        if not mean - 2 * std / math.sqrt(episodes) > self.start_return:
            return Told("fair", "Not clearly better", told)
        return Told(of_enough(self.metrics), "Better", told)

    @property
    def mean_return(self) -> float:
        """In the evaluation of the best policy."""
        return self.metrics["episode_return_mean"]

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint
