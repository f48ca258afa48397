"""Parameters of the quality gate."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from offline_core.data.store.allowed_roots import IS_URI
from offline_core.runtime.config import Config
from offline_core.runtime.user_code import UserCode


class QualityConfig(Config):
    """What a dataset has to meet, and what happens when it does not."""

    stop_on: Literal["fail", "warn", "never"] = Field(
        "fail", description="Stop when a rule fails, already when one warns, or never: then the report alone says so."
    )
    held_out: Annotated[str | None, IS_URI] = Field(
        None,
        description="Another dataset, for evaluation, that may share no episode with this one but by chance.",
    )
    max_saturated_fraction: float = Field(
        0.5, ge=0, le=1, description="Warn when more than this share of the values of one action dimension are at its bounds."
    )
    max_duplicate_fraction: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Warn when more than this share of the episodes repeat another one step by step, and not by chance.",
    )
    max_time_limit_fraction: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Warn when more than this share of the episodes, and three or more, terminate at the longest length.",
    )
    rules: list[UserCode] = Field(
        [],
        description="Classes of your own with look(steps) and finding(statistics), beside the rules that are there.",
    )
