"""Rank the episodes of a dataset by how unlike the others they are, and say what the dataset speaks for."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np
from scipy.stats import norm

from offline_core.data.curation.scores import SCORES, write_scores
from offline_core.data.datasets.dataset import Dataset, file_hash, open_committed
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.episodes import columns
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.ranking import features as f
from offline_core.judging.ranking import reasons
from offline_core.judging.ranking.advice import advise
from offline_core.judging.ranking.config import OutlierConfig
from offline_core.judging.ranking.dynamics import Dynamics
from offline_core.judging.ranking.features import Features, cut_before, features_of, of_all, of_choices
from offline_core.judging.ranking.measures import (
    ActionMeasures,
    Measures,
    ObservationScale,
    coverage_of,
    density_of,
    measures_of,
)
from offline_core.judging.ranking.result import Outlier, OutlierResult
from offline_core.judging.ranking.sample import Sample, numbered
from offline_core.judging.ranking.trainings import Trained
from offline_core.runtime.stage import DATASET, VERSION, Made, output, stage

if TYPE_CHECKING:
    from offline_core.judging.ranking.clone import Clone

log = logging.getLogger(__name__)

MOST_SHOWN = 20
QUANTILES = (0.5, 0.9, 0.99, 1.0)
LEAST_OF_MEDIAN = 0.05
"""Smallest deviation of returns and lengths, as a share of the median, for where all other episodes are equal."""
LEAST_SHARE = 0.05
"""Smallest deviation of a share of steps."""
LEAST_OF_BROKEN = 1e-3
"""Smallest deviation of the share of steps with NaN or infinity: a single NaN in a hundred steps counts."""
LEAST_OF_FLAG = 0.125
"""Smallest deviation of a flag, so that an episode that alone has it is 8 deviations from the others.

The same holds for a number that is other than 0 in one episode alone.
"""
LEAST_OF_SURPRISE = 0.05
"""Smallest deviation of a surprise, in nats or in roots of deviations."""


@stage(
    "outliers",
    version=7,
    after="check",
    arguments=(DATASET, output("runs/outliers", "Folder for the scores."), VERSION),
)
def outliers(config: OutlierConfig, *, dataset: str, output: str, version: int | None = None) -> Made[OutlierResult]:
    """Rank the episodes by how unlike the others they are, and say which algorithm the dataset speaks for.

    Each is scored by the feature in which it is farthest from the others, in robust standard deviations.

    Features are returns, lengths, ends and gaps, of each number of observations, actions and rewards its mean, spread, largest
    jump and how often it stays, and the surprise of actions, of transitions and of rewards to models that were fitted to other
    episodes. What is an extra column, which no policy sees, is not compared. The data is read twice. Memory: 12 bytes a step,
    and what `max_steps` steps take.

    Arguments:
        dataset: URI of a dataset.
        output: folder of `scores.parquet` and `result.json`.
        version: of the dataset, the latest if None.

    Raises:
        EmptyDatasetError: there is no step.
        SchemaError: the episodes do not have the same columns; or the files were never imported.
        CorruptFileError: a file is damaged.
    """
    start = time.perf_counter()
    source = open_committed(dataset, version)
    begun = yield StoredResult(
        OutlierResult,
        Location.of(output),
        [source.parent_entry],
        file_hash,
        outputs=lambda result: [result.scores],
        config=config,
    )
    scores = begun.folder.child(SCORES)
    looked = _look(source, config)
    names, values = [*looked.features], np.column_stack([*looked.features.values()])
    found_by = ["" for _ in values]
    distances = deviations(values, least_deviations(names, values), config.common_share)
    score = np.abs(distances).max(axis=1)
    order = np.argsort(-score, kind="stable")
    medians = np.nanmedian(known_of(values), axis=0)
    chosen = order[: int((score >= config.threshold).sum())]
    for i, standing in zip(chosen.tolist(), reasons.standings(values, distances, chosen), strict=True):
        found_by[i] = reasons.reason(names, standing, medians, looked.where(i), threshold=config.threshold)
    farthest = [names[i] for i in np.abs(distances[chosen]).argmax(axis=1)]
    index = source.index([columns.EPS_ID, columns.T_STARTED])
    write_scores(scores, source, index, score, score >= config.threshold, found_by, names, values)
    ids = index[columns.EPS_ID].to_list()
    listed = [
        Outlier(episode=i, eps_id=ids[i], score=float(score[i]), farther_than=int((score < score[i]).sum()), reason=found_by[i])
        for i in chosen[:MOST_SHOWN].tolist()
    ]
    result = OutlierResult(
        uri=begun.folder.uri,
        scores=scores.uri,
        dataset=source.ref,
        threshold=config.threshold,
        count=len(chosen),
        drawn=sum(name in looked.drawn for name in farthest),
        outliers=listed,
        quantiles={f"{share:g}": float(np.quantile(score, share)) for share in QUANTILES},
        notes=looked.notes,
        measures=looked.measures,
        advice=advise(looked.measures, Trained.of(source), target=config.target_return),
        seconds=time.perf_counter() - start,
    )
    log.info("%s: %d of %d episodes are outliers", source.ref, result.count, len(score))
    return result


def known_of(values: np.ndarray) -> np.ndarray:
    """(E, F) the values, NaN where one is not known, and 0 for a feature of which none is."""
    finite = np.isfinite(values)
    return np.where(finite, values, np.where(finite.any(axis=0), np.nan, 0.0))


def deviations(values: np.ndarray, least: np.ndarray, common_share: float) -> np.ndarray:
    """(E, F) signed distances from the medians, in robust standard deviations of the side on which a value lies; NaN: 0.

    Of each side the deviation is the larger one of those that its quartile and the quantile of its common share would have
    if it were half of a normal distribution. The first is the modified z-score (Iglewicz & Hoaglin 1993) by side, for skewed
    numbers ("double MAD"); the second widens it for long tails, and where so many episodes form a second mode. Both stay what
    they are whatever fewer episodes are changed to (a breakdown point of `common_share`).

    Arguments:
        values: (E, F)
        least: (F,) the smallest deviation.
        common_share: at most a quarter; at least one and a half episodes.
    """
    share = min(max(common_share, 1.5 / len(values)), 0.25)
    known = known_of(values)
    low, first, median, third, high = np.nanquantile(known, [share, 0.25, 0.5, 0.75, 1 - share], axis=0)
    by_quartile, by_tail = norm.ppf(0.75), norm.ppf(1 - share)
    above = np.maximum.reduce([(third - median) / by_quartile, (high - median) / by_tail, least])
    below = np.maximum.reduce([(median - first) / by_quartile, (median - low) / by_tail, least])
    offsets = known - median
    distances = offsets / np.where(offsets > 0, above, below)
    return np.where(np.isfinite(values), distances, 0.0)


def least_deviations(names: Sequence[str], values: np.ndarray) -> np.ndarray:
    """(F,) see `deviations`: of what all episodes have in common, a trifle is no outlier."""
    known = known_of(values)
    medians = np.nanmedian(known, axis=0)
    sizes = dict(zip(names, np.abs(medians), strict=True))
    farthest = np.nanmax(np.abs(known - medians), axis=0)
    least = np.array([_least(name, sizes) for name in names])
    return np.maximum(np.where(least > 0, least, LEAST_OF_FLAG * farthest), 1e-12)


def _least(name: str, medians: Mapping[str, float]) -> float:
    if name in (f.RETURN, f.LENGTH):
        return LEAST_OF_MEDIAN * medians[name]
    if name.startswith(f.BROKEN):
        return LEAST_OF_BROKEN
    if name.startswith((f.STILL, f.AT_BOUNDS)):
        return LEAST_SHARE
    if name in (f.CUT, f.MISSING):
        return LEAST_OF_FLAG
    for kind in (f.MEAN, f.SPREAD, f.JUMP):
        if name.startswith(kind):  # a number that stays within all episodes has no spread
            column = name[len(kind) + 1 :]
            sizes = (medians.get(f"{kind} {column}", 0.0) for kind in (f.SPREAD, f.MEAN, f.JUMP))
            return LEAST_OF_MEDIAN * next((size for size in sizes if size), 0.0)
    return LEAST_OF_SURPRISE


@dataclass(frozen=True, slots=True)
class _Looked:
    """All that was seen of a dataset."""

    features: Features
    signals: dict[str, np.ndarray]
    """(N,) float32 by name, of steps."""
    usual: dict[str, float]
    offsets: np.ndarray
    measures: Measures
    notes: list[str]
    drawn: set[str]
    """Features in which episodes differ by chance, as choices by lot do and what came of them."""

    def where(self, episode: int) -> dict[str, tuple[int, int]]:
        """Steps of an episode where each signal is unusual; a single step is no news."""
        begin, end = self.offsets[episode], self.offsets[episode + 1]
        if end - begin <= 1:
            return {}
        return {n: reasons.most_unusual_run(np.abs(s[begin:end]), self.usual[n]) for n, s in self.signals.items()}


def _look(source: Dataset, config: OutlierConfig) -> _Looked:
    sample = Sample.draw(source, config)
    dynamics = Dynamics(sample, seed=config.seed)
    clone, notes = _clone(sample, source.spaces, config)
    looked_at: list[Features] = []
    noise: list[np.ndarray] = []
    signals: dict[str, list[np.ndarray]] = {}
    ranges: list[tuple[np.ndarray, np.ndarray]] = []
    is_box = isinstance(source.spaces[1], gym.spaces.Box)
    for episodes, batch, numbers in numbered(source, what="outliers"):
        part = sample.part_by_episode[episodes]
        observed, reward = dynamics.surprise(batch, numbers, part[batch.episode])
        surprises = {reasons.TRANSITIONS: observed, reasons.REWARDS: reward}
        if clone is not None:
            surprises[reasons.ACTIONS], clones_noise = clone.look(batch, part)
            noise.append(clones_noise)
        looked_at.append(features_of(batch, numbers) | _surprises(surprises, batch.offsets))
        if is_box and len(batch):
            taken = batch.columns[columns.ACTIONS].reshape(len(batch), -1)
            ranges.append((taken.min(axis=0), taken.max(axis=0)))
        for name, signal in surprises.items():
            signals.setdefault(name, []).append(signal.astype(np.float32))
    features = {name: np.concatenate([part[name] for part in looked_at]) for name in looked_at[0]}
    features[f.CUT] = cut_before(features)
    joined = {name: np.concatenate(parts) for name, parts in signals.items()}
    rewards = sample.numbers.of(columns.REWARDS).sum(axis=1)
    lengths = features[f.LENGTH].astype(np.int64)
    measures = measures_of(
        features[f.RETURN],
        lengths,
        target=config.target_return,
        noise=np.concatenate(noise) if noise else None,
        coverage=coverage_of(sample, seed=config.seed),
        density=density_of(rewards),
        actions=ActionMeasures.of(source.spaces[1], sample, ranges),
        observations=ObservationScale.of(sample),
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    usual = {name: float(np.quantile(np.abs(signal), 0.9)) for name, signal in joined.items()}
    drawn = of_choices(sample.numbers) | {*reasons.SURPRISES} if measures.are_choices_by_lot else set[str]()
    return _Looked(features, joined, usual, offsets, measures, notes, drawn)


def _clone(sample: Sample, spaces: StoredSpaces, config: OutlierConfig) -> tuple[Clone | None, list[str]]:
    if spaces[0] is None or spaces[1] is None:
        return None, ["No action surprise: the dataset does not name its spaces."]
    from offline_core.judging.ranking.clone import Clone  # here, for what is reused needs no Torch

    try:
        return Clone(sample, (spaces[0], spaces[1]), config), []
    except ConfigError as error:
        return None, [f"No action surprise: {error}"]


def _surprises(signals: dict[str, np.ndarray], offsets: np.ndarray) -> Features:
    """Means of the signals by episode, and the largest transition and reward."""
    lengths = np.diff(offsets)
    rows, starts = lengths > 0, offsets[:-1][lengths > 0]
    features: Features = {}
    for name, signal in signals.items():
        features[name] = of_all(np.add.reduceat(signal, starts) / lengths[rows], rows)
        if name in (reasons.TRANSITIONS, reasons.REWARDS):
            features[f"largest {name}"] = of_all(np.maximum.reduceat(np.abs(signal), starts), rows)
    return features
