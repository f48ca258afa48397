"""Write a batch of steps as a line of RLlib's SampleBatch JSON, like `rllib/offline/json_writer.py`."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import lz4.frame
import numpy as np

from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.formats.exports.sample_batch_builder import UNROLL_ID
from offline_core.errors import EpisodeError, SchemaError

PACKED_COLUMNS = (columns.OBS, columns.NEW_OBS)
"""Columns that RLlib packs by default."""
LINE_BYTES = 4 * 2**20
"""Bytes of arrays in a line; longer episodes take several lines."""


def line_of(batch: Mapping[str, Any], compress_columns: Sequence[str] = PACKED_COLUMNS) -> str:
    """The batch as one line of JSON.

    Arguments:
        batch: arrays, or dicts and tuples of arrays, or lists, of one common length by column.
        compress_columns: each of these becomes one text, base64(lz4(pickle)), of arrays alone; so does a column with a tuple,
            which as a list could not be told from a list of steps. The others are lists of numbers.

    Raises:
        SchemaError: columns differ in their number of steps, or `type` is one.
        EpisodeError: JSON cannot hold a value.
    """
    lengths = {name: _length(column, name) for name, column in batch.items()}
    if len(set(lengths.values())) != 1 or "type" in batch:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise SchemaError(f"The columns of a batch need one value a step each, and none is called type; it has: {listed}.")
    record: dict[str, Any] = {"type": "SampleBatch"}
    for name, column in batch.items():
        is_packed = (name in compress_columns and name != columns.INFOS) or _has_tuple(column)
        record[name] = packed(column) if is_packed else _plain(column)
    try:
        return json.dumps(record, default=_number)
    except (TypeError, ValueError, RecursionError) as error:
        raise EpisodeError(f"JSON cannot hold this batch: {error}. Leave that out, or write Parquet.") from error


def packed(tree: Any) -> str:
    """base64(lz4(pickle)) of arrays, with RLlib's pickle protocol."""
    data = lz4.frame.compress(pickle.dumps(tree, protocol=5))
    return base64.b64encode(data).decode("ascii")


def batches_of(episode: Episode, number: int) -> list[dict[str, Any]]:
    """The episode's steps as batches of at most `LINE_BYTES`, under RLlib's names; `number` is its unroll_id.

    Infos are those after each step, absent if all are empty. The format cannot hold the infos of the reset and custom data.
    """
    steps = len(episode)
    last = np.arange(steps) == steps - 1
    batch: dict[str, Any] = {
        columns.T: np.arange(episode.t_started, episode.t),
        columns.EPS_ID: np.full(steps, episode.eps_id),
        UNROLL_ID: np.full(steps, number),
        "agent_index": np.zeros(steps, np.int64),
        columns.OBS: episode.get_observations(slice(0, -1)),
        columns.NEW_OBS: episode.get_observations(slice(1, None)),
        columns.ACTIONS: episode.get_actions(),
        columns.REWARDS: episode.get_rewards(),
        columns.TERMINATEDS: last & episode.terminated,
        columns.TRUNCATEDS: last & episode.truncated,
        **{name: episode.get_extra(name) for name in episode.extras},
    }
    infos = episode.get_infos(slice(1, None)) if episode.infos is not None else []
    if any(infos):
        batch[columns.INFOS] = list(infos)
    size = sum(array.nbytes for tree in batch.values() if not isinstance(tree, list) for array in nested.leaves(tree))
    rows = max(1, LINE_BYTES * steps // max(1, size))
    return [{name: _rows(tree, slice(i, i + rows)) for name, tree in batch.items()} for i in range(0, steps, rows)]


def _rows(tree: Any, rows: slice) -> Any:
    return tree[rows] if isinstance(tree, list) else nested.map_leaves(lambda array: array[rows], tree)


def _length(column: Any, name: str) -> int:
    if isinstance(column, dict | tuple):
        return nested.length(column, name)
    try:
        return len(column)
    except TypeError as error:
        raise SchemaError(f"Column {name!r} is {type(column).__name__}; it must be an array or a list.") from error


def _has_tuple(tree: Any) -> bool:
    return isinstance(tree, tuple) or (isinstance(tree, dict) and any(map(_has_tuple, tree.values())))


def _plain(column: Any) -> Any:
    if isinstance(column, dict):
        return nested.map_leaves(lambda array: array.tolist(), column)
    return column.tolist() if isinstance(column, np.ndarray) else column


def _number(value: Any) -> Any:
    """Convert arrays in infos, which JSON cannot hold."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is neither a number nor text")
