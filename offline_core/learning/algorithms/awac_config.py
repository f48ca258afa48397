"""Parameters of AWAC."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from offline_core.learning.algorithms.algorithm_config import ActorCriticConfig


class AWACConfig(ActorCriticConfig):
    """Cloning that weighs each action by what the critics think of it (Nair et al. 2020, arXiv 2006.09359)."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.awac:AWAC"

    temperature: float = Field(1.0, gt=0, le=1e6, description="How little better actions count more, in units of reward.")
    max_weight: float = Field(100.0, gt=0, le=1e6, description="A step counts this much at most.")
