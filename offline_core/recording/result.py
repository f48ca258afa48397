"""What comes of a recording."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from offline_core.conversion.exporting import ExportResult
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.manifest import Statistics


class RecorderShare(BaseModel):
    """What one recorder did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str = Field(description="Address of the machine it ran on.")
    episodes: int
    steps: int
    seconds: float = Field(description="Playing and writing.")


class RecordingResult(BaseModel):
    """What was recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetRef
    policy: str = Field(description="Fingerprint of the policy that played.")
    environment: str
    statistics: Statistics
    recorders: list[RecorderShare] = Field(description="One entry a recorder.")
    seconds: float
    export: ExportResult | None = Field(
        None, exclude_if=lambda export: export is None, description="What was also written, and where."
    )
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")


class MixtureResult(BaseModel):
    """What came of what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetRef
    steps: dict[str, int] = Field(description="Steps by source.")
    is_complete: bool = Field(description="False: a dataset had no more episodes before all steps were there.")
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")
