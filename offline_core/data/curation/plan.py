"""What a pruning would keep, by metadata alone."""

from __future__ import annotations

import functools

import numpy as np
import polars as pl
from pydantic import Field

from offline_core.data.curation.condition import Condition
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.scores import scores_of
from offline_core.data.curation.selection import choose, condition, extras_of, pruning_index
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.marks import read_marks
from offline_core.data.episodes import columns
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.result import Part
from offline_core.runtime.units import count_text, number_text, size_text

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


class Returns(Part):
    """How the returns of some episodes are distributed."""

    mean: float
    quantiles: list[float] = Field(description=f"The shares {QUANTILES} of the episodes have at most these.")

    @classmethod
    def of(cls, returns: np.ndarray) -> Returns | None:
        """None without any."""
        if not len(returns):
            return None
        return cls(mean=float(returns.mean()), quantiles=np.quantile(returns, QUANTILES, method="inverted_cdf").tolist())


class PruningPlan(Part):
    """What would be kept; nothing was written."""

    source: DatasetRef
    episodes: int = Field(description="Episodes that would be kept.")
    steps: int
    bytes: int = Field(description="Estimated from the bytes a step takes in its file.")
    dropped: dict[str, int] = Field(description="Episodes that would not, by the rule that drops them.")
    before: Returns | None
    after: Returns | None
    unplanned: list[str] = Field(description="Rules left out because they look at the data itself: they may keep less.")

    def card(self) -> Card:
        return Card(
            "Pruning plan",
            {
                "Dataset": self.source,
                **{f"Dropped by {rule}": count_text(episodes, "episode") for rule, episodes in self.dropped.items()},
            },
            sentence=f"Would keep {count_text(self.episodes, 'episode')}, {count_text(self.steps, 'step')}, about "
            f"{size_text(self.bytes)}; nothing was written.",
            warnings=[f"May keep less: {', '.join(self.unplanned)} looks at the data itself."] if self.unplanned else (),
            sections=[
                Section(
                    "Returns",
                    columns=("", "mean", *(f"{100 * share:.0f} %" for share in QUANTILES)),
                    rows=[
                        (name, *(number_text(number) for number in (returns.mean, *returns.quantiles)))
                        for name, returns in (("now", self.before), ("then", self.after))
                        if returns is not None
                    ],
                )
            ],
        )


def plan_pruning(
    config: PruningConfig, *, dataset: str, version: int | None = None, where: pl.Expr | str | None = None
) -> PruningPlan:
    """What `prune` would keep, as far as the metadata says, and extras where short episodes are like copies.

    Raises:
        ConfigError: a condition cannot be understood, or names an unknown column; or the scores are not of this version.
        SchemaError: a foreign folder, which has no metadata.
    """
    source = open_committed(dataset, version)
    of_episodes = condition(config, where)
    unplanned = ["drop_non_finite"] * config.drop_non_finite
    if config.drop_duplicates and columns.CONTENT not in source.codec.metadata:
        unplanned.append("drop_duplicates")
        config = config.model_copy(update={"drop_duplicates": False})
    unplanned += ["new_since"] * (config.new_since is not None)
    unplanned += [str(own) for own in config.filters]
    if config.where_steps is not None:
        Condition.sql(config.where_steps)
        unplanned.append("where_steps")
    scores = None if config.outliers is None else scores_of(config.outliers, source)
    index = pruning_index(source, config, of_episodes, scores)
    marked = read_marks(source.location).of(index) if config.marked == "drop" else None
    keep, dropped = choose(index, config, marked=marked, where=of_episodes, extras=functools.partial(extras_of, source))
    returns, lengths = index[columns.RETURN].to_numpy(), index[columns.LENGTH].to_numpy()
    return PruningPlan(
        source=source.ref,
        episodes=int(keep.sum()),
        steps=int(lengths[keep].sum()),
        bytes=_estimated_bytes(source, lengths, keep),
        dropped=dropped,
        before=Returns.of(returns),
        after=Returns.of(returns[keep]),
        unplanned=unplanned,
    )


def _estimated_bytes(source: Dataset, lengths: np.ndarray, keep: np.ndarray) -> int:
    files = source.manifest.files
    bytes_per_step = np.repeat([file.bytes / max(1, file.steps) for file in files], [file.episodes for file in files])
    return round(float((bytes_per_step * lengths)[keep].sum()))
