"""How columns of whole episodes lie: one episode after the other, a row a step."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from offline_core.episodes import columns, nested
from offline_core.episodes.nested import Nested
from offline_core.errors import SchemaError

STARTS, IS_STEP = "_starts", "_is_step"
"""(R,) bool: the row is the first of an episode; it is a step, and not only the observation after the last one."""

PRELEARNER_SECONDS = "_prelearner_seconds"
"""(R,) float32, beside `READ_SECONDS`: how long a mapper took, in its first row."""

_FLAGS = (STARTS, IS_STEP, columns.TERMINATEDS, columns.TRUNCATEDS)

Columns: TypeAlias = dict[str, Nested]
"""Name → nested arrays (R, …) that share their rows, with `STARTS` and `IS_STEP`.

R is the number of steps; if somebody looks ahead, each episode has one more row at its end, for the observation after its
last step: what stands there in other columns means nothing.
"""


def lay_out(steps: dict[str, Nested], lengths: Any, last: Nested | None = None) -> Columns:
    """Columns of N steps → of R rows.

    Arguments:
        steps: nested arrays (N, …) by name, the episodes one after the other.
        lengths: (E,) of the episodes, in steps; none is 0, together they are N.
        last: nested arrays (E, …), the observations after the last steps, if somebody looks ahead. The other columns then
            repeat what they have for the last step.

    Raises:
        SchemaError: numbers of rows differ, or `last` and the column `obs` in shape.
    """
    lengths = np.asarray(lengths, np.int64)
    _check_lengths(steps, lengths, last)
    extra = int(last is not None)
    ends = np.cumsum(lengths + extra)
    starts, is_step = np.zeros(int(ends[-1]) if len(ends) else 0, bool), np.ones(int(ends[-1]) if len(ends) else 0, bool)
    starts[ends - lengths - extra] = True
    if last is not None:
        is_step[ends - 1] = False
        step = np.cumsum(is_step) - 1
        steps = {name: nested.map_leaves(lambda leaf: leaf[step], tree) for name, tree in steps.items()}
        if columns.OBS in steps:
            _set_last(steps[columns.OBS], last, ends - 1)
    return {**steps, STARTS: starts, IS_STEP: is_step}


def check_layout(made: Any, *, looks_ahead: bool) -> Columns:
    """The same columns, whose rows are whole episodes.

    Raises:
        SchemaError: they are not; the message says what is wrong, but not who made them.
    """
    if not isinstance(made, dict) or not {STARTS, IS_STEP} <= made.keys():
        given = ", ".join(map(str, made)) if isinstance(made, dict) else type(made).__name__
        raise SchemaError(f"columns have to be a dict with {STARTS} and {IS_STEP}, and not {given}")
    starts, is_step = np.asarray(made[STARTS]), np.asarray(made[IS_STEP])
    rows = len(starts) if starts.ndim else 0
    for name, tree in made.items():
        for path, leaf in nested.flatten(tree, name).items():
            if not isinstance(leaf, np.ndarray) or leaf.ndim == 0 or len(leaf) != rows:
                has = f"{len(leaf)} rows" if isinstance(leaf, np.ndarray) and leaf.ndim else f"a {type(leaf).__name__}"
                raise SchemaError(f"the column {path} has {has}, {STARTS} has {rows}")
            if leaf.dtype.kind not in "biuf":
                raise SchemaError(f"the column {path} is of {leaf.dtype}, and not of numbers")
            if name in _FLAGS and (leaf.dtype != bool or leaf.ndim != 1):
                raise SchemaError(f"the column {name} is {leaf.dtype} of shape {leaf.shape}; one boolean a row is needed")
    if rows and not starts[0]:
        raise SchemaError("the first row is in the middle of an episode")
    if not np.array_equal(~is_step, np.append(starts[1:], True) if looks_ahead and rows else np.zeros(rows, bool)):
        ends = "exactly the last row of each episode" if looks_ahead else "no row"
        raise SchemaError(f"{ends} has to be the one after the last step, where {IS_STEP} is False")
    return made


def read_only(made: Columns) -> Columns:
    """Views of the same arrays, that nobody can write to."""

    def view(leaf: np.ndarray) -> np.ndarray:
        seen = leaf.view()
        seen.flags.writeable = False
        return seen

    return {name: nested.map_leaves(view, tree) for name, tree in made.items()}


def _check_lengths(steps: dict[str, Nested], lengths: np.ndarray, last: Nested | None) -> None:
    if lengths.ndim != 1 or (lengths < 1).any():
        raise SchemaError(f"the lengths of episodes have to be one number each, at least 1, and not {lengths}")
    wanted = [(name, tree, int(lengths.sum()), "the lengths add up to") for name, tree in steps.items()]
    wanted += [] if last is None else [("last", last, len(lengths), "the number of episodes is")]
    for name, tree, rows, said in wanted:
        for path, leaf in nested.flatten(tree, name).items():
            if len(leaf) != rows:
                raise SchemaError(f"{path} has {len(leaf)} rows, {said} {rows}")


def _set_last(tree: Nested, last: Nested, ends: np.ndarray) -> None:
    leaves = nested.flatten(last, columns.OBS)
    for path, leaf in nested.flatten(tree, columns.OBS).items():
        if path not in leaves or leaves[path].shape[1:] != leaf.shape[1:]:
            raise SchemaError(f"obs and new_obs have steps of different shapes in {path}.")
        leaf[ends] = leaves[path]
