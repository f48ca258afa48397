"""The result of a promotion or a rollback."""

from __future__ import annotations

from pydantic import Field

from offline_core.policies.kind import as_judged
from offline_core.policies.registry import HISTORY, Move
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.result import PolicyResult


class PromotionResult(PolicyResult):
    """What an alias names now."""

    checkpoint: str = Field(description="URI of the policy: its copy in the registry.")
    address: str = Field(description="`<registry>/<name>@<alias>`, which stages take as a policy.")
    move: Move = Field(description="As it is in the history.")
    explore: bool | None = Field(
        None, description="What was judged of it, by `PromotionEvidence`; of a rollback, before the move it leads back to."
    )

    def card(self) -> Card:
        move, entry = self.move, self.address.rpartition("@")[0]
        moved = f"{move.moved_at:%Y-%m-%d %H:%M} UTC"
        evidence = {}
        if move.evidence is not None:
            evidence["Decision"] = f"{move.evidence.decision}: {move.evidence.verdict}, against {move.evidence.against}"
        if self.explore is not None:
            evidence["Judged"] = f"it {as_judged(explore=self.explore)}"
        return Card(
            "Rollback" if move.kind == "rollback" else "Promotion",
            verdict="good",
            word="Not moved" if self.reused else "Moved",
            sentence=f"{self.address} names policy {move.fingerprint} since {moved}.",
            facts={
                "Policy": self.checkpoint,
                "Because": move.because,
                "Copied from": move.source,
                "Named before": "nothing" if move.previous is None else f"{entry}/{move.previous}",
                **evidence,
            },
            details={"Move": f"{move.number}, {move.kind}, by {move.moved_by}"},
            next=command("offline", "registry", entry),
            about=(self.checkpoint, None),
            places=[f"{entry}/{HISTORY}/{move.number:06d}"],
        )
