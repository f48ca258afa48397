"""Infos, a dict a moment, as arrays by key and back: a key that only some have stands beside a mask `_<key>` of those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offline_core.episodes import nested
from offline_core.episodes.nested import Nested
from offline_core.errors import EpisodeError
from offline_core.storage.exports.hdf5_names import check_names


def info_arrays(infos: Sequence[Mapping[str, Any]], what: str) -> dict[str, Nested]:
    """One array per key; of a key that only some dicts have, and a mask of those.

    Raises:
        EpisodeError: a key cannot name an array, see `check_names`, or its values are no arrays.
    """
    result: dict[str, Nested] = {}
    keys = dict.fromkeys(key for info in infos for key in info)
    check_names(keys, what)
    for key in keys:
        has = np.array([key in info for info in infos])
        values = [info[key] for info in infos if key in info]
        if all(isinstance(value, dict) for value in values):
            result[key] = info_arrays([info.get(key, {}) for info in infos], f"{what}/{key}")
        else:
            result[key] = nested.map_leaves(lambda array, has=has: _spread(array, has), nested.stack(values, f"{what}/{key}"))
        if not has.all():
            result[f"_{key}"] = has
    if twice := {f"_{key}" for key in result} & {key for info in infos for key in info}:
        raise EpisodeError(f"In the {what}, {sorted(twice)} would be taken for masks of other keys; rename them there.")
    return result


def _spread(array: np.ndarray, has: np.ndarray) -> np.ndarray:
    full = np.zeros((len(has), *array.shape[1:]), array.dtype)
    full[has] = array
    return full


def info_rows(infos: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """One dict a moment, without the keys that are masked there."""
    masks = {f"_{key}" for key in infos}
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, tree in infos.items():
        if key in masks:
            continue
        values = info_rows(tree, count) if isinstance(tree, dict) else tree
        for t in np.flatnonzero(infos.get(f"_{key}", np.ones(count, bool))).tolist():
            rows[t][key] = values[t]
    return rows
