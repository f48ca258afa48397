"""Which episodes of a dataset have their steps in the page."""

from __future__ import annotations

import numpy as np


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
    take("best", order[::-1], quarter)
    take("worst", order, quarter)
    take("sample", np.random.default_rng(seed).permutation(len(returns)), len(returns))
    return reasons


def listed(total: int, chosen: dict[int, str], most: int, *, seed: int) -> np.ndarray:
    """The numbers of the episodes that are listed, in order: all, or those chosen and a sample up to `most`."""
    if total <= most:
        return np.arange(total)
    sample = np.random.default_rng([seed, 1]).permutation(total)
    rest = sample[~np.isin(sample, list(chosen))][: max(0, most - len(chosen))]
    return np.sort(np.concatenate([np.array([*chosen], np.int64), rest]))
