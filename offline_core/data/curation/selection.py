"""Choose the episodes to keep by rules, and count which rule drops each of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
import polars as pl

from offline_core.data.curation.condition import Condition, without_nan
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.scores import SCORE_COLUMNS, Scores
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import columns
from offline_core.data.episodes.index import COPIED_STEPS, content_of_extras, id_in_source
from offline_core.errors import ConfigError
from offline_core.runtime.sql import has_aggregates


def choose(
    index: pl.DataFrame,
    config: PruningConfig,
    *,
    new: np.ndarray | None = None,
    marked: np.ndarray | None = None,
    where: Condition | None = None,
    finite: np.ndarray | None = None,
    refusals: Callable[[np.ndarray], np.ndarray] | None = None,
    extras: Callable[[], Sequence[str | None]] | None = None,
) -> tuple[np.ndarray, dict[str, int]]:
    """((episodes,) booleans: what is kept, how many each rule dropped of those that the rules before it had left).

    Arguments:
        index: with the columns that `index_names` names.
        new: (episodes,) whether the version of `new_since` lacks an episode; None passes over that rule.
        marked: (episodes,) whether an episode is marked as bad; None passes over that rule.
        where: the condition, understood (see `condition`).
        finite: (episodes,) whether all values of an episode are; None passes over that rule.
        extras: gives what `extras_of` does, where short episodes are like copies; None: there are no extras.
        refusals: which filter refuses each of the episodes that are left, see `refusals`; None passes over them.
    """
    keep = np.ones(len(index), bool)
    dropped: dict[str, int] = {}

    def apply(rule: str, kept: np.ndarray) -> None:
        nonlocal keep
        dropped[rule] = dropped.get(rule, 0) + int((keep & ~kept).sum())
        keep = keep & kept

    if new is not None:
        apply("new_since", new)
    if marked is not None:
        apply("marked", ~marked)
    if finite is not None:
        apply("drop_non_finite", finite)
    if where is not None:
        apply("where", where.met(without_nan(index)).fill_null(False).to_numpy())
    if config.drop_duplicates:
        left = np.flatnonzero(keep)
        first = np.zeros(len(index), bool)
        first[left[_first_of_copies(index, left, extras)]] = True
        apply("drop_duplicates", first)
    if refusals is not None:
        refused_by = refusals(keep)
        for number, own in enumerate(config.filters):
            apply(str(own), refused_by != number)
    if config.keep_top_fraction is not None:
        candidates = np.flatnonzero(keep)
        count = math.ceil(round(config.keep_top_fraction * len(candidates), 9))  # 0.07 * 100 is 7.000000000000001
        best = np.argsort(-index[columns.RETURN].to_numpy()[candidates], kind="stable")[:count]  # among equals the earlier one
        top = np.zeros(len(index), bool)
        top[candidates[best]] = True
        apply("keep_top_fraction", top)
    return keep, dropped


def _first_of_copies(index: pl.DataFrame, left: np.ndarray, extras: Callable[[], Sequence[str | None]] | None) -> np.ndarray:
    """(len(left),) booleans: the episode is no copy of an earlier one of those that are left.

    Long episodes of equal content are copies, whatever their ids. Short ones come by chance, as small contents repeat: copies
    have one id in the source and equal times and extras, too.
    """
    index = index[left]
    is_short = (index[columns.LENGTH] < COPIED_STEPS).to_numpy()
    ids = [id_in_source(eps_id) if short else None for eps_id, short in zip(index[columns.EPS_ID], is_short, strict=True)]
    keys = index.select(columns.CONTENT).with_columns(id=pl.Series(ids, dtype=pl.String))
    is_first = keys.select(pl.struct(pl.all()).is_first_distinct()).to_series()
    if extras is None or (is_first.to_numpy() | ~is_short).all():
        return is_first.to_numpy()
    keys = keys.with_columns(extras=pl.Series(extras(), dtype=pl.String).gather(left))
    return keys.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()


def extras_of(source: Dataset) -> list[str | None]:
    """For each episode of a step or two what `content_of_extras` says, None for the others. Reads all steps."""
    episodes = (episode for group in source.row_groups() for episode in group.episodes())
    return [content_of_extras(episode) if len(episode) < COPIED_STEPS else None for episode in episodes]


def decides_alone(config: PruningConfig) -> bool:
    """Whether `where` is the only rule, if there is one, and compares no episode with others."""
    fields = type(config).model_fields.items()
    others = [name for name, field in fields if getattr(config, name) != field.default]
    return {*others} <= {"where", "columns", "files"} and not has_aggregates(config.where or "")


def condition(config: PruningConfig, where: pl.Expr | str | None = None) -> Condition | None:
    """Return the condition that an episode has to meet: `where` as Polars or SQL, or the SQL of the config.

    Raises:
        ConfigError: both are given, the SQL cannot be understood, or a column is none of an episode's; or scores are given and
            no condition on them.
    """
    if where is not None and config.where is not None:
        raise ConfigError(f"Two conditions are given, {config.where!r} and {where}; combine them into one.")
    if (expression := config.where if where is None else where) is None:
        _require_scores(config, frozenset())
        return None
    parsed = Condition.sql(expression) if isinstance(expression, str) else Condition(str(expression), expression)
    if config.outliers is None and (scores := sorted(parsed.names & set(SCORE_COLUMNS))):
        parsed.refuse(f"names {scores[0]!r}: name the folder of the scores by 'outliers', see 'offline outliers --help'.")
    _require_scores(config, parsed.names)
    parsed.require((*columns.EPISODE_METADATA, *(SCORE_COLUMNS if config.outliers else ())))
    return parsed


def _require_scores(config: PruningConfig, names: Collection[str]) -> None:
    if config.outliers is not None and not set(SCORE_COLUMNS) & set(names):
        raise ConfigError(
            f"outliers is {config.outliers!r}, and no condition names {' or '.join(SCORE_COLUMNS)}: set where, such as "
            "'not is_outlier' or 'outlier_score < 6'."
        )


def pruning_index(source: Dataset, config: PruningConfig, where: Condition | None, scores: Scores | None) -> pl.DataFrame:
    """The columns that the rules look at, one row an episode in the order of the data.

    Raises:
        SchemaError: a foreign folder, which has no such columns.
    """
    index = source.index(index_names(config, where))
    return index if scores is None else index.hstack(scores.table.select(SCORE_COLUMNS))


def index_names(config: PruningConfig, where: Condition | None) -> list[str]:
    """The columns of `columns.EPISODE_METADATA` that the rules look at, and all of `columns.EPISODE_SUMMARY`."""
    wanted = {*columns.EPISODE_SUMMARY, *(where.names if where else ()), *([columns.CONTENT] if config.drop_duplicates else ())}
    return [name for name in columns.EPISODE_METADATA if name in wanted]
