"""Parameters of a decision."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from offline_core.data.store.allowed_roots import IsUri
from offline_core.judging.estimation.config import CLONE_UPDATES, EstimateConfig
from offline_core.runtime.config import Config, closed

BEHAVIOUR = "behaviour"
"""What `against` calls the policy, or the policies, that recorded the log."""


class Guardrail(Config):
    """A return besides the reward's that may not fall."""

    name: str = Field(min_length=1, max_length=100, description="In the card and in messages, such as comfort.")
    unit: str = Field("", max_length=30, description="What its numbers are, in the card: kWh, clicks, EUR.")
    expression: str = Field(
        min_length=1,
        description="What a step is paid, in SQL on the columns of a step, and of the log as imported, higher is better: "
        "-cost, revenue / price, or case when temperature > 24 then -1 else 0 end.",
    )
    max_fall: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="Discounted return that it may lose, at most. 0: it has to be shown not to fall at all.",
    )


class DecisionConfig(Config):
    """How candidates are held against what runs today."""

    against: Annotated[str, IsUri(but=BEHAVIOUR)] = Field(
        BEHAVIOUR,
        description="What runs today: behaviour (what the log recorded), or a policy or rule, named as candidates are, such as "
        "hvac@champion.",
    )
    registry: Annotated[str | None, IsUri()] = Field(
        None,
        description="Where it may promote: a registry's folder and the policy's name in it, such as runs/registry/hvac. None: "
        "that of against, if it is in one, else nowhere.",
    )
    by: str = Field(
        "episodes",
        min_length=1,
        description="Which episodes select and which judge. episodes: by lot. time: the later ones judge, in the order of the "
        "dataset. Else a column, such as a building's number, of which equal values stay on one side.",
    )
    judge_share: float = Field(
        0.5,
        ge=0.1,
        le=0.9,
        description="Share of the episodes that judge; the others select.",
    )
    finalists: int = Field(
        3, ge=1, le=100, description="Candidates that are judged, those that the selecting side ranks first."
    )
    risk: float = Field(
        0.05,
        gt=0,
        lt=0.5,
        description="Chance of promoting a policy that is no better, or breaks a guardrail, over all finalists (Holm).",
    )
    margin: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Discounted return by which a candidate has to be better, at least."
    )
    guardrails: Annotated[list[Guardrail], Field(max_length=20)] = Field(
        [], description="Other returns that may not fall, each shown within the same risk."
    )
    group: Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=5)] = Field(
        [],
        description="Columns with one value in each episode, such as room, zone, campaign: the difference is told for each "
        "value of each, and which are shown to be better or worse, within the risk over all of them.",
    )
    min_overlap: float = Field(
        0.8,
        ge=0,
        le=1,
        description="Share of a candidate's actions that the behaviour would plausibly take, at least; with less it is not "
        "judged.",
    )
    estimate: EstimateConfig = Field(
        EstimateConfig(),
        description="Discount, horizon, Q function and resamples. estimate.behaviour is a model of what acted; None: the "
        "recorded action_logp, or a clone that is fitted to the selecting side.",
        json_schema_extra=closed,
    )
    clone_updates: int = Field(
        CLONE_UPDATES,
        ge=1,
        le=1_000_000,
        description="Updates, at most, of the clone of what acted where action_logp was not recorded; it stops once it no "
        "longer gets better on the judging side.",
    )
    examine_updates: int = Field(
        5_000,
        ge=0,
        le=1_000_000,
        description="Updates, at most, of a clone that recorded action_logp is examined by: it may find no action more "
        "probable, on average. 0: none is trained, and action_logp is believed.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of the split, the clone, the Q functions and the resamples.")

    @field_validator("group", mode="before")
    @classmethod
    def _one_or_several(cls, group: Any) -> Any:
        return [group] if isinstance(group, str) else group

    @model_validator(mode="after")
    def _leaves_the_rest_to_itself(self) -> DecisionConfig:
        if self.estimate.require_return is not None:
            raise ValueError("estimate.require_return is for offline estimate: set margin")
        if self.estimate.seed:
            raise ValueError("estimate.seed has no effect: set seed")
        if self.risk / self.finalists < 1 / (1 + self.estimate.resamples):
            raise ValueError(
                f"a risk of {self.risk:g} over {self.finalists} finalists cannot be shown by {self.estimate.resamples:,} "
                f"resamples: set estimate.resamples to {int(self.finalists / self.risk) + 1:,} or more"
            )
        if len({guardrail.name for guardrail in self.guardrails}) < len(self.guardrails):
            raise ValueError("guardrails have a name twice")
        if len({*self.group}) < len(self.group):
            raise ValueError("group names a column twice")
        return self
