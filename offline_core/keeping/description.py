"""What is in a dataset, as numbers and as a table that prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offline_core.data.datasets.about import About, read_about
from offline_core.data.datasets.dataset import Dataset, not_imported
from offline_core.data.datasets.statistics import ColumnStatistics, Statistics, Summary
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.batch import step_column
from offline_core.data.inputs.number_names import number_names
from offline_core.data.quality.check import last_report
from offline_core.keeping.homepage.facts import MAX_DIMENSIONS, summary_text
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.units import count_text

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True, repr=False)
class DatasetDescription:
    """What is in a dataset. It prints as a table, in a terminal and in a notebook."""

    uri: str
    version: int
    episodes: int
    steps: int
    terminated: int
    truncated: int
    returns: Summary
    """Of the episodes: count, mean, standard deviation, least and largest."""
    lengths: Summary
    """Likewise, in steps."""
    about: About
    """What is said of it: author, license, description, source."""
    features: pl.DataFrame
    """One row a number of a step: name, shape and dtype of its column, min, mean, max, missing (NaN), infinite."""

    def __repr__(self) -> str:
        return self._card().terminal(verbose=True)

    def _repr_html_(self) -> str:
        return self._card().html(is_page=False)

    def _card(self) -> Card:
        ends = f"{self.terminated:,} terminated, {self.truncated:,} truncated"
        return Card(
            "Dataset",
            {
                "Dataset": f"{self.uri} version {self.version}",
                **{name.capitalize(): text for name, text in self.about.facts.items()},
                "Episodes": f"{self.episodes:,} ({ends})",
                "Steps": f"{self.steps:,}",
                "Return": summary_text(self.returns),
                "Length": summary_text(self.lengths),
            },
            sentence=f"{count_text(self.episodes, 'episode')}, {count_text(self.steps, 'step')}.",
            sections=[Section("Features", (), self.features.columns, [*map(_texts, self.features.rows())])],
        )


def describe(dataset: Dataset) -> DatasetDescription:
    """Describe a dataset by its manifest, or by its last check; where neither knows its columns, all steps are read.

    Raises:
        SchemaError: It was not imported.
        CorruptFileError: It cannot be read.
    """
    import polars as pl

    if dataset.is_foreign:
        raise not_imported(dataset.location.uri)
    statistics, ref = dataset.statistics, dataset.ref
    kinds = _kinds(dataset)
    rows = [
        (name, *kinds.get(path, ("", "")), column.min[i], column.mean[i], column.max[i], column.nan[i], column.infinite[i])
        for path, column in _columns(dataset).items()
        for i, name in enumerate(number_names(path, len(column.mean), dataset.manifest.input_columns)[:MAX_DIMENSIONS])
    ]
    numbers = {"min": pl.Float64, "mean": pl.Float64, "max": pl.Float64, "missing": pl.Int64, "infinite": pl.Int64}
    return DatasetDescription(
        uri=ref.uri,
        version=ref.version,
        episodes=statistics.episodes,
        steps=statistics.steps,
        terminated=statistics.terminated,
        truncated=statistics.truncated,
        returns=statistics.returns,
        lengths=statistics.lengths,
        about=read_about(dataset.location),
        features=pl.DataFrame(
            rows, schema={"name": pl.String, "shape": pl.String, "dtype": pl.String, **numbers}, orient="row"
        ),
    )


def _columns(dataset: Dataset) -> dict[str, ColumnStatistics]:
    known = dataset.statistics.columns
    if known is None and (report := last_report(dataset)) is not None:
        known = report.statistics.columns
    if known is None:
        with dataset.reading():
            known = Statistics.of_episodes(group.episodes() for group in dataset.row_groups()).columns
    return known or {}


def _kinds(dataset: Dataset) -> dict[str, tuple[str, str]]:
    """(shape of a step, dtype) of each column by its path, as the first episode with steps has it."""
    with dataset.reading():
        first = next((episode for group in dataset.row_groups() for episode in group.episodes() if len(episode)), None)
    if first is None:
        return {}
    names = (*columns.STATISTICS, *first.extras)
    leaves = {path: leaf for name in names for path, leaf in nested.flatten(step_column([first], name), name).items()}
    return {path: (str(leaf.shape[1:]), str(leaf.dtype)) for path, leaf in leaves.items()}


def _texts(row: tuple[object, ...]) -> list[object]:
    return ["–" if value is None else f"{value:,.4g}" if isinstance(value, float) else value for value in row]
