"""Parameters of vacuum and forget."""

from __future__ import annotations

from pydantic import Field

from offline_core.runtime.config import Config


class VacuumConfig(Config):
    """Which versions of datasets stay."""

    keep_versions: int = Field(3, ge=1, description="So many of the latest versions of each dataset stay, whatever their age.")
    older_than_days: float = Field(
        30, ge=0, description="Of the others, those of at least this age in days go. Tagged ones stay."
    )
    keep_needed: bool = Field(
        True,
        description="Versions stay from which a policy, or a version that stays, was made: so their lineage can be followed.",
    )
    leftovers_older_than_days: float = Field(
        7, ge=0, description="Files of no version go at this age; younger ones may be a writer's."
    )
    delete: bool = Field(False, description="False: only say what would go.")


class ForgetConfig(Config):
    """Which episodes are taken out of everything."""

    where: str = Field(
        min_length=1,
        description="SQL on what an episode has one value of: eps_id, or a column that is the same in all its steps, such as "
        "subject = 'p-17'. It is not stored with the data.",
    )
    delete: bool = Field(False, description="False: only say what would be forgotten.")
