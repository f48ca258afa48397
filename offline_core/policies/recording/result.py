"""The results of recording and mixing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.manifest import Statistics
from offline_core.data.formats.exporting import ExportResult
from offline_core.runtime.result import Result

if TYPE_CHECKING:
    from offline_core.policies.recording.recorder import Written


class RecorderShare(BaseModel):
    """Episodes and time of one recorder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str = Field(description="Address of its machine.")
    episodes: int
    steps: int
    seconds: float = Field(description="Playing and writing.")

    @classmethod
    def of(cls, node: str, written: Sequence[Written]) -> RecorderShare:
        """What one recorder wrote on `node`."""
        return cls(
            node=node,
            episodes=sum(each.statistics.episodes for each in written),
            steps=sum(each.statistics.steps for each in written),
            seconds=sum(each.seconds for each in written),
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

    @property
    def is_below_greedy(self) -> bool:
        """Sampling cost more than a quarter of the greedy return, and more than two standard errors."""
        if self.actions == "greedy" or self.greedy_return is None:
            return False
        returns, lost = self.statistics.returns, self.greedy_return - self.statistics.returns.mean
        return lost > abs(self.greedy_return) / 4 and lost > 2 * returns.std / math.sqrt(returns.count)


class MixtureResult(Result):
    """A mixture, and the steps that each source gave."""

    dataset: DatasetRef
    steps: dict[str, int] = Field(description="Steps by source.")
    is_complete: bool = Field(description="False: a dataset ran out of episodes before `steps` was reached.")
