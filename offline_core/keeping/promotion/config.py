"""Parameters of a promotion and of a rollback."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from offline_core.policies.registry import Alias
from offline_core.runtime.config import Config

CHAMPION = "champion"
"""What runs today."""

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]


class PromotionConfig(Config):
    """Which alias is moved, and by whom."""

    alias: Alias = Field(
        CHAMPION, description="The alias to move: champion is what runs today; challenger, or any other word, what you like."
    )
    override: Words | None = Field(
        None,
        description="Why the alias is moved without a passed decision, in words; written to the history for good.",
    )
    moved_by: Annotated[Words, Field(max_length=200)] | None = Field(
        None, description="A person or program; None: the user and the host of this process."
    )


class RollbackConfig(Config):
    """Which alias goes back, and by whom."""

    alias: Alias = Field(CHAMPION, description="The alias that goes back to what it named before.")
    reason: Words | None = Field(None, description="Why, in words; written to the history for good.")
    moved_by: Annotated[Words, Field(max_length=200)] | None = Field(
        None, description="A person or program; None: the user and the host of this process."
    )
