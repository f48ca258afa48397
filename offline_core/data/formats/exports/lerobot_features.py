"""Convert steps to LeRobot's features: names, types, Arrow columns and statistics. Format: see `lerobot.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes import Episode, nested
from offline_core.data.episodes.nested import Nested
from offline_core.errors import SpaceError

Frames: TypeAlias = dict[str, np.ndarray]
"""Feature → array of shape (T, …)."""

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def _number(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1], "names": None}


DEFAULT_FEATURES = {
    "timestamp": _number("float32"),
    "frame_index": _number("int64"),
    "episode_index": _number("int64"),
    "index": _number("int64"),
    "task_index": _number("int64"),
}
"""Features of every LeRobot dataset."""


def frames_of(episode: Episode) -> Frames:
    """The steps of an episode under LeRobot's names; see `final_observation` for its last observation.

    Raises:
        SpaceError: values that are neither numbers nor text, or two of one name.
    """
    flags = {"next.done": episode.is_done, "next.terminated": episode.terminated, "next.truncated": episode.truncated}
    at_end = np.arange(len(episode)) == len(episode) - 1
    observations = episode.get_observations(slice(0, len(episode)))
    named = [*_named(observations, "observation"), *_named(episode.actions, "action")]
    named += [("next.reward", episode.rewards), *((name, at_end & flag) for name, flag in flags.items())]
    named += [part for name, tree in episode.extras.items() for part in _named(tree, f"extra.{name}")]
    frames = dict(named)
    if len(frames) != 1 + len(flags) + sum(
        len(nested.leaves(tree)) for tree in (observations, episode.actions, episode.extras)
    ):
        raise SpaceError(
            f"Episode {episode.eps_id} has two parts with the same name in LeRobot, of {', '.join(sorted(frames))}: "
            "it joins names with dots. Rename one."
        )
    for name, array in frames.items():
        if array.dtype.kind not in "biufU" or array.dtype == np.longdouble or 0 in array.shape[1:]:
            raise SpaceError(
                f"{name} of episode {episode.eps_id} is {array.dtype} of shape {array.shape[1:]}, no LeRobot feature."
            )
    return frames


def final_observation(episode: Episode) -> Frames:
    """The observation after the last step, shape (1, …), named `final_observation…`."""
    last = episode.get_observations(slice(len(episode), len(episode) + 1))
    return {f"final_{name}": array for name, array in _named(last, "observation")}


def _named(tree: Nested, prefix: str) -> list[tuple[str, np.ndarray]]:
    """Leaves with dots in their paths, as LeRobot refuses slashes; a plain observation is the state."""
    if isinstance(tree, np.ndarray):
        return [(f"{prefix}.state" if prefix == "observation" else prefix, tree)]
    return [(path.replace(nested.PATH_SEPARATOR, "."), array) for path, array in nested.flatten(tree, prefix).items()]


def feature_of(array: np.ndarray) -> dict[str, Any]:
    """The feature of an array of shape (T, …)."""
    dtype = "string" if array.dtype.kind == "U" else array.dtype.newbyteorder("=").name
    return {"dtype": dtype, "shape": list(array.shape[1:] or (1,)), "names": None}


def to_lerobot(array: np.ndarray) -> pa.Array:
    """An array (T, …) as `datasets` stores it: a number, a list of fixed size for a vector, lists of lists for more axes."""
    flat = (
        array.reshape(-1) if array.dtype.kind == "U" else np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1)
    )
    values = pa.array(flat)
    shape = array.shape[1:]
    if math.prod(shape) == 1 and len(shape) <= 1:
        return values
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(values, shape[0])
    for size in reversed(shape):
        values = pa.ListArray.from_arrays(np.arange(0, len(values) + 1, size, dtype=np.int32), values)
    return values


def with_statistics(frames: Frames) -> Frames:
    """The features that have statistics: numbers and vectors, not text or images."""
    return {name: array for name, array in frames.items() if array.dtype.kind != "U" and array.ndim <= 2}


def episode_statistics(frames: Frames) -> dict[str, pa.Array]:
    """Columns `stats/<feature>/<statistic>` of one episode; infinite where float64 is too small."""
    found: dict[str, pa.Array] = {}
    for name, array in with_statistics(frames).items():
        numbers = array.reshape(len(array), -1).astype(np.float64)
        with np.errstate(over="ignore"):
            values = {"min": numbers.min(0), "max": numbers.max(0), "mean": numbers.mean(0), "std": numbers.std(0)}
        for statistic, value in values.items():
            found[f"stats/{name}/{statistic}"] = pa.array([value.tolist()], pa.list_(pa.float64()))
        found[f"stats/{name}/count"] = pa.array([[len(array)]], pa.list_(pa.int64()))
    return found


def dataset_statistics(statistics: Mapping[str, ColumnStatistics]) -> dict[str, dict[str, list[Any]]]:
    """The content of `meta/stats.json`, without features that have no finite value."""
    return {name: _summary(one) for name, one in statistics.items() if all(one.count)}


def _summary(one: ColumnStatistics) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"min": one.min, "max": one.max, "mean": one.mean, "std": one.std, "count": [max(one.count)]}
    return found | {name: one.quantile(share) for name, share in QUANTILES.items()}
