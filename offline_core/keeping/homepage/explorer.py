"""The episodes of a dataset: a list of them, some that are chosen, each with its steps, and clips of them."""

from __future__ import annotations

import base64
import io
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from offline_core.data.curation.condition import Condition, without_nan
from offline_core.data.curation.pieces import kept_steps
from offline_core.data.curation.scores import REASON, SCORE
from offline_core.data.curation.scores import read_scores as stored_scores
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.marks import Marks
from offline_core.data.datasets.row_group import RowGroup
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.quality.result import Histogram
from offline_core.data.store.location import Location
from offline_core.judging.ranking.reasons import with_unit_once
from offline_core.keeping.contents import Contents
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.signals import signals_of
from offline_core.keeping.homepage.values import number
from offline_core.policies.recording.video import CLIPS, TYPES

Groups = Sequence[tuple[RowGroup, np.ndarray]]
"""Row groups, each with the numbers of its episodes."""

MAX_NUMBERS = 2_000_000
"""Of the steps of all datasets together in one file, 5.3 bytes each; every dataset may use its share."""
MOST_MATCHES = 2_000
"""Episodes that meet a condition and are listed."""
MAX_CLIP_BYTES = 2 * 2**20
"""A larger clip is linked."""


def episodes_of(
    dataset: Dataset,
    index: pl.DataFrame,
    config: ReportConfig,
    *,
    scores: pl.DataFrame | None,
    filmed: Sequence[str],
    marks: Marks,
) -> dict[str, Any]:
    """The list of episodes by column, by their numbers in the dataset, those that `choose` names, and histograms.

    Arguments:
        scores: outlier scores and reasons of the episodes, in the order of the dataset.
        filmed: eps_ids of those of which there is a clip.
    """
    returns, lengths = (index[name].to_numpy() for name in (columns.RETURN, columns.LENGTH))
    score = None if scores is None or len(scores) != len(index) else scores[SCORE].to_numpy()
    is_whole = (index[columns.TERMINATED] | index[columns.TRUNCATED]).to_numpy() & (index[columns.T_STARTED] == 0).to_numpy()
    clips = dict.fromkeys(np.flatnonzero(index[columns.EPS_ID].is_in([*filmed]).to_numpy()).tolist(), "clip")
    picked = choose(returns.astype(np.float64), score, config.episodes, seed=config.seed, is_whole=is_whole)
    chosen = clips | picked
    rows = listed(len(index), chosen, config.listed, seed=config.seed)
    episodes: dict[str, Any] = {
        "version": dataset.manifest.version,
        "total": len(index),
        **_columns(index, rows, marks),
        "chosen": chosen,
        "histograms": {
            name: Histogram.of(np.asarray(values, np.float64)).model_dump()
            for name, values in (("return", returns), ("length", lengths))
        },
    }
    if score is not None and scores is not None:
        episodes["score"] = [number(value, 4) for value in score[rows].tolist()]
        episodes["reason"] = [reason and with_unit_once(reason) for reason in scores[REASON].gather(rows).to_list()]
    return episodes


def choose(
    returns: np.ndarray, scores: np.ndarray | None, count: int, *, seed: int, is_whole: np.ndarray | None = None
) -> dict[int, str]:
    """At most `count` of E episodes and why each was chosen, in the order in which they are the most worth looking at.

    The best and the worst by return, the median one, the farthest outliers, and a sample: a quarter of each. A fragment of an
    episode is the best or the worst only where no episode is whole: where steps cost, the shortest fragment has the highest
    return.

    Arguments:
        returns: (E,); infinite and NaN ones come last.
        is_whole: (E,) booleans: it begins with its first step, and ends as it does; None: all do.
        scores: (E,) how far each is from the others; None: unknown.
    """
    known = np.flatnonzero(np.isfinite(returns))
    if is_whole is not None and is_whole[known].any():
        known = known[is_whole[known]]
    order = known[np.argsort(returns[known], kind="stable")]
    quarter = max(1, count // 4)
    reasons: dict[int, str] = {}

    def take(why: str, episodes: np.ndarray, most: int) -> None:
        for episode in episodes[:most].tolist():
            if len(reasons) < count:
                reasons.setdefault(episode, why)

    take("best", order[::-1], 1)
    take("worst", order, 1)
    take("median", order[len(order) // 2 :], 1)
    if scores is not None:
        take("outlier", np.argsort(-np.nan_to_num(scores), kind="stable"), quarter)
    middle = len(order) // 2  # of few episodes a quarter of the count is more than those on one side of the median
    take("best", order[:middle:-1], quarter)
    take("worst", order[:middle], quarter)
    take("sample", np.random.default_rng(seed).permutation(len(returns)), len(returns))
    return reasons


def listed(total: int, chosen: dict[int, str], most: int, *, seed: int) -> np.ndarray:
    """The numbers of the episodes that are listed, in order: all, or those chosen and a sample up to `most`."""
    if total <= most:
        return np.arange(total)
    sample = np.random.default_rng([seed, 1]).permutation(total)
    rest = sample[~np.isin(sample, list(chosen))][: max(0, most - len(chosen))]
    return np.sort(np.concatenate([np.array([*chosen], np.int64), rest]))


def _columns(index: pl.DataFrame, rows: np.ndarray, marks: Marks) -> dict[str, list[Any]]:
    some = index[rows]
    ends = np.where(some[columns.TERMINATED], "terminated", np.where(some[columns.TRUNCATED], "truncated", "open"))
    return {
        "number": rows.tolist(),
        "id": some[columns.EPS_ID].to_list(),
        "start": some[columns.T_STARTED].to_list() if (some[columns.T_STARTED] != 0).any() else [],
        "return": [number(value) for value in some[columns.RETURN].to_list()],
        "length": some[columns.LENGTH].to_list(),
        "end": ends.tolist(),
        "marked": rows[marks.of(some)].tolist(),
    }


def matching(
    dataset: Dataset, index: pl.DataFrame, groups: Groups, condition: str, *, of_steps: bool, marks: Marks
) -> dict[str, Any]:
    """The episodes that meet a condition of `prune`, by column; at most `MOST_MATCHES` of them, and how many there are.

    Arguments:
        of_steps: the condition is one on steps, and an episode meets it if any of its steps does. Reads the data.

    Raises:
        ConfigError: the condition cannot be understood, or names what is no column.
    """
    where = Condition.sql(condition)
    if of_steps:
        met = np.zeros(len(index), bool)
        for group, numbers in groups:
            episodes = [episode for episode in group.episodes() if len(episode)]
            if episodes:
                has_steps = index[columns.LENGTH].gather(numbers).to_numpy() > 0
                met[numbers[has_steps]] = [kept.any() for kept in kept_steps(episodes, where, dataset)]
    else:
        where.require(columns.EPISODE_METADATA)
        names = [name for name in columns.EPISODE_METADATA if name in {*columns.EPISODE_SUMMARY, *where.names}]
        met = where.met(without_nan(dataset.index(names))).fill_null(False).to_numpy()
    rows = np.flatnonzero(met)
    return {"total": len(index), "matching": len(rows), **_columns(index, rows[:MOST_MATCHES], marks)}


def facts_of(index: pl.DataFrame, number: int) -> dict[str, Any]:
    """What the list says of one episode."""
    return {name: values[0] for name, values in _columns(index, np.array([number]), Marks()).items() if values}


def read_episode(groups: Groups, wanted: int) -> Episode:
    """One episode by its number; reads the one row group that it is in."""
    group, numbers = next(some for some in groups if len(some[1]) and some[1][0] <= wanted <= some[1][-1])
    return group.episodes(only=numbers == wanted)[0]


def steps_of(
    dataset: Dataset, index: pl.DataFrame, groups: Groups, wanted: Sequence[int], max_numbers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The steps of the first of the wanted episodes, as many as have no more than `max_numbers` numbers together."""
    lengths = index[columns.LENGTH].to_numpy()
    left = max_numbers
    space = dataset.observation_space
    width = 2 + (int(np.prod(space.shape or (1,))) if space is not None and space.shape is not None else 4)
    expected = np.cumsum([min(width, 40) * (int(lengths[episode]) + 1) for episode in wanted])
    wanted = wanted[: max(1, int(np.searchsorted(expected, max_numbers)))]
    is_wanted = np.zeros(len(index), bool)
    is_wanted[wanted] = True
    for group, numbers in groups if wanted else ():
        here = is_wanted[numbers]
        if not here.any():
            continue
        for episode_number, episode in zip(numbers[here].tolist(), group.episodes(only=here), strict=True):
            signals = signals_of(episode, dataset.manifest.input_columns)
            is_first = left == max_numbers
            if (left := left - signals.values.size) < 0 and not is_first:
                return
            yield episode_number, {**signals.as_json(), **facts_of(index, episode_number)}


def read_scores(location: Location) -> pl.DataFrame:
    """The scores and reasons that a look for outliers left, in the order of the dataset.

    Raises:
        StorageError: there are none.
        CorruptFileError: they are not what was written.
        UnsafeDataError: reading a column could run code.
    """
    scores = pl.read_parquet(io.BytesIO(stored_scores(location)), columns=[SCORE, REASON])
    refuse_extension_types(scores.clear().to_arrow().schema, location.uri)
    return scores


def clips_of(contents: Contents, name: str, dataset: Dataset) -> Mapping[str, str]:
    """The files of clips by eps_id.

    Arguments:
        name: of the dataset's folder, relative to the root.
    """
    folder = posixpath.join(name, CLIPS, f"{dataset.manifest.version:06d}/")
    files = [file for file in contents.catalogue.files if file.startswith(folder) and posixpath.splitext(file)[1] in TYPES]
    return {posixpath.splitext(posixpath.basename(file))[0]: file for file in files}


def clip_of(contents: Contents, file: str) -> Mapping[str, str]:
    """The type of a clip, and the clip itself or the address of its file."""
    location, type = contents.catalogue.location(file), TYPES[posixpath.splitext(file)[1]]
    if contents.catalogue.files[file].size <= MAX_CLIP_BYTES:
        return {"type": type, "data": f"data:{type};base64,{base64.b64encode(location.read()).decode('ascii')}"}
    return {"type": type, "href": f"file://{quote(location.uri)}" if location.is_local else location.uri}
