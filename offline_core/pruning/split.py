"""Holds a share of a dataset's episodes out: two datasets that have no episode in common."""

from __future__ import annotations

import contextlib
import hashlib
import logging

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from offline_core.conversion.importing import open_or_import
from offline_core.episodes import columns
from offline_core.errors import EmptyDatasetError
from offline_core.pruning.config import SplitConfig
from offline_core.storage.committing import find_version
from offline_core.storage.copying import commit_copy, copy_episodes
from offline_core.storage.dataset import Dataset, DatasetRef
from offline_core.storage.episode_index import episode_index
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Statistics
from offline_core.storage.parts import first_parts
from offline_core.storage.preparing import prepared
from offline_core.storage.writer import EpisodeWriter

log = logging.getLogger(__name__)

SIDES = ("train", "held_out")


class SplitResult(BaseModel):
    """Both sides: before.episodes = train.episodes + held_out.episodes, always."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    train: DatasetRef
    held_out: DatasetRef
    source: DatasetRef
    before: Statistics
    duplicates: int = Field(description="Episodes whose content, or whose episode, was there before; they follow the first.")
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")


def split_dataset(config: SplitConfig, *, dataset: str, output: str, version: int | None = None) -> SplitResult:
    """Copies each episode into the next version of either `<output>/train` or `<output>/held_out`, in the order it had.

    Arguments:
        dataset: URI of a dataset, or of a folder of RLlib's episode files.
        output: folder of the two datasets, created if need be.
        version: of the source, the latest if None.

    Raises:
        EmptyDatasetError: one of the sides would have no episode; nothing is written.
    """
    source = open_or_import(dataset, version, output=output)
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
    until = np.floor(quota * config.held_out_fraction + 0.5).astype(int)  # so many are held out up to each stratum's end
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
