"""What the stages of a chain took and came to, and the one card of all."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ParamSpec, TypeVar

from prefect import Task
from pydantic import BaseModel, ConfigDict, Field

from offline_core.reporting.cards import chain_card
from offline_core.storage.location import Location
from tasks.artifacts import publish, telling
from tasks.outcomes import outcome_of
from tasks.stage import stage

P = ParamSpec("P")
R = TypeVar("R", bound=BaseModel)


class StageOutcome(BaseModel):
    """One stage of a chain."""

    model_config = ConfigDict(frozen=True)

    name: str
    seconds: float
    outcome: str = Field(description="What it came to, in a few words.")


class ChainResult(BaseModel):
    """What a chain came to; each chain adds the results of its stages."""

    model_config = ConfigDict(frozen=True)

    stages: list[StageOutcome] = Field(description="In the order in which they ran.")
    seconds: float = Field(description="Wall time of the whole chain, with Ray's start and end.")


class Stages:
    """Runs stages one after the other; `outcomes` tells of those that are done."""

    def __init__(self) -> None:
        self.outcomes: list[StageOutcome] = []
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall time since the chain began."""
        return time.perf_counter() - self._begin

    def run(self, name: str, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        begin = time.perf_counter()
        result = task(*args, **kwargs)
        self.outcomes.append(StageOutcome(name=name, seconds=time.perf_counter() - begin, outcome=outcome_of(result)))
        return result


@stage("summarize-chain")
def summarize_chain(
    name: str,
    result: ChainResult,
    *,
    rows: Mapping[str, object],
    returns: Mapping[str, float],
    checkpoint: str,
    root: str,
    parameters: Mapping[str, BaseModel],
) -> None:
    """Leaves one card for the whole chain as an artifact, and in `root`.

    Arguments:
        name: of the chain, as `expert_to_policy`.
        rows: what it was about, beside what each stage came to.
        returns: mean return of each thing that was made.
        checkpoint: of the policy that came out.
    """
    with telling():
        told = {each.name.capitalize(): each.outcome for each in result.stages}
        publish(
            chain_card(
                name.replace("_", " ").capitalize(),
                rows={**rows, **told, "Seconds": result.seconds},
                seconds={each.name: each.seconds for each in result.stages},
                returns=returns,
            ),
            key=f"{name.replace('_', '-')}-card",
            operation=name,
            config=parameters,
            about=(checkpoint, None),
            beside=[Location.of(root).child("card")],
        )
