"""Export to RLlib's old SampleBatch JSON, a batch of steps a line: episodes, or batches of the user's program.

Format: `rllib/offline/json_writer.py` of Ray 2.60; its JsonReader reads it, and so does `sources/sample_batch.py`.
"""

from __future__ import annotations

import base64
import itertools
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import IO, Any

import lz4.frame
import numpy as np

from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.formats.exports.episode_sink import writer
from offline_core.data.formats.exports.folder import FolderSink, check_whole
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, DataError, EmptyDatasetError, EpisodeError, SchemaError

MAX_FILE_SIZE = 64 * 2**20
BATCHES = "batches"
"""A folder for the batches alone: RLlib's reader would take `result.json` for a file of batches."""

PACKED_COLUMNS = (columns.OBS, columns.NEW_OBS)
"""Columns that RLlib packs by default."""
LINE_BYTES = 4 * 2**20
"""Bytes of arrays in a line; longer episodes take several lines."""

UNROLL_ID = "unroll_id"


class SampleBatchWriter(FolderSink):
    """Writes batches to files `output_worker-0_<number>.json` of a new folder, which appears at the end; a context manager.

    Arguments:
        uri: a folder; an older export there is replaced, other files are refused.
        compress_columns: these are packed, and those with tuples; () packs no others.
        max_file_size: bytes of a file, after which the next begins.
        below: a subfolder for the files.

    Raises:
        ConfigError: an argument is out of bounds.
        StorageError: something else exists there, or it cannot be written.
    """

    def __init__(
        self,
        uri: str,
        *,
        compress_columns: Sequence[str] = PACKED_COLUMNS,
        max_file_size: int = MAX_FILE_SIZE,
        complete: Callable[[Location], None] | None = None,
        below: str = "",
    ) -> None:
        if isinstance(compress_columns, str) or max_file_size < 1:
            raise ConfigError("compress_columns must be a list of names, and max_file_size at least 1 byte.")
        self.compress_columns, self.max_file_size = tuple(compress_columns), max_file_size
        super().__init__(Location.of(uri), complete)
        self._below = below
        self._file: IO[str] | None = None
        self._files = self._bytes = 0

    def write(self, batch: Mapping[str, Any]) -> None:
        """Appends a batch; see `line_of` for its errors."""
        line = line_of(batch, self.compress_columns) + "\n"
        with self._writing():
            if self._file is None or self._bytes >= self.max_file_size:
                self._close()
                folder = self.root.child(self._below) if self._below else self.root
                folder.filesystem.create_dir(folder.path, recursive=True)
                name = f"output_worker-0_{self._files}.json"
                self._file = open(folder.child(name).path, "w", encoding="utf-8")  # noqa: SIM115
                self._files, self._bytes = self._files + 1, 0
            self._file.write(line)
        self._bytes += len(line)

    def _finish(self) -> None:
        if not self._files:
            raise EmptyDatasetError(f"No batch was written to {self.uri}.")
        with self._writing():
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()


@writer(
    "sample_batch",
    about="RLlib's old JSON",
    arguments='{"compress_columns": ["obs", "new_obs"], "max_file_size": 67108864}',
)
class SampleBatchSink:
    """Writes episodes to the folder `batches` in `uri`, a line or a few each; see `EpisodeSink` and `SampleBatchWriter`."""

    def __init__(self, uri: str, **arguments: Any) -> None:
        self._writer = SampleBatchWriter(uri, below=BATCHES, **arguments)
        self._written = 0

    def __enter__(self) -> SampleBatchSink:
        self._writer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.__exit__(kind, error, trace)

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes.

        Raises:
            EpisodeError: one is a piece, or has infos that JSON cannot hold.
            StorageError: the output cannot be written.
        """
        check_whole(episodes, "SampleBatch")
        for episode in episodes:
            for batch in batches_of(episode, self._written):
                self._writer.write(batch)
            self._written += 1


class SampleBatchBuilder:
    """Collects steps into a batch: arrays of N steps by column.

    Numbers keep their precision; infos stay dicts. `unroll_id` numbers the batches of a builder unless it is given.
    """

    def __init__(self) -> None:
        self._steps: list[dict[str, Any]] = []
        self._numbers = itertools.count()

    @property
    def count(self) -> int:
        """Steps so far."""
        return len(self._steps)

    def add_values(self, **values: Any) -> None:
        """Adds a step, such as t, eps_id, obs, actions, rewards, new_obs, terminateds, truncateds, infos, action_logp.

        Raises:
            SchemaError: it has other columns than earlier steps.
        """
        if self._steps and values.keys() != self._steps[0].keys():
            other = ", ".join(sorted(values.keys() ^ self._steps[0].keys()))
            raise SchemaError(f"Step {self.count} of the batch and the first differ in the columns {other}; give all the same.")
        self._steps.append(values)

    def build_and_reset(self) -> dict[str, Any]:
        """The batch of all steps since the last batch.

        Raises:
            SchemaError: there are none, or the values of a column do not make an array.
        """
        if not self._steps:
            raise SchemaError("There are no steps to build a batch from; add some with add_values.")
        batch = {name: _column([step[name] for step in self._steps], name) for name in self._steps[0]}
        batch.setdefault(UNROLL_ID, np.full(self.count, next(self._numbers)))
        self._steps = []
        return batch


def _column(values: list[Any], name: str) -> Any:
    if name == columns.INFOS:
        return values
    try:
        return nested.stack([np.asarray(value) if isinstance(value, list) else value for value in values], name)
    except (DataError, ValueError) as error:
        raise SchemaError(f"Column {name!r} cannot be one array: {error}") from error


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
