"""Parameters of a recording."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.episodes.codecs import Format
from offline_core.data.formats.exporting import ExportConfig
from offline_core.data.store.allowed_roots import IS_URI
from offline_core.runtime.config import Config, EnvironmentSpec, closed


class RecordingExport(ExportConfig):
    """A second copy of the recording, in a format or by a writer of your choice."""

    output: Annotated[str, IS_URI] = Field(
        min_length=1, description="Folder or URI for the writer, apart from the folder of the dataset."
    )


class VideoConfig(Config):
    """Of which episodes a recording also has clips: they are played once more and rendered."""

    first: int = Field(1, ge=0, le=100, description="So many of the first episodes.")
    best: int = Field(1, ge=0, le=100, description="So many of those with the highest return.")
    worst: int = Field(1, ge=0, le=100, description="So many of those with the lowest return.")


class RecordingConfig(Config):
    """How many episodes a policy plays, with how many recorders, and how they are stored."""

    episodes: int = Field(500, ge=1, le=100_000_000, description="Complete episodes a round, all recorders together.")
    rounds: int = Field(1, ge=1, le=100_000, description="How often that many episodes are recorded.")
    format: Format = Field("episodes", description="episodes: one row an episode. table: one row a step.")
    explore: bool = Field(True, description="Sample actions from the policy; otherwise always take the most likely one.")
    seed: int | None = Field(
        0,
        ge=0,
        le=2**31 - 1,
        description="Same seed, recorders and copies: same data, made once. None: another one each time.",
    )
    num_recorders: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000)] = Field(
        "auto",
        description="Actors that play in parallel. auto: two, unless Ray is not running and this process records all episodes "
        "in less time than Ray takes to start. The episodes are the same either way.",
    )
    cpus_per_recorder: float = Field(1.0, gt=0, le=128, description="CPUs that Ray reserves for each; fractions share a core.")
    envs_per_recorder: int = Field(
        32, ge=1, le=65_536, description="Copies of the environment that each recorder steps together."
    )
    keep_action_distribution: bool = Field(
        True, description="Record action_logp and action_dist_inputs, which off-policy estimates need."
    )
    max_recorder_restarts: int = Field(
        3, ge=0, le=1_000, description="How often the same episodes are started again because their recorder died."
    )
    environment: EnvironmentSpec | None = Field(None, description="Where to play; None: where the policy was trained.")
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)
    video: VideoConfig | None = Field(
        None,
        description="Clips of some episodes beside the data, MP4 with the extra video, else GIF; the episodes stay the same.",
    )

    @property
    def recorders(self) -> int:
        """Shares of the episodes: what is recorded depends on their number, and not on where they are played."""
        return 2 if self.num_recorders == "auto" else self.num_recorders
