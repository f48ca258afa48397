"""What trainings come to: what all have, and that of a training from a log, of an expert and of a fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.dataset_card import reading, splitting
from offline_core.data.store.location import Location
from offline_core.learning.metrics import series
from offline_core.policies.series import KeptCheckpoint
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import Told, episode_facts, mean_of, of_enough, played, returned
from offline_core.runtime.result import PolicyResult
from offline_core.runtime.units import count_text, duration_text

NETWORKS_FILE = "networks.safetensors"
"""All networks at the end, in the folder of a training."""


class LearnedResult(PolicyResult):
    """What every training comes to: the best policy, its evaluation, and the learning curve."""

    unit: ClassVar[str]
    """What the learning curve goes by."""

    checkpoint: str = Field(description="The policy to use: the best one evaluated, the last one if none was.")
    metrics: dict[str, float] = Field(description="Of the best evaluation, or the held-out loss if that chose the policy.")
    target_return: float | None
    reached_target: bool
    actions: Literal["greedy", "sampled"] = Field("greedy", description="Of the evaluations: the most likely ones, or drawn.")
    updates: int = Field(description="Gradient steps.")
    curve: list[tuple[int, float]] = Field(
        description="(updates, or environment steps where the policy plays to learn; mean return) of each evaluation."
    )
    seconds: float

    def told(self) -> Told:
        """What a card says first."""
        return played(self.metrics, self.target_return, is_reached=self.reached_target, actions=self.actions)

    def learned_card(self, title: str, *, facts: Mapping[str, Any], **more: Any) -> Card:
        """Return the card, with these facts among those of every training."""
        told = self.told()
        return Card(
            title,
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={"Policy": self.checkpoint, **facts, "Time": duration_text(self.seconds)},
            draw=figures.drawn(self.pictures) if self.is_drawn else None,
            about=(self.checkpoint, None),
            places=[f"{self.checkpoint.rpartition('/')[0]}/card"],
            **more,
        )

    @property
    def is_drawn(self) -> bool:
        """There is something to draw: a single evaluation is a number, and among the facts."""
        return len(self.curve) > 1

    def pictures(self) -> list[figures.Picture]:
        """Return what is drawn: the learning curve, if it is one."""
        y, target = f"mean {self.actions} return", self.target_return
        picture = partial(figures.curve, points=self.curve, x=self.unit, y=y, target=target)
        return [picture] if len(self.curve) > 1 else []

    @property
    def mean_return(self) -> float | None:
        """In the evaluation of the best policy; None: no episode was played."""
        return self.metrics.get("episode_return_mean")

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint


class TrainingResult(LearnedResult):
    """What came of a training run."""

    unit = "updates"

    last_checkpoint: str = Field(description="The policy at the end.")
    kept: list[KeptCheckpoint] = Field([], description="The series of policies that `keep` asks for, in order.")
    networks_sha256: str = Field(description="Hash of all networks at the end, in networks.safetensors.")
    dataset: DatasetRef
    held_out: str | None = Field(None, description="The held-out side of the split, if the dataset is its train side.")
    algorithm: str = Field(description="Its name.")
    steps: int = Field(description="Steps learned from, each epoch counted anew.")
    epochs: float = Field(description="Passes over the dataset, with fractions.")
    losses: list[tuple[int, float]] = Field(description="(updates, mean loss since the entry before).")
    training_metrics: dict[str, float] = Field(description="Metrics of the algorithm, as means of the last iteration.")
    recorded_return: float | None = Field(
        None,
        description="What `q` among these is to be compared with: the mean discounted return from recorded steps on, of scaled "
        "rewards. None: no Q is learned.",
    )
    acts_alike: bool = Field(
        False,
        description="The policy was not played, and part of its action is nearly the same at all recorded steps that it was "
        "asked at, where the recorded ones differ.",
    )
    warnings: list[str] = Field([], description="Why the policy may be worth less than it seems.")
    held_out_losses: list[tuple[int, float]] = Field(description="(updates, loss on data that is not learned from).")
    load_seconds: float = Field(description="Until the first batch could be drawn, Ray and its actors included.")
    update_seconds: float
    gather_seconds: float = Field(description="Putting batches together.")
    data_wait_seconds: float = Field(description="Waiting for the next window of steps.")
    bottleneck: str = Field(description="Where the time went, and what to do about it.")
    steps_per_second: float = Field(description="While updating and waiting for batches.")

    def card(self) -> Card:
        epochs = "epoch" if self.epochs == 1 else "epochs"
        return self.learned_card(
            "Policy",
            facts={
                "Learned from": self.dataset,
                "Algorithm": self.algorithm,
                "Updates": f"{self.updates:,}, {self.epochs:,.3g} {epochs}, {self.steps_per_second:,.0f} steps a second",
                **episode_facts(self.metrics),
            },
            warnings=self.warnings,
            details={
                **{name.replace("_", " ").capitalize(): value for name, value in self.training_metrics.items()},
                **({} if self.recorded_return is None else {"Recorded return, beside Q": self.recorded_return}),
                "Bottleneck": self.bottleneck,
                "Last policy": self.last_checkpoint,
            },
            next=self._next(),
        )

    def _next(self) -> str:
        """Look at the policy; or, if it is not what was asked for, at which algorithm and episodes may come to more."""
        if (self.told().verdict == "bad" or self.acts_alike) and self.dataset.version:
            return command("offline", "outliers", *reading(self.dataset))
        if self.mean_return is not None:
            return command("offline", "evaluate", self.checkpoint)
        if self.held_out is not None:
            return command("offline", "decide", self.held_out, self.checkpoint)
        # What was learned from cannot judge it.
        if self.dataset.episodes < 2:
            return command("offline", "explain", *reading(self.dataset), self.checkpoint)
        return splitting(self.dataset)

    @property
    def is_drawn(self) -> bool:
        return True

    def pictures(self) -> list[figures.Picture]:
        seconds = {
            "loading": self.load_seconds,
            "waiting for data": self.data_wait_seconds,
            "gathering batches": self.gather_seconds,
            "updating": self.update_seconds,
        }
        weights = series(Location.of(self.checkpoint).parent, "effective_sample_size")
        drawn = super().pictures()
        if len(self.losses) > 1:
            lines = {"held out": self.held_out_losses}
            drawn.append(partial(figures.curve, points=self.losses, x="updates", y="loss", beside=lines))
        if len(weights) > 1:
            drawn.append(partial(figures.curve, points=weights, x="updates", y="effective sample size"))
        return [*drawn, partial(figures.bars, values={name: round(value, 2) for name, value in seconds.items()}, x="seconds")]

    @property
    def last(self) -> str:
        """URI of the checkpoint at the end."""
        return self.last_checkpoint


class PlayedResult(LearnedResult):
    """What learning from play comes to."""

    unit = "environment steps"

    env_steps: int = Field(description="Environment steps, without resets.")

    @property
    def mean_return(self) -> float:
        """In the evaluation of the best policy."""
        return self.metrics["episode_return_mean"]


class ExpertResult(PlayedResult):
    """The best policy, its evaluation, and the learning curve."""

    snapshots: dict[float, str] = Field(
        {}, description="The checkpoints of `snapshots_at_returns` that were reached, by return."
    )
    recording: DatasetRef | None = Field(
        None, description="The episodes recorded during training, if `recording` is configured."
    )

    def card(self) -> Card:
        return self.learned_card(
            "Expert",
            facts={
                **episode_facts(self.metrics),
                "Environment steps": self.env_steps,
                **({} if self.recording is None else {"Recording": f"{self.recording}, actions sampled"}),
            },
            warnings=self.warnings,
            details={f"Policy at a return of {reached:g}": uri for reached, uri in self.snapshots.items()},
            next=command("offline", "record", self.checkpoint),
        )

    @property
    def warnings(self) -> list[str]:
        """That the target was not reached, and what may reach it."""
        if self.reached_target or self.target_return is None:
            return []
        return [
            f"The expert did not reach the target return of {self.target_return:,g}. Give it more total_steps or another seed, "
            "or a lower evaluation.target_return."
        ]


class FineTuneResult(PlayedResult):
    """The best policy, which may be the first one, and what play made of that."""

    start_return: float = Field(description="Mean return of the first policy.")
    rollbacks: int = Field(description="How often an evaluation fell below that of the first policy, and the best came back.")

    def card(self) -> Card:
        return self.learned_card(
            "Fine-tuning",
            facts={
                **episode_facts(self.metrics),
                "Target": "none" if self.target_return is None else f"{self.target_return:,g}",
                "Environment steps": self.env_steps,
                "Rolled back": count_text(self.rollbacks, "time"),
            },
            details={"Updates": self.updates},
            next=command("offline", "evaluate", self.checkpoint),
        )

    def told(self) -> Told:
        mean, std, episodes = mean_of(self.metrics)
        told = f"Return {returned(self.metrics, self.actions)}; it began at {self.start_return:,.1f}."
        if not mean > self.start_return:
            return Told("fair", "Not better", told)
        if not mean - 2 * std / math.sqrt(episodes) > self.start_return:
            return Told("fair", "Not clearly better", told)
        return Told(of_enough(self.metrics), "Better", told)
