"""The result of a recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.dataset_card import dataset_card
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.formats.exporting import ExportResult
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.reporting.returns import return_text
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import count_text, duration_text

if TYPE_CHECKING:
    from offline_core.policies.recording.player import Written


class RecorderShare(Part):
    """Episodes and time of one recorder."""

    node: str = Field(description="Address of its machine.")
    episodes: int
    steps: int
    seconds: float = Field(description="Playing and writing.")

    def __str__(self) -> str:
        speed = self.steps / max(self.seconds, 1e-9)
        where = self.node if self.node == "here" else f"on {self.node}"
        return f"{count_text(self.episodes, 'episode')}, {count_text(self.steps, 'step')} {where}, {speed:,.0f} steps a second"

    @classmethod
    def of(cls, node: str, written: Sequence[Written]) -> RecorderShare:
        """Sum up what one recorder wrote on `node`."""
        return cls(
            node=node,
            episodes=sum(part.statistics.episodes for part in written),
            steps=sum(part.statistics.steps for part in written),
            seconds=sum(part.seconds for part in written),
        )


class RecordingResult(Result):
    """A recording, its statistics and its recorders."""

    dataset: DatasetRef
    policy: str = Field(description="Fingerprint of the policy that played.")
    environment: str
    statistics: Statistics
    recorders: list[RecorderShare] = Field(description="One entry a recorder.")
    seconds: float
    actions: Literal["sampled", "greedy"] = Field(description="Drawn from the policy, or always its most likely ones.")
    greedy_return: float | None = Field(
        None, description="Mean greedy return in the environment, by the checkpoint's own evaluation; None: unknown."
    )
    export: ExportResult | None = Field(None, description="The export, if one was configured.")
    clips: list[str] = Field([], description="Files of the clips, if any were asked for.")

    def card(self) -> Card:
        statistics, returns = self.statistics, self.statistics.returns
        told = return_text(returns.mean, returns.std, statistics.episodes, self.actions)
        return dataset_card(
            "Recording",
            [self.dataset],
            {"recorded": self.dataset},
            verdict="fair" if self.is_below_greedy else "good",
            word="Recorded, below the policy" if self.is_below_greedy else "Recorded",
            sentence=f"{count_text(statistics.episodes, 'episode')}; return {told}.",
            warnings=self.warnings,
            facts={
                "Dataset": self.dataset,
                "Environment": self.environment,
                "Ends": f"{count_text(statistics.terminated, 'episode')} terminated, {statistics.truncated:,} truncated",
                "Time": duration_text(self.seconds),
                **({} if self.export is None else {"Exported": f"{self.export.output}, as {self.export.format}"}),
            },
            details={
                "Fingerprint of the policy": self.policy,
                "Bytes per step": self.dataset.bytes / max(1, self.dataset.steps),
                **{f"Recorder {number}": str(recorder) for number, recorder in enumerate(self.recorders, 1)},
            },
        )

    @property
    def warnings(self) -> list[str]:
        """That the recording is not of the policy at its best."""
        if not self.is_below_greedy:
            return []
        return [f"Greedy actions return {self.greedy_return:,.1f}; set explore to false for the data of the best policy."]

    @property
    def is_below_greedy(self) -> bool:
        """Sampling cost more than a quarter of the greedy return, and more than two standard errors."""
        if self.actions == "greedy" or self.greedy_return is None:
            return False
        returns, lost = self.statistics.returns, self.greedy_return - self.statistics.returns.mean
        return lost > abs(self.greedy_return) / 4 and lost > 2 * returns.std / math.sqrt(returns.count)
