"""The result of training an expert."""

from __future__ import annotations

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.learning.result import PlayedResult
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import episode_facts


class ExpertResult(PlayedResult):
    """The best policy, its evaluation, and the learning curve."""

    snapshots: dict[float, str] = Field(
        {}, description="The checkpoints of `snapshots_at_returns` that were reached, by return."
    )
    recording: DatasetRef | None = Field(
        None, description="The episodes recorded during training, if `recording` is configured."
    )

    def card(self) -> Card:
        return self.learned_card(
            "Expert",
            facts={
                **episode_facts(self.metrics),
                "Environment steps": self.env_steps,
                **({} if self.recording is None else {"Recording": f"{self.recording}, actions sampled"}),
            },
            warnings=self.warnings,
            details={f"Policy at a return of {reached:g}": uri for reached, uri in self.snapshots.items()},
            next=command("offline", "record", self.checkpoint),
        )

    @property
    def warnings(self) -> list[str]:
        """That the target was not reached, and what may reach it."""
        if self.reached_target or self.target_return is None:
            return []
        return [
            f"The expert did not reach the target return of {self.target_return:,g}. Give it more total_steps or another seed, "
            "or a lower evaluation.target_return."
        ]
