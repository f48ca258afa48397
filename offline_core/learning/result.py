"""What comes of training a policy."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import AliasChoices, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.dataset_card import reading
from offline_core.data.store.location import Location
from offline_core.policies.series import KeptCheckpoint
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import episode_facts, played
from offline_core.runtime.result import PolicyResult
from offline_core.runtime.units import duration_text

NETWORKS_FILE = "networks.safetensors"
"""All networks at the end, in the folder of a training."""


class TrainingResult(PolicyResult):
    """What came of a training run."""

    checkpoint: str = Field(description="The policy to use: the best one evaluated, the last one if none was.")
    last_checkpoint: str = Field(description="The policy at the end.")
    kept: list[KeptCheckpoint] = Field([], description="The series of policies that `keep` asks for, in order.")
    networks_sha256: str | None = Field(None, description="Hash of all networks at the end, in networks.safetensors.")
    dataset: DatasetRef
    algorithm: str = Field("", description="Its name; empty: of a result that older code stored.")
    updates: int
    steps: int = Field(description="Steps learned from, each epoch counted anew.")
    epochs: float = Field(description="Passes over the dataset, with fractions.")
    metrics: dict[str, float] = Field(description="Of the best evaluation, or the held-out loss if that chose the policy.")
    target_return: float | None
    reached_target: bool
    actions: Literal["greedy", "sampled"] = Field("greedy", description="Of the evaluations: the most likely ones, or drawn.")
    curve: list[tuple[int, float]] = Field(description="(updates, mean return) of each evaluation.")
    losses: list[tuple[int, float]] = Field(description="(updates, mean loss since the entry before).")
    training_metrics: dict[str, float] = Field(
        description="Metrics of the algorithm, as means of the last iteration.",
        validation_alias=AliasChoices("training_metrics", "watched"),
    )
    recorded_return: float | None = Field(
        None,
        description="What `q` among these is to be compared with: the mean discounted return from recorded steps on, of scaled "
        "rewards. None: no Q is learned.",
    )
    warnings: list[str] = Field([], description="Why the policy may be worth less than it seems.")
    held_out_losses: list[tuple[int, float]] = Field(description="(updates, loss on data that is not learned from).")
    seconds: float
    load_seconds: float = Field(description="Until the first batch could be drawn, Ray and its actors included.")
    update_seconds: float
    gather_seconds: float = Field(description="Putting batches together.")
    data_wait_seconds: float = Field(description="Waiting for the next window of steps.")
    bottleneck: str = Field(description="Where the time went, and what to do about it.")
    steps_per_second: float = Field(description="While updating and waiting for batches.")

    def card(self) -> Card:
        told = played(self.metrics, self.target_return, is_reached=self.reached_target, actions=self.actions)
        epochs = "epoch" if self.epochs == 1 else "epochs"
        return Card(
            "Policy",
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={
                "Policy": self.checkpoint,
                "Learned from": self.dataset,
                **({"Algorithm": self.algorithm} if self.algorithm else {}),
                "Updates": f"{self.updates:,}, {self.epochs:,.3g} {epochs}, {self.steps_per_second:,.0f} steps a second",
                **episode_facts(self.metrics),
                "Time": duration_text(self.seconds),
            },
            warnings=self.warnings,
            details={
                **{name.replace("_", " ").capitalize(): value for name, value in self.training_metrics.items()},
                **({} if self.recorded_return is None else {"Recorded return, beside Q": self.recorded_return}),
                "Bottleneck": self.bottleneck,
                "Last policy": self.last_checkpoint,
            },
            draw=figures.drawn(self._pictures),
            next=self._next(is_good=told.verdict != "bad"),
            about=(self.checkpoint, None),
            places=[f"{self.checkpoint.rpartition('/')[0]}/card"],
        )

    def _next(self, *, is_good: bool) -> str:
        """Look at the policy; or, if it is not what was asked for, at which algorithm and episodes may come to more."""
        if not is_good:
            return command("offline", "outliers", *reading(self.dataset))
        if "episode_return_mean" in self.metrics:
            return command("offline", "evaluate", self.checkpoint)
        return command("offline", "estimate", self.checkpoint, self.dataset.uri)

    def _pictures(self) -> list[figures.Picture]:
        from offline_core.learning.metrics import series

        seconds = {
            "loading": self.load_seconds,
            "waiting for data": self.data_wait_seconds,
            "gathering batches": self.gather_seconds,
            "updating": self.update_seconds,
        }
        weights = series(Location.of(self.checkpoint).parent, "effective_sample_size")
        lines = {"held out": self.held_out_losses}
        curves = [
            (
                self.curve,
                partial(
                    figures.curve, points=self.curve, x="updates", y=f"mean {self.actions} return", target=self.target_return
                ),
            ),
            (self.losses, partial(figures.curve, points=self.losses, x="updates", y="loss", beside=lines)),
            (weights, partial(figures.curve, points=weights, x="updates", y="effective sample size")),
        ]
        drawn = [draw for points, draw in curves if len(points) > 1]  # a single point is a number, and among the facts
        return [*drawn, partial(figures.bars, values={name: round(each, 2) for name, each in seconds.items()}, x="seconds")]

    @property
    def mean_return(self) -> float | None:
        """In the evaluation of the best policy; None: no episode was played."""
        return self.metrics.get("episode_return_mean")

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint

    @property
    def last(self) -> str:
        """URI of the checkpoint at the end."""
        return self.last_checkpoint
