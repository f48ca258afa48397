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
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.datasets.about import About
from offline_core.data.datasets.statistics import ColumnStatistics, StatisticsBuilder
from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.episode_codec import pack
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import space_metadata
from offline_core.data.formats.exports.episode_sink import writer
from offline_core.data.formats.exports.folder import FolderSink, check_whole
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EmptyDatasetError, SchemaError, SpaceError

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

README = "README.md"
"""The dataset's card: what is said of it is in its head, a YAML of which the Hub knows `license`."""

Frames: TypeAlias = dict[str, np.ndarray]
"""Feature → array of shape (T, …)."""

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


@writer("lerobot", arguments='{"fps": 20, "task": "pick"}', says_about=True)
class LeRobotSink(FolderSink):
    """Writes a dataset at the folder `uri`; see `EpisodeSink`.

    `fps` is the number of steps a second: 1 without a real time. `task` describes the task in words. `complete` is called with
    the folder before it becomes visible, see `FolderSink`.

    Raises:
        ConfigError: `fps` is not above zero.
    """

    def __init__(
        self,
        uri: str,
        *,
        fps: int = 1,
        task: str = "",
        about: About = About(),
        complete: Callable[[Location], None] | None = None,
    ) -> None:
        if fps < 1:
            raise ConfigError(f"LeRobot needs a positive whole number of frames a second, not fps={fps}.")
        super().__init__(Location.of(uri), complete)
        self.fps = fps
        self.task = task
        self._about = about
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
        features = {name: feature_of(array) for name, array in frames.items()}
        self._features = self._features or features
        for name in sorted(features.keys() | self._features.keys()):
            now, before = (
                "no such feature" if one is None else f"{one['dtype']} of shape {one['shape']}"
                for one in (features.get(name), self._features.get(name))
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
        if self._about.facts:
            self.root.child(README).write(readme_of(self._about).encode())
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


def _number(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1], "names": None}


DEFAULT_FEATURES = {
    "timestamp": _number("float32"),
    "frame_index": _number("int64"),
    "episode_index": _number("int64"),
    "index": _number("int64"),
    "task_index": _number("int64"),
}
"""Features of every LeRobot dataset."""


def readme_of(about: About) -> str:
    """The text of a card."""
    import yaml

    stated = {**about.facts, "tags": ["LeRobot"], "task_categories": ["robotics"]}
    head: str = yaml.safe_dump(stated, sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n{about.description or ''}\n"


def about_of(readme: str) -> About:
    """What the head of a card says, whichever program wrote it."""
    import yaml

    before, _, rest = readme.partition("---\n")
    head, is_closed, _ = rest.partition("\n---\n")
    try:
        stated = yaml.safe_load(head) if is_closed and not before.strip() else None
    except yaml.YAMLError:
        stated = None
    return About.of(stated) if isinstance(stated, dict) else About()


def frames_of(episode: Episode) -> Frames:
    """The steps of an episode under LeRobot's names; see `final_observation` for its last observation.

    Raises:
        SpaceError: values that are neither numbers nor text, or two of one name.
    """
    flags = {"next.done": episode.is_done, "next.terminated": episode.terminated, "next.truncated": episode.truncated}
    at_end = np.arange(len(episode)) == len(episode) - 1
    observations = episode.get_observations(slice(0, len(episode)))
    named = [*_named(observations, "observation"), *_named(episode.actions, "action")]
    named += [("next.reward", episode.rewards), *((name, at_end & flag) for name, flag in flags.items())]
    named += [part for name, tree in episode.extras.items() for part in _named(tree, f"extra.{name}")]
    frames = dict(named)
    if len(frames) != 1 + len(flags) + sum(
        len(nested.leaves(tree)) for tree in (observations, episode.actions, episode.extras)
    ):
        raise SpaceError(
            f"Episode {episode.eps_id} has two parts with the same name in LeRobot, of {', '.join(sorted(frames))}: "
            "it joins names with dots. Rename one."
        )
    for name, array in frames.items():
        if array.dtype.kind not in "biufU" or array.dtype == np.longdouble or 0 in array.shape[1:]:
            raise SpaceError(
                f"{name} of episode {episode.eps_id} is {array.dtype} of shape {array.shape[1:]}, no LeRobot feature."
            )
    return frames


def final_observation(episode: Episode) -> Frames:
    """The observation after the last step, shape (1, …), named `final_observation…`."""
    last = episode.get_observations(slice(len(episode), len(episode) + 1))
    return {f"final_{name}": array for name, array in _named(last, "observation")}


def _named(tree: Nested, prefix: str) -> list[tuple[str, np.ndarray]]:
    """Leaves with dots in their paths, as LeRobot refuses slashes; a plain observation is the state."""
    if isinstance(tree, np.ndarray):
        return [(f"{prefix}.state" if prefix == "observation" else prefix, tree)]
    return [(path.replace(nested.PATH_SEPARATOR, "."), array) for path, array in nested.flatten(tree, prefix).items()]


def feature_of(array: np.ndarray) -> dict[str, Any]:
    """The feature of an array of shape (T, …)."""
    dtype = "string" if array.dtype.kind == "U" else array.dtype.newbyteorder("=").name
    return {"dtype": dtype, "shape": list(array.shape[1:] or (1,)), "names": None}


def to_lerobot(array: np.ndarray) -> pa.Array:
    """An array (T, …) as `datasets` stores it: a number, a list of fixed size for a vector, lists of lists for more axes."""
    flat = (
        array.reshape(-1) if array.dtype.kind == "U" else np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1)
    )
    values = pa.array(flat)
    shape = array.shape[1:]
    if math.prod(shape) == 1 and len(shape) <= 1:
        return values
    if len(shape) == 1:
        return pa.FixedSizeListArray.from_arrays(values, shape[0])
    for size in reversed(shape):
        values = pa.ListArray.from_arrays(np.arange(0, len(values) + 1, size, dtype=np.int32), values)
    return values


def with_statistics(frames: Frames) -> Frames:
    """The features that have statistics: numbers and vectors, not text or images."""
    return {name: array for name, array in frames.items() if array.dtype.kind != "U" and array.ndim <= 2}


def episode_statistics(frames: Frames) -> dict[str, pa.Array]:
    """Return the columns `stats/<feature>/<statistic>` of one episode; infinite where float64 is too small."""
    statistics: dict[str, pa.Array] = {}
    for name, array in with_statistics(frames).items():
        numbers = array.reshape(len(array), -1).astype(np.float64)
        with np.errstate(over="ignore"):
            values = {"min": numbers.min(0), "max": numbers.max(0), "mean": numbers.mean(0), "std": numbers.std(0)}
        for statistic, value in values.items():
            statistics[f"stats/{name}/{statistic}"] = pa.array([value.tolist()], pa.list_(pa.float64()))
        statistics[f"stats/{name}/count"] = pa.array([[len(array)]], pa.list_(pa.int64()))
    return statistics


def dataset_statistics(statistics: Mapping[str, ColumnStatistics]) -> dict[str, dict[str, list[Any]]]:
    """The content of `meta/stats.json`, without features that have no finite value."""
    return {name: _summary(one) for name, one in statistics.items() if all(one.count)}


def _summary(one: ColumnStatistics) -> dict[str, list[Any]]:
    summary: dict[str, list[Any]] = {
        "min": one.min,
        "max": one.max,
        "mean": one.mean,
        "std": one.std,
        "count": [max(one.count)],
    }
    return summary | {name: one.quantile(share) for name, share in QUANTILES.items()}
