"""Merge datasets into one; episodes that several of them hold are copied once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from pydantic import Field

from offline_core.data.curation.config import MergeConfig
from offline_core.data.datasets.copying import NOWHERE, copy_episodes
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.dataset_card import dataset_card, numbered
from offline_core.data.datasets.new_version import NewVersion
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import columns
from offline_core.data.episodes.index import OTHER_IDS
from offline_core.data.inputs.input_columns import common_inputs
from offline_core.errors import ConfigError, EpisodeError, SchemaError
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import Argument, Made, output, stage
from offline_core.runtime.units import count_text

log = logging.getLogger(__name__)

_SOURCE = "source"
_TIME = f"column {columns.TIME!r}"


class MergeResult(Result):
    """What was merged: the episodes of all sources together = after.episodes + duplicates, always."""

    dataset: DatasetRef
    sources: list[DatasetRef]
    before: list[Statistics]
    after: Statistics
    duplicates: int = Field(description="Episodes with the id and content of an earlier one: left out.")
    without_time: int = Field(0, description="Episodes that lost their extra `time`, because a source has none.")

    def card(self) -> Card:
        facts, details = numbered(self.sources)
        return dataset_card(
            "Merge",
            [self.dataset],
            {"merged": self.dataset},
            verdict="good",
            word="Merged",
            sentence=f"{count_text(self.dataset.episodes, 'episode')} of {count_text(len(self.sources), 'dataset')}; "
            f"{self.duplicates:,} copies left out.",
            facts={"To": self.dataset, **facts},
            details=details | ({"Episodes that lost their time": self.without_time} if self.without_time else {}),
        )


@stage(
    "merge",
    after="split",
    arguments=(
        Argument("datasets", "Folders of the datasets to read.", ["runs/recording"], "datasets", is_required=True),
        output("runs/merged", is_option=True),
    ),
    writes=("dataset",),
)
def merge(config: MergeConfig, *, datasets: Sequence[str], output: str) -> Made[MergeResult]:
    """Copy the episodes of several datasets, each once, into one.

    They are copied in the order of the datasets, into the next version of `output`.

    Arguments:
        datasets: URIs of datasets, of which the latest versions are read.
        output: URI of a dataset, created if need be; it may be one of them.

    Raises:
        ConfigError: no datasets are given.
        SchemaError: they differ in format, spaces, columns or their types, going by the first episode of each; the
            message lists all differences. Or their observations are made of raw columns in different ways.
        EpisodeError: two of them have different episodes of the same id.
    """
    if not datasets:
        raise ConfigError("There are no datasets to merge; name at least one.")
    sources = [open_committed(uri) for uri in datasets]

    def result(merged: Dataset) -> MergeResult:
        return MergeResult(
            dataset=merged.ref,
            sources=[source.ref for source in sources],
            before=[source.manifest.statistics for source in sources],
            after=merged.manifest.statistics,
            duplicates=merged.manifest.report["duplicates"],
            without_time=merged.manifest.report.get("without_time", 0),
        )

    begun = yield NewVersion(output, config, [source.parent_entry for source in sources], result)
    types = [_types(source) for source in sources]
    check_alike(sources, types)
    common_inputs([(source.location.uri, source.manifest.input_columns) for source in sources])
    indices = [source.index([*columns.EPISODE_SUMMARY, columns.CONTENT]) for source in sources]
    keep = first_occurrences(sources, indices)
    untimed, without_time = [s for s, own in zip(sources, types, strict=True) if columns.TIME not in own], 0
    with EpisodeWriter(begun.folder, "part", format=sources[0].manifest.format, config=config.files) as writer:
        for source, own, index, kept in zip(sources, types, indices, keep, strict=True):
            if untimed and columns.TIME in own:
                without_time += _copy_without_time(source, index, kept, writer)
            else:
                copy_episodes(source, index, np.where(kept, 0, NOWHERE), [writer], what="merge")
    written, duplicates = writer.written, int(sum((~kept).sum() for kept in keep))
    if not duplicates:
        before = functools.reduce(Statistics.merge, (source.manifest.statistics for source in sources))
        known = before.columns and {
            name: statistics for name, statistics in before.columns.items() if not (untimed and name == columns.TIME)
        }
        written = written._replace(statistics=written.statistics.model_copy(update={"columns": known}))
    if without_time:
        log.warning("Column 'time' is left out of %d episodes: %s has none.", without_time, untimed[0].ref)
    report = {"duplicates": duplicates} | ({"without_time": without_time} if without_time else {})
    return begun.commit_copy(written, sources, report=report)


def _copy_without_time(source: Dataset, index: pl.DataFrame, kept: np.ndarray, writer: EpisodeWriter) -> int:
    """Copy the episodes without their times; return how many were copied.

    Each is decoded: only so a column can be left out of the episode format.
    """
    for group, numbers in source.indexed_row_groups(index):
        if (chosen := kept[numbers]).any():
            episodes = group.episodes(only=chosen)
            writer.write([replace(e, extras={n: x for n, x in e.extras.items() if n != columns.TIME}) for e in episodes])
    return int(kept.sum())


def check_alike(sources: Sequence[Dataset], types: Sequence[Mapping[str, str]]) -> None:
    """Raises a SchemaError that lists all differences between the first dataset and the others, if there are any.

    The extra `time`, which imports by time add, may be missing.
    """
    first, described = sources[0], _description(sources[0], types[0])
    differences = [
        f"{name} is {described.get(name, 'missing')} in {first.location.uri} and {theirs.get(name, 'missing')} in "
        f"{other.location.uri}"
        for other, own in zip(sources[1:], types[1:], strict=True)
        for theirs in [_description(other, own)]
        for name in sorted(described.keys() | theirs.keys())
        if described.get(name) != theirs.get(name) and not (name == _TIME and (name not in described or name not in theirs))
    ]
    if differences:
        raise SchemaError(
            "\n  ".join(["The datasets differ:", *differences])
            + "\nImport them again with the same environment or spaces; 'offline convert' makes formats the same, and "
            "'offline prune' leaves columns out of tables, by its parameter columns."
        )


def first_occurrences(sources: Sequence[Dataset], indices: Sequence[pl.DataFrame]) -> list[np.ndarray]:
    """For each dataset (episodes,) booleans: the episode does not occur earlier in this dataset or one before it.

    Raises:
        EpisodeError: an id stands for different episodes in two datasets.
    """
    episodes = pl.concat([index.with_columns(pl.lit(i).alias(_SOURCE)) for i, index in enumerate(indices)])
    kept = episodes.select(pl.struct(columns.EPS_ID, columns.T_STARTED, columns.CONTENT).is_first_distinct()).to_series()
    owners = (
        episodes.filter(kept)
        .group_by(columns.EPS_ID, columns.T_STARTED, maintain_order=True)
        .agg(pl.col(_SOURCE).unique(maintain_order=True))
    )
    clashes = owners.filter(pl.col(_SOURCE).list.len() > 1)
    if len(clashes):
        one, other = (sources[number].location.uri for number in clashes[_SOURCE][0][:2])
        raise EpisodeError(
            f"{len(clashes)} ids stand for different episodes, {clashes[columns.EPS_ID][0]} first: it is one episode in {one} "
            f"and another in {other}. {OTHER_IDS}"
        )
    return np.split(kept.to_numpy(), np.cumsum([len(index) for index in indices])[:-1])


def _description(dataset: Dataset, types: Mapping[str, str]) -> dict[str, str]:
    """What has to be the same in datasets that become one, by name."""
    spaces = {"observation space": dataset.observation_space, "action space": dataset.action_space}
    described = {"format": str(dataset.manifest.format)} | {name: str(space) for name, space in spaces.items()}
    return described | {f"column {name!r}": type for name, type in types.items()}


def _types(dataset: Dataset) -> dict[str, str]:
    """Of the columns of the first episode, by name: `float32[4]`."""
    first = dataset.first_episode()
    if first is None:
        return {}
    return {path: kind if kind == "text" else f"{kind}{list(shape) or ''}" for path, (kind, shape) in first.types.items()}
