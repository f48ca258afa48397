"""What policies would do at recorded steps, beside what was done there: shown, and judged by nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import count_text, number_text

if TYPE_CHECKING:
    import polars as pl

CHANCE = "chance of what was done"
LONGEST = 40
"""Most letters of a policy's name above its column."""
MOST_SHOWN = 100
"""Most steps in the table of a card."""


class Choice(Part):
    """What one policy would do at a step."""

    action: str = Field(description="Its most likely action, in the log's words; – if only the recorded one is known of it.")
    chance: float | None = Field(
        description="Probability of the recorded action, or its density in a Box; None: the policy has none, as it always "
        "takes one action."
    )
    agrees: bool = Field(description="It would do what was done.")


class ExplainedStep(Part):
    """A recorded step, and what policies would do there."""

    episode: str
    step: int = Field(description="Since the first one of the whole episode, from 0.")
    seen: dict[str, str] = Field(description="Some of what was seen, by the names of columns.")
    done: str = Field(description="What was done, in the log's words.")
    reward: float
    choices: dict[str, Choice] = Field(description="By the name of the policy.")


class Explanation(Result):
    """One episode of a log, step by step, with what each policy would have done."""

    dataset: DatasetRef
    episode: str
    policies: dict[str, str] = Field(description="The short name of each, and what names it.")
    steps: list[ExplainedStep]
    more_seen: int = Field(0, description="Numbers of an observation that are not shown.")

    def card(self) -> Card:
        agreeing = ", ".join(f"{name} in {self.agreeing(name):,}" for name in self.policies)
        chances = {
            name: [(float(step.step), chance) for step in self.steps if (chance := step.choices[name].chance) is not None]
            for name in self.policies
        }
        curves = {name: points for name, points in chances.items() if points}
        picture = partial(figures.lines, named=curves, x="step", y="probability of what was done")
        steps = count_text(len(self.steps), "step")
        shown = f"the first {MOST_SHOWN} of {steps}; explanation.table() has all" if len(self.steps) > MOST_SHOWN else steps
        return Card(
            "Explanation",
            word="Explained",
            sentence=f"Of {steps}, what was done is what these would do most likely: {agreeing}.",
            facts={
                "Dataset": self.dataset,
                "Episode": self.episode,
                "Recorded return": number_text(sum(step.reward for step in self.steps)),
                **{f"Policy {name}": named for name, named in self.policies.items() if name != named},
            },
            sections=[
                steps_section(
                    f"What each would do, and in brackets its {CHANCE} ({shown})", self.steps[:MOST_SHOWN], several=False
                )
            ],
            details={"Not shown": f"{count_text(self.more_seen, 'more number')} of each observation"} if self.more_seen else {},
            draw=figures.drawn(lambda: [picture]) if curves else None,
            next=command("offline", "decide", self.dataset.uri, *self.policies.values()),
            about=(self.dataset.uri, self.dataset.version),
        )

    def agreeing(self, name: str) -> int:
        """At how many steps the most likely action of a policy is what was done."""
        return sum(step.choices[name].agrees for step in self.steps)

    def table(self) -> pl.DataFrame:
        """One row a step: what was seen, done and paid; of each policy its action, and the probability of what was done."""
        import polars as pl

        rows = []
        for step in self.steps:
            row: dict[str, object] = {"step": step.step, **step.seen, "done": step.done, "reward": step.reward}
            for name, choice in step.choices.items():
                row |= {name: choice.action, f"{name}: {CHANCE}": choice.chance}
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)


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
        *(name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in steps[0].choices),
    ]
    return Section(title, columns=columns, rows=[_row(step, several) for step in steps])


def _row(step: ExplainedStep, several: bool) -> list[object]:
    told: list[object] = [step.episode] if several else []
    told += [step.step, *step.seen.values(), step.done, f"{step.reward:.4g}"]
    return told + [
        choice.action if choice.chance is None else f"{choice.action} ({choice.chance:.2g})" for choice in step.choices.values()
    ]
