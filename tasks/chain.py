"""Runs the stages of a chain, with the time and the card of each, and keeps the card of the whole chain."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.keeping.cards import card_of, keep_card
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import MARKS, Card, Verdict
from offline_core.runtime.reporting.returns import Told
from offline_core.runtime.result import Result
from offline_core.runtime.units import duration_text
from tasks.artifacts import publish
from tasks.stage import as_task

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run
P = ParamSpec("P")
R = TypeVar("R", bound=Result)


class StageOutcome(BaseModel):
    """One stage of a chain."""

    model_config = ConfigDict(frozen=True)

    name: str
    seconds: float
    verdict: Verdict = Field(description="Of its card.")
    sentence: str = Field(description="Of its card: what it came to.")
    reused: bool = Field(description="An earlier run of the same stage on the same inputs had made it.")

    def __str__(self) -> str:
        again = "reused: " if self.reused else ""
        return f"{MARKS[self.verdict]} {again}{self.sentence} ({duration_text(self.seconds)})"


class ChainResult(Result):
    """What a chain came to; each chain adds the results of its stages, and says what they mean."""

    root: str = Field(description="Folder of everything that the chain made.")
    stages: list[StageOutcome] = Field(description="In the order in which they ran.")
    seconds: float = Field(description="Wall time of the whole chain, with Ray's start and end.")

    def chain_card(
        self,
        title: str,
        told: Told | Card,
        *,
        returns: Mapping[str, float],
        checkpoint: str,
        details: Mapping[str, object],
        next: str,
    ) -> Card:
        """The card of a chain: a row for each stage.

        Arguments:
            told: what matters most, as the card of its last stage says it.
            returns: mean return of each thing that was made, for a picture.
            checkpoint: of the policy that came out.
        """
        seconds = {each.name: each.seconds for each in self.stages}
        return Card(
            title,
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={each.name.capitalize(): str(each) for each in self.stages},
            warnings=told.warnings if isinstance(told, Card) else (),
            details={**details, "Time": duration_text(self.seconds)},
            draw=figures.drawn(
                lambda: [
                    partial(figures.bars, values=returns, x="mean return"),
                    partial(figures.bars, values=seconds, x="seconds"),
                ]
            ),
            next=next,
            about=(checkpoint, None),
            places=[f"{self.root}/card"],
        )


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
        log.getChild("chain").info("%s …", name)
        begin = time.perf_counter()
        result = task(*args, **kwargs)
        card, seconds = card_of(result, name), time.perf_counter() - begin
        log.info("%s, %.1f s: %s", name, seconds, card.headline)
        self.outcomes.append(
            StageOutcome(name=name, seconds=seconds, verdict=card.verdict, sentence=card.sentence, reused=result.reused)
        )
        return result


def reading(ref: DatasetRef) -> dict[str, Any]:
    """The arguments of a task that reads this version of a dataset."""
    return {"dataset": ref.uri, "version": ref.version}


@as_task("summarize-chain")
def summarize_chain(name: str, result: ChainResult, *, parameters: Mapping[str, BaseModel]) -> None:
    """Leave one card for the whole chain as an artifact, and in its root.

    Arguments:
        name: of the chain, as `expert_to_policy`.
    """
    card = keep_card(result.card(), name, parameters, is_reused=result.reused)
    publish(card, key=f"{name.replace('_', '-')}-card")
