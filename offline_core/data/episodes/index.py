"""The index of episodes: one row an episode, by whose columns episodes are selected without their steps."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.episode import Episode

if TYPE_CHECKING:
    import polars as pl

SCHEMA = pa.schema(
    [
        pa.field(columns.EPS_ID, pa.string(), nullable=False),
        pa.field(columns.T_STARTED, pa.int64(), nullable=False),
        pa.field(columns.LENGTH, pa.int64(), nullable=False),
        pa.field(columns.RETURN, pa.float64(), nullable=False),
        pa.field(columns.TERMINATED, pa.bool_(), nullable=False),
        pa.field(columns.TRUNCATED, pa.bool_(), nullable=False),
        pa.field(columns.SUCCESS, pa.bool_()),
        pa.field(columns.POLICY_ID, pa.string()),
        pa.field(columns.CONTENT, pa.string()),
    ]
)
"""The columns of `columns.EPISODE_METADATA`; the last three are null where unknown, or in older files."""


SUCCESS_KEYS = ("is_success", "success")
"""Info keys by which environments say that the task was done: gymnasium-robotics' first, then Meta-World's."""


_OF_IMPORTS = re.compile(r"(?:@(?:(?:\d+|-?\d{4,}-\d\d-\d\d)-[0-9a-f]{8}|[0-9a-f]{16}))+\Z")
"""What an import puts behind the ids of its source, of parts, dates, files and folders: see `importing.episode_ids`."""
PART_SUFFIX = re.compile(r"(@\d+(-[0-9a-f]{8})?)+\Z")
"""Imports and prunings add this to the id of an episode for its later parts: the step they begin at, a hash."""

OTHER_IDS = (
    "If they are different episodes, import one of the two again with episodes: {ids_per: file}, which adds a hash of the file "
    "to its ids."
)
"""What mends that two datasets use an id for different episodes."""

Read: TypeAlias = Callable[[Sequence[str]], pa.Table]
"""Reads columns of neighbouring row groups, and the column `ROW_GROUP`; columns that are not there are skipped."""
Share: TypeAlias = Callable[[np.ndarray, np.ndarray, np.ndarray], list[tuple[int, int]]]
"""(rows, bytes, name of each episode) → (start, stop) of episodes that share a row group; equal names never do."""


def index_schema(names: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns, of which `ROW_GROUP` may be one."""
    known = pa.schema([*SCHEMA, (columns.ROW_GROUP, pa.int32())])
    return pa.schema([known.field(name) for name in names])


def episode_summary(episodes: Sequence[Episode]) -> dict[str, np.ndarray]:
    """One array per name in `columns.EPISODE_SUMMARY`, one entry an episode."""
    return {
        columns.EPS_ID: np.array([e.eps_id for e in episodes], object),
        columns.T_STARTED: np.array([e.t_started for e in episodes], np.int64),
        columns.LENGTH: np.array([len(e) for e in episodes], np.int64),
        columns.RETURN: np.array([e.return_ for e in episodes], np.float64),
        columns.TERMINATED: np.array([e.terminated for e in episodes], bool),
        columns.TRUNCATED: np.array([e.truncated for e in episodes], bool),
    }


def success_of(info: Mapping[str, Any]) -> bool | None:
    """Whether the info of an episode's last step calls it a success; None if it does not tell."""
    for key in SUCCESS_KEYS:
        value = info.get(key)
        if isinstance(value, bool | int | float | np.number | np.bool | np.ndarray) and np.size(value) == 1:
            return bool(value)
    return None


def policy_of(custom_data: Mapping[str, Any]) -> str | None:
    """The fingerprint of the policy that played it; None if it does not tell."""
    value = custom_data.get(columns.POLICY_ID)
    return None if value is None else str(value)


COPIED_STEPS = 3
"""From so many steps on equal content is a copy; shorter ones are equal by chance where what is observed is coarse."""


def content_of(episode: Episode) -> str:
    """16 hex digits of a BLAKE2b over observations, actions (structure, dtypes, values), rewards and how it ended.

    Equal in both storage formats and whatever the episode is called; lookback, infos and extras do not count.
    """
    trees = {
        columns.OBS: episode.get_observations(),
        columns.ACTIONS: episode.get_actions(),
        columns.REWARDS: episode.get_rewards().astype(np.float64),  # a step table has one type for all episodes
    }
    digest = _digest(trees)
    digest.update(bytes([episode.terminated, episode.truncated]))
    return digest.hexdigest()


def content_of_extras(episode: Episode) -> str:
    """Likewise of all values of its extras, of which `time` is one."""
    steps = len(episode)
    trees = {name: episode.get_extra(name, slice(0, steps)) for name in sorted(episode.extras)}
    return _digest(trees).hexdigest()


def _digest(trees: Mapping[str, nested.Nested]) -> hashlib.blake2b:
    digest = hashlib.blake2b(digest_size=8)
    for name, tree in trees.items():
        for path, array in nested.flatten(tree, name).items():
            if array.dtype.kind == "O":
                values: Any = "\0".join(map(str, array.ravel().tolist())).encode()
                kind = "text"
            elif array.dtype.kind == "U":  # as wide as the longest text around
                values = "\0".join(array.ravel().tolist()).encode()
                kind = "text"
            else:
                little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
                values, kind = little.reshape(-1).view(np.uint8), little.dtype.str
            digest.update(f"{path} {kind} {array.shape};".encode())
            digest.update(values)
    return digest


def trajectory_of(eps_id: str) -> str:
    """The id that all parts of a trajectory share: without the step that a later part begins at."""
    return PART_SUFFIX.sub("", eps_id)


def id_in_source(eps_id: str) -> str:
    """The id that an episode has in the source of an import, which may hold it in several parts, files, folders or dates."""
    return _OF_IMPORTS.sub("", eps_id) if "@" in eps_id else eps_id


def first_parts(index: pl.DataFrame) -> np.ndarray:
    """(episodes,) for each episode the number of its trajectory's first part: its own number unless it is a later part.

    Imports and prunings leave parts of an episode where steps are missing. They share an id, up to a part that terminated.

    Arguments:
        index: of a dataset, with eps_id, t_started and terminated.
    """
    firsts = np.arange(len(index))
    # An id that no other part has is of a whole trajectory; of a long log that are nearly all, so the rest is left to Python.
    parts = firsts[index[columns.EPS_ID].str.replace(PART_SUFFIX.pattern.replace(r"\Z", r"\z"), "").is_duplicated().to_numpy()]
    if not len(parts):
        return firsts
    ids = index[columns.EPS_ID].gather(parts).to_list()
    bases = list(map(trajectory_of, ids))
    starts = [[int(t) for t in re.findall(r"@(\d+)", eps_id[len(base) :])] for eps_id, base in zip(ids, bases, strict=True)]
    keys = list(zip(bases, starts, index[columns.T_STARTED].gather(parts).to_list(), strict=True))
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), int)
    terminated = index[columns.TERMINATED].gather(parts).to_list()
    continues = [
        bases[before] == bases[now] and (not terminated[before] or keys[before] == keys[now])
        for before, now in itertools.pairwise(order.tolist())
    ]
    begins = np.array([True, *(not goes_on for goes_on in continues)])
    firsts[parts[order]] = parts[order[begins][np.cumsum(begins) - 1]]
    return firsts
