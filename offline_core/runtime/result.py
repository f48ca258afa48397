"""What stages return, how it is shown, and the base of what is stored beside it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from offline_core.control_characters import visible_line
from offline_core.runtime.reporting.card import Card


class Part(BaseModel):
    """Base of what is in a result: frozen, and stored as JSON, in which a number may be infinite or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class StoredModel(BaseModel):
    """Base of what is stored as JSON and read by other versions, which may have more fields: frozen.

    Numbers may be infinite or NaN, which JSON's null would lose.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Result(Part):
    """Base of what a stage returns: stored beside what was made, and shown as its card."""

    reused: bool = Field(False, description="An existing version, made by the same operation from the same data, was returned.")

    def card(self) -> Card:
        """What this says to people; nothing is read for it."""
        raise NotImplementedError(f"{type(self).__name__} has no card.")

    def __repr__(self) -> str:
        return visible_line(f"{type(self).__name__}({self.card().headline})")

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return self.card().drawable().html(is_page=False)


class PolicyResult(Result):
    """What a stage returns that trained, played or estimated a policy."""

    checkpoint: str = Field(description="URI of the policy.")
