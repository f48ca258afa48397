"""What policies would do at recorded steps, beside what was done there: shown, and judged by nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.dataset_card import splitting
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import count_text, cut_text, number_text

if TYPE_CHECKING:
    import polars as pl

CHANCE, DENSITY = "chance of what was done", "density of what was done"
LONGEST = 40
"""Most letters of a policy's name above its column."""
MOST_SHOWN, MOST_OF_MANY = 100, 10
"""Steps in the table of a card, of one episode and of many."""
MOST_ACTIONS = 20
"""Different actions up to which a card says how often each was done, and would be."""


class Choice(Part):
    """What one policy would do at a step."""

    action: str = Field(description="Its most likely action, in the log's words; – if only the recorded one is known of it.")
    chance: float | None = Field(
        description="Probability of the recorded action, or its density in a Box; None: the policy has none, as it always "
        "takes one action."
    )
    agrees: bool = Field(description="It would do what was done.")
    distance: float | None = Field(
        None, description="Of a Box: how far its action is from what was done, as the mean over the numbers of the action."
    )


class ExplainedStep(Part):
    """A recorded step, and what policies would do there."""

    episode: str
    step: int = Field(description="Since the first one of the whole episode, from 0.")
    seen: dict[str, str] = Field(description="Some of what was seen, by the names of columns.")
    done: str = Field(description="What was done, in the log's words.")
    reward: float
    choices: dict[str, Choice] = Field(description="By the name of the policy.")


class Explanation(Result):
    """One episode of a log, step by step, or many of one step, with what each policy would have done."""

    dataset: DatasetRef
    episode: str = Field(description="Its id; of many that of the first one.")
    policies: dict[str, str] = Field(description="The short name of each, and what names it.")
    steps: list[ExplainedStep]
    decide_on: str | None = Field(
        None, description="The log that can decide about them; None: a policy learned from this one, which is not split yet."
    )
    more_seen: int = Field(0, description="Numbers of an observation that are not shown.")

    @property
    def episodes(self) -> int:
        """How many the steps are of; more than one of a log of one step, spread over it."""
        return len({step.episode for step in self.steps})

    def card(self, most: int = MOST_SHOWN) -> Card:
        """Return the card, with at most so many steps."""
        distances = {name: distance for name in self.policies if (distance := self.distance(name)) is not None}
        agreeing = ", ".join(f"{name} in {self.agreeing(name):,}" for name in self.policies)
        differing = ", ".join(f"{name} by {number_text(distance)}" for name, distance in distances.items())
        chances = {
            name: [(float(step.step), chance) for step in self.steps if (chance := step.choices[name].chance) is not None]
            for name in self.policies
        }
        curves = {name: points for name, points in chances.items() if points} if self.episodes == 1 else {}
        picture = partial(figures.lines, named=curves, x="step", y=likelihood_of(self.steps))
        steps = count_text(len(self.steps), "step")
        most = most if self.episodes == 1 else min(most, MOST_OF_MANY)
        shown = f"the first {most} of {steps}; explanation.table() has all" if len(self.steps) > most else steps
        paid = sum(step.reward for step in self.steps)
        return Card(
            "Explanation",
            word="Explained",
            sentence=f"Of {steps}, what these would do most likely differs from what was done, on average: {differing}."
            if distances
            else f"Of {steps}, what was done is what these would do most likely: {agreeing}.",
            facts={
                "Dataset": self.dataset,
                **(
                    {"Episode": self.episode, "Recorded return": number_text(paid)}
                    if self.episodes == 1
                    else {
                        "Episodes": f"{self.episodes:,} of one step, spread over the log",
                        "Mean reward": number_text(paid / len(self.steps)),
                    }
                ),
                **{f"Policy {name}": named for name, named in self.policies.items() if name != named},
            },
            sections=[
                self._actions(),
                steps_section(
                    f"What each would do, and in brackets its {likelihood_of(self.steps)} ({shown})",
                    self.steps[:most],
                    several=self.episodes > 1,
                ),
            ],
            details={"Not shown": f"{count_text(self.more_seen, 'more number')} of each observation"} if self.more_seen else {},
            draw=figures.drawn(lambda: [picture]) if curves else None,
            next=splitting(self.dataset)
            if self.decide_on is None
            else command("offline", "decide", self.decide_on, *self.policies.values()),
            about=(self.dataset.uri, self.dataset.version),
        )

    def distance(self, name: str) -> float | None:
        """How far a policy's actions are from what was done, on average; None: actions are no Box, or are not known."""
        distances = [distance for step in self.steps if (distance := step.choices[name].distance) is not None]
        return sum(distances) / len(distances) if distances else None

    def _actions(self) -> Section:
        """How often each action was done, what it was paid, and at how many steps it is a policy's most likely one."""
        rewards: dict[str, list[float]] = {}
        for step in self.steps:
            rewards.setdefault(step.done, []).append(step.reward)
        would = {name: Counter(step.choices[name].action for step in self.steps) for name in self.policies}
        names = sorted({*rewards}.union(*would.values()))
        if len(self.steps) == 1 or len(names) > MOST_ACTIONS:
            return Section("How often each action")
        rows = [
            [name, len(paid := rewards.get(name, [])), number_text(sum(paid) / len(paid)) if paid else "–"]
            + [would[policy][name] for policy in would]
            for name in names
        ]
        return Section(
            "How often each action was done, what it was paid, and how often each would do it most likely",
            columns=["Action", "Done", "Mean reward", *(cut_text(name, LONGEST) for name in would)],
            rows=rows,
        )

    def agreeing(self, name: str) -> int:
        """At how many steps the most likely action of a policy is what was done."""
        return sum(step.choices[name].agrees for step in self.steps)

    def table(self) -> pl.DataFrame:
        """One row a step: what was seen, done and paid; of each policy its action, and the probability of what was done."""
        import polars as pl

        rows, likelihood = [], likelihood_of(self.steps)
        for step in self.steps:
            row: dict[str, object] = {"episode": step.episode} if self.episodes > 1 else {}
            row |= {"step": step.step, **step.seen, "done": step.done, "reward": step.reward}
            for name, choice in step.choices.items():
                row |= {name: choice.action, f"{name}: {likelihood}": choice.chance}
            rows.append(row)
        table = pl.DataFrame(rows, infer_schema_length=None)
        return table.with_columns(_as_numbers(column) for column in table.select(pl.col(pl.String).exclude("episode")))


def _as_numbers(column: pl.Series) -> pl.Series:
    """A column of texts as numbers, if all of them are some."""
    import polars as pl

    if column.str.contains(r"^-?0\d").any():  # a code, such as 007
        return column
    for kind in (pl.Int64, pl.Float64):
        numbers = column.cast(kind, strict=False)
        if numbers.null_count() == column.null_count():
            return numbers
    return column


def likelihood_of(steps: Sequence[ExplainedStep]) -> str:
    """What is said of recorded actions by a policy that draws its own: a density in a Box, and a chance elsewhere."""
    is_box = any(choice.distance is not None for step in steps for choice in step.choices.values())
    return DENSITY if is_box else CHANCE


def steps_section(title: str, steps: Sequence[ExplainedStep], *, several: bool) -> Section:
    """A table of steps, empty if there are none: of each policy its action, and in brackets its chance of what was done.

    Arguments:
        several: they are of several episodes, so that the first column names each.
    """
    if not steps:
        return Section(title)
    columns = [
        *(["Episode"] if several else []),
        *("Step", *steps[0].seen, "Done", "Reward"),
        *(cut_text(name, LONGEST) for name in steps[0].choices),
    ]
    return Section(title, columns=columns, rows=[_row(step, several) for step in steps])


def _row(step: ExplainedStep, several: bool) -> list[object]:
    told: list[object] = [step.episode] if several else []
    told += [step.step, *step.seen.values(), step.done, f"{step.reward:.4g}"]
    return told + [
        choice.action if choice.chance is None else f"{choice.action} ({choice.chance:.2g})" for choice in step.choices.values()
    ]
