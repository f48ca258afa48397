"""What comes of an off-policy estimate."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef, open_dataset
from offline_core.data.episodes import columns
from offline_core.judging.estimation.config import DECIDING, method_in_words
from offline_core.judging.estimation.estimators import fitting
from offline_core.policies.kind import kind_of
from offline_core.policies.lineage import Lineage, episodes_in
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.reporting.returns import Told
from offline_core.runtime.result import Part, PolicyResult
from offline_core.runtime.units import count_text, duration_text, number_text

NOTED_UNRECORDED = 0.1
"""Share of a return that was not recorded, from which on a card says so first."""

ESTIMATES = "_estimates"
"""Folder of the results of estimates, below a checkpoint, or below a dataset if the policy is none."""
NAMELESS = ("reward", "rewards")
"""Names of a reward that say nothing."""


def return_name(gamma: float, reward: str = "") -> str:
    """What an estimate is of: a return, or a discounted one, and in which unit, if that is known."""
    name = "return" if gamma == 1 else "discounted return"
    return f"{name} in {reward}" if reward else name


def return_head(gamma: float, reward: str = "") -> str:
    """The same as the head of a table's column; the unit is spelled as the log does."""
    name = return_name(gamma, reward)
    return name[0].upper() + name[1:]


def told_confidence(confidence: float) -> str:
    """Words for what share of the resamples an interval holds, and that it has two sides."""
    return f"{100 * confidence:g} %, two-sided: {50 * (1 - confidence):.3g} % beyond each end"


def told_discount(gamma: float) -> str:
    """The end of what is said of a return; empty if it is not discounted."""
    return "" if gamma == 1 else f", discounted by {gamma:g}"


def horizon_text(horizon: int | None) -> str:
    """How many steps of an episode count, in words."""
    return "until it terminates" if horizon is None else count_text(horizon, "step")


def reward_name(history: Lineage) -> str:
    """What the reward is called in the files that a log was imported from; empty: several names, or none that says anything."""
    name = source_name(history, columns.REWARDS)
    return "" if name in NAMELESS else name


def source_name(history: Lineage, column: str) -> str:
    """What a column of steps is called in the files that a log was imported from, if it has the values that it has there.

    Empty: it has several names, or none, or is in other units there.
    """
    imports = [node for node in episodes_in(history) if node.operation == "import" and node.state == "found"]
    configs = [open_dataset(node.uri, node.version).manifest.operation.config for node in imports]
    if column == columns.ACTIONS and any(config.get("recorded_action_range") for config in configs):
        return ""
    sources = [(config.get("mapping") or {}).get(column) for config in configs]
    names = {source for source in sources if isinstance(source, str)}
    return names.pop() if len(names) == 1 and len(sources) == sum(isinstance(source, str) for source in sources) else ""


class Interval(Part):
    """A mean discounted return, and where a share `confidence` of the bootstrap's resamples lies."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number_text(self.value)} ({number_text(self.low)} to {number_text(self.high)})"


class Estimate(Interval):
    """What one method says."""

    effective_episodes: float | None = Field(
        description="Effective sample size (Kish) of the weights, at most the number of episodes; of weights by step, the "
        "harmonic mean over the recorded steps, discounted: steps at which few are left count most. None: nothing is weighted."
    )
    largest_weight: float | None = Field(description="Share of the heaviest episode in all weights; by step, the plain mean.")

    @property
    def weights(self) -> tuple[str, str]:
        """Effective episodes, and the share of the heaviest one."""
        if self.effective_episodes is None:
            return "–", "–"
        return f"{self.effective_episodes:,.1f}", f"{100 * (self.largest_weight or 0.0):.1f} %"


class EstimateResult(PolicyResult):
    """What a policy would come to where a dataset was recorded."""

    uri: str = Field(
        description="Where this is kept, below the checkpoint, or below the dataset if the policy is none; nothing is there if "
        "that cannot be written."
    )
    dataset: DatasetRef
    recording: DatasetRef | None = Field(None, description="Whose behaviour it is of; None: of a policy.")
    behaviour: str | None = Field(description="Checkpoint that the recorded actions were weighed by; None: by action_logp.")
    explore: bool = Field(description="The policy samples its actions; otherwise it always takes the most likely one.")
    gamma: float
    reward: str = Field("", description="What the reward is called in the log's source; empty: not known.")
    horizon: int | None = Field(description="Steps of an episode that count. None: all until it terminates.")
    confidence: float
    min_effective_episodes: float = Field(0.0, description="With fewer, an estimate means nothing.")
    recorded: Interval = Field(description="Mean discounted return of the recorded episodes themselves.")
    continued: Interval | None = Field(
        None,
        description="The same and what the Q function expects where a recording ends before its episode: what fqe, dr, drs and "
        "wdr, which expect that of the policy, are held against. None: no recording does.",
    )
    estimates: dict[str, Estimate] = Field(description="By method.")
    warnings: list[str] = Field(description="Why some of this may mean less than it seems to.")
    open_episodes: int = Field(description="Episodes whose recording ends before the horizon, without a termination.")
    unrecorded_share: float = Field(
        description="Share of the discounted steps within the horizon, or of the value if that is more, that was not recorded: "
        "the Q function's word in fqe, dr and wdr, and missing in is, wis, pdis and wpdis. Weighted as in wpdis."
    )
    seconds: float
    asked: dict[str, Any] = Field(
        {}, description="Parameters, other than the defaults, that say what was estimated: a decision needs them as `estimate`."
    )

    def card(self) -> Card:
        told = self._told()
        asked = (
            f"estimate.{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in self.asked.items()
        )
        settings = itertools.chain.from_iterable(("-s", setting) for setting in asked)
        weighed = {name: estimate for name, estimate in self.estimates.items() if estimate.effective_episodes is not None}
        intervals = {name: (estimate.value, estimate.low, estimate.high) for name, estimate in self.estimates.items()}
        lines = {"recorded": self.recorded.value}
        if self.continued is not None:
            lines["recorded, and expected after it"] = self.continued.value
        pictures = [partial(figures.intervals, values=intervals, x=return_name(self.gamma, self.reward), lines=lines)]
        if weighed:
            sizes = {name: estimate.effective_episodes or 0.0 for name, estimate in weighed.items()}
            pictures.append(partial(figures.bars, values=sizes, x="effective episodes"))
        return Card(
            "Off-policy estimate",
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={
                "Policy": self.checkpoint,
                "Dataset": self.dataset,
                "Recorded": f"{self.recorded}{f' {self.reward}' if self.reward else ''}{told_discount(self.gamma)}",
                **({} if self.told_horizon == "1 step" else {"Horizon": self.told_horizon}),
                "Intervals": f"{told_confidence(self.confidence)}, of resamples of the episodes",
                "Time": duration_text(self.seconds),
            },
            warnings=self.warnings,
            sections=[
                Section(
                    "Estimates",
                    columns=(
                        "Method",
                        return_head(self.gamma, self.reward),
                        "Effective episodes",
                        "Heaviest episode",
                    ),
                    rows=[(method_in_words(name), estimate, *estimate.weights) for name, estimate in self.estimates.items()],
                )
            ],
            details={
                "Weighed by": self.behaviour or "the recorded action_logp",
                "Actions": "sampled, as act(explore=True) does" if self.explore else "the likeliest, as act does",
            },
            draw=figures.drawn(lambda: pictures),
            next="" if told.verdict == "bad" else command("offline", "decide", self.dataset.uri, self.checkpoint, *settings),
            about=(self.checkpoint, None)
            if kind_of(self.checkpoint) == "checkpoint"
            else (self.dataset.uri, self.dataset.version),
            places=[self.uri.removesuffix(".json")],
        )

    def _told(self) -> Told:
        """The verdict of the card.

        It is better or worse only if all methods say so, and only perhaps if the stage warns or part was not recorded.
        Nothing is claimed where too few episodes count.
        """
        name = DECIDING if DECIDING in self.estimates else next(reversed(self.estimates))
        first = self.estimates[name]
        if first.effective_episodes is not None and first.effective_episodes < self.min_effective_episodes:
            return Told(
                "grey",
                "Too few episodes",
                f"{name} rests on {first.effective_episodes:.1f} effective episodes, and {self.min_effective_episodes:g} are "
                "needed, so its estimate says nothing of the policy.",
            )
        recorded = self._held_against(name)
        told = (
            f"{name} estimates a {return_name(self.gamma)} of {first}; that of the recorded episodes is {number_text(recorded)}"
        )
        if recorded != self.recorded.value:
            told += ", with what its Q function expects after recordings that end before"
        is_better, is_worse = first.low > recorded, first.high < recorded
        if not is_better and not is_worse:
            return Told("grey", "Not told apart", f"{told}.")
        word = "better" if is_better else "worse"
        agree = {
            name: estimate.low > self._held_against(name) if is_better else estimate.high < self._held_against(name)
            for name, estimate in self.estimates.items()
        }
        if not all(agree.values()):
            others = ", ".join(name for name, agrees in agree.items() if not agrees)
            return Told("fair", "Methods disagree", f"{told}, so it is {word} by {name}, but not by {others}.")
        if self.unrecorded_share > NOTED_UNRECORDED:
            share = f"{100 * self.unrecorded_share:.0f} % of the return was not recorded"
            return Told("fair", f"Perhaps {word}", f"{told}; {share}.")
        if self.warnings:
            return Told("fair", f"Perhaps {word}", f"{told}; the warnings say what speaks against it.")
        return Told("good" if is_better else "bad", f"Likely {word}", f"{told}.")

    def _held_against(self, method: str) -> float:
        """What was recorded, as far as a method looks."""
        looked_at = self.continued if self.continued is not None and fitting([method]) else self.recorded
        return looked_at.value

    @property
    def told_horizon(self) -> str:
        """The horizon in words."""
        steps, share = horizon_text(self.horizon), f"{100 * self.unrecorded_share:.3g} %"
        return f"{steps}, of which {share} were not recorded" if self.open_episodes else steps
