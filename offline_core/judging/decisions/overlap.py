"""How much of what a candidate does the log has, and where it does not."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import IS, number_names
from offline_core.judging.estimation.trajectories import STEPS_AT_A_TIME

PLAUSIBLE_RATIO = 20.0
"""An action that is this many times as likely to the candidate as it was is one that the behaviour hardly took."""
ENOUGH_EPISODES = 100
"""Effective episodes that have to be left, in a log of one step, by an action that the behaviour would plausibly take."""
DEPTH = 2
SPLITS = 15
LEAST_SHARE = 0.05
MOST_ROWS = 20_000
NOTICED = 0.1
"""A region is told where it differs from the rest by this much."""
STANDARD_ERRORS = 5.0
"""How far the sides of a split are apart at least: of some thousand splits, hardly one is so by chance."""


def supported(log_ratios: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(n,) numbers whose mean is the share of the candidate's actions that the behaviour would plausibly take.

    Actions that were never taken show only in this: the ratios of the others are below 1 in the mean. In a log of one step,
    ratios are not multiplied. So a ratio may be so large that enough episodes would be left if the candidate did nothing else.
    Where a thousand items are shown alike, a sure choice is a thousand times as likely, and a long log has enough of it.

    Arguments:
        log_ratios: (n,) of some steps.
        lengths: (E,) of all episodes in steps.
    """
    with np.errstate(over="ignore"):
        ratios = np.exp(log_ratios)
    most = max(PLAUSIBLE_RATIO, len(lengths) / ENOUGH_EPISODES) if lengths.max() == 1 else PLAUSIBLE_RATIO
    return np.where(ratios <= most, ratios, 0.0)


def overlap_of(log_ratios: np.ndarray, lengths: np.ndarray) -> float:
    """The share of the candidate's actions that the behaviour would plausibly take, at most 1; see `supported`."""
    blocks = (log_ratios[at : at + STEPS_AT_A_TIME] for at in range(0, len(log_ratios), STEPS_AT_A_TIME))
    return min(1.0, sum(float(supported(block, lengths).sum()) for block in blocks) / len(log_ratios))


def regions(
    batch: EpisodeBatch, values: np.ndarray, words: str, *, seed: int, made_of: InputColumns | None = None
) -> list[str]:
    """Where in the space of observations the mean of values is lower than elsewhere, in words; a tree of two levels.

    Arguments:
        values: (N,) one a step, whose mean is a share.
        words: "… {share} …", for one region.
        made_of: what the observations are made of.
    """
    rows = np.sort(np.random.default_rng(seed).permutation(len(values))[:MOST_ROWS])
    names, features = _features(batch, np.flatnonzero(batch.is_step)[rows], made_of)
    values = values[rows]
    regions_by_mean = []
    for path, inside in _leaves(names, features, values, np.ones(len(values), bool), DEPTH):
        if (mean := float(values[inside].mean())) <= min(1.0, float(values.mean())) - NOTICED:
            told = f"{path}: {words.format(share=f'{100 * mean:.0f} %')} ({100 * inside.mean():.0f} % of steps)"
            regions_by_mean.append((mean, told))
    return [told for _, told in sorted(regions_by_mean)]


def _features(batch: EpisodeBatch, rows: np.ndarray, made_of: InputColumns | None) -> tuple[list[str], np.ndarray]:
    """Names and (rows, features) of the observations' numbers; of a large one, such as an image, the mean."""
    names: list[str] = []
    features: list[np.ndarray] = []
    for path, leaf in batch.leaves(columns.OBS).items():
        if leaf.dtype.kind not in "iufb":
            continue
        flat = leaf[rows].reshape(len(rows), -1).astype(np.float64)
        if flat.shape[1] > 64:
            names, features = [*names, f"mean of {path}"], [*features, flat.mean(axis=1, keepdims=True)]
            continue
        names += number_names(path, flat.shape[1], made_of)
        features.append(flat)
    return names, np.concatenate(features, axis=1) if features else np.zeros((len(rows), 0))


def _leaves(
    names: list[str],
    features: np.ndarray,
    values: np.ndarray,
    inside: np.ndarray,
    depth: int,
    bounds: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> list[tuple[str, np.ndarray]]:
    """(in words, (N,) bool) of each region; `bounds` are the narrowest so far, by feature and side."""
    split = _best_split(features, values, inside) if depth else None
    if split is None:
        return [(" and ".join(_in_words(name, bounds) for name in dict.fromkeys(name for name, _ in bounds)), inside)]
    column, limit = split
    below = features[:, column] < limit
    leaves = []
    for side, chosen in (("<", below), ("≥", ~below)):
        leaves += _leaves(names, features, values, inside & chosen, depth - 1, {**bounds, (names[column], side): limit})
    return leaves


def _in_words(name: str, bounds: Mapping[tuple[str, str], float]) -> str:
    """The bounds of a feature in a region, in words; for a category, whether it is that one."""
    low, high = bounds.get((name, "≥")), bounds.get((name, "<"))
    column, is_category, category = name.partition(IS)
    if is_category:
        return f"{column} is {category}" if low is not None else f"{column} is not {category}"
    if low is None or high is None:
        return f"{name} < {high:.3g}" if low is None else f"{name} ≥ {low:.3g}"
    return f"{name} from {low:.3g} to {high:.3g}"


def _best_split(features: np.ndarray, values: np.ndarray, inside: np.ndarray) -> tuple[int, float] | None:
    """(feature, limit) that leaves the least variance; None: no split leaves enough on both sides, or tells them apart."""
    rows, own, best = features[inside], values[inside], None
    gain = max(1e-6, STANDARD_ERRORS**2 * float(own.var()) / max(1, len(own)))
    least = LEAST_SHARE * len(values)
    for column in range(features.shape[1]):
        for limit in np.unique(np.quantile(rows[:, column], np.linspace(0, 1, SPLITS + 2)[1:-1])):
            below = rows[:, column] < limit
            count = int(below.sum())
            if min(count, len(own) - count) < least:
                continue
            between = (own[below].mean() - own[~below].mean()) ** 2 * (count / len(own)) * (1 - count / len(own))
            if between > gain:
                best, gain = (column, float(limit)), between
    return best
