"""Parameters of the ranking of episodes."""

from __future__ import annotations

from pydantic import Field

from offline_core.runtime.config import Config


class OutlierConfig(Config):
    """When an episode is unlike the others."""

    threshold: float = Field(
        6.0, gt=0, le=1e6, description="Robust deviations from which an episode is an outlier; the scores are the same."
    )
    common_share: float = Field(
        0.05,
        gt=0,
        le=0.25,
        description="What this share of the episodes does is no outlier, however far it is from the rest: the few episodes of "
        "an expert in a log of random play. Defects that are as common are not found.",
    )
    max_steps: int = Field(
        200_000,
        ge=1_000,
        description="The models of what is usual are fitted to so many steps of whole episodes, drawn by lot.",
    )
    updates: int = Field(
        1_500, ge=1, le=1_000_000, description="Steps of the optimizer for the behaviour clone, in at most 20 epochs."
    )
    target_return: float | None = Field(
        None,
        allow_inf_nan=False,
        description="What a good policy reaches: the advice compares the returns with it. None: with the best of the dataset.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of the parts that the models are fitted to, and of their weights.")
