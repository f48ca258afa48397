"""The result of training an expert."""

from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import episode_facts, played
from offline_core.runtime.result import PolicyResult
from offline_core.runtime.units import duration_text


class ExpertResult(PolicyResult):
    """The best policy, its evaluation, and the learning curve."""

    reached_target: bool
    target_return: float | None
    metrics: dict[str, float]
    """Of the best policy's evaluation."""
    actions: Literal["greedy", "sampled"] = "greedy"
    """Of the evaluations: always the most likely ones, or drawn from the policy."""
    env_steps: int
    """Environment steps learned from, without resets."""
    updates: int
    """Gradient steps."""
    seconds: float
    curve: list[tuple[int, float]]
    """(environment steps, mean return) of each evaluation."""
    snapshots: dict[float, str] = Field({})
    """The checkpoints of `snapshots_at_returns` that were reached, by return."""
    recording: DatasetRef | None = None
    """The episodes recorded during training, if `recording` is configured."""

    def card(self) -> Card:
        told = played(self.metrics, self.target_return, is_reached=self.reached_target, actions=self.actions)
        picture = partial(
            figures.curve, points=self.curve, x="environment steps", y=f"mean {self.actions} return", target=self.target_return
        )
        folder = self.checkpoint.rpartition("/")[0]
        return Card(
            "Expert",
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={
                "Policy": self.checkpoint,
                **episode_facts(self.metrics),
                "Environment steps": self.env_steps,
                **({} if self.recording is None else {"Recording": f"{self.recording}, actions sampled"}),
                "Time": duration_text(self.seconds),
            },
            warnings=self.warnings,
            details={f"Policy at a return of {reached:g}": uri for reached, uri in self.snapshots.items()},
            draw=figures.drawn(lambda: [picture]) if len(self.curve) > 1 else None,  # a single point is a number
            next=command("offline", "record", self.checkpoint),
            about=(self.checkpoint, None),
            places=[f"{folder}/card"],
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

    @property
    def mean_return(self) -> float:
        """In the evaluation of the best policy."""
        return self.metrics["episode_return_mean"]

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint
