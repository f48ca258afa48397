"""Prune a dataset: commit some of its episodes, whole or some of their steps, as a new version."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from pydantic import Field

from offline_core.data.curation.condition import Condition
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.pieces import write_pieces
from offline_core.data.curation.scores import Scores, scores_of
from offline_core.data.curation.selection import choose, condition, decides_alone, extras_of, pruning_index
from offline_core.data.datasets.copying import NOWHERE, copy_episodes, only_files, written_by_file
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.dataset_card import dataset_card
from offline_core.data.datasets.marks import read_marks
from offline_core.data.datasets.new_version import NewVersion
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.columns import STEP_CORE
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EmptyDatasetError
from offline_core.runtime.progress import progress
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import DATASET, VERSION, Made, output, stage
from offline_core.runtime.units import count_text
from offline_core.runtime.user_code import UserCode, user_errors

Filter = Callable[[Episode], bool]

NO_FILTER = -1


class PruningResult(Result):
    """What was kept."""

    dataset: DatasetRef
    source: DatasetRef
    before: Statistics
    after: Statistics
    dropped: dict[str, int] = Field(description="Episodes of which nothing was kept, by the rule that dropped them.")
    dropped_episodes: int = Field(description="All of them.")
    dropped_steps: int = Field(description="before.steps = after.steps + dropped_steps, always.")
    further_pieces: int = Field(
        description="Pieces beside the first of their episode: "
        "before.episodes + further_pieces = after.episodes + dropped_episodes, always."
    )

    def card(self) -> Card:
        before, after = self.before, self.after
        return dataset_card(
            "Pruning",
            [self.dataset],
            {"before": self.source, "after": self.dataset},
            verdict="good" if after.episodes else "fair",
            word="Pruned",
            sentence=f"{after.episodes:,} of {before.episodes:,} episodes kept; "
            f"mean return {before.returns.mean:,.1f} before, {after.returns.mean:,.1f} after.",
            facts={"From": self.source, "To": self.dataset, "Steps kept": f"{after.steps:,} of {before.steps:,}"},
            details={f"Dropped by {rule}": count_text(episodes, "episode") for rule, episodes in self.dropped.items()},
        )


@stage(
    "prune",
    version=2,
    after="outliers",
    arguments=(DATASET, output("runs/pruned"), VERSION),
    positional=("where",),
    writes=("dataset",),
    hint="Example: -s where='return >= 400'.",
    event="dataset.pruned",
    plan="data.curation.plan:plan_pruning",
    short=("where", "keep_top_fraction", "drop_duplicates"),
)
def prune(
    config: PruningConfig, *, dataset: str, output: str, version: int | None = None, where: pl.Expr | str | None = None
) -> Made[PruningResult]:
    """Keep the episodes that meet some conditions, as the next version of a dataset.

    Row groups without any episode to keep are never read; the bytes of an episode are copied as they are, unless
    `where_steps` cuts it into pieces.

    Arguments:
        dataset: URI of a dataset.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.
        where: condition on the columns of an episode, in Polars or SQL, in place of the one in the config.

    Raises:
        ConfigError: a condition cannot be understood, or names an unknown column; the scores are not of this version; a
            filter cannot be made, or gives something else than True or False.
        DataError: a filter failed on an episode, which the message names.
        EmptyDatasetError: nothing meets them; nothing is committed.
    """
    of_episodes = condition(config, where)
    of_steps = None if config.where_steps is None else Condition.sql(config.where_steps)
    source = open_committed(dataset, version)
    scores = None if config.outliers is None else scores_of(config.outliers, source)
    marks = read_marks(source.location) if config.marked == "drop" else None
    if where is not None:
        config = config.model_copy(update={"where": str(where)})

    if scores is not None and config.new_since is not None:
        raise ConfigError("outliers are scores of a whole version: prune by them first, and then by new_since.")

    def write(root: Location, part: Dataset, dropped: dict[str, int]) -> WrittenFiles:
        filters = [_Filter(own) for own in config.filters]
        with EpisodeWriter(root, "part", format=part.manifest.format, config=config.files) as writer:
            if not part.manifest.files:
                return writer.written
            index = pruning_index(part, config, of_episodes, scores)
            named = config.columns
            names = None if named is None else part.codec.projection(named, part.schema, part.location.uri)
            new = None if config.new_since is None else ~known_episodes(source, part, open_committed(dataset, config.new_since))
            finite = finite_episodes(part) if config.drop_non_finite else None
            marked = None if marks is None else marks.of(index)
            refused = functools.partial(refusals, part, index, filters) if filters else None
            extras = functools.partial(extras_of, part)
            keep, by_rule = choose(
                index, config, new=new, marked=marked, where=of_episodes, finite=finite, refusals=refused, extras=extras
            )
            dropped |= by_rule
            if of_steps is None:
                copy_episodes(part, index, np.where(keep, 0, NOWHERE), [writer], names=names, what="prune")
            else:
                dropped["where_steps"] = write_pieces(part, index, keep, of_steps, writer, names=names)
        return writer.written

    def result(pruned: Dataset) -> PruningResult:
        after, dropped = pruned.manifest.statistics, pruned.manifest.report["dropped"]
        return PruningResult(
            dataset=pruned.ref,
            source=source.ref,
            before=before,
            after=after,
            dropped=dropped,
            dropped_episodes=sum(dropped.values()),
            dropped_steps=before.steps - after.steps,
            further_pieces=after.episodes + sum(dropped.values()) - before.episodes,
        )

    before, dropped = source.manifest.statistics, dict[str, int]()
    by_scores = {} if scores is None else {"outliers": scores.sha256}  # and not where they are
    by_marks = {} if marks is None else {"marks": marks.sha256}  # which may be others tomorrow
    # The text of a Polars expression leaves out some of it: two that differ may have the same text.
    may_reuse = not isinstance(where, pl.Expr)
    begun = yield NewVersion(output, config, [source.parent_entry], result, more=by_scores | by_marks, may_reuse=may_reuse)
    if may_reuse and decides_alone(config):
        one_by_one = functools.partial(write, dropped={})
        written = written_by_file(begun.folder, begun.operation, source, one_by_one, files=config.files)
        dropped = {} if of_episodes is None else {"where": before.episodes - written.statistics.episodes}
    elif config.new_since is None:
        written = write(begun.folder, source, dropped)
    else:
        part = only_files(source, without=open_committed(dataset, config.new_since))
        written = write(begun.folder, part, dropped)
        elsewhere = before.episodes - sum(entry.episodes for entry in part.manifest.files)
        dropped = {"new_since": dropped.pop("new_since", 0) + elsewhere} | dropped
    if not written.files:
        raise _nothing_left(source, config, of_episodes, scores)
    return begun.commit_copy(written, [source], report={"dropped": dropped})


def finite_episodes(source: Dataset) -> np.ndarray:
    """(episodes,) booleans: no observation, action or reward of the episode is NaN or infinite. Reads them all."""

    def is_finite(episode: Episode) -> bool:
        trees = (episode.observations, episode.actions, episode.rewards)
        arrays = (array for tree in trees for array in nested.leaves(tree))
        return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")

    return np.array([is_finite(episode) for group in source.row_groups() for episode in group.episodes(STEP_CORE)], bool)


def known_episodes(source: Dataset, part: Dataset, earlier: Dataset) -> np.ndarray:
    """(episodes of `part`,) booleans: an earlier version of the source has the episode, with the same content.

    Arguments:
        part: the files of the source that the earlier version has not.
    """
    names = [columns.EPS_ID, columns.CONTENT]
    gone = only_files(earlier, without=source)
    if not gone.manifest.files:
        return np.zeros(sum(entry.episodes for entry in part.manifest.files), bool)
    known = set(gone.index(names).iter_rows())
    return np.array([row in known for row in part.index(names).iter_rows()], bool)


def _nothing_left(source: Dataset, config: PruningConfig, where: Condition | None, scores: Scores | None) -> EmptyDatasetError:
    index = pruning_index(source, config, where, scores)
    facts = [f"the highest return is {float(index[columns.RETURN].to_numpy().max())}"]
    facts += [f"{name} is not known of {nulls:,}" for name in index.columns if (nulls := index[name].null_count())]
    rules = [f"new since version {config.new_since}"] * (config.new_since is not None)
    rules += ["not marked as bad"] * (config.marked == "drop")
    rules += [f"where {config.where}"] * bool(config.where)
    rules += [f"keep_top_fraction {config.keep_top_fraction}"] * (config.keep_top_fraction is not None)
    rules += ["finite"] * config.drop_non_finite + [str(own) for own in config.filters]
    rules += [f"where steps {config.where_steps}"] * (config.where_steps is not None)
    return EmptyDatasetError(
        f"None of the {len(index):,} episodes of {source.ref} meets the conditions ({', '.join(rules)}); "
        f"{', '.join(facts)}. No version was committed."
    )


def refusals(source: Dataset, index: pl.DataFrame, filters: Sequence[Filter], keep: np.ndarray) -> np.ndarray:
    """(episodes,) for each episode to `keep` the number of the first filter that does not, `NO_FILTER` if all keep it.

    An episode that one refused is not shown to the next; the others are read once, a row group at a time. Row groups
    without an episode to keep are never read.

    Arguments:
        index: `episode_index` of the source.
        keep: (episodes,) booleans, in the order of the index.

    Raises:
        ConfigError: a filter gives something else than True or False.
        DataError: a filter failed, or an episode cannot be read; the message names it.
    """
    refused_by = np.full(len(index), NO_FILTER)
    with progress(int(keep.sum()), what="filter", unit="episode") as bar:
        for group, numbers in source.indexed_row_groups(index):
            left = numbers[keep[numbers]]
            if not len(left):
                continue
            for number, episode in zip(left, group.episodes(only=keep[numbers]), strict=True):
                refused_by[number] = next((i for i, keeps in enumerate(filters) if not keeps(episode)), NO_FILTER)
            bar.update(len(left))
    return refused_by


class _Filter:
    """A filter of the user, whose errors name it and the episode."""

    def __init__(self, own: UserCode) -> None:
        self._what = f"filter {own}"
        self._keeps = own.make("filter")
        if not callable(self._keeps):
            raise ConfigError(f"The {self._what} cannot be called with an episode; give it a method __call__(episode).")

    def __call__(self, episode: Episode) -> bool:
        with user_errors(self._what, f"on episode {episode.eps_id}"):
            keeps = self._keeps(episode)
        if not isinstance(keeps, bool | np.bool):
            raise ConfigError(
                f"The {self._what} gives {keeps!r} for episode {episode.eps_id}, and not True (keep it) or False (drop it)."
            )
        return bool(keeps)
