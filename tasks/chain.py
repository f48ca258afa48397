"""Runs the stages of a chain, with the time and the card of each, and keeps the card of the whole chain."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from prefect.runtime import flow_run
from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.store.location import Location
from offline_core.keeping.cards import card_of, keep_card
from offline_core.runtime.provenance import made_in_run
from offline_core.runtime.ray_session import ray_scope
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import MARKS, Card, Verdict
from offline_core.runtime.reporting.returns import Told
from offline_core.runtime.result import Result
from offline_core.runtime.units import duration_text
from tasks.artifacts import publish
from tasks.crash import crashing
from tasks.stage import run_to_look_at

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run
R = TypeVar("R", bound=Result)
C = TypeVar("C", bound="ChainResult")


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
    seconds: float = Field(description="Wall time of the whole chain, with Ray's start.")

    def chain_card(
        self,
        title: str,
        told: Told | Card,
        *,
        returns: Mapping[str, float],
        checkpoint: str,
        details: Mapping[str, object],
        next: str,
        advice: str = "",
    ) -> Card:
        """The card of a chain: a row for each stage.

        Arguments:
            told: what matters most, as the card of its last stage says it.
            returns: mean return of each thing that was made, for a picture.
            checkpoint: of the policy that came out.
        """
        seconds = {stage.name: stage.seconds for stage in self.stages}
        return Card(
            title,
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={stage.name.capitalize(): str(stage) for stage in self.stages},
            warnings=told.warnings if isinstance(told, Card) else (),
            details={**details, "Time": duration_text(self.seconds)},
            draw=figures.drawn(
                lambda: [
                    partial(figures.bars, values=returns, x="mean return"),
                    partial(figures.bars, values=seconds, x="seconds"),
                ]
            ),
            advice=advice,
            next=next,
            about=(checkpoint, None),
            places=[f"{self.root}/card"],
        )


@dataclass
class Chain:
    """Runs stages one after the other: each writes below the root, and has the seed of the chain."""

    name: str
    """Name of the chain, such as `expert_to_policy`."""
    root: Location
    seed: int
    configs: Mapping[str, BaseModel]
    """The parameters of the stages by name, as they were given."""
    outcomes: list[StageOutcome] = field(default_factory=list)
    """Outcomes of the stages that are done."""
    begin: float = field(default_factory=time.perf_counter)

    def run(
        self,
        name: str,
        task: Callable[..., R],
        config: BaseModel,
        *,
        dataset: DatasetRef | None = None,
        output: str | None = None,
        **places: Any,
    ) -> R:
        """Return the result of a stage.

        Arguments:
            config: its seed is replaced by that of the chain.
            dataset: the version that is read.
            output: where it writes, relative to the root.
            places: other arguments of the task.
        """
        if dataset is not None:
            places |= {"dataset": dataset.uri, "version": dataset.version}
        if output is not None:
            places["output"] = self.root.child(output).uri
        if "seed" in type(config).model_fields:
            config = config.model_copy(update={"seed": self.seed})
        log.getChild("chain").info("%s …", name)
        begin = time.perf_counter()
        result = task(config, **places)
        card, seconds = card_of(result, name), time.perf_counter() - begin
        log.info("%s, %.1f s: %s", name, seconds, card.headline)
        self.outcomes.append(
            StageOutcome(name=name, seconds=seconds, verdict=card.verdict, sentence=card.sentence, reused=result.reused)
        )
        return result

    def end(self, kind: type[C], **results: Any) -> C:
        """Return the result of the whole chain, whose card is left as an artifact and in its root."""
        result = kind(
            reused=self.outcomes[-1].reused,  # it is made of what all others made
            root=self.root.uri,
            stages=self.outcomes,
            seconds=time.perf_counter() - self.begin,
            **results,
        )
        with made_in_run(run_to_look_at()):
            card = keep_card(result.card(), self.name, self.configs, is_reused=result.reused)
        publish(card, key=f"{self.name.replace('_', '-')}-card")
        return result


@contextlib.contextmanager
def begin_chain(name: str, parameters: Mapping[str, Any]) -> Iterator[Chain]:
    """Look at the parameters of a chain, and give it its root to itself and one Ray for all of its stages.

    Arguments:
        parameters: all of its flow, with `root` and `seed`.
    """
    from offline_core.plans.refusal import refuse  # a flow is also imported to be deployed

    refuse(parameters)
    configs = {name: value for name, value in parameters.items() if isinstance(value, BaseModel)}
    chain = Chain(name, Location.of(parameters["root"]), seed_of(parameters["seed"]), configs)
    with chain.root.make_folder().locked(), crashing(), ray_scope():  # another one would put its data where a stage looks
        yield chain


def seed_of(seed: int | None) -> int:
    """The seed itself, or if there is none the second for which the running flow was scheduled, counted from 1970.

    A run that is retried has the seed it had, so that what it had made is found; the next night's has another.
    """
    return int(flow_run.scheduled_start_time.timestamp()) if seed is None else seed
