"""Convert infos, one dict a time step, to arrays by key and back; `_<key>` masks the steps that have a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.errors import EpisodeError


def info_arrays(infos: Sequence[Mapping[str, Any]], what: str) -> dict[str, Nested]:
    """One array a key, and a mask `_<key>` if only some dicts have it.

    Raises:
        EpisodeError: a key cannot name an array, see `check_names`, or its values are not arrays.
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
        raise EpisodeError(f"In the {what}, {sorted(twice)} look like masks of other keys; rename them.")
    return result


def _spread(array: np.ndarray, has: np.ndarray) -> np.ndarray:
    full = np.zeros((len(has), *array.shape[1:]), array.dtype)
    full[has] = array
    return full


def info_rows(infos: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """One dict a time step, without the keys that are masked there."""
    masks = {f"_{key}" for key in infos}
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, tree in infos.items():
        if key in masks:
            continue
        values = info_rows(tree, count) if isinstance(tree, dict) else tree
        for t in np.flatnonzero(infos.get(f"_{key}", np.ones(count, bool))).tolist():
            rows[t][key] = values[t]
    return rows


def check_names(names: Iterable[object], what: str) -> None:
    """Check names of HDF5 arrays and groups, where `/` leads into a group.

    Raises:
        EpisodeError: a name is not text, or leads into another group.
    """
    if strange := [name for name in names if not isinstance(name, str) or name in ("", ".") or {"/", "\0"} & set(name)]:
        raise EpisodeError(f"The {what} have the keys {strange}: names in HDF5 are text without /. Rename them.")
