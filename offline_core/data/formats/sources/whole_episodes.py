"""Steps of arrays that hold a whole episode, under canonical names."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.manifest import digest
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.episode_codec import pack
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.sources.names import ENDS, SYNONYMS, named, plain
from offline_core.errors import SchemaError, UnsafeDataError

ROLES = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.NEW_OBS, columns.TERMINATEDS, columns.TRUNCATEDS, columns.DONES)
AT_END = {*(name for role in ENDS[:3] for name in SYNONYMS[role]), "success", "is_success"}
"""Names of what an episode has one of, and its last step is given."""
END_IS_UNKNOWN = "No column says how episodes end (episodes.incomplete)."
NO_REWARDS = "There are no rewards: all are 0."


_EPISODE_ENDS = "episode_terminals"
"""What d3rlpy's first version calls any end of an episode."""
MAX_REPEATED_BYTES = 2**28
"""Of the values of an episode that every step is given; a long text would fill the memory."""


def check_repeated(sizes: Mapping[str, int], where: str) -> None:
    """Check the memory that values of an episode take if each step repeats them.

    Raises:
        UnsafeDataError: they take too much.
    """
    if sum(sizes.values()) > MAX_REPEATED_BYTES:
        name = max(sizes, key=lambda column: sizes[column])
        raise UnsafeDataError(
            f"{where}: {name} is one value an episode, and comes to {sizes[name]:,} bytes if each step has it. Choose other "
            "columns by source.columns."
        )


def canonical(names: Iterable[str]) -> dict[str, str]:
    """Map the likeliest array of each role to its canonical name."""
    names = [*names]
    roles = {matches[0]: role for role in ROLES if (matches := named(role, names))}
    return (
        roles if columns.DONES in roles.values() else roles | {name: columns.DONES for name in names if name == _EPISODE_ENDS}
    )


def id_in_file(uri: str, name: str) -> str:
    """The id of an episode that a file does not name, or names as others do: another one in each file."""
    stem = os.path.splitext(posixpath.basename(uri))[0]
    return f"{stem}-{digest(uri)[:8]}/{name}"


def episode_steps(arrays: Mapping[str, Nested], eps_id: str) -> tuple[dict[str, Nested], list[str]]:
    """Return (columns of shape (T, …), notes on assumptions) of one episode.

    What has T+1 rows begins before the first step: observations give the last next observation, infos are those after each
    step. A single value is repeated; of how the episode ends, it is that of the last step.

    Raises:
        SchemaError: there are no observations or actions, or an array has another length.
    """
    roles = canonical(arrays)
    if missing := [role for role in (columns.OBS, columns.ACTIONS) if role not in roles.values()]:
        raise SchemaError(f"Episode {eps_id} has {', '.join(arrays)} and lacks {' and '.join(missing)}.")
    actions = nested.leaves(arrays[next(name for name, role in roles.items() if role == columns.ACTIONS)])
    if not actions or not np.ndim(actions[0]):
        raise SchemaError(f"Episode {eps_id} has no array of actions.")
    steps = len(actions[0])
    last = np.arange(steps) == steps - 1
    repeated = dict[str, int]()
    step_columns: dict[str, Nested] = {columns.EPS_ID: np.full(steps, eps_id), columns.T: np.arange(steps)}
    for name, tree in arrays.items():
        role = roles.get(name, name)
        longer = {_longer(leaf, steps) for leaf in nested.leaves(tree)}
        match longer.pop() if len(longer) == 1 else None, role:
            case 0, _:
                step_columns[role] = tree
            case 1, columns.OBS:
                step_columns[role] = _rows(tree, slice(0, -1))
                if columns.NEW_OBS not in roles.values():
                    step_columns[columns.NEW_OBS] = _rows(tree, slice(1, None))
            case 1, columns.REWARDS | columns.TERMINATEDS | columns.TRUNCATEDS | columns.DONES:
                step_columns[role] = _after_each_step(np.asarray(tree), name, eps_id)
            case 1, _:
                step_columns[role] = _rows(tree, slice(1, None) if name.startswith(columns.INFOS) else slice(0, -1))
            case -1, _ if plain(name) in AT_END:
                step_columns[role] = last & (np.asarray(tree).reshape(()) != 0)
            case -1, _:
                repeated[name] = sum(leaf.nbytes for leaf in nested.leaves(tree)) * steps
                check_repeated(repeated, eps_id)
                step_columns[role] = nested.map_leaves(lambda leaf: np.broadcast_to(leaf, (steps, *leaf.shape)), tree)
            case _ if nested.leaves(tree):
                listed = ", ".join(f"{path} {leaf.shape}" for path, leaf in nested.flatten(tree, name).items())
                raise SchemaError(
                    f"Episode {eps_id} has {steps} actions and {listed}; choose the columns of steps by source.columns."
                )
    notes = []
    if not any(named(role, step_columns) for role in ENDS):
        notes.append(END_IS_UNKNOWN)
    if columns.REWARDS not in step_columns:
        step_columns[columns.REWARDS] = np.zeros(steps, np.float32)
        notes.append(NO_REWARDS)
    return step_columns, notes


def _after_each_step(values: np.ndarray, name: str, eps_id: str) -> np.ndarray:
    """What is one longer than the actions, without the one that stands for no step: before the first, or after the last.

    Raises:
        SchemaError: it cannot be told which of them that is.
    """
    first, last = (bool(np.isnan(value) or value == 0) for value in values[[0, -1]].astype(np.float64).ravel())
    if first == last and not (first and values.dtype.kind == "b"):
        raise SchemaError(
            f"Episode {eps_id} has one value more of {name} than actions, and neither its first nor its last one alone is 0: "
            "leave out the one that is of no step."
        )
    return values[1:] if first else values[:-1]


def _longer(leaf: Any, steps: int) -> int:
    """How many rows more than steps there are; -1: it is one value."""
    return -1 if np.size(leaf) == 1 and len(np.atleast_1d(leaf)) != steps else len(leaf) - steps


def _rows(tree: Nested, rows: slice) -> Nested:
    return nested.map_leaves(lambda leaf: leaf[rows], tree)


def with_details(table: pa.Table, lengths: Sequence[int], details: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Add to the steps what their episodes have: agent_id, module_id, custom_data, and infos, one more than steps."""
    episode_index = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    for name in (columns.AGENT_ID, columns.MODULE_ID):
        table = table.append_column(name, pa.array([own.get(name) for own in details], pa.string()).take(episode_index))
    infos = [own.get(columns.INFOS) or [{}] * (length + 1) for own, length in zip(details, lengths, strict=True)]
    if any(map(any, infos)):
        packed = [pack(info, where=columns.INFOS) for own in infos for info in own[1:]]
        table = table.append_column(columns.INFOS, pa.array(packed, pa.binary()))
    for name, values in (
        (columns.RESET_INFOS, [own[0] or other.get(columns.RESET_INFOS) for own, other in zip(infos, details, strict=True)]),
        (columns.CUSTOM_DATA, [own.get(columns.CUSTOM_DATA) for own in details]),
    ):
        if any(values):
            cells = [pack(value, where=name) if value else None for value in values]
            first = np.isin(np.arange(len(episode_index)), np.cumsum([0, *lengths[:-1]]))
            table = table.append_column(
                name, pc.if_else(pa.array(first), pa.array(cells, pa.binary()).take(episode_index), None)
            )
    return table


def joined(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """Join consecutive tables of one schema, up to about `size` bytes each."""
    waiting: list[pa.Table] = []
    for table in tables:
        is_other = bool(waiting) and not table.schema.equals(waiting[0].schema, check_metadata=True)
        if is_other or sum(batch.nbytes for batch in waiting) >= size:
            yield pa.concat_tables(waiting)
            waiting = []
        waiting.append(table)
    if waiting:
        yield pa.concat_tables(waiting)
