"""One move of an alias: what it names from then on, what it named before, who moved it, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from offline_core.runtime.result import StoredModel
from offline_core.runtime.signing import signature_of, wrong_with

READS: Literal[1] = 1
"""The version of the format that is written and read."""

MoveKind = Literal["promote", "assign", "rollback"]
"""promote: by a decision. assign: by an override. rollback: back to an earlier checkpoint."""

ALIAS = r"^[A-Za-z][A-Za-z0-9_-]{0,62}$"
Alias = Annotated[str, StringConstraints(pattern=ALIAS)]


class PromotionEvidence(StoredModel):
    """What a decision said when it moved an alias; the folder of the decision has the numbers."""

    decision: str = Field(description="URI of the folder of the decision.")
    identity: str = Field(description="Of what was decided on: data, candidates and parameters.")
    verdict: str
    sentence: str = Field(description="The verdict in one sentence.")
    against: str = Field(description="What the checkpoint was compared with: behaviour, or a checkpoint.")
    explore: bool | None = Field(
        None, description="What was judged samples its actions; otherwise it takes the likeliest one. None: not noted."
    )
    signature: str | None = Field(None, description="Of the decision; None: it was made without a key.")


class Move(StoredModel):
    """A committed move of an alias; frozen, and never changed."""

    registry_version: Literal[1] = READS
    number: int = Field(0, ge=0, description="In the history of its name, from 1 on.")
    kind: MoveKind
    alias: Alias
    checkpoint: str = Field(
        pattern=r"^checkpoints/[0-9a-f]{16}$", description="Folder of the checkpoint, below that of the name: a copy."
    )
    fingerprint: str = Field(description="Of that checkpoint.")
    source: str = Field(description="URI that it was copied from; that may hold another policy by now.")
    previous: str | None = Field(None, description="Checkpoint that the alias named before; None: it is new.")
    restores: int | None = Field(None, description="Of a rollback: the move whose checkpoint the alias names again.")
    evidence: PromotionEvidence | None = Field(None, description="The decision; None: an override, or a rollback.")
    reason: str | None = Field(None, description="Why, in the words of the one who moved it: of an override or a rollback.")
    moved_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    moved_by: str = Field(max_length=200)
    signature: str | None = Field(
        None, description="By the key of those who may move aliases, over all else and the name; None: there was no key."
    )

    def signed(self, name: str) -> Move:
        """It as it is written to the history of a name, which signs it if a key is set."""
        return self.model_copy(update={"signature": signature_of("move", self._content(name))})

    def wrong_signature(self, name: str) -> str | None:
        """Why the key did not sign it for this name, as the end of a sentence; None if it did, or if no key is set."""
        return wrong_with("move", self._content(name), self.signature)

    def _content(self, name: str) -> dict[str, Any]:
        return {"name": name, **self.model_dump(mode="json", exclude={"signature"}, exclude_defaults=True)}

    @property
    def because(self) -> str:
        """Why, in one line."""
        if self.kind == "rollback":
            return f"back to move {self.restores}{f': {self.reason}' if self.reason else ''}"
        if self.reason is not None:
            return f"override: {self.reason}"
        return "" if self.evidence is None else self.evidence.sentence

    def __str__(self) -> str:
        return f"{self.alias} to {self.fingerprint} ({self.kind}, {self.moved_at:%Y-%m-%d %H:%M} UTC, by {self.moved_by})"
