"""Export episodes to a LeRobot dataset, version 3.0 of its format, without cameras.

Format: LeRobot 0.4, `datasets/utils.py` for paths and features, `lerobot_dataset.py` for the columns of episodes. One row
group an episode, files of about 100 MB. A frame is a step: `observation.state` (or one feature a part of a dict or tuple),
`action`, `next.reward`, `next.done`, and outputs of the policy as `extra.<name>`. `next.terminated` and `next.truncated` say
how an episode ended, as `next.done` is true for both. Images are stored as arrays of numbers, exactly, and
not as a camera's PNG or video.

LeRobot cannot hold the observation after the last step, and infos. They are additional columns in `meta/episodes`, which
LeRobot ignores: `final_observation.…`, `infos` and `custom_data`
(msgpack), `eps_id`, `agent_id`, `module_id`, `terminated`, `truncated`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.datasets.statistics import StatisticsBuilder
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.codec import pack
from offline_core.data.episodes.table import space_metadata
from offline_core.data.formats.exports.folder import FolderSink, check_whole
from offline_core.data.formats.exports.lerobot_features import (
    DEFAULT_FEATURES,
    Frames,
    dataset_statistics,
    episode_statistics,
    feature_of,
    final_observation,
    frames_of,
    to_lerobot,
    with_statistics,
)
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EmptyDatasetError, SchemaError

CODEBASE_VERSION = "v3.0"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES_PATH = "meta/episodes/chunk-000/file-000.parquet"
CHUNK_FILES = 1000
"""Files in one folder."""
FILE_BYTES = 100 * 2**20
ROWS_AT_ONCE = 1000
"""Rows of `meta/episodes` that are written together; alone, each would be smaller than what Parquet says about it."""

_DICTIONARIES = ["episode_index", "task_index"]
"""Columns that repeat themselves; of floats a dictionary is a waste."""

_TASKS = {
    "index_columns": ["task"],
    "column_indexes": [],
    "columns": [
        {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": None},
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ],
}
"""The metadata that pandas stores with a frame: LeRobot looks tasks up in the index."""


class LeRobotSink(FolderSink):
    """Writes a dataset at the folder `uri`; see `EpisodeSink`.

    `fps` is the number of steps a second: 1 without a real time. `task` describes the task in words. `complete` is called with
    the folder before it becomes visible, see `NewFolder`.

    Raises:
        ConfigError: `fps` is not above zero.
    """

    def __init__(self, uri: str, *, fps: int = 1, task: str = "", complete: Callable[[Location], None] | None = None) -> None:
        if fps < 1:
            raise ConfigError(f"LeRobot needs a positive whole number of frames a second, not fps={fps}.")
        super().__init__(Location.of(uri), complete)
        self.fps = fps
        self.task = task
        self._features: dict[str, dict[str, Any]] = {}
        self._statistics = StatisticsBuilder()
        self._episodes = 0
        self._frames = 0
        self._files = 0
        self._data: _ParquetFile | None = None
        self._index: _ParquetFile | None = None
        self._rows: list[pa.Table] = []

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes.

        Raises:
            EpisodeError: one is a piece, or its infos cannot be stored.
            SchemaError: one differs from earlier ones in names, types or shapes.
            SpaceError: its values are neither numbers nor text.
            StorageError: the output cannot be written.
        """
        check_whole(episodes, "LeRobot")
        for episode in episodes:
            frames = frames_of(episode)
            self._check(frames, episode.eps_id)
            self._statistics.add(with_statistics(frames | self._default(len(episode))))
            with self._writing():
                self._append(episode, frames)

    def _check(self, frames: Frames, eps_id: str) -> None:
        found = {name: feature_of(array) for name, array in frames.items()}
        self._features = self._features or found
        for name in sorted(found.keys() | self._features.keys()):
            now, before = (
                "no such feature" if one is None else f"{one['dtype']} of shape {one['shape']}"
                for one in (found.get(name), self._features.get(name))
            )
            if now != before:
                raise SchemaError(
                    f"Episode {eps_id} has {now} as {name!r}, earlier ones have {before}; LeRobot needs one type."
                )

    def _default(self, length: int) -> Frames:
        """The default features of LeRobot for the next episode."""
        frame_index = np.arange(length)
        return {
            "timestamp": (frame_index / self.fps).astype(np.float32),
            "frame_index": frame_index,
            "episode_index": np.full(length, self._episodes),
            "index": self._frames + frame_index,
            "task_index": np.zeros(length, np.int64),
        }

    def _append(self, episode: Episode, frames: Frames) -> None:
        arrays = frames | self._default(len(episode))
        spaces = space_metadata(episode.observation_space, episode.action_space)
        rows = pa.table({name: to_lerobot(array) for name, array in arrays.items()}).replace_schema_metadata(spaces)
        if self._data is not None and self._data.size + rows.nbytes > FILE_BYTES:
            self._data.close()
            self._data = None
        if self._data is None:
            chunk_index, file_index = divmod(self._files, CHUNK_FILES)
            path = DATA_PATH.format(chunk_index=chunk_index, file_index=file_index)
            self._data = _ParquetFile(self.root.child(path), rows.schema)
            self._files += 1
        self._data.write(rows)
        self._rows.append(self._row(episode, arrays))
        if len(self._rows) == ROWS_AT_ONCE:
            self._write_rows()
        self._episodes += 1
        self._frames += len(episode)

    def _row(self, episode: Episode, arrays: Frames) -> pa.Table:
        """The row of the next episode in `meta/episodes`."""
        chunk_index, file_index = divmod(self._files - 1, CHUNK_FILES)
        infos = None if episode.infos is None else pack(list(episode.infos), where=f"Episode {episode.eps_id}")
        custom = pack(episode.custom_data, where=f"Episode {episode.eps_id}") if episode.custom_data else None
        values: dict[str, tuple[Any, pa.DataType]] = {
            "episode_index": (self._episodes, pa.int64()),
            "tasks": ([self.task], pa.list_(pa.string())),
            "length": (len(episode), pa.int64()),
            "data/chunk_index": (chunk_index, pa.int64()),
            "data/file_index": (file_index, pa.int64()),
            "dataset_from_index": (self._frames, pa.int64()),
            "dataset_to_index": (self._frames + len(episode), pa.int64()),
            "meta/episodes/chunk_index": (0, pa.int64()),
            "meta/episodes/file_index": (0, pa.int64()),
            columns.EPS_ID: (episode.eps_id, pa.string()),
            columns.AGENT_ID: (episode.agent_id, pa.string()),
            columns.MODULE_ID: (episode.module_id, pa.string()),
            columns.TERMINATED: (episode.terminated, pa.bool_()),
            columns.TRUNCATED: (episode.truncated, pa.bool_()),
            columns.INFOS: (infos, pa.binary()),
            columns.CUSTOM_DATA: (custom, pa.binary()),
        }
        row = {name: pa.array([value], kind) for name, (value, kind) in values.items()}
        row |= {name: to_lerobot(array) for name, array in final_observation(episode).items()}
        return pa.table(row | episode_statistics(arrays))

    def _write_rows(self) -> None:
        if self._rows:
            rows = pa.concat_tables(self._rows)
            self._index = self._index or _ParquetFile(self.root.child(EPISODES_PATH), rows.schema)
            self._index.write(rows)
            self._rows = []

    def _finish(self) -> None:
        if not self._episodes:
            raise EmptyDatasetError(f"No episode was written to {self.uri}, and LeRobot has no empty datasets.")
        with self._writing():
            self._write_rows()
            self._close()
        features = self._features | DEFAULT_FEATURES
        statistics = dataset_statistics(self._statistics.result())
        self.root.child("meta/info.json").write(json.dumps(self._info(features), indent=4).encode())
        self.root.child("meta/stats.json").write(json.dumps(statistics, indent=4).encode())
        tasks = pa.table({"task_index": pa.array([0]), "task": [self.task]}, metadata={"pandas": json.dumps(_TASKS)})
        with self._writing():
            pq.write_table(tasks, self.root.child("meta/tasks.parquet").path, filesystem=self.root.filesystem)

    def _info(self, features: dict[str, Any]) -> dict[str, Any]:
        return {
            "codebase_version": CODEBASE_VERSION,
            "robot_type": None,
            "total_episodes": self._episodes,
            "total_frames": self._frames,
            "total_tasks": 1,
            "chunks_size": CHUNK_FILES,
            "data_files_size_in_mb": FILE_BYTES // 2**20,
            "video_files_size_in_mb": 200,
            "fps": self.fps,
            "splits": {"train": f"0:{self._episodes}"},
            "data_path": DATA_PATH,
            "video_path": None,
            "features": features,
        }

    def _close(self) -> None:
        for file in (self._data, self._index):
            if file is not None:
                file.close()


class _ParquetFile:
    """A file being written, a row group at a time."""

    def __init__(self, location: Location, schema: pa.Schema) -> None:
        location.filesystem.create_dir(location.parent.path, recursive=True)
        self._stream = location.filesystem.open_output_stream(location.path)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd", use_dictionary=_DICTIONARIES)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=rows.num_rows)

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._stream.close()
