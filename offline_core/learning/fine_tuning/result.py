"""The result of going on by play."""

from __future__ import annotations

import math

from pydantic import Field

from offline_core.learning.result import PlayedResult
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import Told, episode_facts, mean_of, of_enough, returned
from offline_core.runtime.units import count_text


class FineTuneResult(PlayedResult):
    """The best policy, which may be the first one, and what play made of that."""

    start_return: float = Field(description="Mean return of the first policy.")
    rollbacks: int = Field(description="How often an evaluation fell below that of the first policy, and the best came back.")

    def card(self) -> Card:
        return self.learned_card(
            "Fine-tuning",
            facts={
                **episode_facts(self.metrics),
                "Target": "none" if self.target_return is None else f"{self.target_return:,g}",
                "Environment steps": self.env_steps,
                "Rolled back": count_text(self.rollbacks, "time"),
            },
            details={"Updates": self.updates},
            next=command("offline", "evaluate", self.checkpoint),
        )

    def told(self) -> Told:
        mean, std, episodes = mean_of(self.metrics)
        told = f"Return {returned(self.metrics, self.actions)}; it began at {self.start_return:,.1f}."
        if not mean > self.start_return:
            return Told("fair", "Not better", told)
        if not mean - 2 * std / math.sqrt(episodes) > self.start_return:
            return Told("fair", "Not clearly better", told)
        return Told(of_enough(self.metrics), "Better", told)
