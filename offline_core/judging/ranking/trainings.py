"""What to run for an algorithm on a dataset: the commands as they are, with the parameters that make it work, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.dataset_card import reading
from offline_core.data.episodes import columns
from offline_core.data.inputs.number_names import number_names
from offline_core.judging.ranking.measures import USUAL_NUMBERS, Measures
from offline_core.learning.trainer_config import OptimizerConfig
from offline_core.runtime.reporting.card import command
from offline_core.runtime.result import Part
from offline_core.runtime.units import number_text

BEST_EPISODES = "bc on the best episodes"
BY_VALUE = ("iql", "cql", "td3_bc")
"""Algorithms that learn values, whose scale is that of the rewards."""
BOUNDED = ("cql", "td3_bc")
"""Algorithms that need a Box to have bounds, as they act between them."""
USUAL_REWARDS = (0.2, 5.0)
"""Smallest and largest difference of returns, divided by the number of steps, with which rewards need no scale."""
LEAST_USED = 0.1
"""Share of the range between the bounds below which actions use so little of it that the bounds say nothing of them."""
PAD = 0.05
"""How far bounds are beyond the recorded range that they are taken from, on each side and as a share of it."""
BATCH_SIZE, UPDATES = 256, 10_000
"""Of what learns values, where the default of a training has fewer updates."""
MOST_FILES = 8
"""Most files that a command names."""


class Training(Part):
    """How to train one algorithm on a dataset."""

    what: str = Field(description="The algorithm, or the episodes and the algorithm.")
    commands: list[str] = Field(description="As they are; folders are below the current one.")
    parameters: list[str] = Field(description="What is not at its default in them, and why.")

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True)
class Trained:
    """The dataset that is trained on, as commands name it."""

    words: Sequence[str]
    """The words of a command that name the dataset."""
    again: Sequence[str] | None = None
    """The command that imports it once more, to which parameters can be added; None: none does."""

    @classmethod
    def of(cls, dataset: Dataset) -> Trained:
        """Find in the manifest how the dataset can be imported once more.

        An import is repeated. The files of another dataset are imported, unless names of columns would be lost.
        """
        manifest, words = dataset.manifest, reading(dataset.ref)
        files = [dataset.location.child(file.path).uri for file in manifest.files]
        sources = [parent.uri for parent in manifest.parents if parent.kind == "files"]
        parameters = manifest.operation.config if manifest.operation.stage == "import" else {}
        if manifest.operation.stage == "import" and sources and len(sources) == len(manifest.parents):
            repeated = {
                name: value for name, value in parameters.items() if name not in ("action_space", "environment", "append")
            }
            settings = [word for name, value in repeated.items() for word in ("-s", f"{name}={json.dumps(value)}")]
            return cls(words, ["offline", "import", *sources, *settings])
        can = manifest.input_columns is None and len(files) <= MOST_FILES
        return cls(words, ["offline", "import", *files] if can else None)


def training_of(algorithm: str, measures: Measures, data: Trained) -> Training:
    """The commands for an algorithm, or for `BEST_EPISODES`.

    Arguments:
        measures: of the dataset.
    """
    commands: list[str] = []
    told: list[str] = []
    words, what = list(data.words), algorithm
    if (why := _needs_bounds(algorithm, measures)) is not None:
        told.append(why)
        if data.again is None:
            told.append(f"Repeat the import of what {words[0]} was made of with action_space={_bounds(measures)}.")
        else:
            commands.append(command(*data.again, "-o", "runs/bounded", "-s", f"action_space={_bounds(measures)}"))
            words = ["runs/bounded"]
    elif algorithm in BOUNDED and measures.actions.kind == "bounded":
        told.append(f"{algorithm} needs bounds of actions, and has those of the dataset's action space: {_range(measures)}.")
    if algorithm == BEST_EPISODES:
        share = float(f"{max(0.05, measures.near_best):.2g}")
        told.append(f"keep_top_fraction={share:g}: {100 * measures.near_best:.0f} % of the episodes are near the best.")
        commands.append(command("offline", "prune", *words, "runs/best", "-s", f"keep_top_fraction={share:g}"))
        words, what, algorithm = ["runs/best"], f"bc on the best {100 * share:.2g} % of the episodes", "bc"
    settings = []
    for setting, because in _parameters(algorithm, measures):
        settings += ["-s", setting]
        told += [f"{setting}: {because}."] if because else []
    commands.append(command("offline", "train", *words, f"runs/{algorithm}", "-s", f"algorithm={algorithm}", *settings))
    return Training(what=what, commands=commands, parameters=told)


def _parameters(algorithm: str, m: Measures) -> Iterator[tuple[str, str]]:
    """Yield (setting, why) of the parameters that differ from the defaults."""
    if m.observations.are_unusual:
        low, high = map(number_text, m.observations.spreads)
        size = number_text(m.observations.largest)
        yield (
            "network.normalize_observations=true",
            f"the numbers of observations have spreads from {low} to {high} and sizes up to {size}",
        )
    a_step = (m.best_return - m.worst_return) / max(1.0, m.median_length)
    if algorithm in BY_VALUE and a_step > 0 and not USUAL_REWARDS[0] <= a_step <= USUAL_REWARDS[1]:
        unit = {"iql": "iql.beta is per unit of reward", "cql": "cql.alpha is per unit of reward"}
        yield (
            f"data.rewards.scale={float(f'{1 / a_step:.1g}'):g}",
            f"returns differ by {number_text(a_step)} a step, and {unit.get(algorithm, 'critics learn values near 1 soonest')}",
        )
    default = OptimizerConfig()
    usual = math.ceil(m.steps / default.batch_size) * default.epochs(m.steps)
    if algorithm in BY_VALUE and usual < UPDATES:
        yield f"optimizer.batch_size={BATCH_SIZE}", ""
        yield f"optimizer.max_updates={UPDATES}", f"values take more updates than the {usual:,} of the default"


def _needs_bounds(algorithm: str, m: Measures) -> str | None:
    """Why actions need other bounds than they have; None if they do not."""
    kind, (low, high) = m.actions.kind, m.actions.spreads
    if kind == "unbounded" and algorithm in BOUNDED:
        return f"{algorithm} needs bounds of actions, and the action space has none; {_recorded(m)}."
    if kind == "unbounded" and not USUAL_NUMBERS[0] <= low <= high <= USUAL_NUMBERS[1]:
        return (
            "The network works in units of the bounds of actions, or in the actions' own where there are none. These have "
            f"spreads from {number_text(low)} to {number_text(high)}; {_recorded(m)}."
        )
    if kind == "bounded" and m.actions.used is not None and m.actions.used < LEAST_USED:
        return (
            f"The network works in units of the bounds of actions, of which {100 * m.actions.used:.2g} % are used: "
            f"{_range(m)} are declared, and {_recorded(m)}."
        )
    return None


def _recorded(m: Measures) -> str:
    return f"they were recorded {_ranges(m.actions.recorded_low, m.actions.recorded_high)}: action_space gives them"


def _range(m: Measures) -> str:
    return _ranges(m.actions.low, m.actions.high)


def _ranges(low: Sequence[float], high: Sequence[float]) -> str:
    names = number_names(columns.ACTIONS, len(low))
    pairs = [f"{number_text(a)} to {number_text(b)}" for a, b in zip(low, high, strict=True)]
    if len({*pairs}) == 1:
        return f"from {pairs[0]}"
    return ", ".join(f"{name} from {pair}" for name, pair in zip(names, pairs, strict=True))


def _bounds(m: Measures) -> str:
    """An action space with bounds a little beyond what was recorded, as a parameter."""
    low, high = np.array(m.actions.recorded_low), np.array(m.actions.recorded_high)
    wider = PAD * np.maximum(high - low, 1e-3 * np.maximum(1e-3, np.abs(high)))
    shape = m.actions.shape
    lows, highs = ([float(f"{number:.4g}") for number in bound] for bound in (low - wider, high + wider))
    space = {
        "space": "box",
        "low": np.reshape(lows, shape).tolist(),
        "high": np.reshape(highs, shape).tolist(),
        "shape": shape,
        "dtype": m.actions.dtype,
    }
    return json.dumps(space)
