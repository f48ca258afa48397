"""The result of a sweep."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.dataset_card import splitting
from offline_core.judging.sweeps.statistics import performance_profile
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.result import Part, PolicyResult
from offline_core.runtime.units import count_text, duration_text

if TYPE_CHECKING:
    import polars as pl

RUNS = "runs"
"""Folder of the runs in the output of a sweep, by digest of the setting and seed."""
MOST_TOLD, MOST_ROWS = 4, 50
"""Settings among the facts of a card, and in its table."""
MOST_POINTS, MOST_LINES = 12, 6
"""Settings in a picture."""
MOST_LETTERS = 27
"""Of a setting's name in a picture."""


def sign_of(score: str) -> int:
    """1 if a higher score is better, -1 if a lower one is."""
    return -1 if score == "held_out_loss" else 1


class SweptRun(Part):
    """One training."""

    seed: int
    checkpoint: str = Field(description="The policy that was scored.")
    score: float
    reason: str | None = Field(
        None,
        description="Why a decision on the log that its score was estimated from would refuse it; None: it would not, or there "
        "is no such log.",
    )
    curve: list[tuple[int, float]] = Field(description="(updates, mean return) of each evaluation, or the held-out loss.")
    updates: int
    seconds: float = Field(description="Of the training.")


class SweptSetting(Part):
    """The runs of one setting, and what their scores say."""

    name: str
    parameters: dict[str, Any] = Field(description="Values that the sweep set, by path.")
    algorithm: str
    folder: str = Field(description="Where its runs are, one folder a seed.")
    runs: list[SweptRun] = Field(description="In the order of the seeds, without those that failed.")
    mean: float
    interquartile_mean: float = Field(description="Without a quarter of the runs at either end.")
    low: float | None = Field(description="Lower end of the interquartile mean's interval; None: of a single run.")
    high: float | None = Field(description="Upper end.")
    curve: list[tuple[int, float, float, float]] = Field(description="(updates, mean, low, high) over the runs' curves.")

    @property
    def scores(self) -> list[float]:
        """The score of each run."""
        return [run.score for run in self.runs]

    @property
    def interval(self) -> tuple[float, float, float]:
        """The interquartile mean with its ends, which are itself if there is a single run."""
        value = self.interquartile_mean
        return value, value if self.low is None else self.low, value if self.high is None else self.high

    @property
    def short_name(self) -> str:
        """Its name with parameters by the last of their names, for pictures and lists: `marwil, max_updates=120`."""
        return re.sub(r"(?<!\S)(?:algorithm=|(?:\w+\.)+(?=\w+=))", "", self.name)

    def __str__(self) -> str:
        value, low, high = self.interval
        bounds = "" if self.low is None else f" ({low:.4g} to {high:.4g})"
        unjudged = sum(run.reason is not None for run in self.runs)
        told = f", {unjudged:,} cannot be judged" if unjudged else ""
        return f"{value:.4g}{bounds}, {count_text(len(self.runs), 'run')}{told}"


class FailedRun(Part):
    """One training that ended in an error."""

    setting: str
    seed: int
    error: str = Field(description="Class and message.")
    may_pass: bool = Field(description="The same call may succeed later, with nothing changed.")

    def __str__(self) -> str:
        return f"{self.setting}, seed {self.seed}: {self.error}"


class SweepResult(PolicyResult):
    """What the settings of a sweep came to."""

    checkpoint: str = Field(description="The best policy of the best setting.")
    dataset: DatasetRef
    held_out: str | None = Field(
        None,
        description="The held-out side of the split of which the dataset is a side; None: there is none, or it chose the best.",
    )
    score: str = Field(description="What the runs are compared by.")
    settings: list[SweptSetting] = Field(description="The best first, by interquartile mean.")
    expected_best: dict[str, list[float]] = Field(
        description="By algorithm: the expected best score of 1, 2, 3 … policies tried, out of all its settings and seeds."
    )
    failures: list[FailedRun]
    confidence: float
    seconds: float
    warnings: list[str] = Field([], description="Why the best policy may not be the best one.")
    estimated_on: DatasetRef | None = Field(None, description="The log that scores were estimated from; None: they were not.")

    def _next(self) -> str:
        if self.score.endswith("return"):
            return command("offline", "evaluate", self.checkpoint)
        if self.held_out is not None:
            return command("offline", "decide", self.held_out, self.checkpoint)
        return splitting(self.estimated_on or self.dataset)

    def _advice(self) -> str:
        """What a split, where one is the next command, is for."""
        if self.score.endswith("return") or self.held_out is not None:
            return ""
        if self.estimated_on is not None:
            return "Split the log, let the sweep estimate on its train side (estimate_on), and decide on what it held out."
        return "Split the dataset, sweep its train side, and decide on what it held out."

    def card(self) -> Card:
        score, first = self.score.replace("_", " "), self.settings[0]
        ranked = {f"{rank}. {setting.name}": setting for rank, setting in enumerate(self.settings, 1)}
        runs, is_estimate = sum(len(setting.runs) for setting in self.settings), self.score == "estimate"
        return Card(
            "Sweep",
            verdict="bad" if self.failures else "grey",
            word="Compared in part" if self.failures else "Compared",
            sentence=f"{count_text(len(self.settings), 'setting')} by {score}; "
            f"the best is {first.name}, {first.interquartile_mean:.4g}.",
            facts={
                "Best policy": self.checkpoint,
                "Dataset": self.dataset,
                **{f"{rank}. {of.short_name}": str(of) for rank, of in enumerate(self.settings[:MOST_TOLD], 1)},
                "Runs": f"{runs:,}, {len(self.failures):,} failed",
                "Time": duration_text(self.seconds),
            },
            warnings=[*self.warnings, *(str(failure) for failure in self.failures[:MOST_ROWS])],
            sections=[
                Section(
                    f"Settings by {score}",
                    columns=("setting", "interquartile mean", "low", "high", "mean", "runs"),
                    rows=[
                        (name, *(f"{number:.4g}" for number in (*setting.interval, setting.mean)), len(setting.runs))
                        for name, setting in [*ranked.items()][:MOST_ROWS]
                    ],
                ),
                Section(
                    "Policies to choose from",
                    columns=("setting", "seed", score, "path", *(["cannot be judged"] if is_estimate else [])),
                    rows=[
                        (
                            setting.name,
                            run.seed,
                            f"{run.score:,.4g}",
                            run.checkpoint,
                            *([run.reason or "–"] if is_estimate else []),
                        )
                        for setting in self.settings[:MOST_ROWS]
                        for run in setting.runs
                    ],
                ),
            ],
            details={"Intervals": f"{100 * self.confidence:g} %, of the interquartile mean"},
            draw=figures.drawn(self._pictures),
            advice=self._advice(),
            next=self._next(),
            about=(self.checkpoint, None),
            places=[f"{first.folder.rsplit('/', 2)[0]}/card"],  # a setting's is <output>/runs/<digest>
        )

    def _pictures(self) -> list[figures.Picture]:
        """Draw the settings in the order of their rank."""
        score, ranked = self.score.replace("_", " "), {str(rank): setting for rank, setting in enumerate(self.settings, 1)}
        every = [score for setting in self.settings for score in setting.scores]
        thresholds = np.linspace(min(every), max(every), 101)
        shown = {name: ranked[name] for name in [*ranked][:MOST_LINES]}
        profiles = {
            name: [*zip(thresholds.tolist(), self._profile(setting, thresholds).tolist(), strict=True)]
            for name, setting in shown.items()
        }
        curves = {name: setting.curve for name, setting in shown.items() if len(setting.curve) > 1}
        points = {
            f"{rank}. {figures.label(setting.short_name, MOST_LETTERS)}": setting.interval
            for rank, setting in [*ranked.items()][:MOST_POINTS]
        }
        best = {name: [*enumerate(values, 1)] for name, values in self.expected_best.items()}
        return [
            partial(figures.intervals, values=points, x=score, lines={}),
            *([partial(figures.lines, named=curves, x="updates", y="mean, interval")] if curves else []),
            partial(figures.lines, named=profiles, x=score, y="share of runs better"),
            partial(figures.lines, named=best, x="policies tried", y=f"best {score}, expected"),
        ]

    def _profile(self, setting: SweptSetting, thresholds: np.ndarray) -> np.ndarray:
        """The share of the runs that are better than each threshold."""
        return performance_profile(self.sign * np.array(setting.scores), self.sign * thresholds)

    @property
    def sign(self) -> int:
        """See `sign_of`."""
        return sign_of(self.score)

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint

    @property
    def checkpoints(self) -> list[str]:
        """URI of the best policy of each setting, the best setting first."""
        return [max(setting.runs, key=lambda run: self.sign * run.score).checkpoint for setting in self.settings]

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that the best setting set, by path."""
        return self.settings[0].parameters

    def table(self) -> pl.DataFrame:
        """One row a setting, the best first.

        A row has the setting's parameters, runs, mean, interquartile mean, interval and folder. Where the score is `estimate`,
        it also has how many runs could be judged.
        """
        import polars as pl

        paths = dict.fromkeys(path for setting in self.settings for path in setting.parameters)
        parameters = {path: _column([setting.parameters.get(path) for setting in self.settings]) for path in paths}
        judged = [sum(run.reason is None for run in setting.runs) for setting in self.settings]
        numbers = {
            "runs": [len(setting.runs) for setting in self.settings],
            **({"judged": judged} if self.score == "estimate" else {}),
            **{
                name: [getattr(setting, name) for setting in self.settings]
                for name in ("mean", "interquartile_mean", "low", "high", "folder")
            },
        }
        return pl.DataFrame(parameters | numbers)


def _column(values: list[Any]) -> list[Any]:
    """The values if they are of one type, else their texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {int, float} or kinds <= {str} or kinds <= {bool}:
        return [float(value) for value in values] if kinds == {int, float} and None not in values else values
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
