"""Split a dataset into two that have no episode in common, one of them held out.

If it is chosen by a hash of its id, an episode never changes sides, whatever comes later.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import math
from collections.abc import Iterable, Sequence
from typing import NoReturn

import numpy as np
import polars as pl
from pydantic import Field

from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.observed import observed_constants
from offline_core.data.datasets.commit import find_version, prepared
from offline_core.data.datasets.copying import NOWHERE, copy_episodes, written_by_file
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.dataset_card import dataset_card, reading
from offline_core.data.datasets.held_out import SIDES, SPLIT
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.new_version import BegunVersion
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.episodes import columns
from offline_core.data.episodes.index import first_parts, trajectory_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EmptyDatasetError
from offline_core.runtime.parameter_names import did_you_mean
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.result import Result
from offline_core.runtime.stage import DATASET, VERSION, output, stage
from offline_core.runtime.units import count_text, list_text, number_text

log = logging.getLogger(__name__)

BY_LOT, BY_TIME, BY_ID = "episodes", "time", "id"
UNEVEN = 0.4
"""Share of the steps from which on one value of a column, or one id, decides what is held out."""
MOST_NAMED = 20
"""Columns in a message."""
SHOWN = 5
"""Held-out values in a message."""
ROUNDING = 1e-9
"""Tolerance for the rounding of a share times the number of episodes."""


class SplitResult(Result):
    """Both sides: before.episodes = train.episodes + held_out.episodes, always."""

    train: DatasetRef
    held_out: DatasetRef
    source: DatasetRef
    before: Statistics
    duplicates: int = Field(description="Episodes that go to the side of an earlier one: its copies and parts.")
    warnings: list[str] = Field([], description="Why one side may not stand for the other.")

    def card(self) -> Card:
        return dataset_card(
            "Split",
            [self.train, self.held_out],
            {"train": self.train, "held out": self.held_out},
            verdict="fair" if self.warnings else "good",
            word="Split, with a warning" if self.warnings else "Split",
            sentence=f"{count_text(self.train.episodes, 'episode')} to train on, {self.held_out.episodes:,} held out.",
            facts={"From": self.source, "To train on": self.train, "Held out": self.held_out},
            warnings=self.warnings,
            details={"Copies and parts next to their episode": self.duplicates} if self.duplicates else {},
            next=command("offline", "train", *reading(self.train)),
        )


@stage(
    SPLIT,
    version=4,
    after="compact",
    arguments=(DATASET, output("runs/split", "Folder for the two datasets, train and held_out."), VERSION),
    writes=SIDES,
    short=("held_out_fraction", "by", "seed"),
)
def split(config: SplitConfig, *, dataset: str, output: str, version: int | None = None) -> SplitResult:
    """Split a dataset by episode into train and held_out, with the same spread of returns.

    Each episode is copied into the next version of either `<output>/train` or `<output>/held_out`, in the order it had.

    Arguments:
        dataset: URI of a dataset.
        output: folder of the two datasets, created if need be.
        version: of the source, the latest if None.

    Raises:
        EmptyDatasetError: one of the sides would have no episode; nothing is written.
    """
    source = open_committed(dataset, version)
    uris = [Location.of(output).child(side).uri for side in SIDES]
    name, number = split.name, split.version
    operations = [Operation.of(name, config, version=number, side=side) for side in SIDES]
    parents = [source.parent_entry]
    existing = [find_version(uri, operation, parents) for uri, operation in zip(uris, operations, strict=True)]
    if existing[0] and existing[1]:
        return _result(existing[0], existing[1], source, reused=True)
    with contextlib.ExitStack() as stack:
        sides = [
            BegunVersion(stack.enter_context(prepared(uri)), operation, parents)
            for uri, operation in zip(uris, operations, strict=True)
        ]
        written, duplicates, warnings = (split_by_id if config.by == BY_ID else split_by_lot)(config, source, sides)
        report = {"duplicates": duplicates, "warnings": warnings}
        first, second = (side.commit_copy(files, [source], report=report) for side, files in zip(sides, written, strict=True))
    log.info("Split into %s and %s", first.ref, second.ref)
    return _result(first, second, source)


def dividing_fraction(ids: Iterable[str], config: SplitConfig) -> float | None:
    """Return the share next to that of `config`, of at most six digits, that leaves both sides an id; None: there is none."""
    places = sorted({id_place(trajectory_of(eps_id), config.seed) for eps_id in ids})
    wanted = config.held_out_fraction * len(places)
    for count in sorted(range(1, len(places)), key=lambda count: abs(count - wanted)):
        last, next_one = places[count - 1 : count + 1]  # the share is above the last that is held out, up to the next one
        for scale in (10.0**digits for digits in range(1, 7)):
            fraction = math.ceil(last / 2**64 * scale) / scale
            if last < int(fraction * 2**64) <= next_one and fraction < 1:
                return fraction
    return None


def _result(train: Dataset, held_out: Dataset, source: Dataset, *, reused: bool = False) -> SplitResult:
    return SplitResult(
        train=train.ref,
        held_out=held_out.ref,
        source=source.ref,
        before=source.manifest.statistics,
        duplicates=train.manifest.report["duplicates"],
        warnings=train.manifest.report.get("warnings", []),
        reused=reused,
    )


def chosen_to_hold_out(
    index: pl.DataFrame, config: SplitConfig, groups: np.ndarray | None = None, in_time: np.ndarray | None = None
) -> np.ndarray:
    """(episodes,) booleans: as many as the share to hold out, and as many of each stratum as its share.

    Units are parts of one episode, a group, and copies: they go to the same side, so the share is met as nearly as they allow.
    Which of a stratum are chosen depends on the seed and on their content, not on their order or ids. By time, the last ones
    are.

    Arguments:
        groups: (episodes,) a value of each; equal ones stay together, and strata do not count.
        in_time: (episodes,) their numbers in the order of time; None: as they lie.
    """
    unit = _units(index, config, groups)
    heads, number, sizes = np.unique(unit, return_inverse=True, return_counts=True)
    held_out = np.zeros(len(heads), bool)
    if config.by == BY_TIME:
        begun = np.arange(len(index)) if in_time is None else np.argsort(in_time)
        order = np.argsort(begun[heads])
        from_here = np.cumsum(sizes[order][::-1])[::-1]
        held_out[order[from_here - sizes[order] / 2 <= config.held_out_fraction * len(index) + ROUNDING]] = True
        return np.asarray(held_out[number])
    content = index.select(columns.CONTENT)[heads]
    earlier = pl.int_range(pl.len()).over(columns.CONTENT)  # equal episodes are drawn each for itself, whatever their ids
    drawn_by = content.select(
        pl.when(earlier == 0).then(columns.CONTENT).otherwise(pl.concat_str(columns.CONTENT, pl.lit("/"), earlier))
    )
    returns = index[columns.RETURN].to_numpy()[heads]
    # Equal returns are ordered by other lots than those that choose: else the strata's edges would decide which are chosen.
    ties, lots = (_lots(drawn_by.to_series().to_list(), f"{config.seed}{suffix}") for suffix in ("/ties", ""))
    by_return = np.lexsort((ties, returns))
    strata = config.strata if groups is None else 1
    quota = np.floor(np.linspace(0, 1, 1 + strata) * len(heads) + 0.5).astype(int)
    until = np.concatenate([[0], np.cumsum(sizes[by_return])])[quota] * config.held_out_fraction
    for start, stop, wanted in zip(quota[:-1], quota[1:], until[1:], strict=True):
        stratum = by_return[start:stop]
        held_out[_as_many(stratum[np.argsort(lots[stratum])], sizes, wanted - sizes[held_out].sum())] = True
    return np.asarray(held_out[number])


def _as_many(order: np.ndarray, sizes: np.ndarray, wanted: float) -> np.ndarray:
    """Units in this order whose episodes come to the number wanted: all that fit, and one more where that is nearer."""
    taken = [order[:0]]
    while (fits := sizes[order] <= wanted + ROUNDING).any():
        first = order[fits]
        first = first[np.cumsum(sizes[first]) <= wanted + ROUNDING]
        taken.append(first)
        wanted -= sizes[first].sum()
        order = order[~np.isin(order, first)]
    return np.concatenate([*taken, order[sizes[order] <= 2 * wanted + ROUNDING][:1]])


def _units(index: pl.DataFrame, config: SplitConfig, groups: np.ndarray | None = None) -> np.ndarray:
    return tied(index, groups, by_content=config.equal_episodes == "together")


def _lots(drawn_by: Sequence[str], seed: str) -> np.ndarray:
    """(episodes,) bytes whose order is by chance, and the same for the same texts and seed."""
    return np.array([hashlib.blake2b(f"{seed}/{text}".encode(), digest_size=8).digest() for text in drawn_by], "S8")


def values_of(source: Dataset, index: pl.DataFrame, name: str, *, what: str = "") -> np.ndarray:
    """(episodes,) str: a column's value in each episode, which has to be one; also of a column that is seen.

    Arguments:
        what: cannot be done by the column, in the message; empty: "… cannot be split".

    Raises:
        ConfigError: There is no such column, or its value changes within an episode.
    """
    if name in columns.EPISODE_METADATA:
        return np.asarray(source.index([name])[name].cast(pl.String).fill_null("").to_list())
    values = source.constants(name)
    made_of = source.manifest.input_columns
    if None in values and made_of is not None and name in made_of.obs:
        values = [*observed_constants(source, name)]
    if None in values:
        what = what or f"{source.ref} cannot be split"
        if source.manifest.operation.config.get("mapping", {}).get(columns.EPS_ID) == name:
            raise ConfigError(
                f"{what} by {name!r}, which names its episodes and is no column of its steps: import "
                f"again with columns: {{computed: {{{name}_kept: {name}}}}}, and name {name}_kept."
            )
        first = source.first_episode()
        known = [*(() if made_of is None else made_of.obs), *({} if first is None else first.extras)]
        eps_id = index[columns.EPS_ID][values.index(None)]
        why = f"it changes within episode {eps_id}, or has no value there"
        if name not in known and all(value is None for value in values):
            why = f"no column is called so{did_you_mean(name, [*known, *columns.EPISODE_METADATA])}"
        raise ConfigError(
            f"{what} by {name!r}: {why}. Choose one of {', '.join(columns.EPISODE_METADATA)}, or a column with one value in "
            f"all steps of each episode; there are: {list_text(known, MOST_NAMED) or 'none'}."
        )
    return np.array(list(map(str, values)))


def tied(index: pl.DataFrame, labels: np.ndarray | None = None, *, by_content: bool = True) -> np.ndarray:
    """(episodes,) for each episode the number of the first one that it must not be parted from.

    Arguments:
        labels: equal ones stay together.
        by_content: and episodes with equal contents; otherwise only those with equal ids besides.
    """
    same = [columns.CONTENT] if by_content else [columns.EPS_ID, columns.CONTENT]
    equal = index.select(same).with_row_index("row").select(pl.col("row").min().over(same))["row"].to_numpy()
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


def id_place(trajectory: str, seed: int) -> int:
    """Return the hash of seed and id, below 2^64: the id is held out by each share that is above it."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/id/{trajectory}".encode(), digest_size=8).digest(), "big")


def held_out_by_id(ids: Iterable[str], config: SplitConfig) -> np.ndarray:
    """(episodes,) booleans: the hash of seed and id is below the share to hold out. Parts of a trajectory count as one id."""
    limit = int(config.held_out_fraction * 2**64)

    @functools.cache
    def is_held_out(trajectory: str) -> bool:
        return id_place(trajectory, config.seed) < limit

    return np.array([is_held_out(trajectory_of(eps_id)) for eps_id in ids], bool)


def split_by_lot(
    config: SplitConfig, source: Dataset, sides: Sequence[BegunVersion]
) -> tuple[list[WrittenFiles], int, list[str]]:
    """(what is written of both sides, episodes that are copies or parts of others, warnings).

    Raises:
        ConfigError: a column of which equal values stay together is not there, or changes within an episode.
        EmptyDatasetError: one of the sides would have no episode; nothing is written.
    """
    index = source.index([*columns.EPISODE_SUMMARY, columns.CONTENT])
    groups = None if config.by in (BY_LOT, BY_TIME) else values_of(source, index, config.by)
    held_out = chosen_to_hold_out(index, config, groups, source.in_time() if config.by == BY_TIME else None)
    if held_out.all() or not held_out.any():
        units = len(np.unique(_units(index, config, groups)))
        if len(np.unique(_units(index, config))) == 1:
            _refuse_to_divide(source, len(index))
        raise EmptyDatasetError(
            f"A share of {config.held_out_fraction:g} of {source.ref} leaves one side of the split without an episode: "
            f"its {len(index):,} episodes are {units:,} groups, each of which stays on one side. "
            + (
                "Choose another share, or record more episodes."
                if groups is None or len(np.unique(groups)) > 1
                else f"{config.by!r} has one value, {groups[0]!r}: split by a column with several, or by episodes."
            )
        )
    with contextlib.ExitStack() as opened:
        writers = [
            opened.enter_context(EpisodeWriter(side.folder, "part", format=source.manifest.format, config=config.files))
            for side in sides
        ]
        copy_episodes(source, index, held_out.astype(int), writers, what="split")
    warnings = [] if groups is None else _about_largest(config, groups, index[columns.LENGTH].to_numpy(), held_out)
    return [writer.written for writer in writers], len(index) - len(np.unique(_units(index, config))), warnings


def _about_largest(config: SplitConfig, groups: np.ndarray, lengths: np.ndarray, held_out: np.ndarray) -> list[str]:
    """On a value that stays together and has so many of the steps that sides are neither of the size asked for nor alike.

    Arguments:
        groups: (episodes,) a value of each.
        lengths: (episodes,) their steps.
    """
    names, number = np.unique(groups, return_inverse=True)
    shares = np.bincount(number, weights=lengths) / max(1, lengths.sum())
    if (most := shares.max()) < UNEVEN:
        return []
    apart = np.unique(groups[held_out])
    shown = list_text(apart, SHOWN)
    percent = 100 * lengths[held_out].sum() / lengths.sum()
    return [
        f"{config.by} has {len(names):,} values, and {names[shares.argmax()]} alone has {100 * most:.0f} % of the steps. "
        f"Episodes with one value stay together, so {number_text(percent)} % of the steps are held out, of "
        f"{count_text(len(apart), 'value')} ({shown}), where {100 * config.held_out_fraction:g} % of the episodes were asked "
        "for. What is held out may not be like the rest: split by a column with more values, or by episodes."
    ]


def _refuse_to_divide(source: Dataset, episodes: int) -> NoReturn:
    """No share helps: what cannot be told apart stays on one side."""
    are = "it is one" if episodes == 1 else f"its {episodes:,} are copies or parts of one"
    raise EmptyDatasetError(
        f"{source.ref} cannot be divided: each side needs an episode that is not on the other, and {are}. Record or import at "
        "least 2 episodes that differ."
    )


def split_by_id(
    config: SplitConfig, source: Dataset, sides: Sequence[BegunVersion]
) -> tuple[list[WrittenFiles], int, list[str]]:
    """(what is written of both sides, parts of trajectories beside the first, warnings); of an append only what is new is read.

    Raises:
        EmptyDatasetError: one of the sides would have no episode; nothing is written.
    """
    index = source.index([columns.EPS_ID, columns.LENGTH])
    ids = index[columns.EPS_ID].to_list()
    held_out = held_out_by_id(ids, config)
    trajectories = len(set(map(trajectory_of, ids)))
    if trajectories == 1:
        _refuse_to_divide(source, len(ids))
    if held_out.all() or not held_out.any():
        fraction = dividing_fraction(ids, config)
        works = "Choose another seed" if fraction is None else f"Set held_out_fraction to {fraction:g}, choose another seed"
        raise EmptyDatasetError(
            f"Of the {trajectories:,} ids of {source.ref} all have their hash on one side of {config.held_out_fraction:g}. "
            f"{works}, or wait for more episodes."
        )

    def write(root: Location, part: Dataset, *, side: bool) -> WrittenFiles:
        with EpisodeWriter(root, "part", format=part.manifest.format, config=config.files) as writer:
            if part.manifest.files:
                index = part.index()
                to = np.where(held_out_by_id(index[columns.EPS_ID].to_list(), config) == side, 0, NOWHERE)
                copy_episodes(part, index, to, [writer], what="split")
        return writer.written

    written = [
        written_by_file(side.folder, side.operation, source, functools.partial(write, side=number == 1), files=config.files)
        for number, side in enumerate(sides)
    ]
    wholes = np.array([trajectory_of(eps_id) for eps_id in ids])
    warnings = _about_largest(config, wholes, index[columns.LENGTH].to_numpy(), held_out)
    return written, len(ids) - trajectories, warnings
