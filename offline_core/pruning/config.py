"""Parameters of pruning."""

from __future__ import annotations

from pydantic import Field

from offline_core.config import Config
from offline_core.storage.writer import FilesConfig


class PruningConfig(Config):
    """Which episodes to keep; conditions are combined, and without any all are kept."""

    where: str | None = Field(
        None,
        title="Where",
        description="SQL condition on an episode's columns eps_id, t_started, length, return, terminated, truncated: "
        "return >= 400 and length <= 500.",
    )
    keep_top_fraction: float | None = Field(
        None,
        ge=1e-6,
        le=1.0,
        title="Top fraction",
        description="Of those, keep this share with the highest return, rounded up.",
    )
    columns: list[str] | None = Field(
        None, title="Columns", description="Table format only: keep these columns beside the ones every table needs."
    )
    files: FilesConfig = Field(FilesConfig(), title="Files", description="Size and compression of the data files.")
