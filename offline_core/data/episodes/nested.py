"""Arrays, or dicts and tuples of arrays: what observations and actions of composite spaces are.

All arrays of one nested value share their leading axis (time, or the batch).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import optree

from offline_core.errors import EpisodeError

Nested: TypeAlias = Any
"""`np.ndarray`, `dict[str, Nested]` or `tuple[Nested, ...]` (mypy cannot follow the recursion through optree)."""

PATH_SEPARATOR = "/"

Types: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]
"""(dtype or "text", shape of one step) by the name of the leaf."""


def map_leaves(function: Callable[..., Any], tree: Nested, *others: Nested) -> Nested:
    """`function` applied to every array of `tree` (and the arrays at the same place in `others`)."""
    if isinstance(tree, np.ndarray) and all(isinstance(other, np.ndarray) for other in others):
        return function(tree, *others)  # which saves most of the time that small slices take
    return optree.tree_map(function, tree, *others)


def read_only(tree: Nested) -> Nested:
    """Return views of the same arrays that refuse to be written to."""

    def view_of(array: np.ndarray) -> np.ndarray:
        view = array.view()
        view.flags.writeable = False
        return view

    return map_leaves(view_of, tree)


def leaves(tree: Nested) -> list[np.ndarray]:
    """All arrays, dicts in the order of their sorted keys."""
    return [tree] if isinstance(tree, np.ndarray) else list(optree.tree_leaves(tree))


def flatten(tree: Nested, prefix: str) -> dict[str, np.ndarray]:
    """`{"obs/position": array, …}`: one entry a leaf, named by its path; a bare array keeps the prefix as its name.

    Raises:
        EpisodeError: two leaves have one path, as those of {"a/b": …, "a": {"b": …}}.
    """
    if isinstance(tree, np.ndarray):
        return {prefix: tree}
    paths, arrays, _ = optree.tree_flatten_with_path(tree)
    leaves = {PATH_SEPARATOR.join([prefix, *map(str, path)]): array for path, array in zip(paths, arrays, strict=True)}
    if len(leaves) != len(arrays):
        raise EpisodeError(f"Two parts of {prefix} have the same path; rename the keys that contain {PATH_SEPARATOR!r}.")
    return leaves


def types_of(trees: Mapping[str, Nested]) -> Types:
    """The types of columns of shape (N, …); texts of any width are of one type."""
    leaves = {path: leaf for name, tree in trees.items() for path, leaf in flatten(tree, name).items()}
    return {path: ("text" if leaf.dtype.kind == "U" else str(leaf.dtype), leaf.shape[1:]) for path, leaf in leaves.items()}


def unflatten(columns: dict[str, Any], prefix: str, space: gym.Space[Any]) -> Nested:
    """The nested value of `space` out of the entries that `flatten(…, prefix)` made."""
    if isinstance(space, gym.spaces.Dict):
        return {key: unflatten(columns, f"{prefix}{PATH_SEPARATOR}{key}", child) for key, child in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(unflatten(columns, f"{prefix}{PATH_SEPARATOR}{i}", child) for i, child in enumerate(space.spaces))
    return columns[prefix]


def length(tree: Nested, what: str) -> int:
    """The common length of the leading axis.

    Raises:
        EpisodeError: there is no array, or the arrays differ in length.
    """
    lengths = {array.shape[0] if array.ndim else None for array in leaves(tree)}
    if len(lengths) != 1 or None in lengths:
        raise EpisodeError(f"The arrays of {what} have to share one leading axis, found lengths {sorted(map(str, lengths))}.")
    return int(lengths.pop())  # type: ignore[arg-type]


def stack(items: Sequence[Any], what: str) -> Nested:
    """Per-step values → nested arrays with a leading time axis (lists inside an item are tuples that msgpack unpacked).

    Raises:
        EpisodeError: the items differ in structure, shape or kind.
    """
    first = items[0]
    if isinstance(first, dict):
        if any(not isinstance(item, dict) or item.keys() != first.keys() for item in items):
            raise EpisodeError(f"The steps of {what} do not have the same keys; the first has {sorted(first)}.")
        return {str(key): stack([item[key] for item in items], f"{what}/{key}") for key in first}
    if isinstance(first, list | tuple):
        if any(not isinstance(item, list | tuple) or len(item) != len(first) for item in items):
            raise EpisodeError(f"The steps of {what} are not tuples of one length; the first has {len(first)} parts.")
        return tuple(stack([item[i] for item in items], f"{what}/{i}") for i in range(len(first)))
    try:
        array = np.asarray(items)
    except ValueError as error:
        raise EpisodeError(f"The steps of {what} differ in shape: {error}.") from error
    if array.dtype.hasobject:
        raise EpisodeError(f"The steps of {what} are neither numbers nor text but {type(first).__name__}.")
    return array


def concatenate(trees: Sequence[Nested]) -> Nested:
    """Nested arrays of the same structure, joined along their leading axis."""
    if len(trees) == 1:
        return trees[0]
    return map_leaves(lambda *arrays: np.concatenate(arrays), *trees)


def equal(left: Nested, right: Nested) -> bool:
    """Same structure and same values; NaN equals NaN."""
    if optree.tree_structure(left) != optree.tree_structure(right):
        return False
    return all(array_equal(a, b) for a, b in zip(leaves(left), leaves(right), strict=True))


def array_equal(left: np.ndarray, right: np.ndarray) -> bool:
    """`np.array_equal` that takes NaN as equal to NaN, for text arrays too."""
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind in "fc" and right.dtype.kind in "fc"))
