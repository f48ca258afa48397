"""Steps of arrays that hold a whole episode, under canonical names."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from offline_core.data.datasets.manifest import digest
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.names import ENDS, SYNONYMS, named, plain
from offline_core.data.episodes.nested import Nested
from offline_core.errors import SchemaError

ROLES = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.NEW_OBS, columns.TERMINATEDS, columns.TRUNCATEDS, columns.DONES)
AT_END = {*(name for role in ENDS[:3] for name in SYNONYMS[role]), "success", "is_success"}
"""Names of what an episode has one of, and its last step is given."""
END_IS_CUT = "Nothing says how episodes end, so they are read as truncated."
NO_REWARDS = "There are no rewards: all are 0."


def canonical(names: Iterable[str]) -> dict[str, str]:
    """Names of arrays → canonical ones, for the likeliest of each role."""
    names = [*names]
    return {found[0]: role for role in ROLES if (found := named(role, names))}


def id_in_file(uri: str, name: str) -> str:
    """The id of an episode that a file does not name, or names as others do: another one in each file."""
    stem = os.path.splitext(posixpath.basename(uri))[0]
    return f"{stem}-{digest(uri)[:8]}/{name}"


def episode_steps(arrays: Mapping[str, Nested], eps_id: str) -> tuple[dict[str, Nested], list[str]]:
    """(columns of shape (T, …), what was taken for granted) of one episode.

    What has T+1 rows begins before the first step: observations give the last next observation, infos are those after each
    step. A single value is repeated; of how the episode ends, it is that of the last step.

    Raises:
        SchemaError: there are no observations or actions, or an array has another length.
    """
    roles = canonical(arrays)
    if missing := [role for role in (columns.OBS, columns.ACTIONS) if role not in roles.values()]:
        raise SchemaError(f"Episode {eps_id} has {', '.join(arrays)} and lacks {' and '.join(missing)}.")
    steps = len(nested.leaves(arrays[next(name for name, role in roles.items() if role == columns.ACTIONS)])[0])
    last = np.arange(steps) == steps - 1
    found: dict[str, Nested] = {columns.EPS_ID: np.full(steps, eps_id), columns.T: np.arange(steps)}
    for name, tree in arrays.items():
        role = roles.get(name, name)
        longer = {_longer(leaf, steps) for leaf in nested.leaves(tree)}
        match longer.pop() if len(longer) == 1 else None, role:
            case 0, _:
                found[role] = tree
            case 1, columns.OBS:
                found[role] = _rows(tree, slice(0, -1))
                if columns.NEW_OBS not in roles.values():
                    found[columns.NEW_OBS] = _rows(tree, slice(1, None))
            case 1, _:
                found[role] = _rows(tree, slice(1, None) if name.startswith(columns.INFOS) else slice(0, -1))
            case -1, _ if plain(name) in AT_END:
                found[role] = last & (np.asarray(tree).reshape(()) != 0)
            case -1, _:
                found[role] = nested.map_leaves(lambda leaf: np.broadcast_to(leaf, (steps, *leaf.shape)), tree)
            case _ if nested.leaves(tree):
                listed = ", ".join(f"{path} {leaf.shape}" for path, leaf in nested.flatten(tree, name).items())
                raise SchemaError(
                    f"Episode {eps_id} has {steps} actions and {listed}; choose the columns of steps by source.columns."
                )
    notes = []
    if not any(named(role, found) for role in ENDS):
        found[columns.TRUNCATEDS] = last
        notes.append(END_IS_CUT)
    if columns.REWARDS not in found:
        found[columns.REWARDS] = np.zeros(steps, np.float32)
        notes.append(NO_REWARDS)
    return found, notes


def _longer(leaf: Any, steps: int) -> int:
    """How many rows more than steps there are; -1: it is one value."""
    return -1 if np.size(leaf) == 1 and len(np.atleast_1d(leaf)) != steps else len(leaf) - steps


def _rows(tree: Nested, rows: slice) -> Nested:
    return nested.map_leaves(lambda leaf: leaf[rows], tree)
