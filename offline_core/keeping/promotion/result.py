"""The result of a promotion or a rollback."""

from __future__ import annotations

from pydantic import Field

from offline_core.policies.registry.move import Move
from offline_core.runtime.result import PolicyResult


class PromotionResult(PolicyResult):
    """What an alias names now."""

    checkpoint: str = Field(description="URI of the policy: its copy in the registry.")
    address: str = Field(description="`<registry>/<name>@<alias>`, which stages take as a policy.")
    move: Move = Field(description="As it is in the history.")
