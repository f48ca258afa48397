"""Runs the stages of a chain, with the time and outcome of each, and makes the card of the whole chain."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.store.location import Location
from offline_core.runtime.reporting.card import Headline
from offline_core.runtime.reporting.cards import chain_card
from offline_core.runtime.result import Result
from offline_core.runtime.units import duration_text
from tasks.artifacts import Page, publish, warn_without_card
from tasks.outcomes import outcome_of
from tasks.stage import as_task

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run
P = ParamSpec("P")
R = TypeVar("R", bound=Result)


class StageOutcome(BaseModel):
    """One stage of a chain."""

    model_config = ConfigDict(frozen=True)

    name: str
    seconds: float
    outcome: str = Field(description="What it came to, in a few words.")
    reused: bool = Field(description="An earlier run of the same stage on the same inputs had made it.")


class ChainResult(BaseModel):
    """What a chain came to; each chain adds the results of its stages."""

    model_config = ConfigDict(frozen=True)

    stages: list[StageOutcome] = Field(description="In the order in which they ran.")
    seconds: float = Field(description="Wall time of the whole chain, with Ray's start and end.")


class Stages:
    """Runs stages one after the other; `outcomes` has those that are done."""

    def __init__(self) -> None:
        self.outcomes: list[StageOutcome] = []
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall time since the chain began."""
        return time.perf_counter() - self._begin

    def run(self, name: str, task: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        begin = time.perf_counter()
        result = task(*args, **kwargs)
        outcome = StageOutcome(name=name, seconds=time.perf_counter() - begin, outcome=outcome_of(result), reused=result.reused)
        log.info("%s, %.1f s: %s", outcome.name, outcome.seconds, outcome.outcome)
        self.outcomes.append(outcome)
        return result


def reading(ref: DatasetRef) -> dict[str, Any]:
    """The arguments of a task that reads this version of a dataset."""
    return {"dataset": ref.uri, "version": ref.version}


@as_task("summarize-chain")
def summarize_chain(
    name: str,
    result: ChainResult,
    *,
    rows: Mapping[str, object],
    returns: Mapping[str, float],
    checkpoint: str,
    root: str,
    parameters: Mapping[str, BaseModel],
    headline: Headline,
) -> None:
    """Leaves one card for the whole chain as an artifact, and in `root`.

    Arguments:
        name: of the chain, as `expert_to_policy`.
        rows: facts about the run; the outcome of each stage follows them.
        returns: mean return of each thing that was made.
        checkpoint: of the policy that came out.
        headline: what matters most.
    """
    with warn_without_card():
        outcomes = {each.name.capitalize(): each.outcome for each in result.stages}
        card = chain_card(
            name.replace("_", " ").capitalize(),
            rows={**rows, **outcomes, "Time": duration_text(result.seconds)},
            seconds={each.name: each.seconds for each in result.stages},
            returns=returns,
            headline=headline,
        )
        publish(
            Page(card, (checkpoint, None), [Location.of(root).child("card")]),
            key=f"{name.replace('_', '-')}-card",
            operation=name,
            config=parameters,
            reused=result.stages[-1].reused,  # it is made of what all others made
        )
