"""Parameters of the stages that make datasets from datasets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.store.allowed_roots import IS_URI
from offline_core.runtime.config import Config, closed
from offline_core.runtime.user_code import UserCode


class PruningConfig(Config):
    """What to keep; conditions are combined, in the order of these fields, and without any everything is kept."""

    marked: Literal["keep", "drop"] = Field(
        "keep",
        description="drop: leave out the episodes that were marked as bad in 'offline report --serve'.",
    )
    drop_non_finite: bool = Field(
        False,
        description="Drop episodes with a NaN or infinite value in an observation, action or reward. Reads the data.",
    )
    where: str | None = Field(
        None,
        description="SQL condition on an episode's columns eps_id, t_started, length, return, terminated, truncated, "
        "success, policy_id, content: return >= 400 and length <= 500. NaN and null meet no condition.",
    )
    outliers: Annotated[str | None, IS_URI] = Field(
        None,
        description="Folder that 'offline outliers' wrote for this version: the condition may also name outlier_score and "
        "is_outlier: outlier_score < 6.",
    )
    drop_duplicates: bool = Field(
        False,
        description="Of episodes with the same observations, actions, rewards and end, keep the first, whatever their ids; of "
        "those of a step or two only if ids, times and extras are the same, too.",
    )
    filters: list[UserCode] = Field(
        [],
        description="Functions or classes of your own, each called with an Episode: True keeps it. They see only what the "
        "rules above, and the filters before them, have left. Reads the data.",
    )
    keep_top_fraction: float | None = Field(
        None,
        ge=1e-6,
        le=1.0,
        description="Of those, keep this share with the highest return, rounded up.",
    )
    where_steps: str | None = Field(
        None,
        description="SQL condition on the columns of a step, or what observations are joined and choices made of: t < 100 and "
        "obs[1] > 0, temp > 21 and valve = 'open'. Subscripts count from 1, through all "
        'axes; parts of composite spaces are "obs/position". Aggregates are those of an episode. Each unbroken run of steps '
        "that meet it becomes a piece of its episode; NaN meets no condition. Reads the data.",
    )
    columns: list[str] | None = Field(
        None, description="Table format only: keep these columns beside the ones every table needs."
    )
    new_since: int | None = Field(
        None,
        ge=1,
        description="Only episodes that this earlier version of the dataset has not, or has with other steps. Reads only files "
        "that it has not.",
    )
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)


class CompactionConfig(Config):
    """Same episodes, other files."""

    files: FilesConfig = Field(
        FilesConfig(),
        description="Size and compression of the data files; 64 to 256 MiB each read well.",
        json_schema_extra=closed,
    )


class SplitConfig(Config):
    """Which share of a dataset is held out."""

    held_out_fraction: float = Field(
        0.1,
        gt=0.0,
        lt=1.0,
        description="Share of the episodes that training does not see; as near to it as episodes that stay together allow.",
    )
    by: str = Field(
        "episodes",
        min_length=1,
        description="episodes: by lot. time: the last episodes are held out, by their column `time`, or as they lie if they "
        "have none. id: by a hash of the id, so an episode never changes sides, and its parts are together; without strata, "
        "and equal_episodes has no effect. Any other word is a column, such as the number of a building: equal values stay on "
        "one side.",
    )
    equal_episodes: Literal["together", "apart"] = Field(
        "apart",
        description="apart: episodes with the same content may go to both sides, unless they also have the same id; so both "
        "sides are samples of one log, as of a bandit, whose episodes are equal by chance. together: they go to one side, for "
        "recordings that were written twice under other ids.",
    )
    strata: int = Field(
        10, ge=1, le=100_000, description="Episodes are sorted by return and cut into this many parts; each gives its share."
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same seed and episodes: same split.")
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)


class MergeConfig(Config):
    """How datasets become one."""

    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)
