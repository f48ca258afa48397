"""Convert columns to canonical values: numbers of a space, flags, ids, times, maps; what does not convert is an error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import check_no_nulls, read_column
from offline_core.data.episodes.episode_codec import pack, unpack
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import outside, space_leaves
from offline_core.data.importing.mapping import ColumnMapping
from offline_core.errors import NonFiniteError, SchemaError, SpaceError

MAX_LOGP = 1e-3
"""Rounding makes a logarithm of 1 as large as that."""
MAPS = (columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA)
NAMES = (columns.EPS_ID, columns.AGENT_ID, columns.MODULE_ID)
TRUTH = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
"""What texts of flags mean, in lower case."""


def conform(tree: Nested, space: gym.Space[Any] | None, name: str) -> Nested:
    """The values in the shape and dtype of their space; steps that are one flat list take any shape of as many numbers.

    Raises:
        SpaceError: they are no values of the space, or its dtype cannot hold them.
    """
    match space:
        case None:
            return tree
        case gym.spaces.Dict():
            if not isinstance(tree, dict) or tree.keys() != space.spaces.keys():
                raise SpaceError(f"Column {name!r} is not a struct of {sorted(space.spaces)}, as the space {space} is.")
            return {key: conform(tree[key], child, f"{name}/{key}") for key, child in space.spaces.items()}
        case gym.spaces.Tuple():
            if not isinstance(tree, tuple) or len(tree) != len(space.spaces):
                raise SpaceError(f"Column {name!r} is not a tuple of {len(space.spaces)}, as the space {space} is.")
            return tuple(conform(tree[i], child, f"{name}/{i}") for i, child in enumerate(space.spaces))
        case gym.spaces.Text():
            if not isinstance(tree, np.ndarray) or tree.dtype.kind != "U" or tree.ndim != 1:
                raise SpaceError(f"Column {name!r} holds no text, which the space {space} has.")
            return tree
    if not isinstance(tree, np.ndarray) or tree.dtype.kind not in "biuf":
        raise SpaceError(f"Column {name!r} holds no numbers, which the space {space} has.")
    shape = space.shape or ()
    if tree.shape[1:] != shape:
        is_flat = tree.ndim <= 2 and np.prod(tree.shape[1:]) == np.prod(shape)  # so are (N,) and (N, 1)
        if not is_flat:
            raise SpaceError(f"Column {name!r} has steps of shape {tree.shape[1:]}; the space {space} has {shape}.")
        tree = tree.reshape(len(tree), *shape)
    return exact(tree, np.dtype(space.dtype), f"Column {name!r} holds {{}}, which the space {space} cannot hold.")


def exact(values: np.ndarray, dtype: np.dtype, message: str) -> np.ndarray:
    """The values as `dtype`, of which it loses none.

    Raises:
        SpaceError: it does; the message gets the first.
    """
    if not np.can_cast(values.dtype, dtype, "safe") and (changed := lost(values, dtype)).any():
        raise SpaceError(message.format(values[changed][0]))
    return values.astype(dtype, copy=False)


def lost(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Which values are others as `dtype`; a floating type may round them to its precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype, copy=False)
    if dtype.kind == "f":
        return np.isinf(result) & np.isfinite(values)  # type: ignore[no-any-return]
    return result != values  # type: ignore[no-any-return]


def finite(tree: Nested, name: str, *, infinite: bool = False) -> Nested:
    """Return the tree unchanged if no number is NaN, and none infinite unless allowed; else raise."""
    for path, array in nested.flatten(tree, name).items():
        if array.dtype.kind == "f" and (bad := np.isnan(array) if infinite else ~np.isfinite(array)).any():
            said = f"Column {path!r} is NaN{'' if infinite else ' or infinite'}."
            rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1)).tolist()
            raise NonFiniteError(said).with_rows(dict.fromkeys(rows, said))
    return tree


def one_a_step(tree: Nested, name: str) -> np.ndarray:
    """(N,) numbers out of (N,) or (N, 1)."""
    if isinstance(tree, np.ndarray) and tree.dtype.kind in "biuf" and tree.size == len(tree):
        return tree.reshape(len(tree))
    shape = f"{tree.dtype} of shape {tree.shape[1:]}" if isinstance(tree, np.ndarray) else type(tree).__name__
    raise SchemaError(f"Column {name!r} has {shape} a step; it has to be one number.")


def flags(tree: Nested, name: str) -> np.ndarray:
    """(N,) bool out of true and false, 1 and 0, or their text."""
    if isinstance(tree, np.ndarray) and tree.dtype.kind == "U":
        texts = np.char.lower(tree)
        if (strange := ~np.isin(texts, [*TRUTH])).any():
            raise _refused(texts, strange, lambda text: f"Column {name!r} says {text!r}; it has to be true or false.", name)
        return np.isin(texts, [text for text, value in TRUTH.items() if value])
    numbers = one_a_step(tree, name)
    if (strange := ~np.isin(numbers, (0, 1))).any():
        raise _refused(
            numbers, strange, lambda number: f"Column {name!r} holds {number}; it has to be true or false, or 1 or 0.", name
        )
    return numbers.astype(bool)


def _refused(values: np.ndarray, bad: np.ndarray, message: Callable[[Any], str], column: str) -> SchemaError:
    """The error of the first bad value, which knows the rows of the others.

    Arguments:
        values, bad: (N, …), which of the values cannot be.
        message: of one of them.
    """
    values, bad = values.reshape(len(values), -1), bad.reshape(len(bad), -1)
    wrong = np.flatnonzero(bad.any(axis=1))
    first = values[wrong, bad[wrong].argmax(axis=1)].tolist()
    rows = {row: message(value) for row, value in zip(wrong.tolist(), first, strict=True)}
    return SchemaError(next(iter(rows.values())), column=column).with_rows(rows)


def nanoseconds(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """(N, 1) int64, since 1970 out of timestamps and dates, or of durations; not (N,), for times do not number steps."""
    check_no_nulls(column, name)
    is_duration = pa.types.is_duration(column.type)
    if not (is_duration or pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
        raise SchemaError(f"Column {name!r} has type {column.type}, neither a timestamp nor a date or duration.")
    kind = pa.duration("ns") if is_duration else pa.timestamp("ns")
    try:
        times = column.combine_chunks().cast(kind)
    except pa.ArrowInvalid as error:
        raise SchemaError(f"Column {name!r} has times before 1678 or after 2261: {error}.") from error
    return times.cast(pa.int64()).to_numpy()[:, np.newaxis]  # type: ignore[no-any-return]


def maps(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Dicts as msgpack bytes, null where empty; out of structs, maps, JSON text, or what are such bytes already.

    A struct has the same fields in all rows: what is null in it was not there.
    """
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        packed = column.combine_chunks().cast(pa.binary())
        _check_maps([None if cell is None else unpack(cell) for cell in pc.unique(packed).to_pylist()], kind, name)
        return packed
    cells = column.to_pylist()
    if pa.types.is_struct(kind):
        values = [cell and {key: value for key, value in cell.items() if value is not None} for cell in cells]
    elif pa.types.is_map(kind):
        values = [None if cell is None else dict(cell) for cell in cells]
    else:
        values = [_json(cell, name) if isinstance(cell, str) else cell for cell in cells]
    _check_maps(values, kind, name)
    return pa.array([pack(value, where=name) if value else None for value in values], pa.binary())


def _check_maps(values: list[Any], kind: pa.DataType, name: str) -> None:
    if not all(value is None or isinstance(value, dict) for value in values):
        raise SchemaError(f"Column {name!r} has type {kind}; it has to hold structs, or JSON objects as text.")


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"Column {name!r} holds text that is no JSON: {error}.") from error


def check_log_probabilities(trees: Mapping[str, Nested], mapping: ColumnMapping) -> None:
    """Raises a SchemaError if one cannot be: above 0 where it is of a choice, or of a probability that is not above 0."""
    logp, actions = trees[columns.ACTION_LOGP], trees[columns.ACTIONS]
    if not isinstance(logp, np.ndarray) or logp.dtype.kind not in "iuf":
        return
    source = mapping.get(columns.ACTION_PROB)
    if isinstance(source, str) and not (sure := np.isfinite(logp)).all():
        raise _refused(
            np.where(np.isneginf(logp), "0", "no probability"),
            ~sure,
            lambda value: (
                f"Column {source!r} is mapped to action_prob and holds {value}: what was done has a probability above "
                "0. Correct it there, or map a logarithm to action_logp."
            ),
            source,
        )
    is_choice = all(array.dtype.kind in "iub" for array in nested.leaves(actions))
    if not is_choice or not (above := logp > MAX_LOGP).any():
        return
    if isinstance(source, str):
        raise _refused(
            np.exp(logp),
            above,
            lambda value: (
                f"Column {source!r} is mapped to action_prob and holds {value:.6g}: the probability of a choice is at "
                "most 1. Of percents or logarithms compute it: columns: {computed: {p: …}}, mapping: {action_prob: p}."
            ),
            source,
        )
    source = str(mapping[columns.ACTION_LOGP])
    raise _refused(
        logp,
        above,
        lambda value: (
            f"Column {source!r} is mapped to action_logp and holds {value:.6g}, which is no logarithm of a "
            f"probability. Map a probability to action_prob: mapping: {{action_prob: {source}}}."
        ),
        source,
    )


def empty_arrays(table: pa.Table) -> dict[str, Nested]:
    """Templates of a canonical table: arrays without rows, Arrow's for maps and names."""
    none = table.slice(0, 0)
    return {
        name: none[name].combine_chunks() if name in (*MAPS, *NAMES) else read_column(none, name) for name in none.column_names
    }


def like(tree: Nested, template: Nested, name: str, *, may_round: bool = False) -> Nested:
    """The column in the types of the template, if they can be had without loss, or by rounding where that is allowed."""
    if isinstance(template, pa.Array):
        return tree
    now, before = nested.flatten(tree, name), nested.flatten(template, name)
    if now.keys() != before.keys():
        raise SchemaError(f"Column {name!r} has the parts {sorted(now)} where earlier rows have {sorted(before)}.")
    for path, array in now.items():
        wanted = before[path]
        if array.shape[1:] != wanted.shape[1:]:
            raise SchemaError(
                f"Column {path!r} has steps of shape {array.shape[1:]} where earlier rows have {wanted.shape[1:]}."
            )
        if not (_fits(array, wanted.dtype) or (may_round and _is_rounded(array, wanted.dtype))):
            raise SchemaError(
                f"Column {path!r} is {array.dtype} where earlier rows have {wanted.dtype}; declare the environment or the "
                "spaces, or import the files separately."
            )
    return nested.map_leaves(lambda a, w: a if w.dtype.kind == "U" else a.astype(w.dtype, copy=False), tree, template)


ROUNDED = (columns.OBS, columns.NEW_OBS, columns.ACTIONS)
"""What networks get as float32 in any case."""


def _is_rounded(array: np.ndarray, dtype: np.dtype) -> bool:
    """Whether real numbers become those of float32, none of them infinite."""
    if array.dtype.kind != "f" or dtype != np.float32:
        return False
    return bool((np.isinf(array) | ~(np.abs(array) > np.finfo(np.float32).max)).all())


def _fits(array: np.ndarray, dtype: np.dtype) -> bool:
    if array.dtype.kind == dtype.kind == "U" or np.can_cast(array.dtype, dtype, "safe"):
        return True
    is_whole = array.dtype.kind in "iu" and dtype.kind in "iuf"
    return is_whole and not (lost(array, dtype) | (array.astype(dtype).astype(array.dtype) != array)).any()


def check_within(tree: Nested, space: gym.Space[Any], name: str) -> None:
    """Raises a SpaceError if a value is not in the space."""
    leaves = nested.flatten(tree, name)
    for path, leaf in space_leaves(space, name).items():
        if path in leaves and (bad := outside(leaves[path], leaf)).any():
            raise SpaceError(
                f"Column {path!r} holds {leaves[path][bad][0]}, which is not in {leaf}, the space of the version before. "
                "Declare a larger space and import all again, or leave such rows out."
            )
