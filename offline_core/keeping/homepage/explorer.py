"""The episodes of a dataset: all in a list, some with their steps."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from offline_core.data.curation.scores import REASON, SCORE
from offline_core.data.curation.scores import read_scores as stored_scores
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import columns
from offline_core.data.episodes.extension_types import refuse_extension_types
from offline_core.data.quality.result import Histogram
from offline_core.data.store.location import Location
from offline_core.keeping.homepage.choice import choose, listed
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.signals import signals_of
from offline_core.keeping.homepage.values import number

MAX_NUMBERS = 2_000_000
"""Of the steps of all datasets together, 5.3 bytes each; every dataset may use its share."""


def explorer(
    dataset: Dataset, config: ReportConfig, *, scores: pl.DataFrame | None, clips: Mapping[str, Any], max_numbers: int
) -> dict[str, Any]:
    """The list of episodes by column, histograms, and the steps of those that `choose` names, by their row in the list.

    Arguments:
        scores: outlier scores and reasons of the episodes, in the order of the dataset.
        clips: by eps_id.

    Raises:
        CorruptFileError, EpisodeError, StorageError, UnsafeDataError: naming what cannot be read.
    """
    index = dataset.index()
    returns, lengths = (index[name].to_numpy() for name in (columns.RETURN, columns.LENGTH))
    score = None if scores is None or len(scores) != len(index) else scores[SCORE].to_numpy()
    ids = index[columns.EPS_ID].to_list()
    filmed = {episode: "clip" for episode, eps_id in enumerate(ids) if eps_id in clips}
    chosen = filmed | choose(returns.astype(np.float64), score, config.episodes, seed=config.seed)
    rows = listed(len(index), chosen, config.listed, seed=config.seed)
    ends = np.where(index[columns.TERMINATED], "terminated", np.where(index[columns.TRUNCATED], "truncated", "open"))
    found: dict[str, Any] = {
        "total": len(index),
        "id": [ids[row] for row in rows],
        "return": [number(each) for each in returns[rows].tolist()],
        "length": lengths[rows].tolist(),
        "end": ends[rows].tolist(),
        "chosen": {int(np.searchsorted(rows, episode)): why for episode, why in chosen.items()},
        "clips": {int(np.searchsorted(rows, episode)): clips[ids[episode]] for episode in filmed},
        "histograms": {
            name: Histogram.of(np.asarray(values, np.float64)).model_dump()
            for name, values in (("return", returns), ("length", lengths))
        },
        "steps": {},
    }
    if score is not None and scores is not None:
        found["score"] = [number(each, 4) for each in score[rows].tolist()]
        reasons = scores[REASON].to_list()
        found["reason"] = {i: reasons[row] for i, row in enumerate(rows.tolist()) if reasons[row]}
    steps = _steps(dataset, index, [*chosen], max_numbers)
    found["steps"] = {int(np.searchsorted(rows, episode)): each for episode, each in steps.items()}
    return found


def _steps(dataset: Dataset, index: pl.DataFrame, wanted: list[int], max_numbers: int) -> dict[int, dict[str, Any]]:
    """The steps of the first of the wanted episodes, as many as have no more than `max_numbers` numbers together."""
    lengths = index[columns.LENGTH].to_numpy()
    found: dict[int, dict[str, Any]] = {}
    left = max_numbers
    space = dataset.observation_space
    width = 2 + (int(np.prod(space.shape or (1,))) if space is not None and space.shape is not None else 4)
    expected = np.cumsum([min(width, 40) * (int(lengths[episode]) + 1) for episode in wanted])
    wanted = wanted[: max(1, int(np.searchsorted(expected, max_numbers)))]
    is_wanted = np.zeros(len(index), bool)
    is_wanted[wanted] = True
    for group, numbers in dataset.indexed_row_groups(index) if wanted else ():
        here = is_wanted[numbers]
        if not here.any():
            continue
        for episode_number, episode in zip(numbers[here].tolist(), group.episodes(only=here), strict=True):
            signals = signals_of(episode, dataset.manifest.input_columns)
            if (left := left - signals.values.size) < 0 and found:
                return found
            found[episode_number] = signals.as_json()
    return found


def read_scores(place: Location) -> pl.DataFrame:
    """The scores and reasons that a look for outliers left, in the order of the dataset.

    Raises:
        StorageError: there are none.
        CorruptFileError: they are not what was written.
        UnsafeDataError: reading a column could run code.
    """
    scores = pl.read_parquet(io.BytesIO(stored_scores(place)), columns=[SCORE, REASON])
    refuse_extension_types(scores.clear().to_arrow().schema, place.uri)
    return scores
