"""Metadata that episodes are selected by: one value an episode, without its steps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.episode import Episode

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


def episode_metadata(episodes: Sequence[Episode]) -> pa.Table:
    """One row an episode, with the columns of `SCHEMA`."""
    metadata: dict[str, Any] = dict(episode_summary(episodes))
    metadata[columns.SUCCESS] = [success_of(e.get_infos(-1)) if len(e) else None for e in episodes]
    metadata[columns.POLICY_ID] = [policy_of(e.custom_data) for e in episodes]
    metadata[columns.CONTENT] = [content_of(e) for e in episodes]
    return pa.table(metadata, schema=SCHEMA)


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


def content_of(episode: Episode) -> str:
    """16 hex digits of a BLAKE2b over observations, actions (structure, dtypes, values), rewards and how it ended.

    Equal in both storage formats and whatever the episode is called; lookback, infos and extras do not count.
    """
    digest = hashlib.blake2b(digest_size=8)
    trees = {
        columns.OBS: episode.get_observations(),
        columns.ACTIONS: episode.get_actions(),
        columns.REWARDS: episode.get_rewards().astype(np.float64),  # a step table has one type for all episodes
    }
    for name, tree in trees.items():
        for path, array in nested.flatten(tree, name).items():
            if array.dtype.kind == "U":  # as wide as the longest text around
                values: Any = "\0".join(array.ravel().tolist()).encode()
                kind = "text"
            else:
                little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
                values, kind = little.reshape(-1).view(np.uint8), little.dtype.str
            digest.update(f"{path} {kind} {array.shape};".encode())
            digest.update(values)
    digest.update(bytes([episode.terminated, episode.truncated]))
    return digest.hexdigest()


def complete(rows: pa.Table) -> pa.Table:
    """Rows of the episode format with every column of `SCHEMA`: null in those that files from before them lack."""
    for field in SCHEMA:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows
