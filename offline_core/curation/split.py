"""Split a dataset into two that have no episode in common, one of them held out."""

from __future__ import annotations

import contextlib
import hashlib
import logging

import numpy as np
import polars as pl
from pydantic import Field

from offline_core.curation.config import SplitConfig
from offline_core.curation.split_by_id import split_by_id
from offline_core.datasets.commit import find_version
from offline_core.datasets.copying import commit_copy, copy_episodes
from offline_core.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.datasets.episode_index import episode_constants, episode_index, first_parts
from offline_core.datasets.manifest import Operation, Statistics
from offline_core.datasets.prepare import prepared
from offline_core.datasets.writer import EpisodeWriter
from offline_core.episodes import columns
from offline_core.errors import ConfigError, EmptyDatasetError
from offline_core.runtime.result import Result
from offline_core.storage.location import Location

log = logging.getLogger(__name__)

SIDES = ("train", "held_out")
BY_LOT, BY_TIME, BY_ID = "episodes", "time", "id"


class SplitResult(Result):
    """Both sides: before.episodes = train.episodes + held_out.episodes, always."""

    train: DatasetRef
    held_out: DatasetRef
    source: DatasetRef
    before: Statistics
    duplicates: int = Field(description="Copies and parts of earlier episodes; they go to the side of the first.")


def split_dataset(config: SplitConfig, *, dataset: str, output: str, version: int | None = None) -> SplitResult:
    """Copies each episode into the next version of either `<output>/train` or `<output>/held_out`, in the order it had.

    Arguments:
        dataset: URI of a dataset.
        output: folder of the two datasets, created if need be.
        version: of the source, the latest if None.

    Raises:
        EmptyDatasetError: one of the sides would have no episode; nothing is written.
    """
    source = open_committed(dataset, version)
    places = [Location.of(output).child(side).uri for side in SIDES]
    operations = [Operation.of("split_dataset", config, version=2, side=side) for side in SIDES]
    parents = [source.parent_entry]
    found = [find_version(place, operation, parents) for place, operation in zip(places, operations, strict=True)]
    if found[0] and found[1]:
        return _result(found[0], found[1], source, reused=True)
    if config.by == BY_ID:
        (train_side, _), (other_side, _) = split_by_id(config, source, places, operations)
        return _result(train_side, other_side, source)
    index = episode_index(source, [*columns.EPISODE_SUMMARY, columns.CONTENT])
    groups = None if config.by in (BY_LOT, BY_TIME) else values_of(source, index, config.by)
    held_out = chosen_to_hold_out(index, config, groups)
    if held_out.all() or not held_out.any():
        raise EmptyDatasetError(
            f"A share of {config.held_out_fraction:g} of {source.ref} leaves one side of the split without an episode: "
            f"{len(np.unique(tied(index))):,} of its {len(index):,} are neither copies nor parts of others. "
            "Choose another held_out_fraction, or record more episodes."
        )
    with contextlib.ExitStack() as stack:
        roots = [stack.enter_context(prepared(place)) for place in places]
        train, test = (
            stack.enter_context(EpisodeWriter(root, "part", format=source.manifest.format, config=config.files))
            for root in roots
        )
        copy_episodes(source, index, held_out.astype(int), [train, test], what="split")
    report = {"duplicates": len(index) - len(np.unique(tied(index)))}
    first, second = (
        commit_copy(place, writer.written, [source], operation=operation, report=report)
        for place, writer, operation in zip(places, (train, test), operations, strict=True)
    )
    log.info("Split into %s and %s", first.ref, second.ref)
    return _result(first, second, source)


def _result(train: Dataset, held_out: Dataset, source: Dataset, *, reused: bool = False) -> SplitResult:
    return SplitResult(
        train=train.ref,
        held_out=held_out.ref,
        source=source.ref,
        before=source.manifest.statistics,
        duplicates=train.manifest.report["duplicates"],
        reused=reused,
    )


def chosen_to_hold_out(index: pl.DataFrame, config: SplitConfig, groups: np.ndarray | None = None) -> np.ndarray:
    """(episodes,) booleans: `round(held_out_fraction · N)` of the N episodes, as many of each stratum as its share.

    N counts episodes with the same content, parts of one episode, and a group, once: they go to the same side. Which of a
    stratum are chosen depends on the seed and on their content, not on their order. By time, the last ones are.

    Arguments:
        groups: (episodes,) a value of each; equal ones stay together, and strata do not count.
    """
    unit = tied(index, groups, by_content=config.equal_episodes == "together")
    heads = np.unique(unit)
    if config.by == BY_TIME:
        held_out = np.zeros(len(index), bool)
        held_out[heads[len(heads) - int(len(heads) * config.held_out_fraction + 0.5) :]] = True
        return np.asarray(held_out[unit])
    names = [columns.CONTENT] if config.equal_episodes == "together" else [columns.CONTENT, columns.EPS_ID]
    drawn_by = index.select(pl.concat_str(names, separator="/")).to_series().to_numpy()[heads]
    returns = index[columns.RETURN].to_numpy()[heads]
    # Equal returns are ordered by other lots than those that choose: else the strata's edges would decide which are chosen.
    ties, lots = (_lots(drawn_by, f"{config.seed}{suffix}") for suffix in ("/ties", ""))
    by_return = np.lexsort((ties, returns))
    strata = config.strata if groups is None else 1
    quota = np.floor(np.linspace(0, 1, 1 + strata) * len(heads) + 0.5).astype(int)
    until = np.floor(quota * config.held_out_fraction + 0.5).astype(int)  # held out up to each stratum's end
    held_out = np.zeros(len(index), bool)
    for start, stop, count in zip(quota[:-1], quota[1:], np.diff(until), strict=True):
        stratum = by_return[start:stop]
        held_out[heads[stratum[np.argsort(lots[stratum])[:count]]]] = True
    return np.asarray(held_out[unit])


def _lots(drawn_by: np.ndarray, seed: str) -> np.ndarray:
    """(episodes,) bytes whose order is by chance, and the same for the same texts and seed."""
    return np.array([hashlib.blake2b(f"{seed}/{text}".encode(), digest_size=8).digest() for text in drawn_by], "S8")


def values_of(source: Dataset, index: pl.DataFrame, name: str) -> np.ndarray:
    """(episodes,) str: a column's value in each episode, which has to be one.

    Raises:
        ConfigError: There is no such column, or its value changes within an episode.
    """
    if name in columns.EPISODE_METADATA:
        return np.asarray(episode_index(source, [name])[name].cast(pl.String).fill_null("").to_list())
    values = episode_constants(source, name)
    if None in values:
        eps_id = index[columns.EPS_ID][values.index(None)]
        raise ConfigError(
            f"{source.ref} cannot be split by {name!r}: it is not in episode {eps_id}, or changes within it. Choose one of "
            f"{', '.join(columns.EPISODE_METADATA)}, or a column with one value in all steps of each episode."
        )
    return np.array(list(map(str, values)))


def tied(index: pl.DataFrame, labels: np.ndarray | None = None, *, by_content: bool = True) -> np.ndarray:
    """(episodes,) for each episode the number of the first one that it must not be parted from.

    Arguments:
        labels: equal ones stay together.
        by_content: and episodes with equal contents; otherwise only those with equal ids besides.
    """
    same = index.select(columns.CONTENT) if by_content else index.select(columns.EPS_ID, columns.CONTENT)
    _, equal = np.unique([repr(row) for row in same.iter_rows()], return_inverse=True)
    groups = [first_parts(index), equal]
    groups += [] if labels is None else [np.unique(labels, return_inverse=True)[1]]
    unit = np.arange(len(index))
    while True:
        before = unit
        for group in groups:
            first = np.full(group.max() + 1, len(index))
            np.minimum.at(first, group, unit)
            unit = first[group]
        if (unit == before).all():
            return unit
