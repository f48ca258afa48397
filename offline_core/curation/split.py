"""Split a dataset into two that have no episode in common, one of them held out."""

from __future__ import annotations

import contextlib
import hashlib
import logging

import numpy as np
import polars as pl
from pydantic import Field

from offline_core.curation.config import SplitConfig
from offline_core.datasets.commit import find_version
from offline_core.datasets.copying import commit_copy, copy_episodes
from offline_core.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.datasets.episode_index import episode_index, first_parts
from offline_core.datasets.manifest import Operation, Statistics
from offline_core.datasets.prepare import prepared
from offline_core.datasets.writer import EpisodeWriter
from offline_core.episodes import columns
from offline_core.errors import EmptyDatasetError
from offline_core.runtime.result import Result
from offline_core.storage.location import Location

log = logging.getLogger(__name__)

SIDES = ("train", "held_out")


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
    operations = [Operation.of("split_dataset", config, side=side) for side in SIDES]
    parents = [source.parent_entry]
    found = [find_version(place, operation, parents) for place, operation in zip(places, operations, strict=True)]
    if found[0] and found[1]:
        return _result(found[0], found[1], source, reused=True)
    index = episode_index(source, [*columns.EPISODE_SUMMARY, columns.CONTENT])
    held_out = chosen_to_hold_out(index, config)
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


def chosen_to_hold_out(index: pl.DataFrame, config: SplitConfig) -> np.ndarray:
    """(episodes,) booleans: `round(held_out_fraction · N)` of the N episodes, as many of each stratum as its share.

    N counts episodes with the same content, and parts of one episode, once: they go to the same side. Which of a stratum
    are chosen depends on the seed and on their content, not on their order.
    """
    unit = tied(index)
    heads = np.unique(unit)
    content, returns = index[columns.CONTENT].to_numpy()[heads], index[columns.RETURN].to_numpy()[heads]
    lots = np.array([hashlib.blake2b(f"{config.seed}/{text}".encode(), digest_size=8).digest() for text in content], "S8")
    by_return = np.lexsort((lots, returns))
    quota = np.floor(np.linspace(0, 1, 1 + config.strata) * len(heads) + 0.5).astype(int)
    until = np.floor(quota * config.held_out_fraction + 0.5).astype(int)  # held out up to each stratum's end
    held_out = np.zeros(len(index), bool)
    for start, stop, count in zip(quota[:-1], quota[1:], np.diff(until), strict=True):
        stratum = by_return[start:stop]
        held_out[heads[stratum[np.argsort(lots[stratum])[:count]]]] = True
    return np.asarray(held_out[unit])


def tied(index: pl.DataFrame) -> np.ndarray:
    """(episodes,) for each episode the number of the first one that it must not be parted from."""
    groups = [first_parts(index), np.unique(index[columns.CONTENT].to_list(), return_inverse=True)[1]]
    unit = np.arange(len(index))
    while True:
        before = unit
        for group in groups:
            first = np.full(group.max() + 1, len(index))
            np.minimum.at(first, group, unit)
            unit = first[group]
        if (unit == before).all():
            return unit
